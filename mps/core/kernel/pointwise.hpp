#pragma once

#include "mps/core/kernel/call.hpp"

namespace mps::detail {

/// @throws Error for a forward pass that repeated pixels of the source's edge (Clamp) outside of it: the gradients of
/// kernels without a window do not add up what belongs to one pixel
void checkRepeatsNothing(const Kernel& kernel, const GradientCall& call);
/// That and checkSameChannels.
void checkPointwise(const Kernel& kernel, const GradientCall& call);

/// The views of a gradient kernel without a window: for each forward pixel that was read, the gradient pixel
/// that belongs to it. Pixels of the destination outside their intersection are to be zeroed.
struct PointwiseGradient {
  TensorShape gradient, source, destination;
  mtl::Origin gradientOrigin, sourceOrigin, destinationOrigin;
  bool coversDestination = true;
};
/// @param takesForwardResult call.source is the forward result, whose pixels are those of the gradient
PointwiseGradient pointwiseGradient(const GradientCall& call, bool takesForwardResult = false);

/// The call of a plan that works on those views.
PreparedCall preparedPointwise(const PointwiseGradient& views, ChosenPlan plan);

}  // namespace mps::detail
