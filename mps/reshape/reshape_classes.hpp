#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using ReshapeClasses = KernelClasses<NNReshape, NNReshapeGradient, NNPad, NNPadGradient, NNSlice>;

}  // namespace mps::detail
