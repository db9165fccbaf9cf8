#pragma once

#include <memory>

#include "fuzz/random_calls/call.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/core/convolution_data_source.hpp"
#include "mps/core/convolution_state.hpp"
#include "mps/core/state.hpp"

namespace unmetal::random_calls {

/// Random weights of any type, with biases or without.
std::shared_ptr<mps::CNNConvolutionDataSource> anyWeights(Call& call,
                                                          const mps::CNNConvolutionDescriptor& descriptor);

/// Strides, dilation and groups in the description, beside what the descriptor says of itself.
void describeConvolution(Call& call, const mps::CNNConvolutionDescriptor& descriptor);

/// Which gradients a gradient kernel computes.
mps::CNNConvolutionGradientOption anyGradientOption(Call& call);

/// The tolerances of a call of convolutions, whose gradient kernel has this option.
LayerCall convolutionCall(Call& call, mps::CNNConvolutionGradientOption option);

}  // namespace unmetal::random_calls
