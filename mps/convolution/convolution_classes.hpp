#pragma once

#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/kernel/kernel_class.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using ConvolutionClasses =
    KernelClasses<CNNConvolution, CNNConvolutionGradient, CNNFullyConnected, CNNFullyConnectedGradient,
                  CNNConvolutionTranspose, CNNConvolutionTransposeGradient>;

}  // namespace mps::detail
