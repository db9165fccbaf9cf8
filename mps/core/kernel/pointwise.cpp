#include "mps/core/kernel/pointwise.hpp"

#include <algorithm>

#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

/// One axis: source pixel y takes gradient pixel y + shift. Destination pixel j stands for source pixel first
/// + j.
struct PointwiseAxis {
  std::int64_t gradientOrigin, sourceOrigin, destinationOrigin, size;
};

PointwiseAxis pointwiseAxis(std::int64_t primaryOffset, std::int64_t secondaryOffset, std::int64_t counted,
                            std::int64_t gradientSize, std::int64_t sourceSize, std::int64_t destinationSize,
                            std::int64_t clipOrigin) {
  // Source pixels [secondaryOffset, secondaryOffset + counted) were read, the first by gradient pixel
  // primaryOffset. Gradient pixels before 0 are none.
  const std::int64_t count = std::min(counted, gradientSize - primaryOffset);
  const std::int64_t skipped = std::max<std::int64_t>(0, -primaryOffset);
  const std::int64_t begin = std::max({std::int64_t{0}, secondaryOffset + skipped, clipOrigin});
  const std::int64_t end = std::min({sourceSize, secondaryOffset + count, clipOrigin + destinationSize});
  const std::int64_t size = std::max<std::int64_t>(0, end - begin);
  return {primaryOffset + begin - secondaryOffset, begin, begin - clipOrigin, size};
}

/// Whether [offset, offset + size) lies in [0, limit).
bool isInside(std::int64_t offset, std::size_t size, std::size_t limit) {
  return offset >= 0 && size <= limit && static_cast<std::size_t>(offset) <= limit - size;
}

}  // namespace

void checkRepeatsNothing(const Kernel& kernel, const GradientCall& call) {
  if (!call.record || call.record->edgeMode != ImageEdgeMode::Clamp) return;
  const ForwardRecord& forward = *call.record;
  const mtl::Size& size = forward.clipRect.size;
  if (!isInside(forward.offset.x, size.width, forward.source.width()) ||
      !isInside(forward.offset.y, size.height, forward.source.height()))
    throw Error(kernel.describe(), "gradientState",
                "of a forward pass that repeated the source's edge (edgeMode Clamp)",
                "of one that read pixels of the source, or zeros");
}

void checkPointwise(const Kernel& kernel, const GradientCall& call) {
  checkSameChannels(kernel, call);
  checkRepeatsNothing(kernel, call);
}

PointwiseGradient pointwiseGradient(const GradientCall& call, bool takesForwardResult) {
  const bool clipped = call.record != nullptr;
  const std::int64_t sourceWidth = clipped ? asSigned(call.record->source.width()) : call.source.width;
  const std::int64_t sourceHeight = clipped ? asSigned(call.record->source.height()) : call.source.height;
  const auto x = pointwiseAxis(call.primaryOffset.x, call.secondaryOffset.x,
                               clipped ? asSigned(call.record->clipRect.size.width) : call.gradient.width,
                               call.gradient.width, sourceWidth, call.destination.width,
                               asSigned(call.clipRect.origin.x));
  const auto y = pointwiseAxis(call.primaryOffset.y, call.secondaryOffset.y,
                               clipped ? asSigned(call.record->clipRect.size.height) : call.gradient.height,
                               call.gradient.height, sourceHeight, call.destination.height,
                               asSigned(call.clipRect.origin.y));
  PointwiseGradient views;
  views.gradient = call.gradient;
  views.source = call.source;
  views.destination = call.destination;
  for (TensorShape* shape : {&views.gradient, &views.source, &views.destination}) {
    shape->width = x.size;
    shape->height = y.size;
  }
  const auto origin = [](std::int64_t px, std::int64_t py) {
    return mtl::Origin{static_cast<std::size_t>(px), static_cast<std::size_t>(py), 0};
  };
  views.gradientOrigin = origin(x.gradientOrigin, y.gradientOrigin);
  views.sourceOrigin = origin(x.sourceOrigin, y.sourceOrigin);
  if (takesForwardResult && clipped) {
    const mtl::Origin& clip = call.record->clipRect.origin;
    views.sourceOrigin = origin(asSigned(clip.x) + x.sourceOrigin - call.secondaryOffset.x,
                                asSigned(clip.y) + y.sourceOrigin - call.secondaryOffset.y);
  }
  views.destinationOrigin = origin(x.destinationOrigin, y.destinationOrigin);
  views.coversDestination = x.size == call.destination.width && y.size == call.destination.height;
  return views;
}

PreparedCall preparedPointwise(const PointwiseGradient& views, ChosenPlan plan) {
  PreparedCall prepared;
  prepared.plan = std::move(plan);
  prepared.gradientOrigin = views.gradientOrigin;
  prepared.sourceOrigin = views.sourceOrigin;
  prepared.destinationOrigin = views.destinationOrigin;
  prepared.zeroDestinationFirst = !views.coversDestination;
  return prepared;
}

}  // namespace mps::detail
