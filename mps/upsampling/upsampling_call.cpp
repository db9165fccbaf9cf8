#include "mps/upsampling/upsampling_call.hpp"

#include <algorithm>
#include <limits>

#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

/// Which gradient pixels count on one axis, and what they stand for.
struct GradientPixels {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t firstResult = 0;
};

/// @param position of the gradient pixel of result pixel 0  @param results pixels of the forward clip rectangle
GradientPixels gradientPixels(std::int64_t position, std::int64_t gradientSize, std::int64_t results) {
  GradientPixels pixels;
  pixels.first = std::clamp<std::int64_t>(position, 0, gradientSize);
  pixels.firstResult = pixels.first - position;
  const std::int64_t end = results > gradientSize - position ? gradientSize : position + results;
  pixels.count = std::max<std::int64_t>(0, end - pixels.first);
  // Pixels beyond the gradient image stand for nothing.
  if (pixels.count == 0) pixels.firstResult = 0;
  return pixels;
}

UpsamplingAxis axisOf(std::int64_t sourceSize, std::int64_t resultSize, const UpsamplingManner::Steps& steps,
                      std::int64_t offset) {
  return {.sourceSize = sourceSize,
          .resultSize = resultSize,
          .offset = offset,
          .start = steps.start,
          .step = steps.step};
}

}  // namespace

void checkResultSize(const char* className, const char* property, std::size_t size) {
  constexpr std::size_t most = std::size_t{1} << 24U;
  if (size < 1 || size > most)
    throw Error(className, property, std::to_string(size), "1 to " + std::to_string(most));
}

PreparedCall prepareUpsampling(const Kernel& kernel, const UpsamplingManner& manner,
                               const ForwardCall& call) {
  UpsamplingProblem problem;
  problem.sampling = manner.sampling;
  problem.direction = UpsamplingDirection::Forward;
  problem.edgeMode = call.edgeMode;
  problem.x = axisOf(call.source.width, manner.resultWidth, manner.x, call.offset.x);
  problem.y = axisOf(call.source.height, manner.resultHeight, manner.y, call.offset.y);
  problem.input = call.source;
  problem.destination = call.destination;
  PreparedCall prepared;
  prepared.plan = planFor(*kernel.device(), upsamplingBackEnds, problem);
  return prepared;
}

PreparedCall prepareUpsamplingGradient(const Kernel& kernel, const UpsamplingManner& manner,
                                       const GradientCall& call) {
  if (call.edgeMode != ImageEdgeMode::Zero && call.edgeMode != ImageEdgeMode::Clamp &&
      !has(kernel.options(), KernelOptions::SkipAPIValidation))
    throw Error(kernel.describe(), "secondaryEdgeMode", mps::name(call.edgeMode), "Zero or Clamp");
  checkSameChannels(kernel, call);
  const mtl::Size clip = call.record ? call.record->clipRect.size : RectNoClip.size;
  const auto results = [](std::size_t size) {
    return asSigned(std::min(size, static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())));
  };
  const GradientPixels x =
      gradientPixels(call.primaryOffset.x + call.kernelOffsetX, call.gradient.width, results(clip.width));
  const GradientPixels y =
      gradientPixels(call.primaryOffset.y + call.kernelOffsetY, call.gradient.height, results(clip.height));
  UpsamplingProblem problem;
  problem.sampling = manner.sampling;
  problem.direction = UpsamplingDirection::Gradient;
  problem.edgeMode = call.edgeMode;
  problem.x = axisOf(call.source.width, manner.resultWidth, manner.x, call.secondaryOffset.x);
  problem.x.firstResult = x.firstResult;
  problem.x.destinationOrigin = asSigned(call.clipRect.origin.x);
  problem.y = axisOf(call.source.height, manner.resultHeight, manner.y, call.secondaryOffset.y);
  problem.y.firstResult = y.firstResult;
  problem.y.destinationOrigin = asSigned(call.clipRect.origin.y);
  problem.input = call.gradient;
  problem.input.width = x.count;
  problem.input.height = y.count;
  problem.destination = call.destination;
  PreparedCall prepared;
  prepared.plan = planFor(*kernel.device(), upsamplingBackEnds, problem);
  prepared.gradientOrigin = {static_cast<std::size_t>(x.first), static_cast<std::size_t>(y.first), 0};
  prepared.readsSource = false;
  return prepared;
}

}  // namespace mps::detail
