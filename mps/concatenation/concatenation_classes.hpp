#pragma once

#include "mps/concatenation/concatenation.hpp"
#include "mps/core/kernel/kernel_class.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using ConcatenationClasses = KernelClasses<NNConcatenation, NNConcatenationGradient>;

}  // namespace mps::detail
