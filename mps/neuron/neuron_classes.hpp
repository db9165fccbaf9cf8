#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/neuron/neuron.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using NeuronClasses = KernelClasses<CNNNeuron, CNNNeuronGradient>;

}  // namespace mps::detail
