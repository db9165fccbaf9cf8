#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/dropout/dropout.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using DropoutClasses = KernelClasses<CNNDropout, CNNDropoutGradient>;

}  // namespace mps::detail
