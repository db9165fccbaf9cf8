#include "mps/pooling/pooling_problem.hpp"

#include "mps/pooling/pooling_operations-inl.hpp"

namespace mps::detail {
namespace {

std::string pair(std::int64_t x, std::int64_t y, const char* separator) {
  return std::to_string(x) + separator + std::to_string(y);
}

}  // namespace

PoolingTraits traitsOf(PoolingKind kind) {
  return withPoolingOperation<CpuMath>(kind, [](auto operation) { return decltype(operation)::kTraits; });
}

std::string PoolingProblem::describe() const {
  const bool isGradient = direction == PoolingDirection::Gradient;
  std::string text = std::string(traits().name) + " pooling";
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
