#pragma once

#include <cstdint>

#include "mps/convolution/convolution_plain_cuda.cuh"
#include "mps/core/elements_cuda.cuh"
#include "mps/core/neuron_cuda.cuh"
#include "mps/core/rows_cuda.cuh"

/// What the kernels for few input channels do with a tile: some adjacent windows of one image, whose pixels lie in
/// shared memory as float32, [channel][row][column]. A thread works on four adjacent channels of the result, and on
/// spans of adjacent windows. Taps are counted in the order of the pixels, [channel][row][column].
namespace mps::detail::cuda {

inline constexpr int kQuad = 4;
inline constexpr unsigned kWarpThreads = 32;
inline constexpr unsigned kTileThreads = 128;  ///< of a block
/// Blocks that a multiprocessor has room for: threads keep up to 168 numbers in registers.
inline constexpr unsigned kTileBlocks = 3;

/// How four adjacent channels are accessed.
enum class QuadAccess : std::uint8_t {
  Floats,    ///< together
  Halves,    ///< together
  OneByOne,  ///< of any format; there may be fewer than four
};

/// The incoming gradient, or the result.
struct QuadTensor {
  TensorShape shape;
  QuadAccess access;
};

/// The numbers of a call.
struct TileNumbers {
  QuadTensor small;  ///< the tensor with a pixel for each window
  TensorShape source;
  const std::byte* sourceMemory;
  std::int32_t outputs;
  std::int32_t inputs;
  std::int32_t kernelWidth;
  std::int32_t kernelHeight;
  std::int32_t dilationX;
  std::int32_t dilationY;
  std::int32_t strideX;
  std::int32_t strideY;
  std::int32_t firstTapX;  ///< of window 0
  std::int32_t firstTapY;
  bool clamps;

  std::int32_t rows;     ///< windows of a tile
  std::int32_t columns;  ///< windows of a tile
  std::int32_t down;     ///< tiles of an image
  std::int32_t across;   ///< tiles of an image
  std::int64_t tiles;    ///< of all images
  std::int32_t pitch;    ///< of a row of pixels, a multiple of four
  std::int32_t plane;    ///< of the pixels of a channel
  Divider spansOfRow;
  Divider elementsOfRow;  ///< of pixels, all channels
  Divider channels;
  std::int32_t quads;  ///< that threads side by side take: 1, 2, 4 or 8
  QuadTensor pooled;   ///< of a pooled convolution, in place of `small`, which then has sizes only

  [[nodiscard]] __host__ __device__ std::int32_t taps() const { return inputs * kernelHeight * kernelWidth; }
  [[nodiscard]] __device__ std::int32_t blockChannels() const { return quads * kQuad; }
  /// Where the pixel that a tap reads lies, counted from the first tap of the window.
  [[nodiscard]] __device__ std::int32_t tapOffset(std::int32_t tap) const {
    const std::int32_t row = tap / kernelWidth;
    return row / kernelHeight * plane + row % kernelHeight * dilationY * pitch +
           tap % kernelWidth * dilationX;
  }
  /// Number of a tap's weight among those of an output channel.
  [[nodiscard]] __device__ std::int32_t weightOfTap(std::int32_t tap) const {
    const std::int32_t pixels = kernelHeight * kernelWidth;
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
    rows = min(n.rows, static_cast<std::int32_t>(n.small.shape.height) - firstRow);
    columns = min(n.columns, static_cast<std::int32_t>(n.small.shape.width) - firstColumn);
  }
};

/// All threads of the block put the pixels of a tile into shared memory, zeros for those outside of the source.
__device__ inline void loadPixels(const TileNumbers& n, const Tile& tile, float* pixels) {
  // Loads that wait for each other would take as long as all the arithmetic.
  constexpr int kBatch = 4;
  const std::int32_t sourceRows = (tile.rows - 1) * n.strideY + (n.kernelHeight - 1) * n.dilationY + 1;
  const std::int32_t y = n.firstTapY + tile.firstRow * n.strideY;
  const std::int32_t x = n.firstTapX + tile.firstColumn * n.strideX;
  const std::uint32_t count = static_cast<std::uint32_t>(sourceRows) * n.elementsOfRow.divisor();
  for (std::uint32_t first = threadIdx.x; first < count; first += kBatch * kTileThreads) {
    float values[kBatch];
    std::int32_t places[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const std::uint32_t number = min(first + static_cast<std::uint32_t>(i) * kTileThreads, count - 1);
      const std::uint32_t row = n.elementsOfRow.divide(number);
      const std::uint32_t element = number - row * n.elementsOfRow.divisor();
      const std::uint32_t column = n.channels.divide(element);
      const std::uint32_t channel = element - column * n.channels.divisor();
      const std::int64_t v = pixelAt(y + static_cast<std::int32_t>(row), n.source.height, n.clamps);
      const std::int64_t u = pixelAt(x + static_cast<std::int32_t>(column), n.source.width, n.clamps);
      values[i] = v < 0 || u < 0
                      ? 0.0F
                      : loadAs(n.source.format, n.sourceMemory, n.source.offset(tile.image, v, u, channel));
      places[i] = static_cast<std::int32_t>(channel) * n.plane + static_cast<std::int32_t>(row) * n.pitch +
                  static_cast<std::int32_t>(column);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (first + static_cast<std::uint32_t>(i) * kTileThreads < count) pixels[places[i]] = values[i];
  }
}

/// Where a thread's windows are. @tparam rows of windows
template <int windows, int rows = 1>
struct Span {
  std::int32_t row;     ///< of the tile
  std::int32_t column;  ///< of the tile
  std::int32_t count;   ///< windows that are there

  __device__ Span(const TileNumbers& n, const Tile& tile, std::uint32_t number) {
    const std::uint32_t quotient = n.spansOfRow.divide(number);
    row = static_cast<std::int32_t>(quotient) * rows;
    column = static_cast<std::int32_t>(number - quotient * n.spansOfRow.divisor()) * windows;
    count = min(windows, tile.columns - column);
  }
  /// Of the pixel of the first window's first tap.
  [[nodiscard]] __device__ std::int32_t offset(const TileNumbers& n) const {
    return row * n.strideY * n.pitch + column * n.strideX;
  }
};

/// Calls body(span) for the spans of this thread.
template <int windows, int rows = 1, class Body>
__device__ void forEachSpan(const TileNumbers& n, const Tile& tile, Body body) {
  const std::uint32_t slots = kTileThreads / static_cast<std::uint32_t>(n.quads);
  const std::uint32_t count = static_cast<std::uint32_t>(tile.rows) / rows * n.spansOfRow.divisor();
  for (std::uint32_t number = threadIdx.x / static_cast<std::uint32_t>(n.quads); number < count;
       number += slots) {
    const Span<windows, rows> span(n, tile, number);
    if (span.count > 0) body(span);
  }
}

/// Four adjacent channels of `windows` adjacent pixels. @param channels how many there are
template <int windows>
__device__ void loadQuads(const QuadTensor& from, const std::byte* memory, std::int64_t offset,
                          std::int32_t channels, float (&values)[windows][kQuad]) {
  switch (from.access) {
    case QuadAccess::Floats:
#pragma unroll
      for (int i = 0; i < windows; ++i) {
        const float4 v =
            *reinterpret_cast<const float4*>(memory + (offset + i * from.shape.pixelStride) * sizeof(float));
        values[i][0] = v.x, values[i][1] = v.y, values[i][2] = v.z, values[i][3] = v.w;
      }
      return;
    case QuadAccess::Halves:
#pragma unroll
      for (int i = 0; i < windows; ++i) {
        const uint2 v =
            *reinterpret_cast<const uint2*>(memory + (offset + i * from.shape.pixelStride) * sizeof(Float16));
        const float2 a = halvesOf(v.x);
        const float2 b = halvesOf(v.y);
        values[i][0] = a.x, values[i][1] = a.y, values[i][2] = b.x, values[i][3] = b.y;
      }
      return;
    case QuadAccess::OneByOne:
      for (int i = 0; i < windows; ++i)
        for (int lane = 0; lane < kQuad; ++lane)
          values[i][lane] =
              lane < channels ? loadAs(from.shape.format, memory, offset + i * from.shape.pixelStride + lane)
                              : 0.0F;
  }
}

__device__ inline void storeQuad(const QuadTensor& to, const float (&values)[kQuad], std::byte* memory,
                                 std::int64_t offset, std::int32_t channels) {
  switch (to.access) {
    case QuadAccess::Floats:
      *reinterpret_cast<float4*>(memory + offset * sizeof(float)) =
          float4{values[0], values[1], values[2], values[3]};
      return;
    case QuadAccess::Halves:
      *reinterpret_cast<uint2*>(memory + offset * sizeof(Float16)) =
          uint2{toHalves(values[0], values[1]), toHalves(values[2], values[3])};
      return;
    case QuadAccess::OneByOne:
      for (int lane = 0; lane < kQuad; ++lane)
        if (lane < channels) storeAs(values[lane], to.shape.format, memory, offset + lane);
  }
}

__device__ inline float4 loadFour(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

/// The pixels that `windows` adjacent windows of stride 1 read in one row of `width` taps.
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

/// `rows` rows of taps of a kernel of width x width taps that follow each other, x stride and dilation 1. Pixels are
/// loaded once for all taps of a row and four windows.
template <int width, int rows>
class TapRows {
 public:
  static constexpr int kWindows = kQuad;
  static constexpr int kTaps = width * rows;
  static constexpr bool kInRegisters = true;  ///< weights, in the forward pass

  __device__ TapRows(const TileNumbers& n, std::int32_t group)
      : first_(group * (rows / width) * n.plane), channelStep_(n.plane), rowStep_(n.dilationY * n.pitch) {}

  /// sums[tap] += gradient * pixel
  template <int windows>
  __device__ void addProducts(const float* pixels, std::int32_t /*stride*/,
                              const float (&gradients)[windows][kQuad], float (&sums)[kTaps][kQuad]) const {
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
                           float (&sums)[kWindows][kQuad]) const {
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      const PixelRun<width, kWindows> run(pixels + offset(row));
#pragma unroll
      for (int tap = 0; tap < width; ++tap)
#pragma unroll
        for (int i = 0; i < kWindows; ++i)
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

/// Any taps.
class TapList {
 public:
  static constexpr int kWindows = 8;
  static constexpr int kTaps = 16;
  static constexpr bool kInRegisters = false;

  __device__ TapList(const TileNumbers& n, std::int32_t group) {
#pragma unroll
    for (int i = 0; i < kTaps; ++i) offsets_[i] = n.tapOffset(min(group * kTaps + i, n.taps() - 1));
  }

  template <int windows>
  __device__ void addProducts(const float* pixels, std::int32_t stride,
                              const float (&gradients)[windows][kQuad], float (&sums)[kTaps][kQuad]) const {
    for (int i = 0; i < windows; ++i)
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const float pixel = pixels[offsets_[tap] + i * stride];
#pragma unroll
        for (int lane = 0; lane < kQuad; ++lane)
          sums[tap][lane] = fmaf(gradients[i][lane], pixel, sums[tap][lane]);
      }
  }

 private:
  std::int32_t offsets_[kTaps];
};

}  // namespace mps::detail::cuda
