#pragma once

#include <cstddef>

#include "fuzz/random_calls/call.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"

namespace mps {
class CNNKernel;
}

namespace unmetal::random_calls {

/// Any neuron, with parameters that keep it finite for numbers from -3 to 3.
mps::NNNeuronDescriptor anyNeuron(Call& call, std::size_t channels);

/// Sets some properties of a forward kernel: offset, edge mode, clip rectangle, channels read and written; at times wrong ones.
void setProperties(Call& call, mps::CNNKernel& kernel, const mps::ImageDescriptor& source,
                   double chanceOfClip = 0.3);

}  // namespace unmetal::random_calls
