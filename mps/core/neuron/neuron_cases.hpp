#pragma once

#include <vector>

#include "mps/core/neuron/neuron_descriptor.hpp"

namespace mps::detail {

/// Slopes of PReLU in the tests: positive, negative, zero; of either sign from one channel to the next.
inline std::vector<float> neuronTestSlopes(std::int64_t channels) {
  constexpr float pattern[] = {0.5F, -1.0F, 0.0F, 0.25F, 2.0F, -0.125F, 1.0F};
  std::vector<float> slopes(static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] = pattern[i % 7];
  return slopes;
}

/// A neuron to test, with the arguments where it is smooth or at least finite.
struct NeuronCase {
  NNNeuronDescriptor neuron;
  double lowest = -4;
  double highest = 4;
  /// Small integers give exact results: no rounding between argument and result.
  bool exact = false;
};

/// Every type, with the documented parameters, with others, and with those that change a formula.
inline std::vector<NeuronCase> neuronCases(std::int64_t channels) {
  using enum CNNNeuronType;
  constexpr auto neuron = [](auto... arguments) {
    return NNNeuronDescriptor::cnnNeuronDescriptor(arguments...);
  };
  std::vector<float> positiveSlopes = neuronTestSlopes(channels);
  for (float& slope : positiveSlopes) slope = slope > 0 ? slope : 0;
  return {
      {.neuron = neuron(None), .exact = true},
      {.neuron = neuron(ReLU), .exact = true},
      {.neuron = neuron(ReLU, 0.25F), .exact = true},
      {.neuron = neuron(ReLU, 0.1F)},
      {.neuron = neuron(ReLU, -0.5F), .exact = true},
      {.neuron = neuron(Linear, 2.0F, 3.0F), .exact = true},
      {.neuron = neuron(Linear, -0.3F, 0.7F)},
      {.neuron = neuron(Sigmoid), .lowest = -20, .highest = 20},
      {.neuron = neuron(HardSigmoid)},
      {.neuron = neuron(HardSigmoid, 0.25F, 0.5F), .exact = true},
      {.neuron = neuron(HardSigmoid, -1.5F, 0.25F)},
      {.neuron = neuron(TanH), .lowest = -12, .highest = 12},
      {.neuron = neuron(TanH, 1.7159F, 2.0F / 3)},
      {.neuron = neuron(TanH, -0.75F, -3.0F)},
      {.neuron = neuron(Absolute), .exact = true},
      {.neuron = neuron(SoftPlus), .lowest = -30, .highest = 30},
      {.neuron = neuron(SoftPlus, 2.0F, 3.0F)},
      {.neuron = neuron(SoftPlus, -0.5F, -1.5F)},
      {.neuron = neuron(SoftSign), .lowest = -100, .highest = 100},
      {.neuron = neuron(ELU), .lowest = -20},
      {.neuron = neuron(ELU, 0.3F)},
      {.neuron = neuron(ELU, -0.3F)},
      {.neuron = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(neuronTestSlopes(channels)), .exact = true},
      {.neuron = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(positiveSlopes), .exact = true},
      {.neuron = neuron(ReLUN), .highest = 9, .exact = true},
      {.neuron = neuron(ReLUN, 0.0F, 1.0F), .exact = true},
      {.neuron = neuron(ReLUN, 0.5F, 2.0F), .exact = true},
      {.neuron = neuron(ReLUN, -0.5F, 1.5F), .exact = true},
      {.neuron = neuron(Power)},
      {.neuron = neuron(Power, 1.0F, 3.0F, 2.0F), .exact = true},
      {.neuron = neuron(Power, 2.0F, 3.0F, 0.5F), .lowest = -1.4},
      {.neuron = neuron(Power, 0.5F, 2.5F, -1.5F)},
      {.neuron = neuron(Power, 1.0F, 0.0F, 3.0F)},
      {.neuron = neuron(Power, 1.0F, 0.0F, 0.0F)},
      {.neuron = neuron(Power, 1.0F, 6.0F, 2.3F)},
      {.neuron = neuron(Exponential), .lowest = -10, .highest = 10},
      {.neuron = neuron(Exponential, -0.7F, 0.3F, -1.0F)},
      {.neuron = neuron(Exponential, 2.0F, 1.0F, 2.0F)},
      {.neuron = neuron(Exponential, -1.5F, 0.5F, 0.3F)},
      {.neuron = neuron(Logarithm, 1.0F, 4.5F, -1.0F)},
      {.neuron = neuron(Logarithm, 2.0F, 9.0F, 10.0F)},
      {.neuron = neuron(Logarithm, 0.5F, 3.0F, 0.5F)},
      {.neuron = neuron(Logarithm, 0x1p108F, 1.0F, -1.0F), .lowest = 0},
      {.neuron = neuron(GeLU), .lowest = -6, .highest = 6},
  };
}

}  // namespace mps::detail
