#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mps/convolution/cuda/convolution_cuda.hpp"
#include "mps/convolution/cuda/convolution_direct_cuda.cuh"
#include "mps/convolution/cuda/convolution_staging_cuda.hpp"
#include "mps/convolution/cuda/convolution_sums_cuda.cuh"
#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/core/neuron/neuron_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"

/// First layers: windows of 3x3 or 5x5 pixels of one to four channels, stride 1. A tile is some adjacent windows of one
/// image; its pixels lie in shared memory as float32, [channel][row][column]. A thread works on four adjacent channels
/// of the result, and on spans of four adjacent windows. Taps are counted in the order of the pixels,
/// [channel][row][column].
namespace mps::detail {
namespace {

constexpr int kQuad = 4;  ///< channels of a thread, and windows of a span
constexpr unsigned kWarpThreads = 32;
constexpr unsigned kTileThreads = 128;  ///< of a block
/// Blocks that a multiprocessor has room for: threads keep up to 168 numbers in registers.
constexpr unsigned kTileBlocks = 3;

/// How four adjacent channels are accessed.
enum class QuadAccess : std::uint8_t {
  Float4,
  Half4,
  OneByOne,  ///< of any format; there may be fewer than four
};

/// The numbers of a call.
struct TileNumbers {
  TensorShape small;  ///< the incoming gradient, or the result: a pixel for each window
  QuadAccess access;  ///< to it
  TensorShape source;
  const std::byte* sourceMemory;
  std::int32_t outputs;
  std::int32_t inputs;
  std::int32_t kernelSize;  ///< in both directions
  std::int32_t firstTapX;   ///< of window 0
  std::int32_t firstTapY;
  bool clamps;

  std::int32_t rows;     ///< windows of a tile
  std::int32_t columns;  ///< windows of a tile
  std::int32_t down;     ///< tiles of an image
  std::int32_t across;   ///< tiles of an image
  std::int64_t tiles;    ///< of all images
  std::int32_t pitch;    ///< of a row of pixels, a multiple of four
  std::int32_t plane;    ///< of the pixels of a channel
  cuda::Divider spansOfRow;
  cuda::Divider elementsOfRow;  ///< of pixels, all channels
  cuda::Divider channels;
  std::int32_t quads;  ///< that threads side by side take: 1, 2, 4 or 8

  [[nodiscard]] __host__ __device__ std::int32_t taps() const { return inputs * kernelSize * kernelSize; }
  [[nodiscard]] __device__ std::int32_t blockChannels() const { return quads * kQuad; }
  /// Number of a tap's weight among those of an output channel.
  [[nodiscard]] __device__ std::int32_t weightOfTap(std::int32_t tap) const {
    const std::int32_t pixels = kernelSize * kernelSize;
    return tap % pixels * inputs + tap / pixels;
  }
};

struct Tile {
  std::int64_t image;
  std::int32_t firstRow;  ///< windows
  std::int32_t firstColumn;
  std::int32_t rows;
  std::int32_t columns;

  __device__ Tile(const TileNumbers& n, std::int64_t number) {
    const std::int64_t row = number / n.across;
    image = row / n.down;
    firstRow = static_cast<std::int32_t>(row % n.down) * n.rows;
    firstColumn = static_cast<std::int32_t>(number % n.across) * n.columns;
    rows = min(n.rows, static_cast<std::int32_t>(n.small.height) - firstRow);
    columns = min(n.columns, static_cast<std::int32_t>(n.small.width) - firstColumn);
  }
};

/// All threads of the block put the pixels of a tile into shared memory, zeros for those outside of the source.
__device__ void loadPixels(const TileNumbers& n, const Tile& tile, float* pixels) {
  // Loads that wait for each other would take as long as all the arithmetic.
  constexpr int kBatch = 4;
  const std::int32_t y = n.firstTapY + tile.firstRow;
  const std::int32_t x = n.firstTapX + tile.firstColumn;
  const std::uint32_t count =
      static_cast<std::uint32_t>(tile.rows + n.kernelSize - 1) * n.elementsOfRow.divisor();
  for (std::uint32_t first = threadIdx.x; first < count; first += kBatch * kTileThreads) {
    float values[kBatch];
    std::int32_t offsets[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const std::uint32_t number = min(first + static_cast<std::uint32_t>(i) * kTileThreads, count - 1);
      const std::uint32_t row = n.elementsOfRow.divide(number);
      const std::uint32_t element = number - row * n.elementsOfRow.divisor();
      const std::uint32_t column = n.channels.divide(element);
      const std::uint32_t channel = element - column * n.channels.divisor();
      const std::int64_t v = cuda::pixelAt(y + static_cast<std::int32_t>(row), n.source.height, n.clamps);
      const std::int64_t u = cuda::pixelAt(x + static_cast<std::int32_t>(column), n.source.width, n.clamps);
      values[i] = v < 0 || u < 0 ? 0.0F
                                 : cuda::loadAs(n.source.format, n.sourceMemory,
                                                n.source.offset(tile.image, v, u, channel));
      offsets[i] = static_cast<std::int32_t>(channel) * n.plane + static_cast<std::int32_t>(row) * n.pitch +
                   static_cast<std::int32_t>(column);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (first + static_cast<std::uint32_t>(i) * kTileThreads < count) pixels[offsets[i]] = values[i];
  }
}

/// Four adjacent windows of a row, fewer at its end.
struct Span {
  std::int32_t row;     ///< of the tile
  std::int32_t column;  ///< of the tile
  std::int32_t count;   ///< windows that are there
};

/// Calls body(span) for the spans of this thread.
template <class Body>
__device__ void forEachSpan(const TileNumbers& n, const Tile& tile, Body body) {
  const std::uint32_t slots = kTileThreads / static_cast<std::uint32_t>(n.quads);
  const std::uint32_t count = static_cast<std::uint32_t>(tile.rows) * n.spansOfRow.divisor();
  for (std::uint32_t number = threadIdx.x / static_cast<std::uint32_t>(n.quads); number < count;
       number += slots) {
    const std::uint32_t row = n.spansOfRow.divide(number);
    const std::int32_t column = static_cast<std::int32_t>(number - row * n.spansOfRow.divisor()) * kQuad;
    if (column < tile.columns)
      body(Span{static_cast<std::int32_t>(row), column, min(kQuad, tile.columns - column)});
  }
}

/// Four adjacent channels of `windows` adjacent pixels. @param channels how many there are
template <int windows>
__device__ void loadQuads(const TileNumbers& n, const std::byte* memory, std::int64_t offset,
                          std::int32_t channels, float (&values)[windows][kQuad]) {
  const std::int64_t step = n.small.pixelStride;
  switch (n.access) {
    case QuadAccess::Float4:
#pragma unroll
      for (int i = 0; i < windows; ++i) {
        const float4 v = *reinterpret_cast<const float4*>(memory + (offset + i * step) * sizeof(float));
        values[i][0] = v.x, values[i][1] = v.y, values[i][2] = v.z, values[i][3] = v.w;
      }
      return;
    case QuadAccess::Half4:
#pragma unroll
      for (int i = 0; i < windows; ++i) {
        const uint2 v = *reinterpret_cast<const uint2*>(memory + (offset + i * step) * sizeof(Float16));
        const float2 a = cuda::float2Of(v.x);
        const float2 b = cuda::float2Of(v.y);
        values[i][0] = a.x, values[i][1] = a.y, values[i][2] = b.x, values[i][3] = b.y;
      }
      return;
    case QuadAccess::OneByOne:
      for (int i = 0; i < windows; ++i)
        for (int lane = 0; lane < kQuad; ++lane)
          values[i][lane] =
              lane < channels ? cuda::loadAs(n.small.format, memory, offset + i * step + lane) : 0.0F;
  }
}

__device__ void storeQuad(const TileNumbers& n, const float (&values)[kQuad], std::byte* memory,
                          std::int64_t offset, std::int32_t channels) {
  switch (n.access) {
    case QuadAccess::Float4:
      *reinterpret_cast<float4*>(memory + offset * sizeof(float)) =
          float4{values[0], values[1], values[2], values[3]};
      return;
    case QuadAccess::Half4:
      *reinterpret_cast<uint2*>(memory + offset * sizeof(Float16)) =
          uint2{cuda::toHalves(values[0], values[1]), cuda::toHalves(values[2], values[3])};
      return;
    case QuadAccess::OneByOne:
      for (int lane = 0; lane < kQuad; ++lane)
        if (lane < channels) cuda::storeAs(values[lane], n.small.format, memory, offset + lane);
  }
}

__device__ float4 loadFour(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

/// The pixels that `windows` adjacent windows read in one row of `width` taps.
template <int width, int windows>
struct PixelRun {
  static constexpr int kCount = (width + windows - 1 + kQuad - 1) / kQuad * kQuad;
  float values[kCount];

  /// @param from a multiple of 16 bytes when there are four windows
  __device__ explicit PixelRun(const float* from) {
    if constexpr (windows == kQuad) {
#pragma unroll
      for (int i = 0; i < kCount; i += kQuad) {
        const float4 v = loadFour(from + i);
        values[i] = v.x, values[i + 1] = v.y, values[i + 2] = v.z, values[i + 3] = v.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < width + windows - 1; ++i) values[i] = from[i];
    }
  }
};

/// `rows` rows of taps of a kernel of width x width taps that follow each other. Pixels are loaded once for all taps
/// of a row and four windows.
template <int width, int rows>
class TapRows {
 public:
  static constexpr int kTaps = width * rows;

  __device__ TapRows(const TileNumbers& n, std::int32_t group)
      : first_(group * (rows / width) * n.plane), channelStep_(n.plane), rowStep_(n.pitch) {}

  /// sums[tap] += gradient * pixel
  template <int windows>
  __device__ void addProducts(const float* pixels, const float (&gradients)[windows][kQuad],
                              float (&sums)[kTaps][kQuad]) const {
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      const PixelRun<width, windows> run(pixels + offset(row));
#pragma unroll
      for (int i = 0; i < windows; ++i)
#pragma unroll
        for (int tap = 0; tap < width; ++tap)
#pragma unroll
          for (int lane = 0; lane < kQuad; ++lane) {
            float& sum = sums[row * width + tap][lane];
            sum = fmaf(gradients[i][lane], run.values[i + tap], sum);
          }
    }
  }

  /// sums[window] += weight * pixel
  __device__ void convolve(const float* pixels, const float (&weights)[kTaps][kQuad],
                           float (&sums)[kQuad][kQuad]) const {
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      const PixelRun<width, kQuad> run(pixels + offset(row));
#pragma unroll
      for (int tap = 0; tap < width; ++tap)
#pragma unroll
        for (int i = 0; i < kQuad; ++i)
#pragma unroll
          for (int lane = 0; lane < kQuad; ++lane)
            sums[i][lane] = fmaf(weights[row * width + tap][lane], run.values[i + tap], sums[i][lane]);
    }
  }

 private:
  [[nodiscard]] __device__ std::int32_t offset(int row) const {
    return first_ + row / width * channelStep_ + row % width * rowStep_;
  }

  std::int32_t first_;
  std::int32_t channelStep_;
  std::int32_t rowStep_;
};

/// The result, and the last steps of its elements.
struct TileResult {
  const float* weights;
  const float* bias;  ///< or null
  std::byte* memory;
  bool hasReLU;
  float slope;  ///< of the ReLU
};

/// Bias and neuron of four adjacent channels of one window.
__device__ void finishValues(const TileNumbers& n, const TileResult& result, float (&values)[kQuad],
                             std::int32_t channel) {
  for (int lane = 0; lane < kQuad; ++lane) {
    if (result.bias != nullptr) values[lane] += __ldg(result.bias + min(channel + lane, n.outputs - 1));
    if (result.hasReLU) values[lane] = cuda::kinkedLine(values[lane], result.slope);
  }
}

/// Block (x, y): the channels of group x, tiles y, y + gridDim.y, ...
template <class Taps>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks) convolveTiles(TileNumbers n, TileResult result) {
  extern __shared__ __align__(16) float shared[];  // weights [tap][channel of the block], pixels
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * n.blockChannels();
  float* const pixels = shared + Taps::kTaps * n.blockChannels();
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < Taps::kTaps * n.blockChannels();
       i += static_cast<std::int32_t>(kTileThreads)) {
    const std::int32_t k = i / Taps::kTaps;
    const std::int32_t tap = i % Taps::kTaps;
    shared[tap * n.blockChannels() + k] =
        first + k < n.outputs
            ? result.weights[static_cast<std::int64_t>(first + k) * Taps::kTaps + n.weightOfTap(tap)]
            : 0.0F;
  }
  __syncthreads();

  const std::int32_t quad = static_cast<std::int32_t>(threadIdx.x) % n.quads * kQuad;
  const std::int32_t channel = first + quad;
  float weights[Taps::kTaps][kQuad];
#pragma unroll
  for (int tap = 0; tap < Taps::kTaps; ++tap) {
    const float4 w = loadFour(shared + tap * n.blockChannels() + quad);
    weights[tap][0] = w.x, weights[tap][1] = w.y, weights[tap][2] = w.z, weights[tap][3] = w.w;
  }
  const Taps taps(n, 0);
  for (std::int64_t number = blockIdx.y; number < n.tiles; number += gridDim.y) {
    const Tile tile(n, number);
    __syncthreads();
    loadPixels(n, tile, pixels);
    __syncthreads();
    if (channel >= n.outputs) continue;
    forEachSpan(n, tile, [&](const Span& span) {
      float sums[kQuad][kQuad] = {};
      taps.convolve(pixels + span.row * n.pitch + span.column, weights, sums);
      const std::int64_t to =
          n.small.offset(tile.image, tile.firstRow + span.row, tile.firstColumn + span.column, channel);
#pragma unroll
      for (int i = 0; i < kQuad; ++i)
        if (i < span.count) {
          finishValues(n, result, sums[i], channel);
          storeQuad(n, sums[i], result.memory, to + i * n.small.pixelStride, n.outputs - channel);
        }
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
template <class Taps>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    sumTileGradients(TileNumbers n, const std::byte* memory, std::int32_t tapGroups, float* partial) {
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
    loadPixels(n, tile, shared);
    __syncthreads();
    if (channels <= 0) continue;
    forEachSpan(n, tile, [&](const Span& span) {
      const float* const pixels = shared + span.row * n.pitch + span.column;
      const std::int64_t from =
          n.small.offset(tile.image, tile.firstRow + span.row, tile.firstColumn + span.column, channel);
      const auto add = [&]<int windows>(float(&gradients)[windows][kQuad], int first) {
        loadQuads(n, memory, from + first * n.small.pixelStride, channels, gradients);
        taps.addProducts(pixels + first, gradients, sums);
#pragma unroll
        for (int i = 0; i < windows; ++i)
#pragma unroll
          for (int lane = 0; lane < kQuad; ++lane) ofGradients[lane] += gradients[i][lane];
      };
      if (span.count == kQuad) {
        float gradients[kQuad][kQuad];
        add(gradients, 0);
        return;
      }
      // What a window beyond the tile would read may be infinite: a gradient of zero does not leave it out.
      for (int i = 0; i < span.count; ++i) {
        float gradients[1][kQuad];
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
    return weights + static_cast<std::int64_t>(k) * n.taps() + n.weightOfTap(tap);
  }
};

/// The kernels for some rows of taps.
struct TileKernels {
  int taps;  ///< of a group: in the forward pass one has all, there are as many as it takes for gradients
  void (*convolve)(TileNumbers, TileResult);
  void (*sumGradients)(TileNumbers, const std::byte*, std::int32_t, float*);

  template <class Taps>
  static TileKernels of() {
    return {Taps::kTaps, convolveTiles<Taps>, sumTileGradients<Taps>};
  }
  static TileKernels of(std::int64_t kernelSize, std::int64_t inputs) {
    if (kernelSize == 5) return of<TapRows<5, 5>>();
    return inputs == 3 ? of<TapRows<3, 9>>() : of<TapRows<3, 3>>();
  }
};

/// Blocks that keep the largest GPUs busy.
constexpr std::int64_t kBusyBlocks = 132 * static_cast<std::int64_t>(kTileBlocks);

constexpr std::int64_t divideUp(std::int64_t number, std::int64_t divisor) {
  return (number + divisor - 1) / divisor;
}

/// Sets the size of tiles.
void setTile(TileNumbers& n, std::int64_t rows, std::int64_t columns) {
  n.rows = static_cast<std::int32_t>(rows);
  n.columns = static_cast<std::int32_t>(columns);
  n.down = static_cast<std::int32_t>(divideUp(n.small.height, rows));
  n.across = static_cast<std::int32_t>(divideUp(n.small.width, columns));
  n.tiles = n.small.images * n.down * n.across;
  n.spansOfRow = cuda::Divider(divideUp(columns, kQuad));
  const std::int64_t sourceColumns = columns + n.kernelSize - 1;
  n.elementsOfRow = cuda::Divider(sourceColumns * n.inputs);
  n.pitch = static_cast<std::int32_t>(divideUp(sourceColumns, kQuad) * kQuad);
  n.plane = static_cast<std::int32_t>((rows + n.kernelSize - 1) * n.pitch);
}

/// Bytes of shared memory for the pixels of a tile.
std::int64_t pixelBytes(const TileNumbers& n) {
  return std::int64_t{n.plane} * n.inputs * static_cast<std::int64_t>(sizeof(float));
}

/// Tiles whose pixels fit into `room` bytes, of a height that leaves few threads and blocks without work.
void chooseTile(TileNumbers& n, std::int64_t room) {
  constexpr std::int64_t kMostColumns = 64;
  constexpr std::int64_t kMostRows = 32;
  // What a tile costs besides its windows, in turns of a thread.
  constexpr double kTurnsOfTile = 0.5;
  const std::int64_t across = divideUp(n.small.width, kMostColumns);
  const std::int64_t columns = divideUp(divideUp(n.small.width, across), kQuad) * kQuad;
  const std::int64_t slots = kTileThreads / n.quads;
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t rows = 1; rows <= std::min(kMostRows, n.small.height); ++rows) {
    setTile(n, rows, columns);
    if (pixelBytes(n) > room) break;
    const std::int64_t turns = divideUp(rows * n.spansOfRow.divisor(), slots);
    const double cost =
        static_cast<double>(divideUp(n.tiles, kBusyBlocks)) * (static_cast<double>(turns) + kTurnsOfTile);
    if (rows > 1 && cost >= least) continue;
    least = cost;
    best = rows;
  }
  setTile(n, best, columns);
}

QuadAccess accessTo(const TensorShape& shape) {
  const bool together = cuda::takesQuads(shape);
  if (together && shape.format == ImageFeatureChannelFormat::Float32) return QuadAccess::Float4;
  if (together && shape.format == ImageFeatureChannelFormat::Float16) return QuadAccess::Half4;
  return QuadAccess::OneByOne;
}

TileNumbers numbersOf(const ConvolutionProblem& problem, const TensorShape& small) {
  const auto number = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  TileNumbers n{};
  n.small = small;
  n.access = accessTo(small);
  n.source = problem.source;
  n.outputs = number(problem.outputFeatureChannels);
  n.inputs = number(problem.inputFeatureChannels);
  n.kernelSize = number(problem.x.kernelSize);
  n.firstTapX = number(problem.x.firstTap(0));
  n.firstTapY = number(problem.y.firstTap(0));
  n.clamps = problem.edgeMode == ImageEdgeMode::Clamp;
  n.channels = cuda::Divider(problem.inputFeatureChannels);
  n.quads = 1;
  while (n.quads < 8 && n.quads * kQuad < n.outputs) n.quads *= 2;
  return n;
}

/// Earns the first layers of mnist-cnn, resnet18 and unet-small: libraries fill one or three channels up to four or
/// eight.
class TiledPlan final : public SelectivePlan {
 public:
  TiledPlan(const ConvolutionProblem& problem, const TensorShape& small)
      : problem_(problem),
        kernels_(TileKernels::of(problem.x.kernelSize, problem.inputFeatureChannels)),
        numbers_(numbersOf(problem, small)) {
    const std::int64_t blockChannels = std::int64_t{numbers_.quads} * kQuad;
    const std::int64_t channelGroups = divideUp(problem.outputFeatureChannels, blockChannels);
    const auto floats = [](std::int64_t count) { return count * static_cast<std::int64_t>(sizeof(float)); };
    const bool isForward = problem.operation == ConvolutionOperation::Forward;
    const std::int64_t weights = isForward ? floats(kernels_.taps * blockChannels) : 0;
    chooseTile(numbers_, kMostShared - weights);
    const std::int64_t pixels = pixelBytes(numbers_);
    const std::int64_t warps = kTileThreads / kWarpThreads;
    sharedBytes_ = static_cast<std::size_t>(
        isForward ? weights + pixels : std::max(pixels, floats(warps * (kernels_.taps + 1) * blockChannels)));
    if (!isForward) tapGroups_ = numbers_.taps() / kernels_.taps;
    blocks_ = channelGroups * tapGroups_;
    slices_ = std::clamp<std::int64_t>(kBusyBlocks / blocks_, 1, numbers_.tiles);
    if (isForward) return;
    sums_ = blocks_ * (kernels_.taps + 1) * blockChannels;
    partial_ = scratch_.reserve(static_cast<std::size_t>(slices_ * sums_) * sizeof(float));
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override {
    return "tile " + std::to_string(numbers_.columns) + "x" + std::to_string(numbers_.rows) + ", " +
           std::to_string(slices_) + " slices";
  }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    if (numbers_.access == QuadAccess::OneByOne) return "";
    const bool isForward = problem_.operation == ConvolutionOperation::Forward;
    return objectionToUnaligned({isForward ? operands.destination : operands.gradient});
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    TileNumbers n = numbers_;
    n.sourceMemory = operands.source;
    const dim3 grid(static_cast<unsigned>(blocks_), static_cast<unsigned>(slices_));
    const dim3 block(kTileThreads);
    if (problem_.operation == ConvolutionOperation::Forward) {
      const TileResult result{
          reinterpret_cast<const float*>(operands.parameters[0]),
          problem_.hasBias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr,
          operands.destination, problem_.neuron.neuronType() == CNNNeuronType::ReLU, problem_.neuron.a()};
      mtl::cuda::launch(stream, kernels_.convolve, grid, block, sharedBytes_, n, result);
      return;
    }
    auto* const partial = reinterpret_cast<float*>(operands.scratch + partial_);
    const auto tapGroups = static_cast<std::int32_t>(tapGroups_);
    mtl::cuda::launch(stream, kernels_.sumGradients, grid, block, sharedBytes_, n, operands.gradient,
                      tapGroups, partial);
    const PlaceOfTileSum place{n, kernels_.taps, tapGroups, reinterpret_cast<float*>(operands.parameters[2]),
                               problem_.hasBias ? reinterpret_cast<float*>(operands.parameters[3]) : nullptr};
    cuda::launchSumSlices(stream, partial, slices_, sums_, operands.accumulate, place);
  }

 private:
  static constexpr std::int64_t kMostShared = 48 * 1024;

  ConvolutionProblem problem_;
  TileKernels kernels_;
  TileNumbers numbers_;
  ScratchLayout scratch_;
  std::size_t sharedBytes_ = 0;
  std::int64_t tapGroups_ = 1;
  std::int64_t blocks_ = 1;  ///< of a slice
  std::int64_t slices_ = 1;
  std::int64_t sums_ = 0;  ///< of a slice
  std::size_t partial_ = 0;
};

}  // namespace

Preparation prepareConvolutionTiledCuda(const ConvolutionProblem& problem) {
  constexpr std::int64_t kMostChannels = 4;
  // Tensor cores win where there is more arithmetic.
  constexpr std::int64_t kMostTapsBesideTensorCores = 64;
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (problem.operation == ConvolutionOperation::DataGradient) return Refusal{"it has no data gradient"};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  const std::int64_t inputs = problem.inputFeatureChannels;
  if (problem.groups != 1 || inputs > kMostChannels)
    return Refusal{"there are groups, or more than 4 input channels"};
  const std::int64_t size = problem.x.kernelSize;
  const auto isTiled = [&](const WindowAxis& axis) {
    return axis.kernelSize == size && axis.stride == 1 && axis.dilation == 1;
  };
  if ((size != 3 && size != 5) || !isTiled(problem.x) || !isTiled(problem.y))
    return Refusal{"windows are not 3x3 or 5x5 with stride and dilation 1"};
  if (problem.allowReducedPrecision && size * size * inputs > kMostTapsBesideTensorCores)
    return Refusal{"tensor cores are faster at so many products"};
  const bool isForward = problem.operation == ConvolutionOperation::Forward;
  if (isForward) {
    const CNNNeuronType neuron = problem.neuron.neuronType();
    if (neuron != CNNNeuronType::None && neuron != CNNNeuronType::ReLU)
      return Refusal{"the neuron is neither none nor ReLU"};
    if (inputs != 1 && (inputs != 3 || size != 3)) return Refusal{"there are more weights than registers"};
    if (problem.accumulate) return Refusal{"it does not add to the destination"};
  }
  const TensorShape& small = isForward ? problem.destination : problem.gradient;
  if (!cuda::canStage(problem.source) || !cuda::canStage(small)) return Refusal{"a tensor is too large"};
  constexpr std::int64_t kFarthest = 1 << 24;
  for (const WindowAxis& axis : {problem.x, problem.y})
    if (axis.destinationSize > kFarthest || axis.firstTap(0) < -kFarthest || axis.firstTap(0) > kFarthest)
      return Refusal{"windows are too far from the source"};
  return withFallback(std::make_shared<const TiledPlan>(problem, small),
                      convolutionImplementationsCuda().back(), problem);
}

}  // namespace mps::detail
