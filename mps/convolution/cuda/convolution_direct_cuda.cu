#include <algorithm>
#include <memory>
#include <type_traits>

#include "mps/convolution/cuda/convolution_cuda.hpp"
#include "mps/convolution/cuda/convolution_direct_cuda.cuh"
#include "mps/convolution/cuda/convolution_staging_cuda.hpp"
#include "mps/convolution/cuda/convolution_sums_cuda.cuh"
#include "mps/core/neuron/neuron_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::ConvolutionNumbers;
using cuda::ReadTensor;

/// The last steps of an element of the destination.
struct DirectResult {
  TensorShape shape;
  std::byte* memory;
  const float* bias;  ///< or null
  cuda::NeuronNumbers neuron;
  const float* slopes;  ///< of PReLU
  bool accumulate;

  __device__ void store(float sum, std::int64_t offset, std::int64_t channel) const {
    if (bias != nullptr) sum += bias[channel];
    const float slope = neuron.type == CNNNeuronType::PReLU ? slopes[channel] : 0.0F;
    float value = cuda::neuronValue(neuron.type, neuron, slope, sum);
    if (accumulate) value += cuda::loadAs(shape.format, memory, offset);
    cuda::storeAs(value, shape.format, memory, offset);
  }
};

/// Calls body(image, y, x, channel) for the elements of a tensor that are this thread's.
template <class Body>
__device__ void forEachElement(const TensorShape& shape, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       e < shape.elements(); e += step) {
    const std::int64_t pixel = e / shape.channels;
    const std::int64_t row = pixel / shape.width;
    body(row / shape.height, row % shape.height, pixel % shape.width, e % shape.channels);
  }
}

/// The parameters -> [tap][channel of the group][k] for forward, [tap][k of the group][c] for data gradients: the
/// channels of the result are neighbours.
__global__ void reorderWeights(ConvolutionNumbers n, bool forward, const float* from, float* to) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n.weightCount;
       i += step) {
    const std::int64_t channels = forward ? n.outputChannels : n.inputChannels;
    const std::int64_t others = forward ? n.inputs : n.outputs;
    const std::int64_t channel = i % channels;
    const std::int64_t other = i / channels % others;
    const std::int64_t tap = i / channels / others;
    to[i] = from[forward ? n.weightPlace(channel, tap, other)
                         : n.weightPlace(channel / n.inputs * n.outputs + other, tap, channel % n.inputs)];
  }
}

/// Forward, or the data gradient.
template <bool isForward, class Tensor>
__global__ void convolveDirect(ConvolutionNumbers n, Tensor read, const float* weights, DirectResult result) {
  forEachElement(result.shape, [&](std::int64_t image, std::int64_t y, std::int64_t x, std::int64_t k) {
    result.store(cuda::pixelSum<isForward>(n, read, weights, image, y, x, k),
                 result.shape.offset(image, y, x, k), k);
  });
}

/// Partial sums of slice blockIdx.y for kSumLanes weights.
template <class Source, class Gradient>
__global__ void sumWeightGradients(ConvolutionNumbers n, Source source, Gradient gradient, float* partial) {
  const std::int64_t weight = static_cast<std::int64_t>(blockIdx.x) * cuda::kSumLanes + threadIdx.x;
  float sum = 0;
  if (weight < n.weightCount)
    sum = cuda::weightGradientSum(n, source, gradient, weight, blockIdx.y * cuda::kSumRows + threadIdx.y,
                                  static_cast<std::int64_t>(gridDim.y) * cuda::kSumRows);
  sum = cuda::sumOfRows<cuda::kSumRows>(sum);
  if (weight < n.weightCount && threadIdx.y == 0) partial[blockIdx.y * n.weightCount + weight] = sum;
}

/// Where the gradient of a weight with the number of weightGradientSum() belongs.
struct PlaceOfWeight {
  ConvolutionNumbers n;
  float* to;
  __device__ float* operator()(std::int64_t weight) const {
    const std::int64_t tapOfOutput = weight / n.inputs;
    return to + n.weightPlace(tapOfOutput / n.taps(), tapOfOutput % n.taps(), weight % n.inputs);
  }
};

/// Calls body(T()) with float, Float16 or, for other formats, std::byte.
template <class Body>
void withReadType(ImageFeatureChannelFormat format, Body body) {
  if (format == ImageFeatureChannelFormat::Float32)
    body(std::type_identity<float>());
  else if (format == ImageFeatureChannelFormat::Float16)
    body(std::type_identity<Float16>());
  else
    body(std::type_identity<void>());
}

class DirectPlan final : public Plan {
 public:
  explicit DirectPlan(const ConvolutionProblem& problem)
      : problem_(problem), numbers_(problem), neuron_(problem.neuron) {
    const auto floats = [&](std::int64_t count) {
      return scratch_.reserve(static_cast<std::size_t>(count) * sizeof(float));
    };
    if (problem.operation != ConvolutionOperation::WeightsGradient) {
      slopes_ = cuda::NeuronSlopes(problem.neuron, scratch_);
      weights_ = floats(problem.weightCount());
      return;
    }
    const std::int64_t blocks = (problem.weightCount() + cuda::kSumLanes - 1) / cuda::kSumLanes;
    const std::int64_t rows = problem.images() * problem.y.destinationSize;
    slices_ = cuda::slicesFor(blocks, (rows + cuda::kSumRows - 1) / cuda::kSumRows);
    weights_ = floats(slices_ * problem.weightCount());
    if (problem.hasBias)
      biases_ = cuda::PixelSums(problem.transposed ? problem.source : problem.gradient, false, scratch_);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.operation == ConvolutionOperation::WeightsGradient) return sumGradients(stream, operands);
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const bool forward = problem_.operation == ConvolutionOperation::Forward;
    auto* const weights = reinterpret_cast<float*>(operands.scratch + weights_);
    const dim3 block(mtl::cuda::kBlockThreads);
    mtl::cuda::launch(stream, reorderWeights, gridFor(numbers_.weightCount), block, 0, numbers_, forward,
                      reinterpret_cast<const float*>(operands.parameters[0]), weights);
    const bool hasBias = problem_.hasBias && forward != problem_.transposed;
    const DirectResult result{to,
                              operands.destination,
                              hasBias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr,
                              neuron_,
                              slopes_.load(stream, operands.scratch),
                              operands.accumulate};
    const TensorShape& read = forward ? problem_.source : problem_.gradient;
    withReadType(read.format, [&](auto type) {
      using Read = ReadTensor<typename decltype(type)::type>;
      mtl::cuda::launch(stream, forward ? convolveDirect<true, Read> : convolveDirect<false, Read>,
                        gridFor(to.elements()), block, 0, numbers_,
                        Read(read, forward ? operands.source : operands.gradient), weights, result);
    });
  }

 private:
  /// Each thread then takes several elements.
  static constexpr std::int64_t kMostThreads = std::int64_t{1} << 24U;

  static dim3 gridFor(std::int64_t elements) {
    return dim3(mtl::cuda::blocksFor(std::min(elements, kMostThreads)));
  }

  void sumGradients(mtl::Stream& stream, const Operands& operands) const {
    auto* const partial = reinterpret_cast<float*>(operands.scratch + weights_);
    const dim3 grid(mtl::cuda::blocksFor(numbers_.weightCount, cuda::kSumLanes),
                    static_cast<unsigned>(slices_));
    const dim3 block(cuda::kSumLanes, cuda::kSumRows);
    const bool sameFormat = problem_.source.format == problem_.gradient.format;
    withReadType(sameFormat ? problem_.source.format : ImageFeatureChannelFormat::None, [&](auto type) {
      using Read = ReadTensor<typename decltype(type)::type>;
      mtl::cuda::launch(stream, sumWeightGradients<Read, Read>, grid, block, 0, numbers_,
                        Read(problem_.source, operands.source), Read(problem_.gradient, operands.gradient),
                        partial);
    });
    cuda::launchSumSlices(stream, partial, slices_, numbers_.weightCount, operands.accumulate,
                          PlaceOfWeight{numbers_, reinterpret_cast<float*>(operands.parameters[2])});
    if (problem_.hasBias)
      biases_.run(stream, problem_.transposed ? operands.source : operands.gradient,
                  reinterpret_cast<float*>(operands.parameters[3]), operands.accumulate, operands.scratch);
  }

  ConvolutionProblem problem_;
  ConvolutionNumbers numbers_;
  cuda::NeuronNumbers neuron_;
  ScratchLayout scratch_;
  cuda::NeuronSlopes slopes_;
  cuda::PixelSums biases_;
  std::int64_t slices_ = 0;
  std::size_t weights_ = 0;  ///< reordered; or the slices' sums of their gradients
};

}  // namespace

Preparation prepareConvolutionDirectCuda(const ConvolutionProblem& problem) {
  return std::make_shared<const DirectPlan>(problem);
}

}  // namespace mps::detail
