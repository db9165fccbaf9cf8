#include "mps/convolution/check/convolution_reference.hpp"

#include <algorithm>
#include <cmath>

#include "mps/conform/tolerance.hpp"
#include "mps/core/neuron/neuron_reference.hpp"

namespace mps::detail {
namespace {

constexpr std::int64_t kNeuronRoundings = 4;

/// Source coordinate that tap p of window x reads in an ordinary convolution.
std::int64_t coordinate(const WindowAxis& axis, std::int64_t x, std::int64_t p) {
  const std::int64_t dilatedKernel = (axis.kernelSize - 1) * axis.dilation + 1;
  return axis.offset + axis.stride * x - dilatedKernel / 2 + axis.dilation * p;
}

/// The pixel that a read at coordinate i delivers: -1 for a zero.
std::int64_t pixelAt(std::int64_t i, std::int64_t size, ImageEdgeMode edgeMode) {
  if (edgeMode == ImageEdgeMode::Clamp) return std::clamp<std::int64_t>(i, 0, size - 1);
  return i >= 0 && i < size ? i : -1;
}

/// Pixel of the transposed convolution's result that tap p adds the pixel x of its source to, outside:
/// anything. T is taken back from the partner's offset.
std::int64_t resultCoordinate(const WindowAxis& axis, std::int64_t x, std::int64_t p) {
  const std::int64_t dilatedKernel = (axis.kernelSize - 1) * axis.dilation + 1;
  const std::int64_t t = (dilatedKernel % 2 == 0 ? 1 : 0) - axis.offset;
  return axis.stride * x - t + dilatedKernel / 2 - axis.dilation * p;
}

/// Products of the sums that differ in the input channel alone: `count` of them, from the first channel of
/// the group on.
struct Terms {
  std::int64_t largeY, largeX, firstInput;  ///< in the tensor of the sizes x.sourceSize and y.sourceSize
  std::int64_t smallY, smallX, output;      ///< in the tensor of the sizes x.destinationSize and ...
  std::int64_t firstWeight, weightStep;     ///< index into the weights, and its change with the channel
  std::int64_t count;

  [[nodiscard]] std::size_t weight(std::int64_t i) const {
    return static_cast<std::size_t>(firstWeight + i * weightStep);
  }
};

/// Calls visit(terms) until every product of one image was in them.
template <class Visit>
void forEachTerms(const ConvolutionProblem& problem, Visit visit) {
  const WindowAxis& x = problem.x;
  const WindowAxis& y = problem.y;
  const std::int64_t inputs = problem.inputFeatureChannels / problem.groups;
  const std::int64_t outputs = problem.outputFeatureChannels / problem.groups;
  for (std::int64_t windowY = 0; windowY < y.destinationSize; ++windowY)
    for (std::int64_t windowX = 0; windowX < x.destinationSize; ++windowX)
      for (std::int64_t q = 0; q < y.kernelSize; ++q)
        for (std::int64_t p = 0; p < x.kernelSize; ++p) {
          std::int64_t v = 0;
          std::int64_t u = 0;
          if (problem.transposed) {
            v = pixelAt(resultCoordinate(y, windowY, q), y.sourceSize, ImageEdgeMode::Zero);
            u = pixelAt(resultCoordinate(x, windowX, p), x.sourceSize, ImageEdgeMode::Zero);
          } else {
            v = pixelAt(coordinate(y, windowY, q), y.sourceSize, problem.edgeMode);
            u = pixelAt(coordinate(x, windowX, p), x.sourceSize, problem.edgeMode);
          }
          if (v < 0 || u < 0) continue;
          for (std::int64_t group = 0; group < problem.groups; ++group)
            for (std::int64_t k = 0; k < outputs; ++k) {
              const std::int64_t output = group * outputs + k;
              const std::int64_t input = group * inputs;
              const std::int64_t tap = q * x.kernelSize + p;
              const std::int64_t taps = y.kernelSize * x.kernelSize;
              if (problem.transposed)
                visit(Terms{v, u, input, windowY, windowX, output, (input * taps + tap) * outputs + k,
                            taps * outputs, inputs});
              else
                visit(
                    Terms{v, u, input, windowY, windowX, output, (output * taps + tap) * inputs, 1, inputs});
            }
        }
}

bool isNormalised(ImageFeatureChannelFormat format) {
  return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16;
}

/// Adds the bias and applies the neuron. An error of the sum grows by the neuron's slope, the largest within
/// the error's reach.
void finish(const ConvolutionProblem& problem, std::span<const double> bias, ReferenceTensor& result) {
  const NNNeuronDescriptor& neuron = problem.neuron;
  const bool hasNeuron = neuron.neuronType() != CNNNeuronType::None;
  for (std::size_t i = 0; i < result.values.size(); ++i) {
    const auto channel = static_cast<std::int64_t>(i) % result.channels;
    if (!bias.empty()) result.add(i, bias[static_cast<std::size_t>(channel)]);
    if (!hasNeuron) continue;
    const double sum = result.values[i];
    const double error = arithmeticBound(result.magnitude[i], result.roundings, 0);
    double slope = 0;
    for (const double at : {sum - error, sum, sum + error}) {
      const double derivative = std::abs(neuronDerivative(neuron, at, channel));
      if (std::isfinite(derivative)) slope = std::max(slope, derivative);
    }
    result.values[i] = neuronValue(neuron, sum, channel);
    result.magnitude[i] = slope * result.magnitude[i] + std::abs(result.values[i]) +
                          std::abs(static_cast<double>(neuron.a()) * sum) + std::abs(neuron.b());
  }
  if (hasNeuron) {
    result.roundings += kNeuronRoundings;
    result.transcendental += 1;
  }
}

std::size_t indexOf(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

ReferenceTensor convolutionForwardReference(const ConvolutionProblem& problem, const ReferenceTensor& source,
                                            std::span<const double> weights, std::span<const double> bias) {
  ReferenceTensor result(source.images, problem.y.destinationSize, problem.x.destinationSize,
                         problem.outputFeatureChannels);
  result.roundings =
      problem.inputFeatureChannels / problem.groups * problem.y.kernelSize * problem.x.kernelSize + 1 +
      (isNormalised(problem.source.format) ? 1 : 0);
  result.magnitude.resize(result.values.size());
  for (std::int64_t n = 0; n < source.images; ++n)
    forEachTerms(problem, [&](const Terms& terms) {
      const double* from = &source.values[source.index(n, terms.largeY, terms.largeX, terms.firstInput)];
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t c = 0; c < terms.count; ++c) {
        const double product = weights[terms.weight(c)] * from[c];
        sum += product;
        magnitude += std::abs(product);
      }
      const std::size_t to = result.index(n, terms.smallY, terms.smallX, terms.output);
      result.values[to] += sum;
      result.magnitude[to] += magnitude;
    });
  finish(problem, bias, result);
  return result;
}

ReferenceTensor convolutionDataGradientReference(const ConvolutionProblem& problem,
                                                 const ReferenceTensor& gradient,
                                                 std::span<const double> weights,
                                                 std::span<const double> bias) {
  ReferenceTensor result(gradient.images, problem.y.sourceSize, problem.x.sourceSize,
                         problem.inputFeatureChannels);
  // At most every window reads a pixel with every tap, when the edge is clamped.
  const std::int64_t rows = problem.edgeMode == ImageEdgeMode::Clamp ? problem.y.destinationSize : 1;
  const std::int64_t columns = problem.edgeMode == ImageEdgeMode::Clamp ? problem.x.destinationSize : 1;
  result.roundings = problem.outputFeatureChannels / problem.groups * problem.y.kernelSize * rows *
                         problem.x.kernelSize * columns +
                     1 + (isNormalised(problem.gradient.format) ? 1 : 0);
  result.magnitude.resize(result.values.size());
  for (std::int64_t n = 0; n < gradient.images; ++n)
    forEachTerms(problem, [&](const Terms& terms) {
      const double from = gradient.at(n, terms.smallY, terms.smallX, terms.output);
      const std::size_t to = result.index(n, terms.largeY, terms.largeX, terms.firstInput);
      double* values = &result.values[to];
      double* magnitude = &result.magnitude[to];
      for (std::int64_t c = 0; c < terms.count; ++c) {
        const double product = weights[terms.weight(c)] * from;
        values[c] += product;
        magnitude[c] += std::abs(product);
      }
    });
  finish(problem, bias, result);
  return result;
}

ReferenceTensor subPixelReference(const ReferenceTensor& convolution, std::int64_t scaleFactor,
                                  std::int64_t height, std::int64_t width) {
  const std::int64_t r = scaleFactor;
  const std::int64_t channels = convolution.channels / (r * r);
  ReferenceTensor result(convolution.images, height, width, channels);
  result.roundings = convolution.roundings;
  result.transcendental = convolution.transcendental;
  if (!convolution.magnitude.empty()) result.magnitude.resize(result.values.size());
  for (std::int64_t n = 0; n < result.images; ++n)
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x)
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::size_t to = result.index(n, y, x, c);
          const std::size_t from = convolution.index(n, y / r, x / r, channels * (r * (y % r) + x % r) + c);
          result.values[to] = convolution.values[from];
          if (!convolution.magnitude.empty()) result.magnitude[to] = convolution.magnitude[from];
        }
  return result;
}

ConvolutionParameterGradients convolutionWeightsGradientReference(const ConvolutionProblem& problem,
                                                                  const ReferenceTensor& source,
                                                                  const ReferenceTensor& gradient) {
  const std::int64_t first =
      problem.transposed ? problem.inputFeatureChannels : problem.outputFeatureChannels;
  const std::int64_t last = problem.transposed ? problem.outputFeatureChannels : problem.inputFeatureChannels;
  ConvolutionParameterGradients result{
      ReferenceTensor(first, problem.y.kernelSize, problem.x.kernelSize, last / problem.groups),
      ReferenceTensor(1, 1, 1, first)};
  const std::int64_t conversions =
      (isNormalised(problem.source.format) ? 1 : 0) + (isNormalised(problem.gradient.format) ? 1 : 0);
  result.weights.roundings =
      gradient.images * problem.y.destinationSize * problem.x.destinationSize + 1 + conversions;
  result.weights.magnitude.resize(result.weights.values.size());
  for (std::int64_t n = 0; n < gradient.images; ++n)
    forEachTerms(problem, [&](const Terms& terms) {
      const double outer = gradient.at(n, terms.smallY, terms.smallX, terms.output);
      const double* from = &source.values[source.index(n, terms.largeY, terms.largeX, terms.firstInput)];
      for (std::int64_t c = 0; c < terms.count; ++c) {
        const double product = outer * from[c];
        result.weights.values[terms.weight(c)] += product;
        result.weights.magnitude[terms.weight(c)] += std::abs(product);
      }
    });

  const ReferenceTensor& summed = problem.transposed ? source : gradient;
  result.bias.roundings = summed.images * summed.height * summed.width + conversions;
  result.bias.magnitude.resize(result.bias.values.size());
  for (std::int64_t n = 0; n < summed.images; ++n)
    for (std::int64_t y = 0; y < summed.height; ++y)
      for (std::int64_t x = 0; x < summed.width; ++x)
        for (std::int64_t c = 0; c < first; ++c) result.bias.add(indexOf(c), summed.at(n, y, x, c));
  return result;
}

}  // namespace mps::detail
