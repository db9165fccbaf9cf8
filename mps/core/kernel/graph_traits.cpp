#include "mps/core/kernel/graph_traits.hpp"

#include "mps/core/neuron/neuron_span.hpp"

namespace mps::detail {

bool isPlainReLU(const NNNeuronDescriptor& neuron) {
  return neuron.neuronType() == CNNNeuronType::ReLU && neuron.a() == 0 && derivativeFromResult(neuron);
}

bool isDefaultPadding(const NNPadding& padding) {
  return padding.paddingMethod() == defaultPadding()->paddingMethod() ||
         (padding.paddingMethod() & NNPaddingMethod::CustomWhitelistForNodeFusion) ==
             NNPaddingMethod::CustomWhitelistForNodeFusion;
}

}  // namespace mps::detail
