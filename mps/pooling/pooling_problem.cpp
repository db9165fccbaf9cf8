#include "mps/pooling/pooling_problem.hpp"

namespace mps::detail {
namespace {

const char* name(PoolingKind kind) {
  switch (kind) {
    case PoolingKind::Max:
      return "max pooling";
    case PoolingKind::Average:
      return "average pooling";
    case PoolingKind::L2Norm:
      return "L2-norm pooling";
  }
  return "pooling";
}

std::string pair(std::int64_t x, std::int64_t y, const char* separator) {
  return std::to_string(x) + separator + std::to_string(y);
}

}  // namespace

std::string PoolingProblem::describe() const {
  const bool isGradient = direction == PoolingDirection::Gradient;
  std::string text = name(kind);
  if (isGradient) text += " gradient";
  text += edgeMode == ImageEdgeMode::Clamp ? ", clamped edges" : ", zero edges";
  text += ", kernel " + pair(x.kernelSize, y.kernelSize, "x") + " stride " + pair(x.stride, y.stride, "x");
  if (x.dilation != 1 || y.dilation != 1) text += " dilation " + pair(x.dilation, y.dilation, "x");
  text += " offset " + pair(x.offset, y.offset, ",");
  if (zeroPadSizeX != 0 || zeroPadSizeY != 0) text += " zero pad " + pair(zeroPadSizeX, zeroPadSizeY, ",");
  if (saveIndices) text += ", saves indices";
  if (useIndices) text += ", uses indices";
  if (afterReLU) text += ", after ReLU";
  text += ", " + source.describe();
  if (isGradient) {
    text += ", gradient " + gradient.describe();
    if (destinationOriginX != 0 || destinationOriginY != 0)
      text += ", destination starts at " + pair(destinationOriginX, destinationOriginY, ",");
  }
  return text + " -> " + destination.describe();
}

}  // namespace mps::detail
