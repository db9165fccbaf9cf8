#include <algorithm>
#include <cstdint>

#include "mps/convolution/cuda/convolution_staging_cuda.hpp"
#include "mps/convolution/cuda/convolution_sums_cuda.cuh"
#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/store_numbers_cuda.cuh"
#include "mps/core/neuron/neuron_cuda.cuh"

namespace mps::detail::cuda {
namespace {

/// Adjacent elements that a thread of the fast kernels takes at once.
constexpr int kQuad = 4;
/// Vectors that a thread loads before it stores the first one.
constexpr int kVectors = 4;

template <int lanes>
struct Vector {
  float values[lanes];
};

/// Access to adjacent elements: T is float or Float16; or void, one element of any format.
template <class T>
struct Elements {
  template <int lanes>
  __device__ static Vector<lanes> loadVector(const std::byte* memory, std::int64_t offset,
                                             ImageFeatureChannelFormat /*format*/) {
    const T* const from = reinterpret_cast<const T*>(memory) + offset;
    if constexpr (lanes == 1) {
      return {{load(from)}};
    } else if constexpr (sizeof(T) == sizeof(float)) {
      const float4 v = *reinterpret_cast<const float4*>(from);
      return {{v.x, v.y, v.z, v.w}};
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      const float2 a = float2Of(v.x);
      const float2 b = float2Of(v.y);
      return {{a.x, a.y, b.x, b.y}};
    }
  }
  template <int lanes>
  __device__ static void storeVector(const Vector<lanes>& vector, std::byte* memory, std::int64_t offset,
                                     ImageFeatureChannelFormat /*format*/) {
    T* const to = reinterpret_cast<T*>(memory) + offset;
    const auto& v = vector.values;
    if constexpr (lanes == 1)
      store(v[0], to);
    else if constexpr (sizeof(T) == sizeof(float))
      *reinterpret_cast<float4*>(to) = float4{v[0], v[1], v[2], v[3]};
    else
      *reinterpret_cast<uint2*>(to) = uint2{toHalves(v[0], v[1]), toHalves(v[2], v[3])};
  }
};
template <>
struct Elements<void> {
  template <int lanes>
  __device__ static Vector<1> loadVector(const std::byte* memory, std::int64_t offset,
                                         ImageFeatureChannelFormat format) {
    return {{loadAs(format, memory, offset)}};
  }
  template <int lanes>
  __device__ static void storeVector(const Vector<1>& vector, std::byte* memory, std::int64_t offset,
                                     ImageFeatureChannelFormat format) {
    storeAs(vector.values[0], format, memory, offset);
  }
};

/// The pixel of a tensor that a pixel of an array stands for; negative: none.
struct PlaceMap {
  std::int32_t height;  ///< of what is read
  std::int32_t width;
  std::int32_t originY;  ///< added to the coordinates of what is written
  std::int32_t originX;
  std::int32_t channels;  ///< of what is read
  bool clamps;

  __device__ static std::int32_t coordinate(std::int32_t to, std::int32_t origin, std::int32_t size,
                                            bool clamps) {
    // Only a sum with an origin that is not negative can be beyond 2^31, and it is below 2^32.
    const std::uint32_t at = static_cast<std::uint32_t>(to) + static_cast<std::uint32_t>(origin);
    if (at < static_cast<std::uint32_t>(size)) return static_cast<std::int32_t>(at);
    if (!clamps) return -1;
    return origin < 0 && static_cast<std::int32_t>(at) < 0 ? 0 : size - 1;
  }
  /// Where `to` reads. False: nowhere.
  __device__ bool find(const ElementPlace& to, ElementPlace& from) const {
    from.image = to.image;
    from.y = coordinate(to.y, originY, height, clamps);
    from.x = coordinate(to.x, originX, width, clamps);
    from.channel = to.channel;
    return from.y >= 0 && from.x >= 0 && to.channel < channels;
  }
};

struct CopyArguments {
  ElementGrid grid;
  PlaceMap map;
  SourceView source;
  ResultView destination;
};

template <class From, class To, int lanes>
__global__ void copyPlaces(CopyArguments a) {
  Vector<lanes> vectors[kVectors];
  a.grid.template forEachBatch<kVectors, lanes>(
      [&](int i, const ElementPlace& place) {
        ElementPlace from;
        if (a.map.find(place, from))
          vectors[i] = Elements<From>::template loadVector<lanes>(a.source.memory, a.source.offset(from),
                                                                  a.source.format);
        else
          vectors[i] = {};
      },
      [&](int i, const ElementPlace& place) {
        Elements<To>::template storeVector<lanes>(vectors[i], a.destination.memory,
                                                  a.destination.offset(place), a.destination.format);
      });
}

/// Channels of 16 bytes of float16, which are a pixel of an array that was filled up.
constexpr int kWide = kLanes<Float16>;

/// copyPlaces for arrays of kWide channels, of tensors that have fewer.
template <class From>
__global__ void fillUpPixels(CopyArguments a) {
  Lanes<Float16> pixels[kVectors];
  a.grid.template forEachBatch<kVectors, kWide>(
      [&](int i, const ElementPlace& place) {
        pixels[i] = {};
        ElementPlace from;
        if (!a.map.find(place, from)) return;
        const From* const channels = reinterpret_cast<const From*>(a.source.memory) + a.source.offset(from);
#pragma unroll
        for (int c = 0; c < kWide; ++c)
          if (c < a.map.channels) pixels[i].values[c] = load(channels + c);
      },
      [&](int i, const ElementPlace& place) {
        storeLanes(pixels[i], reinterpret_cast<Float16*>(a.destination.memory) + a.destination.offset(place));
      });
}

struct FinishArguments {
  ElementGrid grid;
  PlaceMap map;
  SourceView values;
  ResultView destination;
  const float* bias;  ///< or null
  NeuronNumbers neuron;
  const float* slopes;  ///< of PReLU
  bool accumulate;
};

/// Stands for a neuron that is known only when a kernel runs.
constexpr auto kAnyNeuron = CNNNeuronType::Count;

template <class From, class To, int lanes, CNNNeuronType constantNeuron>
__global__ void finishElements(FinishArguments a) {
  const CNNNeuronType neuron = constantNeuron == kAnyNeuron ? a.neuron.type : constantNeuron;
  Vector<lanes> vectors[kVectors];
  a.grid.template forEachBatch<kVectors, lanes>(
      [&](int i, const ElementPlace& place) {
        ElementPlace from;
        if (a.map.find(place, from))
          vectors[i] = Elements<From>::template loadVector<lanes>(a.values.memory, a.values.offset(from),
                                                                  a.values.format);
        else
          vectors[i] = {};
      },
      [&](int i, const ElementPlace& place) {
        const std::int64_t to = a.destination.offset(place);
        for (int lane = 0; lane < lanes; ++lane) {
          const std::int32_t channel = place.channel + lane;
          float& value = vectors[i].values[lane];
          if (a.bias != nullptr) value += __ldg(a.bias + channel);
          const float slope = neuron == CNNNeuronType::PReLU ? __ldg(a.slopes + channel) : 0.0F;
          value = neuronValue(neuron, a.neuron, slope, value);
        }
        if (a.accumulate) {
          const Vector<lanes> old =
              Elements<To>::template loadVector<lanes>(a.destination.memory, to, a.destination.format);
          for (int lane = 0; lane < lanes; ++lane) vectors[i].values[lane] += old.values[lane];
        }
        Elements<To>::template storeVector<lanes>(vectors[i], a.destination.memory, to, a.destination.format);
      });
}

PlaceMap mapInto(const TensorShape& read, std::int64_t originY, std::int64_t originX, bool clamps) {
  // Sides are shorter than 2^31, and what lies farther away reads the same.
  const auto origin = [](std::int64_t at) {
    constexpr std::int64_t farthest = 0x7FFFFFFF;
    return static_cast<std::int32_t>(std::clamp(at, -farthest, farthest));
  };
  return {static_cast<std::int32_t>(read.height),
          static_cast<std::int32_t>(read.width),
          origin(originY),
          origin(originX),
          static_cast<std::int32_t>(read.channels),
          clamps};
}

template <class From, class To, int lanes>
void launchCopy(mtl::Stream& stream, CopyArguments& arguments, const TensorShape& to) {
  arguments.grid = ElementGrid(to, lanes, kVectors);
  mtl::cuda::launch(stream, copyPlaces<From, To, lanes>, arguments.grid.grid(), arguments.grid.block(), 0,
                    arguments);
}

void launchFillUp(mtl::Stream& stream, CopyArguments& arguments, const TensorShape& to) {
  arguments.grid = ElementGrid(to, kWide, kVectors);
  withElementType(arguments.source.format, [&](auto element) {
    mtl::cuda::launch(stream, fillUpPixels<decltype(element)>, arguments.grid.grid(), arguments.grid.block(),
                      0, arguments);
  });
}

template <class From, class To, int lanes>
void launchFinish(mtl::Stream& stream, FinishArguments& arguments, const TensorShape& to) {
  arguments.grid = ElementGrid(to, lanes, kVectors);
  const auto start = [&](void (*kernel)(FinishArguments)) {
    mtl::cuda::launch(stream, kernel, arguments.grid.grid(), arguments.grid.block(), 0, arguments);
  };
  if constexpr (lanes > 1) {
    if (arguments.neuron.type == CNNNeuronType::None)
      return start(finishElements<From, To, lanes, CNNNeuronType::None>);
    if (arguments.neuron.type == CNNNeuronType::ReLU)
      return start(finishElements<From, To, lanes, CNNNeuronType::ReLU>);
  }
  start(finishElements<From, To, lanes, kAnyNeuron>);
}

bool isFloat32(const TensorShape& shape) {
  return shape.format == ImageFeatureChannelFormat::Float32;
}
bool isFloat16(const TensorShape& shape) {
  return shape.format == ImageFeatureChannelFormat::Float16;
}

}  // namespace

bool takesQuads(const TensorShape& shape) {
  return (shape.channels | shape.pixelStride | shape.rowStride | shape.imageStride) % kQuad == 0;
}

bool canStage(const TensorShape& tensor) {
  return ElementGrid::fits(tensor);
}

DenseArray DenseArray::of(const TensorShape& tensor, ImageFeatureChannelFormat format) {
  return {TensorShape::dense(tensor.images, tensor.height, tensor.width, tensor.channels, format), 0, 0};
}

bool DenseArray::isTensor(const TensorShape& tensor) const {
  return tensor.isDense() && originY == 0 && originX == 0 && tensor.format == shape.format &&
         tensor.height == shape.height && tensor.width == shape.width && tensor.channels == shape.channels;
}

Workspace::Workspace(std::size_t bytes, ScratchLayout& scratch)
    : offset_(scratch.reserve(bytes + kAlignment)) {}

std::byte* Workspace::address(std::byte* scratch) const {
  std::byte* const begin = scratch + offset_;
  return begin + (kAlignment - reinterpret_cast<std::uintptr_t>(begin) % kAlignment) % kAlignment;
}

StagedInput::StagedInput(const TensorShape& tensor, const DenseArray& array, ImageEdgeMode edgeMode,
                         ScratchLayout& scratch)
    : tensor_(tensor), array_(array), edgeMode_(edgeMode), copied_(!array.isTensor(tensor)) {
  if (copied_) offset_ = scratch.reserve(array.bytes());
}

const std::byte* StagedInput::load(mtl::Stream& stream, const std::byte* tensor, std::byte* scratch) const {
  if (!copied_) return tensor;
  std::byte* const array = scratch + offset_;
  const TensorShape& to = array_.shape;
  CopyArguments arguments{
      {}, mapInto(tensor_, array_.originY, array_.originX, edgeMode_ == ImageEdgeMode::Clamp), {}, {}};
  arguments.source = {tensor_, tensor};
  arguments.destination = {to, array};
  const bool quads = takesQuads(tensor_) && takesQuads(to);
  if (quads && isFloat32(tensor_) && isFloat32(to))
    launchCopy<float, float, kQuad>(stream, arguments, to);
  else if (quads && isFloat16(tensor_) && isFloat32(to))
    launchCopy<Float16, float, kQuad>(stream, arguments, to);
  else if (quads && isFloat16(tensor_) && isFloat16(to))
    launchCopy<Float16, Float16, kQuad>(stream, arguments, to);
  else if (isFloat16(to) && to.channels == kWide && tensor_.channels < kWide)
    launchFillUp(stream, arguments, to);
  else
    launchCopy<void, void, 1>(stream, arguments, to);
  return array;
}

NeuronSlopes::NeuronSlopes(const NNNeuronDescriptor& neuron, ScratchLayout& scratch) : neuron_(neuron) {
  if (neuron.neuronType() == CNNNeuronType::PReLU) offset_ = scratch.reserve(neuron.data().size_bytes());
}

const float* NeuronSlopes::load(mtl::Stream& stream, std::byte* scratch) const {
  if (neuron_.neuronType() != CNNNeuronType::PReLU) return nullptr;
  auto* const slopes = reinterpret_cast<float*>(scratch + offset_);
  storeNumbers(stream, neuron_.data(), slopes);
  return slopes;
}

StagedOutput::StagedOutput(const ConvolutionProblem& problem, const DenseArray& array, ScratchLayout& scratch)
    : tensor_(problem.destination),
      neuron_(problem.neuron),
      array_(array),
      slopes_(problem.neuron, scratch),
      direct_(array.isTensor(problem.destination)) {
  if (!direct_ || problem.accumulate) offset_ = scratch.reserve(array.bytes());
}

std::byte* StagedOutput::target(const Operands& operands) const {
  return isDirect(operands) ? operands.destination : operands.scratch + offset_;
}

void StagedOutput::store(mtl::Stream& stream, const Operands& operands, const float* bias) const {
  const bool unchanged = bias == nullptr && neuron_.neuronType() == CNNNeuronType::None;
  if (isDirect(operands) && unchanged) return;
  const std::byte* const values = target(operands);
  const TensorShape& from = array_.shape;
  FinishArguments arguments{{},
                            mapInto(from, -array_.originY, -array_.originX, false),
                            {},
                            {},
                            bias,
                            NeuronNumbers(neuron_),
                            slopes_.load(stream, operands.scratch),
                            operands.accumulate};
  arguments.values = {from, values};
  arguments.destination = {tensor_, operands.destination};
  const bool quads = takesQuads(from) && takesQuads(tensor_);
  if (quads && isFloat32(from) && isFloat32(tensor_))
    launchFinish<float, float, kQuad>(stream, arguments, tensor_);
  else if (quads && isFloat32(from) && isFloat16(tensor_))
    launchFinish<float, Float16, kQuad>(stream, arguments, tensor_);
  else if (quads && isFloat16(from) && isFloat16(tensor_))
    launchFinish<Float16, Float16, kQuad>(stream, arguments, tensor_);
  else
    launchFinish<void, void, 1>(stream, arguments, tensor_);
}

namespace {

struct SumArguments {
  TensorShape shape;
  const std::byte* memory;
  bool isRun;  ///< pixels follow each other at a constant distance
  float* partial;

  [[nodiscard]] __device__ std::int64_t offset(std::int64_t pixel) const {
    if (isRun) return pixel * shape.pixelStride;
    const std::int64_t row = pixel / shape.width;
    return shape.offset(row / shape.height, row % shape.height, pixel % shape.width, 0);
  }
};

/// Slice blockIdx.y of the pixels. Threads of a row of the block take adjacent vectors of channels, rows of the
/// block take turns with the pixels.
template <class T, int lanes>
__global__ void sumPixelSlices(SumArguments a) {
  constexpr int kUnrolled = 4;
  extern __shared__ float shared[];  // [threads of the block][lanes]
  const std::int64_t channel = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * lanes;
  const std::int64_t pixels = a.shape.pixels();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  float sums[lanes] = {};
  if (channel < a.shape.channels) {
    std::int64_t pixel = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    for (; pixel + (kUnrolled - 1) * step < pixels; pixel += kUnrolled * step) {
      Vector<lanes> vectors[kUnrolled];
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i)
        vectors[i] = Elements<T>::template loadVector<lanes>(a.memory, a.offset(pixel + i * step) + channel,
                                                             a.shape.format);
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i)
        for (int lane = 0; lane < lanes; ++lane) sums[lane] += vectors[i].values[lane];
    }
    for (; pixel < pixels; pixel += step) {
      const Vector<lanes> vector =
          Elements<T>::template loadVector<lanes>(a.memory, a.offset(pixel) + channel, a.shape.format);
      for (int lane = 0; lane < lanes; ++lane) sums[lane] += vector.values[lane];
    }
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int lane = 0; lane < lanes; ++lane) shared[thread * lanes + lane] = sums[lane];
  __syncthreads();
  if (threadIdx.y != 0 || channel >= a.shape.channels) return;
  for (unsigned row = 1; row < blockDim.y; ++row)
    for (int lane = 0; lane < lanes; ++lane)
      sums[lane] += shared[(row * blockDim.x + threadIdx.x) * lanes + lane];
  for (int lane = 0; lane < lanes; ++lane)
    a.partial[static_cast<std::int64_t>(blockIdx.y) * a.shape.channels + channel + lane] = sums[lane];
}

/// Threads of a block that share the channels of a pixel.
unsigned threadsAcross(std::int64_t channels) {
  unsigned threads = 1;
  while (threads < mtl::cuda::kBlockThreads && threads < channels) threads *= 2;
  return threads;
}

template <class T, int lanes>
void launchSums(mtl::Stream& stream, const SumArguments& arguments, std::int64_t slices) {
  const std::int64_t vectors = arguments.shape.channels / lanes;
  const unsigned across = threadsAcross(vectors);
  const dim3 block(across, mtl::cuda::kBlockThreads / across);
  mtl::cuda::launch(stream, sumPixelSlices<T, lanes>,
                    dim3(mtl::cuda::blocksFor(vectors, across), static_cast<unsigned>(slices)), block,
                    mtl::cuda::kBlockThreads * lanes * sizeof(float), arguments);
}

}  // namespace

PixelSums::PixelSums(const TensorShape& tensor, bool isAligned, ScratchLayout& scratch)
    : tensor_(tensor), sumsQuads_(isAligned && takesQuads(tensor)) {
  // Threads take some pixels each, so that what comes after costs little.
  constexpr std::int64_t kPixelsPerThread = 8;
  const unsigned across = threadsAcross(tensor.channels);
  const std::int64_t down = mtl::cuda::kBlockThreads / across;
  slices_ = slicesFor((tensor.channels + across - 1) / across, tensor.pixels() / (down * kPixelsPerThread));
  offset_ = scratch.reserve(static_cast<std::size_t>(slices_ * tensor.channels) * sizeof(float));
}

void PixelSums::run(mtl::Stream& stream, const std::byte* tensor, float* sums, bool accumulate,
                    std::byte* scratch) const {
  const bool isRun = tensor_.rowStride == tensor_.width * tensor_.pixelStride &&
                     (tensor_.images <= 1 || tensor_.imageStride == tensor_.height * tensor_.rowStride);
  auto* const partial = reinterpret_cast<float*>(scratch + offset_);
  const SumArguments arguments{tensor_, tensor, isRun, partial};
  if (sumsQuads_ && isFloat32(tensor_))
    launchSums<float, kQuad>(stream, arguments, slices_);
  else if (sumsQuads_ && isFloat16(tensor_))
    launchSums<Float16, kQuad>(stream, arguments, slices_);
  else
    launchSums<void, 1>(stream, arguments, slices_);
  launchSumSlices(stream, partial, slices_, tensor_.channels, accumulate, SamePlace{sums});
}

bool DenseWeights::areGiven(const ConvolutionProblem& problem) const {
  return format == ImageFeatureChannelFormat::Float32 && outputs == problem.outputFeatureChannels &&
         inputs == problem.inputChannelsPerGroup();
}

std::int64_t DenseWeights::count(const ConvolutionProblem& problem) const {
  return outputs * problem.y.kernelSize * problem.x.kernelSize * inputs;
}

std::size_t DenseWeights::bytes(const ConvolutionProblem& problem) const {
  return static_cast<std::size_t>(count(problem)) * bytesPerChannel(format);
}

namespace {

/// Weights of `inputs` channels each among weights of `filledInputs` channels each.
struct WeightMap {
  std::int64_t count;  ///< of the filled ones
  std::int64_t givenCount;
  std::int64_t inputs;
  std::int64_t filledInputs;

  /// Number of the weight that a filled one is, or -1 for a zero.
  __device__ std::int64_t given(std::int64_t filled) const {
    // Without channels that were filled up the divisions would take most of the time.
    if (inputs == filledInputs) return filled < givenCount ? filled : -1;
    const std::int64_t c = filled % filledInputs;
    const std::int64_t i = filled / filledInputs * inputs + c;
    return c < inputs && i < givenCount ? i : -1;
  }
};

template <class T>
__global__ void fillUpElements(WeightMap map, const float* from, T* to) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < map.count;
       i += step) {
    const std::int64_t given = map.given(i);
    store(given < 0 ? 0.0F : from[given], to + i);
  }
}

template <class T>
__global__ void restoreWeights(WeightMap map, const T* from, float* to, bool accumulate) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < map.count;
       i += step) {
    const std::int64_t given = map.given(i);
    if (given >= 0) to[given] = accumulate ? to[given] + load(from + i) : load(from + i);
  }
}

WeightMap mapOf(const ConvolutionProblem& problem, const DenseWeights& weights) {
  return {weights.count(problem), problem.weightCount(), problem.inputChannelsPerGroup(), weights.inputs};
}

dim3 gridOver(std::int64_t count) {
  constexpr std::int64_t kMostThreads = std::int64_t{1} << 22U;
  return dim3(mtl::cuda::blocksFor(std::min(count, kMostThreads)));
}

}  // namespace

const std::byte* DenseWeights::load(mtl::Stream& stream, const ConvolutionProblem& problem,
                                    const std::byte* parameters, std::byte* copy) const {
  if (areGiven(problem)) return parameters;
  const auto* const from = reinterpret_cast<const float*>(parameters);
  const WeightMap map = mapOf(problem, *this);
  const dim3 block(mtl::cuda::kBlockThreads);
  if (format == ImageFeatureChannelFormat::Float16)
    mtl::cuda::launch(stream, fillUpElements<Float16>, gridOver(map.count), block, 0, map, from,
                      reinterpret_cast<Float16*>(copy));
  else
    mtl::cuda::launch(stream, fillUpElements<float>, gridOver(map.count), block, 0, map, from,
                      reinterpret_cast<float*>(copy));
  return copy;
}

void restoreWeightGradients(mtl::Stream& stream, const ConvolutionProblem& problem,
                            const DenseWeights& weights, const std::byte* from, float* to, bool accumulate) {
  const WeightMap map = mapOf(problem, weights);
  const dim3 block(mtl::cuda::kBlockThreads);
  if (weights.format == ImageFeatureChannelFormat::Float16)
    mtl::cuda::launch(stream, restoreWeights<Float16>, gridOver(map.count), block, 0, map,
                      reinterpret_cast<const Float16*>(from), to, accumulate);
  else
    mtl::cuda::launch(stream, restoreWeights<float>, gridOver(map.count), block, 0, map,
                      reinterpret_cast<const float*>(from), to, accumulate);
}

}  // namespace mps::detail::cuda
