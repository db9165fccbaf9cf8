#pragma once

#include <memory>

#include "fuzz/random_calls/call.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/layer/convolution_state.hpp"

namespace unmetal::random_calls {

/// Random weights of any type, with biases or without.
std::shared_ptr<mps::CNNConvolutionDataSource> anyWeights(Call& call,
                                                          const mps::CNNConvolutionDescriptor& descriptor);

/// Strides, dilation and groups in the description, beside what the descriptor says of itself.
void describeConvolution(Call& call, const mps::CNNConvolutionDescriptor& descriptor);

/// Which gradients a gradient kernel computes.
mps::CNNConvolutionGradientOption anyGradientOption(Call& call);

/// Options of a kernel and, where there is one, its gradient kernel: some calls let a GPU round inputs to TF32 or float16.
/// Not those with a neuron, which may make more of that.
void setPrecision(Call& call, const mps::CNNConvolutionDescriptor& descriptor, mps::Kernel& kernel,
                  mps::Kernel* gradientKernel);

/// The tolerances of a call of convolutions with such a kernel, whose gradient kernel has this option.
LayerCall convolutionCall(Call& call, const mps::Kernel& kernel, mps::CNNConvolutionGradientOption option);

}  // namespace unmetal::random_calls
