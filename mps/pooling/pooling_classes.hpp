#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using PoolingClasses = KernelClasses<CNNPoolingMax, CNNPoolingMaxGradient, CNNPoolingAverage,
                                     CNNPoolingAverageGradient, CNNPoolingL2Norm, CNNPoolingL2NormGradient,
                                     CNNDilatedPoolingMax, CNNDilatedPoolingMaxGradient>;

}  // namespace mps::detail
