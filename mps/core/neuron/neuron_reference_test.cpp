#include "mps/core/neuron/neuron_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mps/core/neuron/neuron_cases.hpp"
#include "mps/core/neuron/neuron_check_values.hpp"
#include "mps/core/neuron/neuron_span.hpp"

namespace mps::detail::neuron_reference_test {
namespace {

using enum CNNNeuronType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class... Parameters>
NNNeuronDescriptor neuron(CNNNeuronType type, Parameters... parameters) {
  return NNNeuronDescriptor::cnnNeuronDescriptor(type, static_cast<float>(parameters)...);
}

NNNeuronDescriptor preluNeuron(std::vector<float> slopes) {
  return NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes);
}

void expectPrinted(double found, double printed) {
  EXPECT_NEAR(found, printed, neuronPrecision(printed));
}

TEST(NeuronReference, TableOfSpec11_5) {
  for (const NeuronCheckValue& row : neuronCheckValues())
    for (std::size_t i = 0; i < 4; ++i) {
      const double x = kNeuronArguments[i];
      SCOPED_TRACE(row.neuron.describe() + " at " + std::to_string(x));
      expectPrinted(neuronValue(row.neuron, x), row.values[i]);
      expectPrinted(neuronDerivative(row.neuron, x), row.derivatives[i]);
    }
}

TEST(NeuronReference, HardSigmoidOutsideItsLinearRange) {
  const auto hard = neuron(HardSigmoid, 0.2, 0.5);
  EXPECT_EQ(neuronValue(hard, -3), 0);
  EXPECT_EQ(neuronDerivative(hard, -3), 0);
  EXPECT_EQ(neuronValue(hard, 3), 1);
  EXPECT_EQ(neuronDerivative(hard, 3), 0);
  EXPECT_EQ(neuronValue(hard, 2.5), 1);
  expectPrinted(neuronDerivative(hard, 2.5), 0.2);
  EXPECT_NEAR(neuronValue(hard, -2.5), 0, 1e-7);
  expectPrinted(neuronDerivative(hard, -2.5), 0.2);
}

/// Worked examples of the gradient with dy = 5 and dy = 1.
TEST(NeuronReference, WorkedExamplesOfTheGradient) {
  const auto leaky = neuron(ReLU, 0.1);
  constexpr double x[] = {-2, 0, 3};
  constexpr double y[] = {-0.2, 0, 3};
  constexpr double dx[] = {0.5, 5, 5};
  for (int i = 0; i < 3; ++i) {
    expectPrinted(neuronValue(leaky, x[i]), y[i]);
    expectPrinted(5 * neuronDerivative(leaky, x[i]), dx[i]);
  }
  const auto prelu = preluNeuron({0.5F, -1.0F});
  EXPECT_EQ(neuronValue(prelu, -2, 0), -1);
  EXPECT_EQ(neuronValue(prelu, -3, 1), 3);
  EXPECT_EQ(neuronDerivative(prelu, -2, 0), 0.5);
  EXPECT_EQ(neuronDerivative(prelu, -3, 1), -1);
}

TEST(NeuronReference, DerivativesAtKinks) {
  for (const auto& kinked :
       {neuron(ReLU), neuron(ReLU, 0.1), neuron(ELU, 0.3), preluNeuron({0.25F}), neuron(ReLUN)}) {
    EXPECT_EQ(neuronDerivative(kinked, 0.0), 1) << kinked.describe();
    EXPECT_EQ(neuronDerivative(kinked, -0.0), 1) << kinked.describe();
  }
  EXPECT_EQ(neuronDerivative(neuron(Absolute), 0), 0);
  EXPECT_EQ(neuronDerivative(neuron(ReLUN, 0.5, 6), 6), 0);
  EXPECT_EQ(neuronDerivative(neuron(ReLUN, 0.5, 6), 5.999), 1);
  EXPECT_EQ(neuronDerivative(neuron(ReLUN, -0.5, 1), -2), 0);  // -0.5 * -2 = 1 is the bound
  EXPECT_EQ(neuronDerivative(neuron(Power, 1, 0, 0), 0), 0);
  EXPECT_EQ(neuronDerivative(neuron(Power, 1, 0, 0), 3), 0);
}

TEST(NeuronReference, NoValueOrDerivative) {
  EXPECT_TRUE(std::isnan(neuronValue(neuron(Power, 1, 0, 0.5), -1)));
  EXPECT_TRUE(std::isnan(neuronDerivative(neuron(Power, 1, 0, 0.5), -1)));
  EXPECT_EQ(neuronValue(neuron(Power, 1, 0, 3), -2), -8);
  EXPECT_TRUE(std::isnan(neuronDerivative(neuron(Exponential, 1, 0, -2), 2)));
  EXPECT_TRUE(std::isnan(neuronDerivative(neuron(Exponential, 1, 0, 0), 2)));
  EXPECT_EQ(neuronDerivative(neuron(Logarithm, 1, 0, 1), 2), kInfinity);
  EXPECT_EQ(neuronDerivative(neuron(Logarithm, 1, 0, -1), 0), kInfinity);
  EXPECT_EQ(neuronValue(neuron(Logarithm), 0), -kInfinity);
  EXPECT_TRUE(std::isnan(neuronValue(neuron(Logarithm), -1)));
}

/// No overflow, no 0 * infinity, no cancellation.
TEST(NeuronReference, SafeFormsAtExtremes) {
  for (const double x : {100.0, 1000.0, kInfinity}) {
    EXPECT_EQ(neuronValue(neuron(Sigmoid), x), 1);
    EXPECT_LT(neuronValue(neuron(Sigmoid), -x), 1e-40);
    EXPECT_LT(neuronDerivative(neuron(Sigmoid), x), 1e-40);
    EXPECT_LT(neuronDerivative(neuron(Sigmoid), -x), 1e-40);
    EXPECT_EQ(neuronValue(neuron(SoftPlus), x), x);
    EXPECT_LT(neuronValue(neuron(SoftPlus), -x), 1e-40);
    EXPECT_EQ(neuronDerivative(neuron(SoftPlus), x), 1);
    EXPECT_LT(neuronDerivative(neuron(SoftPlus), -x), 1e-40);
    EXPECT_EQ(neuronValue(neuron(TanH), x), 1);
    EXPECT_EQ(neuronValue(neuron(TanH), -x), -1);
    EXPECT_LT(neuronDerivative(neuron(TanH), x), 1e-40);
    EXPECT_EQ(neuronValue(neuron(ELU), -x), -1);
    EXPECT_EQ(neuronValue(neuron(ReLU), -x), 0);
    EXPECT_EQ(neuronDerivative(neuron(ReLU), -x), 0);
    EXPECT_EQ(neuronValue(preluNeuron({0.0F}), -x), 0);
    EXPECT_EQ(neuronValue(neuron(ReLUN, 0, 6), -x), 0);
    EXPECT_EQ(neuronValue(neuron(ReLUN, 0, 6), x), 6);
  }
  EXPECT_NEAR(neuronValue(neuron(ELU), -1e-12) / -1e-12, 1, 1e-9);
}

/// The sign bit of the result tells the side of the kink.
TEST(NeuronReference, SignOfTheResultIsThatOfTheSource) {
  for (const auto& kinked :
       {neuron(ReLU), neuron(ReLU, 0.1), neuron(ELU, 0), neuron(ReLUN, 0, 6), preluNeuron({0.0F})}) {
    EXPECT_TRUE(std::signbit(neuronValue(kinked, -2))) << kinked.describe();
    EXPECT_FALSE(std::signbit(neuronValue(kinked, 0.0))) << kinked.describe();
    EXPECT_FALSE(std::signbit(neuronValue(kinked, -0.0))) << kinked.describe();
    EXPECT_FALSE(std::signbit(neuronValue(kinked, 2))) << kinked.describe();
  }
}

TEST(NeuronReference, NotANumberStays) {
  for (const NeuronCase& item : neuronCases(1)) {
    const auto type = item.neuron.neuronType();
    if (type == Power && item.neuron.c() == 0) {
      EXPECT_EQ(neuronValue(item.neuron, kNaN), 1);
      EXPECT_EQ(neuronDerivative(item.neuron, kNaN), 0);
      continue;
    }
    EXPECT_TRUE(std::isnan(neuronValue(item.neuron, kNaN))) << item.neuron.describe();
    const bool constantDerivative = type == None || type == Linear || (type == Power && item.neuron.c() == 1);
    EXPECT_EQ(std::isnan(neuronDerivative(item.neuron, kNaN)), !constantDerivative) << item.neuron.describe();
  }
}

/// Arguments in the range of a case that are not within 0.01 of a kink.
std::vector<double> smoothArguments(const NeuronCase& item) {
  std::vector<double> arguments;
  const double a = item.neuron.a();
  const double b = item.neuron.b();
  for (int i = 0; i <= 100; ++i) {
    const double x = item.lowest + (item.highest - item.lowest) * (i + 0.37) / 101.3;
    const double kinks[] = {0, b, -b / a, (1 - b) / a, b / a};
    const bool isSmooth = std::ranges::none_of(kinks, [&](double kink) { return std::abs(x - kink) < 0.01; });
    if (isSmooth) arguments.push_back(x);
  }
  return arguments;
}

TEST(NeuronReference, CentralDifferences) {
  constexpr double h = 1e-5;
  for (const NeuronCase& item : neuronCases(7))
    for (const double x : smoothArguments(item))
      for (std::int64_t channel = 0; channel < 7; ++channel) {
        const double difference =
            (neuronValue(item.neuron, x + h, channel) - neuronValue(item.neuron, x - h, channel)) / (2 * h);
        const double derivative = neuronDerivative(item.neuron, x, channel);
        const double scale = std::abs(derivative) + 1e-5 * std::abs(neuronValue(item.neuron, x, channel));
        EXPECT_NEAR(derivative, difference, 1e-6 * scale + 1e-10) << item.neuron.describe() << " at " << x;
      }
}

TEST(NeuronReference, DerivativeFromResult) {
  int count = 0;
  for (const NeuronCase& item : neuronCases(7)) {
    if (!derivativeFromResult(item.neuron)) {
      EXPECT_TRUE(std::isnan(neuronDerivativeFromResult(item.neuron, 0.3)) ||
                  item.neuron.neuronType() == ReLU || item.neuron.neuronType() == PReLU ||
                  item.neuron.neuronType() == ReLUN || item.neuron.neuronType() == ELU)
          << item.neuron.describe();
      continue;
    }
    ++count;
    for (int i = 0; i <= 64; ++i) {
      const double x = item.lowest + (item.highest - item.lowest) * i / 64;
      if (std::abs(x) > 15) continue;  // 1 - y is left without digits
      for (std::int64_t channel = 0; channel < 7; ++channel)
        EXPECT_NEAR(neuronDerivativeFromResult(item.neuron, neuronValue(item.neuron, x, channel), channel),
                    neuronDerivative(item.neuron, x, channel),
                    1e-9 * (1 + std::abs(neuronDerivative(item.neuron, x, channel))))
            << item.neuron.describe() << " at " << x;
    }
  }
  EXPECT_GT(count, 15);
}

TEST(NeuronReference, DerivativeFromResultTable) {
  EXPECT_TRUE(derivativeFromResult(neuron(ReLU)));
  EXPECT_TRUE(derivativeFromResult(neuron(ReLU, 0.1)));
  EXPECT_FALSE(derivativeFromResult(neuron(ReLU, -0.1)));
  EXPECT_FALSE(derivativeFromResult(neuron(ReLU, -0.0)));
  EXPECT_FALSE(derivativeFromResult(neuron(ReLU, kNaN)));
  EXPECT_TRUE(derivativeFromResult(neuron(ELU)));
  EXPECT_FALSE(derivativeFromResult(neuron(ELU, -1)));
  EXPECT_TRUE(derivativeFromResult(preluNeuron({0.5F, 0.0F})));
  EXPECT_FALSE(derivativeFromResult(preluNeuron({0.5F, -1.0F})));
  EXPECT_TRUE(derivativeFromResult(neuron(ReLUN, 0, 6)));
  EXPECT_FALSE(derivativeFromResult(neuron(ReLUN, 0, 0.1)));  // not a float16
  EXPECT_FALSE(derivativeFromResult(neuron(ReLUN, 0, -1)));
  EXPECT_FALSE(derivativeFromResult(neuron(ReLUN, -1, 6)));
  EXPECT_TRUE(derivativeFromResult(neuron(TanH, -2, 3)));
  EXPECT_FALSE(derivativeFromResult(neuron(TanH, 0, 3)));
  EXPECT_FALSE(derivativeFromResult(neuron(SoftPlus, 0, 3)));
  for (const CNNNeuronType type : {None, Linear, Sigmoid, SoftSign, SoftPlus, Exponential})
    EXPECT_TRUE(derivativeFromResult(neuron(type))) << name(type);
  for (const CNNNeuronType type : {HardSigmoid, Absolute, Power, Logarithm, GeLU})
    EXPECT_FALSE(derivativeFromResult(neuron(type))) << name(type);
}

}  // namespace
}  // namespace mps::detail::neuron_reference_test
