#include "mps/core/neuron/neuron_span.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/core/neuron/neuron_cases.hpp"
#include "mps/core/neuron/neuron_reference.hpp"

namespace mps::detail::neuron_span_test {
namespace {

using enum CNNNeuronType;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint64_t kSeed = 20240611;

/// Pixels and channels that leave rests of vectors, and repeat short pixels.
constexpr NeuronRun kRuns[] = {{61, 7, 0}, {3, 5, 2}, {40, 1, 6}, {1, 7, 0}};

std::vector<float> arguments(const NeuronCase& item, const NeuronRun& run) {
  std::vector<float> x;
  for (const double value :
       randomValues(static_cast<std::size_t>(run.pixels * run.channels), kSeed, RandomKind::Uniform))
    x.push_back(static_cast<float>(item.lowest + (item.highest - item.lowest) * (value + 1) / 2));
  return x;
}

std::vector<double> widened(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

std::int64_t channelOf(const NeuronRun& run, std::size_t i) {
  return run.firstChannel + static_cast<std::int64_t>(i) % run.channels;
}

/// The reference of a run: a value and its bound for each element, times a factor for gradients.
ReferenceTensor reference(const NeuronRun& run, const std::function<double(std::size_t, std::int64_t)>& value,
                          const std::function<NeuronBound(std::size_t, std::int64_t)>& bound,
                          const std::vector<float>* factor) {
  ReferenceTensor result(1, 1, run.pixels, run.channels);
  result.magnitude.resize(result.values.size());
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    const std::int64_t channel = channelOf(run, i);
    const double by = factor ? static_cast<double>((*factor)[i]) : 1.0;
    const NeuronBound allowed = bound(i, channel);
    result.values[i] = by * value(i, channel);
    result.magnitude[i] = std::abs(by) * allowed.magnitude;
    result.roundings = allowed.roundings + (factor ? 1 : 0);
    result.transcendental = allowed.transcendental;
  }
  return result;
}

void expectClose(const ReferenceTensor& expected, const std::vector<float>& found, const std::string& what) {
  const Comparison comparison =
      compare(expected, widened(found), ImageFeatureChannelFormat::Float32, Tier::Bounded, Zeros::Expected);
  EXPECT_TRUE(comparison.passed()) << what << "\n" << comparison.report;
}

/// Calls check(case, run, "GeLU AVX2") for every neuron, run and instruction set.
template <class Check>
void forEachCase(Check&& check) {
  forEachTarget([&](const std::string& target) {
    for (const NeuronCase& item : neuronCases(7))
      for (const NeuronRun& run : kRuns) check(item, run, item.neuron.describe() + " " + target);
  });
}

TEST(NeuronSpan, Values) {
  forEachCase([](const NeuronCase& item, const NeuronRun& run, const std::string& what) {
    const std::vector<float> x = arguments(item, run);
    std::vector<float> y(x.size(), kNaN);
    neuronValues(item.neuron, run, x.data(), y.data());
    const auto argument = [&](std::size_t i) { return static_cast<double>(x[i]); };
    expectClose(reference(
                    run, [&](auto i, auto channel) { return neuronValue(item.neuron, argument(i), channel); },
                    [&](auto i, auto channel) { return neuronValueBound(item.neuron, argument(i), channel); },
                    nullptr),
                y, what);
    std::vector<float> inPlace = x;
    neuronValues(item.neuron, run, inPlace.data(), inPlace.data());
    EXPECT_EQ(std::memcmp(inPlace.data(), y.data(), y.size() * sizeof(float)), 0) << what << " in place";
  });
}

TEST(NeuronSpan, Gradients) {
  forEachCase([](const NeuronCase& item, const NeuronRun& run, const std::string& what) {
    const std::vector<float> x = arguments(item, run);
    const std::vector<float> dy(x.rbegin(), x.rend());
    std::vector<float> dx(x.size(), kNaN);
    neuronGradients(item.neuron, run, x.data(), dy.data(), dx.data());
    const auto argument = [&](std::size_t i) { return static_cast<double>(x[i]); };
    expectClose(
        reference(
            run, [&](auto i, auto channel) { return neuronDerivative(item.neuron, argument(i), channel); },
            [&](auto i, auto channel) { return neuronDerivativeBound(item.neuron, argument(i), channel); },
            &dy),
        dx, what);
  });
}

TEST(NeuronSpan, GradientsFromResult) {
  int checked = 0;
  forEachCase([&](const NeuronCase& item, const NeuronRun& run, const std::string& what) {
    if (!derivativeFromResult(item.neuron)) return;
    ++checked;
    const std::vector<float> x = arguments(item, run);
    const std::vector<float> dy(x.rbegin(), x.rend());
    std::vector<float> y(x.size());
    neuronValues(item.neuron, run, x.data(), y.data());
    std::vector<float> dx(x.size(), kNaN);
    neuronGradientsFromResult(item.neuron, run, y.data(), dy.data(), dx.data());
    const auto result = [&](std::size_t i) { return static_cast<double>(y[i]); };
    expectClose(
        reference(
            run,
            [&](auto i, auto channel) { return neuronDerivativeFromResult(item.neuron, result(i), channel); },
            [&](auto i, auto channel) {
              return neuronDerivativeFromResultBound(item.neuron, result(i), channel);
            },
            &dy),
        dx, what);
  });
  EXPECT_GT(checked, 50);
}

/// The kinks, the bounds and the arguments where a careless formula overflows or gives NaN.
std::vector<float> specialArguments(const NNNeuronDescriptor& neuron) {
  std::vector<float> x = {0.0F,     -0.0F,     1.0F,       -1.0F, 2.5F,   -2.5F,   100.0F, -100.0F, 1000.0F,
                          -1000.0F, kInfinity, -kInfinity, kNaN,  1e-30F, -1e-30F, 1e-42F, -1e-42F};
  for (const float bound : {neuron.b(), -neuron.b(), neuron.b() / neuron.a()})
    if (std::isfinite(bound)) x.push_back(bound);
  return x;
}

/// Where the reference is NaN, infinite, zero or exact, the vectors must be so too.
void expectSpecial(double expected, const NeuronBound& bound, float found, const std::string& what) {
  const auto stored = static_cast<float>(expected);
  if (std::isnan(stored)) {
    EXPECT_TRUE(std::isnan(found)) << what << ": found " << found;
    return;
  }
  const double magnitude = std::isfinite(bound.magnitude) ? bound.magnitude : std::abs(expected);
  const double allowed =
      std::isinf(stored) ? 0 : arithmeticBound(magnitude, bound.roundings + 1, bound.transcendental);
  if (std::isinf(stored) || allowed == 0)
    EXPECT_EQ(found, stored) << what;
  else
    EXPECT_NEAR(static_cast<double>(found), expected, allowed) << what;
}

TEST(NeuronSpan, SpecialArguments) {
  forEachTarget([](const std::string& target) {
    for (const NeuronCase& item : neuronCases(1)) {
      const std::vector<float> x = specialArguments(item.neuron);
      const std::vector<float> ones(x.size(), 1.0F);
      std::vector<float> y(x.size(), 42.0F);
      std::vector<float> dx(x.size(), 42.0F);
      const NeuronRun run{static_cast<std::int64_t>(x.size()), 1, 0};
      neuronValues(item.neuron, run, x.data(), y.data());
      neuronGradients(item.neuron, run, x.data(), ones.data(), dx.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto argument = static_cast<double>(x[i]);
        const std::string what = item.neuron.describe() + " " + target + " at " + std::to_string(x[i]);
        expectSpecial(neuronValue(item.neuron, argument), neuronValueBound(item.neuron, argument), y[i],
                      what);
        expectSpecial(neuronDerivative(item.neuron, argument), neuronDerivativeBound(item.neuron, argument),
                      dx[i], "derivative of " + what);
      }
    }
  });
}

/// Through the result, at the places where only the sign bit of zero tells the side.
TEST(NeuronSpan, DerivativeFromResultAtZero) {
  forEachTarget([](const std::string& target) {
    for (const NeuronCase& item : neuronCases(1)) {
      const CNNNeuronType type = item.neuron.neuronType();
      if (!derivativeFromResult(item.neuron) ||
          (type != ReLU && type != PReLU && type != ReLUN && type != ELU))
        continue;
      const std::vector<float> x = {0.0F, -0.0F, 1.0F, -1.0F, 0.5F, -0.5F, -kInfinity, kNaN};
      const std::vector<float> ones(x.size(), 1.0F);
      std::vector<float> y(x.size());
      std::vector<float> fromResult(x.size(), 42.0F);
      std::vector<float> fromSource(x.size(), 42.0F);
      const NeuronRun run{static_cast<std::int64_t>(x.size()), 1, 0};
      neuronValues(item.neuron, run, x.data(), y.data());
      neuronGradients(item.neuron, run, x.data(), ones.data(), fromSource.data());
      neuronGradientsFromResult(item.neuron, run, y.data(), ones.data(), fromResult.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::string what = item.neuron.describe() + " " + target + " at " + std::to_string(x[i]);
        if (std::isnan(fromSource[i])) {
          EXPECT_TRUE(std::isnan(fromResult[i])) << what;
        } else {
          EXPECT_NEAR(fromResult[i], fromSource[i], 2 * kFloat32Roundoff) << what;
        }
      }
    }
  });
}

}  // namespace
}  // namespace mps::detail::neuron_span_test
