#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"

namespace mps::detail {

/// Where functions and derivatives are checked.
inline constexpr std::array<double, 4> kNeuronArguments = {-1, 0, 0.5, 2};

/// A row of that table: f and its derivative at the arguments.
struct NeuronCheckValue {
  NNNeuronDescriptor neuron;
  std::array<double, 4> values;
  std::array<double, 4> derivatives;
};

/// The table prints six digits; parameters such as 0.1 are float32.
inline double neuronPrecision(double printed) {
  return 6 * printedTolerance(6) * std::max(std::abs(printed), 0.1);
}

inline std::vector<NeuronCheckValue> neuronCheckValues() {
  using enum CNNNeuronType;
  const auto neuron = [](CNNNeuronType type, auto... parameters) {
    return NNNeuronDescriptor::cnnNeuronDescriptor(type, static_cast<float>(parameters)...);
  };
  constexpr float slopes[] = {0.25F};
  return {
      {neuron(None), {-1, 0, 0.5, 2}, {1, 1, 1, 1}},
      {neuron(ReLU, 0.1), {-0.1, 0, 0.5, 2}, {0.1, 1, 1, 1}},
      {neuron(Linear, 2, 3), {1, 3, 4, 7}, {2, 2, 2, 2}},
      {neuron(Sigmoid), {0.268941, 0.5, 0.622459, 0.880797}, {0.196612, 0.25, 0.235004, 0.104994}},
      {neuron(HardSigmoid, 0.2, 0.5), {0.3, 0.5, 0.6, 0.9}, {0.2, 0.2, 0.2, 0.2}},
      {neuron(TanH, 1, 1), {-0.761594, 0, 0.462117, 0.964028}, {0.419974, 1, 0.786448, 0.0706508}},
      {neuron(TanH, 1.7159, 2.0 / 3),
       {-0.999997, 0, 0.551684, 1.49294},
       {0.755412, 1.14393, 1.02568, 0.277967}},
      {neuron(Absolute), {1, 0, 0.5, 2}, {-1, 0, 1, 1}},
      {neuron(SoftPlus, 1, 1), {0.313262, 0.693147, 0.974077, 2.12693}, {0.268941, 0.5, 0.622459, 0.880797}},
      {neuron(SoftPlus, 2, 3), {0.0971747, 1.38629, 3.40283, 12.005}, {0.284555, 3, 4.90545, 5.98516}},
      {neuron(SoftSign), {-0.5, 0, 0.333333, 0.666667}, {0.25, 1, 0.444444, 0.111111}},
      {neuron(ELU, 1), {-0.632121, 0, 0.5, 2}, {0.367879, 1, 1, 1}},
      {NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes), {-0.25, 0, 0.5, 2}, {0.25, 1, 1, 1}},
      {neuron(ReLUN, 0, 1), {0, 0, 0.5, 1}, {0, 1, 1, 0}},
      {neuron(ReLUN, 0.5, 6), {-0.5, 0, 0.5, 2}, {0.5, 1, 1, 1}},
      {neuron(Power, 1, 3, 2), {4, 9, 12.25, 25}, {4, 6, 7, 10}},
      {neuron(Power, 2, 3, 0.5), {1, 1.73205, 2, 2.64575}, {1, 0.57735, 0.5, 0.377964}},
      {neuron(Exponential, 1, 0, -1), {0.367879, 1, 1.64872, 7.38906}, {0.367879, 1, 1.64872, 7.38906}},
      {neuron(Exponential, 2, 1, 2), {0.5, 2, 4, 32}, {0.693147, 2.77259, 5.54518, 44.3614}},
      {neuron(Logarithm, 1, 2, -1), {0, 0.693147, 0.916291, 1.38629}, {1, 0.5, 0.4, 0.25}},
      {neuron(Logarithm, 2, 3, 10),
       {0, 0.477121, 0.60206, 0.845098},
       {0.868589, 0.28953, 0.217147, 0.124084}},
      {neuron(GeLU), {-0.158655, 0, 0.345731, 1.9545}, {-0.0833155, 0.5, 0.867495, 1.08523}},
  };
}

}  // namespace mps::detail
