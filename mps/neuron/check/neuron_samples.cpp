#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/neuron/neuron.hpp"

namespace mps::test {

void addNeuronSamples(KernelSamples& samples) {
  const auto prelu = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{0.5F, 2, -1, 0.25F});
  samples.addPair([=](const Device& d) { return CNNNeuron::create(d, prelu); },
                  [=](const Device& d) { return CNNNeuronGradient::create(d, prelu); });
}

}  // namespace mps::test
