#include "mps/conform/kernel_bench.hpp"
#include "mps/neuron/neuron.hpp"

namespace mps::detail {

void benchNeuron(Bench& bench) {
  const auto add = [&](const char* name, const NNNeuronDescriptor& neuron) {
    benchPair(bench, {.forward = CNNNeuron::create(bench.device(), neuron),
                      .gradient = CNNNeuronGradient::create(bench.device(), neuron),
                      .shape = std::string("56x56x64 ") + name,
                      .source = {ImageFeatureChannelFormat::Float32, 56, 56, 64}});
  };
  add("ReLU", NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU));
  add("Sigmoid", NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Sigmoid));
  add("TanH", NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::TanH, 1.0F, 1.0F));
  add("GeLU", NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::GeLU));
  add("PReLU", NNNeuronDescriptor::cnnNeuronPReLUDescriptor(std::vector<float>(64, 0.25F)));
}

}  // namespace mps::detail
