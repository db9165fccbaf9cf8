#include "mps/upsampling/upsampling_problem.hpp"

namespace mps::detail {
namespace {

const char* name(UpsamplingSampling sampling) {
  switch (sampling) {
    case UpsamplingSampling::Nearest:
      return "nearest upsampling";
    case UpsamplingSampling::Bilinear:
      return "bilinear upsampling";
    case UpsamplingSampling::BilinearAlignCorners:
      return "bilinear upsampling, aligned corners";
    case UpsamplingSampling::BilinearHalfPixel:
      return "bilinear upsampling, half-pixel centers";
    case UpsamplingSampling::BilinearRegion:
      return "bilinear crop";
    case UpsamplingSampling::BilinearScale:
      return "bilinear scale";
    case UpsamplingSampling::LanczosScale:
      return "Lanczos scale";
  }
  return "upsampling";
}

template <class Number>
std::string pair(Number x, Number y, const char* separator) {
  return std::to_string(x) + separator + std::to_string(y);
}

}  // namespace

std::string UpsamplingProblem::describe() const {
  std::string text = name(sampling);
  const bool isGradient = direction == UpsamplingDirection::Gradient;
  if (isGradient) text += ", gradient";
  text += edgeMode == ImageEdgeMode::Clamp ? ", clamped edges" : ", zero edges";
  text += ", " + pair(x.sourceSize, y.sourceSize, "x") + " to " + pair(x.resultSize, y.resultSize, "x") +
          " offset " + pair(x.offset, y.offset, ",");
  if (sampling >= UpsamplingSampling::BilinearRegion)
    text += ", from " + pair(x.start, y.start, ",") + " in steps of " + pair(x.step, y.step, ",");
  if (isGradient) {
    if (x.firstResult != 0 || y.firstResult != 0)
      text += ", gradient starts at " + pair(x.firstResult, y.firstResult, ",");
    if (x.destinationOrigin != 0 || y.destinationOrigin != 0)
      text += ", destination starts at " + pair(x.destinationOrigin, y.destinationOrigin, ",");
  }
  return text + ", " + input.describe() + " -> " + destination.describe();
}

}  // namespace mps::detail
