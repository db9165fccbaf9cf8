#include <algorithm>
#include <memory>
#include <optional>

#include "mps/convolution/convolution_cuda.hpp"
#include "mps/convolution/convolution_few_channels_cuda.cuh"
#include "mps/convolution/convolution_few_channels_pooled_cuda.cuh"
#include "mps/convolution/convolution_staging_cuda.hpp"
#include "mps/convolution/convolution_sums_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::kQuad;
using cuda::kTileThreads;
using cuda::kWarpThreads;
using cuda::QuadAccess;
using cuda::Span;
using cuda::TapList;
using cuda::TapRows;
using cuda::Tile;
using cuda::TileNumbers;

/// Windows of a span where gradients are summed.
constexpr int kGradientWindows = kQuad;

/// The result, and the last steps of its elements.
struct TileResult {
  const float* weights;
  const float* bias;  ///< or null
  std::byte* memory;
  cuda::NeuronNumbers neuron;
  const float* slopes;  ///< of PReLU
  bool accumulate;
  std::uint8_t* places;  ///< of maxima, or null
};

/// Kept out of the loops, which have no registers left: few layers have these.
__device__ __noinline__ float otherNeuron(const cuda::NeuronNumbers& neuron, float slope, float value) {
  return cuda::neuronValue(neuron.type, neuron, slope, value);
}

/// Bias and neuron of four adjacent channels of one window. @tparam anyNeuron otherwise: ReLU or none
template <bool anyNeuron>
__device__ void finishValues(const TileNumbers& n, const TileResult& result, float (&values)[kQuad],
                             std::int32_t channel) {
  const std::int32_t channels = n.outputs - channel;
  for (int lane = 0; lane < kQuad; ++lane) {
    const std::int32_t k = channel + min(lane, channels - 1);
    if (result.bias != nullptr) values[lane] += __ldg(result.bias + k);
    if (result.neuron.type == CNNNeuronType::ReLU)
      values[lane] = cuda::kinkedLine(values[lane], result.neuron.a);
    else if (anyNeuron && result.neuron.type != CNNNeuronType::None)
      values[lane] = otherNeuron(result.neuron, result.slopes != nullptr ? __ldg(result.slopes + k) : 0.0F,
                                 values[lane]);
  }
}

/// Stores them.
template <bool anyNeuron>
__device__ void finishQuad(const TileNumbers& n, const TileResult& result, float (&values)[kQuad],
                           std::int64_t offset, std::int32_t channel) {
  const std::int32_t channels = n.outputs - channel;
  finishValues<anyNeuron>(n, result, values, channel);
  if (result.accumulate) {
    float old[1][kQuad];
    cuda::loadQuads(n.small, result.memory, offset, channels, old);
    for (int lane = 0; lane < kQuad; ++lane) values[lane] += old[0][lane];
  }
  cuda::storeQuad(n.small, values, result.memory, offset, channels);
}

/// Two rows of windows, and their maxima. @param from the pixels of the span
template <class Taps>
__device__ void poolSpan(const TileNumbers& n, const Tile& tile,
                         const Span<Taps::kWindows, cuda::kPool>& span, const Taps& taps, const float* from,
                         const float (&weights)[Taps::kTaps][kQuad], const TileResult& result,
                         std::int32_t channel) {
  constexpr int kMaxima = Taps::kWindows / cuda::kPool;
  cuda::QuadMaximum maxima[kMaxima] = {};
#pragma unroll
  for (int row = 0; row < cuda::kPool; ++row) {
    float sums[Taps::kWindows][kQuad] = {};
    taps.convolve(from + row * n.strideY * n.pitch, weights, sums);
#pragma unroll
    for (int i = 0; i < Taps::kWindows; ++i) {
      finishValues<false>(n, result, sums[i], channel);
      maxima[i / cuda::kPool].consider(sums[i],
                                       static_cast<std::uint32_t>(i % cuda::kPool + row * cuda::kPool));
    }
  }
  const std::int32_t y = (tile.firstRow + span.row) / cuda::kPool;
  const std::int32_t x = (tile.firstColumn + span.column) / cuda::kPool;
#pragma unroll
  for (int j = 0; j < kMaxima; ++j) {
    if (j * cuda::kPool >= span.count) break;
    maxima[j].dropCutOff();
    cuda::storeQuad(n.pooled, maxima[j].value, result.memory,
                    n.pooled.shape.offset(tile.image, y, x + j, channel), kQuad);
    if (result.places != nullptr)
      *reinterpret_cast<std::uint32_t*>(result.places + cuda::placeOf(n, tile.image, y, x + j, channel)) =
          maxima[j].places;
  }
}

/// Block (x, y): the channels of group x, tiles y, y + gridDim.y, ... @tparam pools the maxima alone are stored
template <class Taps, bool pools>
__global__ void __launch_bounds__(kTileThreads, cuda::kTileBlocks)
    convolveTiles(TileNumbers n, TileResult result) {
  extern __shared__ __align__(16) float shared[];  // weights [tap][channel of the block], pixels
  const std::int32_t taps = n.taps();
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * n.blockChannels();
  float* const pixels = shared + taps * n.blockChannels();
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < taps * n.blockChannels();
       i += static_cast<std::int32_t>(kTileThreads)) {
    const std::int32_t k = i / taps;
    const std::int32_t tap = i % taps;
    shared[tap * n.blockChannels() + k] =
        first + k < n.outputs
            ? result.weights[static_cast<std::int64_t>(first + k) * taps + n.weightOfTap(tap)]
            : 0.0F;
  }
  __syncthreads();

  const std::int32_t quad = static_cast<std::int32_t>(threadIdx.x) % n.quads * kQuad;
  const std::int32_t channel = first + quad;
  float weights[Taps::kInRegisters ? Taps::kTaps : 1][kQuad];
  if constexpr (Taps::kInRegisters) {
#pragma unroll
    for (int tap = 0; tap < Taps::kTaps; ++tap) {
      const float4 w = cuda::loadFour(shared + tap * n.blockChannels() + quad);
      weights[tap][0] = w.x, weights[tap][1] = w.y, weights[tap][2] = w.z, weights[tap][3] = w.w;
    }
  }
  const Taps list(n, 0);
  for (std::int64_t number = blockIdx.y; number < n.tiles; number += gridDim.y) {
    const Tile tile(n, number);
    __syncthreads();
    cuda::loadPixels(n, tile, pixels);
    __syncthreads();
    if (channel >= n.outputs) continue;
    if constexpr (pools)
      cuda::forEachSpan<Taps::kWindows, cuda::kPool>(
          n, tile, [&](const Span<Taps::kWindows, cuda::kPool>& span) {
            poolSpan(n, tile, span, list, pixels + span.offset(n), weights, result, channel);
          });
    else
      cuda::forEachSpan<Taps::kWindows>(n, tile, [&](const Span<Taps::kWindows>& span) {
        float sums[Taps::kWindows][kQuad] = {};
        const float* const from = pixels + span.offset(n);
        if constexpr (Taps::kInRegisters) {
          list.convolve(from, weights, sums);
        } else {
          std::int32_t places[Taps::kWindows];
#pragma unroll
          for (int i = 0; i < Taps::kWindows; ++i) places[i] = min(i, span.count - 1) * n.strideX;
          const float* weight = shared + quad;
          for (std::int32_t row = 0; row < n.inputs * n.kernelHeight; ++row) {
            const float* pixel = from + n.tapOffset(row * n.kernelWidth);
            for (std::int32_t tap = 0; tap < n.kernelWidth; ++tap) {
              const float4 w = cuda::loadFour(weight);
#pragma unroll
              for (int i = 0; i < Taps::kWindows; ++i) {
                const float value = pixel[places[i]];
                sums[i][0] = fmaf(w.x, value, sums[i][0]);
                sums[i][1] = fmaf(w.y, value, sums[i][1]);
                sums[i][2] = fmaf(w.z, value, sums[i][2]);
                sums[i][3] = fmaf(w.w, value, sums[i][3]);
              }
              weight += n.blockChannels();
              pixel += n.dilationX;
            }
          }
        }
        const std::int64_t to = n.small.shape.offset(tile.image, tile.firstRow + span.row,
                                                     tile.firstColumn + span.column, channel);
#pragma unroll
        for (int i = 0; i < Taps::kWindows; ++i)
          if (i < span.count)
            finishQuad<!Taps::kInRegisters>(n, result, sums[i], to + i * n.small.shape.pixelStride, channel);
      });
  }
}

/// Adds up what the threads of a warp have for the same channels.
__device__ float sumOfWarp(float value, std::int32_t quads) {
  for (std::int32_t distance = quads; distance < static_cast<std::int32_t>(kWarpThreads); distance *= 2)
    value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  return value;
}

/// Block (x, y): the weights of one group of taps and one group of channels, in tiles y, y + gridDim.y, ...: sums of
/// gradient * pixel [tap][channel of the block], and one more row, the sums of the gradients.
/// @tparam pools the gradients are those of maxima at `places`
template <class Taps, bool pools>
__global__ void __launch_bounds__(kTileThreads, cuda::kTileBlocks)
    sumTileGradients(TileNumbers n, const std::byte* memory, const std::uint8_t* places,
                     std::int32_t tapGroups, float* partial) {
  constexpr int kRows = Taps::kTaps + 1;
  constexpr unsigned kWarps = kTileThreads / kWarpThreads;
  extern __shared__ __align__(16) float shared[];  // pixels; then the warps' sums
  const std::int32_t thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t quad = thread % n.quads * kQuad;
  const std::int32_t channel = static_cast<std::int32_t>(blockIdx.x) / tapGroups * n.blockChannels() + quad;
  const std::int32_t channels = n.outputs - channel;
  const Taps taps(n, static_cast<std::int32_t>(blockIdx.x) % tapGroups);
  float sums[Taps::kTaps][kQuad] = {};
  float ofGradients[kQuad] = {};
  for (std::int64_t number = blockIdx.y; number < n.tiles; number += gridDim.y) {
    const Tile tile(n, number);
    __syncthreads();
    cuda::loadPixels(n, tile, shared);
    __syncthreads();
    if (channels <= 0) continue;
    cuda::forEachSpan<kGradientWindows>(n, tile, [&](const Span<kGradientWindows>& span) {
      const float* const pixels = shared + span.offset(n);
      const std::int32_t y = tile.firstRow + span.row;
      const std::int32_t x = tile.firstColumn + span.column;
      const auto load = [&]<int windows>(int first, float(&gradients)[windows][kQuad]) {
        if constexpr (pools)
          cuda::loadPooled(n, memory, places, tile.image, y, x + first, channel, gradients);
        else
          cuda::loadQuads(n.small, memory, n.small.shape.offset(tile.image, y, x + first, channel), channels,
                          gradients);
      };
      const auto add = [&]<int windows>(const float(&gradients)[windows][kQuad], int first) {
        taps.addProducts(pixels + first * n.strideX, n.strideX, gradients, sums);
#pragma unroll
        for (int i = 0; i < windows; ++i)
#pragma unroll
          for (int lane = 0; lane < kQuad; ++lane) ofGradients[lane] += gradients[i][lane];
      };
      if (span.count == kGradientWindows) {
        float gradients[kGradientWindows][kQuad];
        load(0, gradients);
        add(gradients, 0);
        return;
      }
      // What a window beyond the tile would read may be infinite: a gradient of zero does not leave it out.
      for (int i = 0; i < span.count; ++i) {
        float gradients[1][kQuad];
        load(i, gradients);
        add(gradients, i);
      }
    });
  }

  __syncthreads();
  const std::int32_t count = kRows * n.blockChannels();
  float* const ofWarp = shared + thread / static_cast<std::int32_t>(kWarpThreads) * count;
  const bool stores = thread % static_cast<std::int32_t>(kWarpThreads) < n.quads;
#pragma unroll
  for (int row = 0; row < kRows; ++row)
#pragma unroll
    for (int lane = 0; lane < kQuad; ++lane) {
      const float sum =
          sumOfWarp(row < Taps::kTaps ? sums[min(row, Taps::kTaps - 1)][lane] : ofGradients[lane], n.quads);
      if (stores) ofWarp[row * n.blockChannels() + quad + lane] = sum;
    }
  __syncthreads();
  float* const to = partial + (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * count;
  for (std::int32_t i = thread; i < count; i += static_cast<std::int32_t>(kTileThreads)) {
    float sum = shared[i];
    for (unsigned warp = 1; warp < kWarps; ++warp) sum += shared[static_cast<std::int32_t>(warp) * count + i];
    to[i] = sum;
  }
}

/// Where the sums of sumTileGradients() belong.
struct PlaceOfTileSum {
  TileNumbers n;
  std::int32_t tapsOfGroup;
  std::int32_t tapGroups;
  float* weights;
  float* bias;  ///< or null

  __device__ float* operator()(std::int64_t number) const {
    const auto i = static_cast<std::int32_t>(number);
    const std::int32_t row = i / n.blockChannels() % (tapsOfGroup + 1);
    const std::int32_t block = i / n.blockChannels() / (tapsOfGroup + 1);
    const std::int32_t k = block / tapGroups * n.blockChannels() + i % n.blockChannels();
    if (k >= n.outputs) return nullptr;
    if (row == tapsOfGroup) return bias != nullptr && block % tapGroups == 0 ? bias + k : nullptr;
    const std::int32_t tap = block % tapGroups * tapsOfGroup + row;
    return tap < n.taps() ? weights + static_cast<std::int64_t>(k) * n.taps() + n.weightOfTap(tap) : nullptr;
  }
};

/// The kernels for some kind of taps.
struct TileKernels {
  const char* name;
  int windows;  ///< of a span, forward
  int taps;     ///< of a group
  void (*convolve)(TileNumbers, TileResult);
  void (*sumGradients)(TileNumbers, const std::byte*, const std::uint8_t*, std::int32_t, float*);
  bool pools = false;

  template <class Taps>
  static TileKernels of(const char* name) {
    return {name, Taps::kWindows, Taps::kTaps, convolveTiles<Taps, false>, sumTileGradients<Taps, false>};
  }
  template <class Taps>
  static TileKernels pooling(const char* name) {
    return {name, Taps::kWindows, Taps::kTaps, convolveTiles<Taps, true>, sumTileGradients<Taps, true>, true};
  }
  /// Those that pool, for kernels of one input channel or, for gradients, some; nothing for others.
  static std::optional<TileKernels> forPooled(const ConvolutionProblem& problem) {
    const TileKernels kernels = forProblem(problem);
    const bool isAnyTaps = kernels.convolve == of<TapList>("").convolve;
    if (isAnyTaps || problem.x.kernelSize * problem.inputFeatureChannels == 9) return std::nullopt;
    return problem.x.kernelSize == 5 ? pooling<TapRows<5, 5>>(kernels.name)
                                     : pooling<TapRows<3, 3>>(kernels.name);
  }
  static TileKernels forProblem(const ConvolutionProblem& problem) {
    const auto is = [&](std::int64_t size) {
      return problem.x.kernelSize == size && problem.y.kernelSize == size && problem.x.stride == 1 &&
             problem.x.dilation == 1;
    };
    // In the forward pass one group has all taps; there are as many groups as it takes for gradients.
    const CNNNeuronType neuron = problem.neuron.neuronType();
    const bool takesGroups = problem.operation == ConvolutionOperation::WeightsGradient;
    const bool takesNeuron = neuron == CNNNeuronType::None || neuron == CNNNeuronType::ReLU;
    const std::int64_t channels = problem.inputFeatureChannels;
    if (takesNeuron && is(5) && (takesGroups || channels == 1)) return of<TapRows<5, 5>>("5 rows of 5 taps");
    if (takesNeuron && is(3) && channels == 3) return of<TapRows<3, 9>>("9 rows of 3 taps");
    if (takesNeuron && is(3) && (takesGroups || channels == 1)) return of<TapRows<3, 3>>("3 rows of 3 taps");
    return of<TapList>("any taps");
  }
};

constexpr std::int64_t kMostShared = 48 * 1024;
/// Blocks that keep the largest GPUs busy.
constexpr std::int64_t kBusyBlocks = 132 * static_cast<std::int64_t>(cuda::kTileBlocks);

constexpr std::int64_t roundUp(std::int64_t number, std::int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

/// How a problem is divided.
struct Division {
  TileNumbers numbers;
  std::int64_t channelGroups;
  std::int64_t sharedBytes;
};

TileNumbers numbersOf(const ConvolutionProblem& problem, const TensorShape& small) {
  const auto number = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  TileNumbers n{};
  n.small.shape = small;
  n.source = problem.source;
  n.outputs = number(problem.outputFeatureChannels);
  n.inputs = number(problem.inputFeatureChannels);
  n.kernelWidth = number(problem.x.kernelSize);
  n.kernelHeight = number(problem.y.kernelSize);
  n.dilationX = number(problem.x.dilation);
  n.dilationY = number(problem.y.dilation);
  n.strideX = number(problem.x.stride);
  n.strideY = number(problem.y.stride);
  n.firstTapX = number(problem.x.firstTap(0));
  n.firstTapY = number(problem.y.firstTap(0));
  n.clamps = problem.edgeMode == ImageEdgeMode::Clamp;
  n.channels = cuda::Divider(problem.inputFeatureChannels);
  n.quads = 1;
  while (n.quads < 8 && n.quads * kQuad < n.outputs) n.quads *= 2;
  return n;
}

/// Sets the size of tiles. @return the bytes of their pixels
std::int64_t setTile(TileNumbers& n, std::int64_t rows, std::int64_t columns, int windows) {
  const auto tiles = [](std::int64_t size, std::int64_t tile) {
    return static_cast<std::int32_t>((size + tile - 1) / tile);
  };
  n.rows = static_cast<std::int32_t>(rows);
  n.columns = static_cast<std::int32_t>(columns);
  n.down = tiles(n.small.shape.height, rows);
  n.across = tiles(n.small.shape.width, columns);
  n.tiles = n.small.shape.images * n.down * n.across;
  n.spansOfRow = cuda::Divider((columns + windows - 1) / windows);
  const std::int64_t sourceColumns = (columns - 1) * n.strideX + (n.kernelWidth - 1) * n.dilationX + 1;
  const std::int64_t sourceRows = (rows - 1) * n.strideY + (n.kernelHeight - 1) * n.dilationY + 1;
  n.elementsOfRow = cuda::Divider(sourceColumns * n.inputs);
  n.pitch = static_cast<std::int32_t>(roundUp(sourceColumns, kQuad));
  constexpr std::int64_t kMostInPlane = 0x7FFFFFFF;
  if (sourceRows > kMostInPlane / n.pitch) return kMostInPlane * n.inputs;  // of windows with wide gaps
  n.plane = static_cast<std::int32_t>(sourceRows * n.pitch);
  return std::int64_t{n.plane} * n.inputs * static_cast<std::int64_t>(sizeof(float));
}

/// Tiles whose pixels fit into `room` bytes, of a height that leaves few threads and blocks without work, a multiple
/// of `rowsOfSpan`. Nothing where even one span does not fit.
std::optional<std::int64_t> chooseTile(TileNumbers& n, int windows, int rowsOfSpan, std::int64_t room) {
  constexpr std::int64_t kMostColumns = 64;
  constexpr std::int64_t kMostRows = 32;
  // What a tile costs besides its windows, in turns of a thread.
  constexpr double kTurnsOfTile = 0.5;
  const std::int64_t across = (n.small.shape.width + kMostColumns - 1) / kMostColumns;
  std::int64_t columns = roundUp((n.small.shape.width + across - 1) / across, windows);
  while (setTile(n, rowsOfSpan, columns, windows) > room) {
    if (columns == windows) return std::nullopt;
    columns = roundUp(columns / 2, windows);
  }
  const std::int64_t slots = kTileThreads / n.quads;
  std::int64_t best = rowsOfSpan;
  double least = 0;
  for (std::int64_t rows = rowsOfSpan; rows <= std::min(kMostRows, n.small.shape.height);
       rows += rowsOfSpan) {
    if (setTile(n, rows, columns, windows) > room) break;
    const std::int64_t turns = (rows / rowsOfSpan * n.spansOfRow.divisor() + slots - 1) / slots * rowsOfSpan;
    const std::int64_t tilesOfBlock = (n.tiles + kBusyBlocks - 1) / kBusyBlocks;
    const double cost = static_cast<double>(tilesOfBlock) * (static_cast<double>(turns) + kTurnsOfTile);
    if (rows > rowsOfSpan && cost >= least) continue;
    least = cost;
    best = rows;
  }
  return setTile(n, best, columns, windows);
}

QuadAccess accessTo(const TensorShape& shape, const std::byte* address) {
  const bool together = cuda::isAligned(address) && shape.channels % kQuad == 0 &&
                        shape.pixelStride % kQuad == 0 && shape.rowStride % kQuad == 0 &&
                        shape.imageStride % kQuad == 0;
  if (together && shape.format == ImageFeatureChannelFormat::Float32) return QuadAccess::Floats;
  if (together && shape.format == ImageFeatureChannelFormat::Float16) return QuadAccess::Halves;
  return QuadAccess::OneByOne;
}

class FewChannelsPlan final : public Plan {
 public:
  FewChannelsPlan(const ConvolutionProblem& problem, const TileKernels& kernels, const Division& division)
      : problem_(problem), kernels_(kernels), division_(division), neuron_(problem.neuron) {
    const std::int64_t tiles = division.numbers.tiles;
    if (problem.operation == ConvolutionOperation::Forward) {
      slopes_ = cuda::NeuronSlopes(problem.neuron, scratch_);
      slices_ = std::clamp<std::int64_t>(kBusyBlocks / division.channelGroups, 1, tiles);
      return;
    }
    tapGroups_ = (problem.weightCount() / problem.outputFeatureChannels + kernels.taps - 1) / kernels.taps;
    slices_ = std::clamp<std::int64_t>(kBusyBlocks / blocks(), 1, tiles);
    partial_ = scratch_.reserve(static_cast<std::size_t>(slices_ * sums()) * sizeof(float));
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override {
    const TileNumbers& n = division_.numbers;
    return std::string(kernels_.name) + ", tiles of " + std::to_string(n.columns) + "x" +
           std::to_string(n.rows) + ", " + std::to_string(slices_) + " slices";
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    TileNumbers n = division_.numbers;
    n.sourceMemory = operands.source;
    const dim3 grid(static_cast<unsigned>(blocks()), static_cast<unsigned>(slices_));
    const dim3 block(kTileThreads);
    const auto shared = static_cast<std::size_t>(division_.sharedBytes);
    if (problem_.operation == ConvolutionOperation::Forward) {
      setAccess(n, operands.destination);
      const TileResult result{
          reinterpret_cast<const float*>(operands.parameters[0]),
          problem_.hasBias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr,
          operands.destination,
          neuron_,
          slopes_.load(stream, operands.scratch),
          operands.accumulate,
          reinterpret_cast<std::uint8_t*>(operands.saved)};
      mtl::cuda::launch(stream, kernels_.convolve, grid, block, shared, n, result);
      return;
    }
    setAccess(n, operands.gradient);
    const auto* const places = reinterpret_cast<const std::uint8_t*>(operands.saved);
    auto* const partial = reinterpret_cast<float*>(operands.scratch + partial_);
    const auto tapGroups = static_cast<std::int32_t>(tapGroups_);
    mtl::cuda::launch(stream, kernels_.sumGradients, grid, block, shared, n, operands.gradient, places,
                      tapGroups, partial);
    const PlaceOfTileSum place{n, kernels_.taps, tapGroups, reinterpret_cast<float*>(operands.parameters[2]),
                               problem_.hasBias ? reinterpret_cast<float*>(operands.parameters[3]) : nullptr};
    cuda::launchSumSlices(stream, partial, slices_, sums(), operands.accumulate, place);
  }

 private:
  /// To the incoming gradient or the result.
  void setAccess(TileNumbers& n, const std::byte* address) const {
    cuda::QuadTensor& tensor = kernels_.pools ? n.pooled : n.small;
    tensor.access = accessTo(tensor.shape, address);
  }
  /// Of a slice.
  [[nodiscard]] std::int64_t blocks() const { return division_.channelGroups * tapGroups_; }
  [[nodiscard]] std::int64_t sums() const {
    return blocks() * (kernels_.taps + 1) * division_.numbers.quads * kQuad;
  }

  ConvolutionProblem problem_;
  TileKernels kernels_;
  Division division_;
  cuda::NeuronNumbers neuron_;
  ScratchLayout scratch_;
  cuda::NeuronSlopes slopes_;
  std::int64_t tapGroups_ = 1;
  std::int64_t slices_ = 1;
  std::size_t partial_ = 0;
};

/// @param pooled null: the result itself
Preparation prepareFewChannels(const ConvolutionProblem& problem, const TensorShape* pooled) {
  constexpr std::int64_t kMostChannels = 4;
  constexpr std::int64_t kMostKernel = 11;
  // Tensor cores win where there is more arithmetic.
  constexpr std::int64_t kMostTapsBesideTensorCores = 64;
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (problem.operation == ConvolutionOperation::DataGradient) return Refusal{"it has no data gradient"};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  if (problem.groups != 1 || problem.inputFeatureChannels > kMostChannels)
    return Refusal{"there are groups, or more than 4 input channels"};
  if (problem.x.kernelSize > kMostKernel || problem.y.kernelSize > kMostKernel)
    return Refusal{"the kernel is larger than 11x11"};
  const std::int64_t taps = problem.y.kernelSize * problem.x.kernelSize * problem.inputFeatureChannels;
  if (problem.allowReducedPrecision && taps > kMostTapsBesideTensorCores)
    return Refusal{"tensor cores are faster at so many products"};
  const bool isForward = problem.operation == ConvolutionOperation::Forward;
  const TensorShape& small = isForward ? problem.destination : problem.gradient;
  if (!cuda::canStage(problem.source) || !cuda::canStage(small)) return Refusal{"a tensor is too large"};
  constexpr std::int64_t kFarthest = 1 << 24;
  for (const WindowAxis& axis : {problem.x, problem.y})
    if (axis.stride > kFarthest || axis.dilation > kFarthest || axis.destinationSize > kFarthest ||
        axis.firstTap(0) < -kFarthest || axis.firstTap(axis.destinationSize) > kFarthest)
      return Refusal{"windows are too far apart"};

  const auto found =
      pooled != nullptr ? TileKernels::forPooled(problem) : std::optional(TileKernels::forProblem(problem));
  if (!found) return Refusal{"it pools 5 rows of 5 taps, and 3 of 3"};
  const TileKernels& kernels = *found;
  Division division{numbersOf(problem, small), 0, 0};
  TileNumbers& n = division.numbers;
  if (pooled != nullptr) n.pooled.shape = *pooled;
  const std::int64_t blockChannels = std::int64_t{n.quads} * kQuad;
  division.channelGroups = (problem.outputFeatureChannels + blockChannels - 1) / blockChannels;
  const auto floats = [](std::int64_t count) { return count * static_cast<std::int64_t>(sizeof(float)); };
  const std::int64_t weights = isForward ? floats(taps * blockChannels) : 0;
  // Room for three blocks.
  const auto pixels = chooseTile(n, isForward ? kernels.windows : kGradientWindows,
                                 pooled != nullptr && isForward ? cuda::kPool : 1, kMostShared - weights);
  if (!pixels) return Refusal{"the pixels of a few windows do not fit into shared memory"};
  const std::int64_t warps = kTileThreads / kWarpThreads;
  division.sharedBytes =
      isForward ? weights + *pixels : std::max(*pixels, floats(warps * (kernels.taps + 1) * blockChannels));
  return std::make_shared<const FewChannelsPlan>(problem, kernels, division);
}

Preparation prepareFewChannelsPooled(const PooledConvolutionProblem& problem) {
  const ConvolutionProblem& convolution = problem.convolution;
  const NNNeuronDescriptor& neuron = convolution.neuron;
  const bool isForward = convolution.operation == ConvolutionOperation::Forward;
  if (isForward && (neuron.neuronType() != CNNNeuronType::ReLU || neuron.a() != 0))
    return Refusal{"the neuron is no ReLU with slope 0"};
  if (convolution.outputFeatureChannels % kQuad != 0) return Refusal{"channels are no multiple of four"};
  if (convolution.x.destinationSize % cuda::kPool != 0 || convolution.y.destinationSize % cuda::kPool != 0)
    return Refusal{"a side of the result is odd"};
  if (isForward && convolution.inputFeatureChannels != 1) return Refusal{"there are several input channels"};
  return prepareFewChannels(convolution, &problem.pooled);
}

constexpr Implementation<PooledConvolutionProblem> pooledImplementations[] = {
    {"few channels pooled", prepareFewChannelsPooled}};

}  // namespace

Preparation prepareConvolutionFewChannelsCuda(const ConvolutionProblem& problem) {
  return prepareFewChannels(problem, nullptr);
}

std::span<const Implementation<PooledConvolutionProblem>> pooledConvolutionImplementationsCuda() {
  return pooledImplementations;
}

}  // namespace mps::detail
