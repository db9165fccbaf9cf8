#include "mps/normalization/normalization_problem.hpp"

#include "mps/core/types/text_stream.hpp"

namespace mps::detail {
namespace {

const char* name(NormalizationKind kind) {
  switch (kind) {
    case NormalizationKind::CrossChannel:
      return "cross-channel normalisation";
    case NormalizationKind::Spatial:
      return "spatial normalisation";
    case NormalizationKind::LocalContrast:
      return "local contrast normalisation";
  }
  return "normalisation";
}

}  // namespace

std::string NormalizationProblem::describe() const {
  TextStream text;
  text << name(kind) << (isGradient() ? ", gradient" : "") << ", alpha " << alpha << " beta " << beta
       << " delta " << delta;
  if (kind == NormalizationKind::LocalContrast) text << " p0 " << p0 << " pm " << pm << " ps " << ps;
  if (kind == NormalizationKind::CrossChannel) {
    text << ", window of " << kernelSize << " channels";
  } else {
    text << (edgeMode == ImageEdgeMode::Clamp ? ", clamped edges" : ", zero edges") << ", window "
         << x.kernelSize << "x" << y.kernelSize << " offset " << x.offset << "," << y.offset << " on "
         << x.sourceSize << "x" << y.sourceSize << ", " << x.destinationSize << "x" << y.destinationSize
         << " windows";
    if (destinationOriginX != 0 || destinationOriginY != 0)
      text << ", destination starts at " << destinationOriginX << "," << destinationOriginY;
  }
  text << ", " << source.describe();
  if (isGradient()) text << ", gradient " << gradient.describe();
  text << " -> " << destination.describe();
  return text.str();
}

}  // namespace mps::detail
