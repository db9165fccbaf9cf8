#include "mps/neuron/check/neuron_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "mps/conform/compare.hpp"
#include "mps/neuron/check/neuron_cases.hpp"

// The functions, their check values and their derivatives are tested in mps/core/neuron/neuron_reference_test.cpp.

namespace mps::detail::neuron_reference_test {
namespace {

ReferenceTensor pixels(std::int64_t channels, std::vector<double> values) {
  ReferenceTensor tensor(1, 1, static_cast<std::int64_t>(values.size()) / channels, channels);
  tensor.values = std::move(values);
  return tensor;
}

NeuronProblem problemOf(NeuronDirection direction, const NNNeuronDescriptor& neuron) {
  NeuronProblem problem;
  problem.direction = direction;
  problem.neuron = neuron;
  return problem;
}

void expectValues(const ReferenceTensor& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found.values[i], expected[i], kFloat32Roundoff * std::abs(expected[i])) << i;
}

TEST(NeuronReference, WorkedExampleReLUOfSpec11_8) {
  const auto neuron = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.1F);
  const ReferenceTensor x = pixels(1, {-2, 0, 3});
  expectValues(neuronForwardReference(problemOf(NeuronDirection::Forward, neuron), x), {-0.2, 0, 3});
  const ReferenceTensor dy = pixels(1, {5, 5, 5});
  expectValues(neuronGradientReference(problemOf(NeuronDirection::Gradient, neuron), x, dy), {0.5, 5, 5});
}

TEST(NeuronReference, WorkedExamplePReLUOfSpec11_8) {
  const std::vector<float> slopes = {0.5F, -1.0F};
  const auto neuron = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes);
  const ReferenceTensor x = pixels(2, {-2, -3});
  expectValues(neuronForwardReference(problemOf(NeuronDirection::Forward, neuron), x), {-1, 3});
  expectValues(neuronGradientReference(problemOf(NeuronDirection::Gradient, neuron), x, pixels(2, {1, 1})),
               {0.5, -1});
}

/// Both gradients of the loss sum(w y) with random w against its central differences.
TEST(NeuronReference, GradientIsTheDerivativeOfTheForwardPass) {
  constexpr std::int64_t channels = 5;
  constexpr double h = 1e-5;
  for (const NeuronCase& item : neuronCases(channels)) {
    SCOPED_TRACE(item.neuron.describe());
    std::vector<double> arguments = randomValues(50, 11, RandomKind::Uniform);
    for (double& x : arguments) x = item.lowest + (item.highest - item.lowest) * (x + 1) / 2;
    const ReferenceTensor x = pixels(channels, arguments);
    const ReferenceTensor w = pixels(channels, randomValues(50, 12, RandomKind::Uniform));
    const NeuronProblem forward = problemOf(NeuronDirection::Forward, item.neuron);
    const ReferenceTensor dx =
        neuronGradientReference(problemOf(NeuronDirection::Gradient, item.neuron), x, w);
    ReferenceTensor above = x;
    ReferenceTensor below = x;
    for (double& value : above.values) value += h;
    for (double& value : below.values) value -= h;
    const ReferenceTensor yAbove = neuronForwardReference(forward, above);
    const ReferenceTensor yBelow = neuronForwardReference(forward, below);
    int differing = 0;
    for (std::size_t i = 0; i < dx.values.size(); ++i) {
      const double difference = w.values[i] * (yAbove.values[i] - yBelow.values[i]) / (2 * h);
      const double allowed = 1e-6 * (std::abs(difference) + 1e-3);
      if (!(std::abs(difference - dx.values[i]) <= allowed)) ++differing;
    }
    EXPECT_LE(differing, 1) << "one argument may lie within h of a kink";
  }
}

}  // namespace
}  // namespace mps::detail::neuron_reference_test
