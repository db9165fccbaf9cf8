#include "mps/batch_normalization/check/batch_normalization_reference.hpp"

#include <algorithm>
#include <cmath>

#include "mps/conform/tolerance.hpp"
#include "mps/core/neuron/neuron_reference.hpp"

namespace mps::detail {
namespace {

constexpr std::int64_t kRoundingsOfZ = 4;           // scale, difference, product, sum
constexpr std::int64_t kRoundingsOfStatistics = 2;  // mean and variance

ReferenceTensor emptyLike(const ReferenceTensor& tensor) {
  ReferenceTensor result(tensor.images, tensor.height, tensor.width, tensor.channels);
  result.magnitude.resize(result.values.size());
  return result;
}

ReferenceTensor channelsOf(std::int64_t channels, std::int64_t roundings) {
  ReferenceTensor result(1, 1, 1, channels);
  result.magnitude.resize(result.values.size());
  result.roundings = roundings;
  return result;
}

float rounded(double value) {
  return static_cast<float>(value);
}

/// One channel.
struct Channel {
  double gamma, beta, mean, r;
  bool isStored;

  Channel(const BatchNormalizationProblem& problem, const BatchNormalizationNumbers& numbers, std::size_t c)
      : gamma(numbers.gamma[c]),
        beta(numbers.beta[c]),
        mean(numbers.mean[c]),
        r(1 / std::sqrt(numbers.variance[c] + static_cast<double>(problem.epsilon))),
        isStored(numbers.areStored) {}

  [[nodiscard]] double z(double x) const {
    if (!isStored) return gamma * ((x - mean) * r) + beta;
    const float scale = rounded(gamma * r);
    const float difference = rounded(x) - rounded(mean);
    const float product = difference * scale;
    return static_cast<double>(product + rounded(beta));
  }
  /// |x - mean|; where the kernel's mean is a rounded one, with what that may change.
  [[nodiscard]] double distance(double x) const {
    return std::abs(x - mean) + (isStored ? 0 : std::abs(x) + std::abs(mean));
  }
  /// Absolute terms of z.
  [[nodiscard]] double magnitude(double x) const {
    return std::abs(gamma) * r * distance(x) + std::abs(beta);
  }
};

/// How far f'(z) may be from that of a kernel which rounds statistics and z, and may so be on the other side of a kink.
double changeOfDerivative(const NNNeuronDescriptor& neuron, const Channel& channel, std::size_t c, double x) {
  const auto index = static_cast<std::int64_t>(c);
  const double z = channel.z(x);
  const double error = arithmeticBound(channel.magnitude(x), kRoundingsOfZ + kRoundingsOfStatistics, 0);
  const double derivative = neuronDerivative(neuron, z, index);
  double change = 0;
  for (const double other : {z - error, z + error})
    change = std::max(change, std::abs(neuronDerivative(neuron, other, index) - derivative));
  return change;
}

/// g = dy f'(z) and its bound.
struct NeuronGradient {
  double value = 0;
  NeuronBound bound;
};
NeuronGradient neuronGradientOf(const BatchNormalizationProblem& problem, const Channel& channel,
                                std::size_t c, double x, double dy) {
  if (problem.neuron.neuronType() == CNNNeuronType::None) return {dy, {std::abs(dy), 0, 0}};
  const double z = channel.z(x);
  NeuronGradient gradient;
  gradient.bound = neuronDerivativeBound(problem.neuron, z, static_cast<std::int64_t>(c));
  NeuronBound& bound = gradient.bound;
  bound.roundings += 1 + (channel.isStored ? 0 : kRoundingsOfZ);
  if (!channel.isStored)  // as a magnitude that so many roundings make an error of that size
    bound.magnitude += changeOfDerivative(problem.neuron, channel, c, x) /
                       arithmeticBound(1, bound.roundings, bound.transcendental);
  bound.magnitude *= std::abs(dy);
  gradient.value = dy * neuronDerivative(problem.neuron, z, static_cast<std::int64_t>(c));
  return gradient;
}

}  // namespace

BatchStatistics batchStatisticsReference(std::span<const ReferenceTensor> sources) {
  const std::int64_t channels = sources[0].channels;
  // Sums are float64 in the kernels; the results are rounded once.
  BatchStatistics statistics{channelsOf(channels, 1), channelsOf(channels, 1)};
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    const auto sumOf = [&](auto term) {
      double sum = 0;
      double count = 0;
      for (const ReferenceTensor& source : sources)
        for (std::size_t i = c; i < source.values.size(); i += static_cast<std::size_t>(channels)) {
          sum += term(source.values[i]);
          ++count;
        }
      return sum / count;
    };
    const double mean = sumOf([](double x) { return x; });
    statistics.mean.values[c] = mean;
    statistics.mean.magnitude[c] = sumOf([](double x) { return std::abs(x); });
    statistics.variance.values[c] = sumOf([mean](double x) { return (x - mean) * (x - mean); });
    statistics.variance.magnitude[c] = statistics.variance.values[c];
  }
  return statistics;
}

ReferenceTensor batchNormalizationReference(const BatchNormalizationProblem& problem,
                                            const BatchNormalizationNumbers& numbers,
                                            const ReferenceTensor& source, const ReferenceTensor& addend) {
  ReferenceTensor result = emptyLike(source);
  const auto channels = static_cast<std::size_t>(source.channels);
  for (std::size_t i = 0; i < source.values.size(); ++i) {
    const std::size_t c = i % channels;
    const Channel channel(problem, numbers, c);
    const double x = source.values[i];
    double z = channel.z(x);
    if (problem.hasAddend()) z = static_cast<double>(rounded(z) + rounded(addend.values[i]));
    const auto index = static_cast<std::int64_t>(c);
    const NeuronBound bound = neuronValueBound(problem.neuron, z, index);
    result.values[i] = neuronValue(problem.neuron, z, index);
    result.magnitude[i] = bound.magnitude;
    result.roundings = bound.roundings;
    result.transcendental = bound.transcendental;
    if (numbers.areStored) continue;
    result.magnitude[i] += channel.magnitude(x);
    result.roundings += kRoundingsOfZ + kRoundingsOfStatistics;
  }
  return result;
}

BatchNormalizationSums batchNormalizationSumsReference(const BatchNormalizationProblem& problem,
                                                       const BatchNormalizationNumbers& numbers,
                                                       std::span<const ReferenceTensor> sources,
                                                       std::span<const ReferenceTensor> gradients) {
  const std::int64_t channels = sources[0].channels;
  BatchNormalizationSums sums{channelsOf(channels, 0), channelsOf(channels, 0), channelsOf(channels, 0),
                              channelsOf(channels, 0)};
  std::int64_t roundings = 0;
  std::int64_t transcendental = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    const Channel channel(problem, numbers, c);
    double magnitude = 0;
    double magnitudeOfProducts = 0;
    for (std::size_t t = 0; t < sources.size(); ++t)
      for (std::size_t i = c; i < sources[t].values.size(); i += static_cast<std::size_t>(channels)) {
        const double x = sources[t].values[i];
        const NeuronGradient g = neuronGradientOf(problem, channel, c, x, gradients[t].values[i]);
        sums.beta.values[c] += g.value;
        sums.gamma.values[c] += g.value * ((x - channel.mean) * channel.r);
        magnitude += g.bound.magnitude;
        magnitudeOfProducts += g.bound.magnitude * channel.distance(x) * channel.r;
        roundings = g.bound.roundings;
        transcendental = g.bound.transcendental;
      }
    const double gamma = std::abs(channel.gamma);
    sums.mean.values[c] = -channel.gamma * channel.r * sums.beta.values[c];
    sums.variance.values[c] = -0.5 * channel.gamma * channel.r * channel.r * sums.gamma.values[c];
    sums.beta.magnitude[c] = magnitude;
    sums.gamma.magnitude[c] = magnitudeOfProducts;
    sums.mean.magnitude[c] = gamma * channel.r * magnitude;
    sums.variance.magnitude[c] = 0.5 * gamma * channel.r * channel.r * magnitudeOfProducts;
  }
  for (ReferenceTensor* tensor : {&sums.beta, &sums.gamma, &sums.mean, &sums.variance}) {
    // One for the store, three for a variance that was rounded before.
    tensor->roundings = roundings + 1 + (numbers.areStored ? 0 : 3);
    tensor->transcendental = transcendental;
  }
  return sums;
}

ReferenceTensor batchNormalizationGradientReference(const BatchNormalizationProblem& problem,
                                                    const BatchNormalizationNumbers& numbers,
                                                    const BatchNormalizationSums& sums, double count,
                                                    const ReferenceTensor& source,
                                                    const ReferenceTensor& gradient) {
  ReferenceTensor result = emptyLike(gradient);
  const auto channels = static_cast<std::size_t>(gradient.channels);
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    const std::size_t c = i % channels;
    const Channel channel(problem, numbers, c);
    // With constant statistics and no neuron there may be no source at all.
    const double x = source.values.empty() ? channel.mean : source.values[i];
    const NeuronGradient g = neuronGradientOf(problem, channel, c, x, gradient.values[i]);
    const double scale = channel.gamma * channel.r;
    // scale and its product; the shares of the sums, a difference, two products and two differences
    result.roundings = g.bound.roundings + 2;
    result.transcendental = g.bound.transcendental;
    double value = g.value;
    double magnitude = g.bound.magnitude;
    if (!problem.hasConstantStatistics) {
      const double factor = channel.r * sums.gamma.values[c] / count;
      value -= sums.beta.values[c] / count + (x - channel.mean) * factor;
      magnitude += std::abs(sums.beta.values[c] / count) + channel.distance(x) * std::abs(factor);
      if (!sums.beta.magnitude.empty()) {  // computed, not given: they may be off themselves
        const double h = channel.distance(x) * channel.r;
        magnitude += (sums.beta.magnitude[c] + h * sums.gamma.magnitude[c]) / count;
      }
      result.roundings += 6;
    }
    if (!numbers.areStored) result.roundings += 6;
    result.values[i] = scale * value;
    result.magnitude[i] = std::abs(scale) * magnitude;
  }
  return result;
}

}  // namespace mps::detail
