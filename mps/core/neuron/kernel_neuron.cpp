#include "mps/core/neuron/kernel_neuron.hpp"

#include <cstdint>
#include <string>

#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

void checkType(CNNNeuronType type) {
  const auto number = static_cast<std::int32_t>(type);
  if (number < 0 || number >= static_cast<std::int32_t>(CNNNeuronType::Count))
    throw Error("setNeuronType", "neuronType", std::to_string(number), "a type of CNNNeuronType");
  if (type == CNNNeuronType::PReLU)
    throw Error("setNeuronType", "neuronType", "PReLU", "a type without slopes for each column");
}

}  // namespace

void KernelNeuron::setNeuronType(CNNNeuronType neuronType, float parameterA, float parameterB,
                                 float parameterC) {
  checkType(neuronType);
  const auto neuron = NNNeuronDescriptor::cnnNeuronDescriptor(neuronType, parameterA, parameterB, parameterC);
  neuron.check("setNeuronType", "parameters", 0);
  neuron_ = neuron;
}

void KernelNeuron::codeNeuron(Coder& coder, bool takesSlopes) {
  coder.code("neuron", neuron_);
  if (neuron_.neuronType() != CNNNeuronType::PReLU || !takesSlopes) checkType(neuron_.neuronType());
}

}  // namespace mps
