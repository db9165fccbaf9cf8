#include "mps/reshape/pad.hpp"

#include <algorithm>
#include <any>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mps/reshape/reshape_map.hpp"
#include "mps/reshape/reshape_problem.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::ReshapeDirection;
using detail::ReshapeMapping;
using detail::ReshapeProblem;

namespace {

/// What the record of a padding keeps for its gradient.
struct PadRecord {
  std::size_t channelsBefore = 0;
};

constexpr std::size_t kLargestPadding = std::size_t{1} << 31U;

void checkPadding(const Kernel& kernel, const char* property, const ImageCoordinate& size) {
  const std::size_t largest = std::max({size.x, size.y, size.channel});
  if (largest > kLargestPadding)
    throw Error(kernel.describe(), property, std::to_string(largest),
                "at most " + std::to_string(kLargestPadding));
}

using detail::asSigned;

/// Where the pixels of the result lie in the source. @param offset of the forward call
void setPixels(ReshapeProblem& problem, ImageEdgeMode edgeMode, const Offset& offset,
               const detail::TensorShape& source, const detail::TensorShape& result) {
  problem.mapping = ReshapeMapping::Axes;
  problem.edgeMode = edgeMode;
  problem.x.before = detail::nearBefore(edgeMode, -offset.x, source.width, result.width);
  problem.y.before = detail::nearBefore(edgeMode, -offset.y, source.height, result.height);
}

/// The part of the problem that the offset of a forward call says.
ReshapeProblem problemOf(const detail::ForwardCall& call) {
  ReshapeProblem problem;
  problem.input = call.source;
  problem.destination = call.destination;
  setPixels(problem, call.edgeMode, call.offset, call.source, call.destination);
  return problem;
}

detail::PreparedCall prepared(const Kernel& kernel, const ReshapeProblem& problem) {
  detail::PreparedCall call;
  call.plan = detail::planFor(*kernel.device(), detail::reshapeBackEnds, problem);
  return call;
}

}  // namespace

std::shared_ptr<NNPad> NNPad::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNPad>(new NNPad(device));
}

std::shared_ptr<NNPad> NNPad::create(const std::shared_ptr<mtl::Device>& device,
                                     const ImageCoordinate& paddingSizeBefore,
                                     const ImageCoordinate& paddingSizeAfter,
                                     std::span<const float> fillValueArray) {
  auto pad = create(device);
  pad->setPaddingSizeBefore(paddingSizeBefore);
  pad->setPaddingSizeAfter(paddingSizeAfter);
  pad->fillValueArray_.assign(fillValueArray.begin(), fillValueArray.end());
  return pad;
}

void NNPad::setPaddingSizeBefore(const ImageCoordinate& size) {
  checkPadding(*this, "paddingSizeBefore", size);
  before_ = size;
}

void NNPad::setPaddingSizeAfter(const ImageCoordinate& size) {
  checkPadding(*this, "paddingSizeAfter", size);
  after_ = size;
}

bool NNPad::takesEdgeMode(ImageEdgeMode edgeMode) const {
  return edgeMode <= ImageEdgeMode::Constant;
}

std::size_t NNPad::producedFeatureChannels(std::size_t sourceFeatureChannels) const {
  return before_.channel + sourceFeatureChannels + after_.channel;
}

void NNPad::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) {
  destination.setWidth(before_.x + source.width() + after_.x);
  destination.setHeight(before_.y + source.height() + after_.y);
  setOffset({-asSigned(before_.x), -asSigned(before_.y), offset().z});
}

void NNPad::describeForward(std::any& family) const {
  family = PadRecord{before_.channel};
}

detail::PreparedCall NNPad::prepareForward(const detail::ForwardCall& call) const {
  ReshapeProblem problem = problemOf(call);
  problem.channels.before = asSigned(before_.channel);
  const auto written = static_cast<std::size_t>(call.destination.channels);
  if (!fillValueArray_.empty()) {
    if (fillValueArray_.size() < written)
      throw Error(describe(), "fillValueArray", std::to_string(fillValueArray_.size()) + " values",
                  "at least " + std::to_string(written) + ", one for each channel written");
    problem.fill.assign(fillValueArray_.begin(), fillValueArray_.begin() + asSigned(written));
  } else if (fillValue_ != 0) {
    problem.fill.assign(written, fillValue_);
  }
  return prepared(*this, problem);
}

std::shared_ptr<NNPadGradient> NNPadGradient::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNPadGradient>(new NNPadGradient(device));
}

bool NNPadGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "NNPad";
}

std::vector<detail::PreparedCall> NNPadGradient::prepareGradient(const detail::GradientCall& call) const {
  if (!call.record)
    throw Error(describe(), "gradientState", "missing",
                "that of the forward encode, which knows the padding");
  if (call.clipRectIsSet)
    throw Error(describe(), "clipRect", "set", "no clip: the gradient is that of the whole source");
  const mtl::Size& clip = call.record->clipRect.size;
  ReshapeProblem problem;
  problem.direction = ReshapeDirection::Gradient;
  if (const auto* pad = std::any_cast<PadRecord>(&call.record->family))
    problem.channels.before = asSigned(pad->channelsBefore);
  problem.input = call.gradient;
  problem.input.width = asSigned(clip.width);
  problem.input.height = asSigned(clip.height);
  const auto check = [&](const char* axis, std::int64_t origin, std::int64_t size,
                         std::int64_t gradientSize) {
    if (origin < 0 || origin + size > gradientSize)
      throw Error(describe(), "primaryOffset", std::string(axis) + " is " + std::to_string(origin),
                  "0 to " + std::to_string(gradientSize - size) + ": the gradient holds the clip rectangle");
  };
  check("x", call.primaryOffset.x, problem.input.width, call.gradient.width);
  check("y", call.primaryOffset.y, problem.input.height, call.gradient.height);
  problem.destination = call.destination;
  setPixels(problem, call.edgeMode, call.secondaryOffset, problem.destination, problem.input);
  detail::PreparedCall gradient = prepared(*this, problem);
  gradient.readsSource = false;
  gradient.gradientOrigin = {static_cast<std::size_t>(call.primaryOffset.x),
                             static_cast<std::size_t>(call.primaryOffset.y), 0};
  return {gradient};
}

std::shared_ptr<NNSlice> NNSlice::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNSlice>(new NNSlice(device));
}

bool NNSlice::takesEdgeMode(ImageEdgeMode edgeMode) const {
  return edgeMode <= ImageEdgeMode::Constant;
}

void NNSlice::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) {
  constexpr std::size_t whole = std::numeric_limits<std::size_t>::max();
  const auto sized = [&](std::size_t origin, std::size_t size, std::size_t sourceSize, std::int64_t first) {
    if (size != whole) return origin + size;
    const std::int64_t rest = asSigned(sourceSize) - first;
    if (rest < 1)
      throw Error(describe(), "offset", std::to_string(first), "a pixel of the source, " + source.describe());
    return origin + static_cast<std::size_t>(rest);
  };
  const mtl::Region& clip = clipRect();
  destination.setWidth(sized(clip.origin.x, clip.size.width, source.width(), offset().x));
  destination.setHeight(sized(clip.origin.y, clip.size.height, source.height(), offset().y));
}

detail::PreparedCall NNSlice::prepareForward(const detail::ForwardCall& call) const {
  return prepared(*this, problemOf(call));
}

void NNPad::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.codeSize("paddingSizeBefore", before_);
  coder.codeSize("paddingSizeAfter", after_);
  coder.code("fillValue", fillValue_);
  coder.code("fillValueArray", fillValueArray_);
  checkPadding(*this, "paddingSizeBefore", before_);
  checkPadding(*this, "paddingSizeAfter", after_);
}

}  // namespace mps
