#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>

#include "mps/core/cuda/element_grid_cuda.cuh"

/// Kernels whose threads stay with their channels and go from pixel to pixel, so that what belongs to a channel
/// is loaded, or summed up, once for many pixels.
namespace mps::detail::cuda {

/// Makes pixels of tensors without gaps wider until vectors of `lanes` elements fill them, and one row of all:
/// channel c stands at c, c + channels and so on then. Tensors of the same sizes; null stands for one that is not
/// there, not the first one. @return how many pixels make up one; 1 where nothing changed
inline std::int64_t widenPixels(std::initializer_list<TensorShape*> shapes, std::int64_t lanes) {
  const TensorShape first = **shapes.begin();
  const std::int64_t channels = std::max<std::int64_t>(1, first.channels);
  const std::int64_t repeats = lanes / std::gcd(channels, lanes);
  const bool areDense = std::all_of(shapes.begin(), shapes.end(),
                                    [](const TensorShape* s) { return s == nullptr || s->isDense(); });
  if (repeats == 1 || !areDense || first.pixels() % repeats != 0) return 1;
  for (TensorShape* shape : shapes)
    if (shape != nullptr)
      *shape = TensorShape::dense(1, 1, first.pixels() / repeats, channels * repeats, shape->format);
  return repeats;
}

/// How the threads share the pixels: in a block x goes over vectors of channels and y over pixels; blocks go over
/// chunks of pixels (x), and over the vectors that one block does not hold (y).
struct ChannelGrid {
  static constexpr std::int64_t kThreads = mtl::cuda::kBlockThreads;

  Divider width, height;
  std::uint32_t vectors = 0;
  std::uint32_t pixels = 0;
  std::uint32_t pixelsPerChunk = 0;
  bool isRow = false;  ///< whether the pixels are those of one row
  bool isInterleaved = false;
  bool isReversed = false;
  dim3 grid;
  dim3 block;

  /// Whether the numbers are small enough.
  static bool fits(const TensorShape& shape) {
    return shape.pixelStride <= 0x7FFFFFFF && shape.pixels() <= 0x7FFFFFFF - 0x10000 &&
           shape.channels <= 65535 * kThreads;
  }
  static constexpr const char* kTooLarge = "about 2^31 pixels, or 2^24 feature channels";

  ChannelGrid() = default;
  /// @param shape not empty
  /// @param lanes of a vector
  /// @param pixelsPerThread at least
  /// @param mostBlocks about; more pixels make larger chunks
  ChannelGrid(const TensorShape& shape, std::int64_t lanes, std::int64_t pixelsPerThread,
              std::int64_t mostBlocks = 0x7FFFFFFF)
      : width(shape.width),
        height(shape.height),
        vectors(static_cast<std::uint32_t>(shape.channels / lanes)),
        pixels(static_cast<std::uint32_t>(shape.pixels())),
        isRow(shape.images == 1 && shape.height == 1) {
    const std::int64_t ofChannels = divideUp(vectors, kThreads);
    const std::int64_t across = divideUp(vectors, ofChannels);
    std::int64_t down = kThreads / across;
    // Blocks of dense pixels begin and end with whole lines, of eight vectors of 16 bytes.
    const std::int64_t pixelsOfLines = 8 / std::gcd(across, std::int64_t{8});
    if (down >= 4 * pixelsOfLines) down -= down % pixelsOfLines;
    const std::int64_t mostChunks = std::max<std::int64_t>(1, mostBlocks / ofChannels);
    pixelsPerChunk =
        static_cast<std::uint32_t>(std::max(down * pixelsPerThread, divideUp(pixels, mostChunks)));
    block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down));
    grid = dim3(static_cast<unsigned>(divideUp(pixels, pixelsPerChunk)), static_cast<unsigned>(ofChannels));
  }

  /// The same with chunks that alternate: all blocks together go over the pixels once, from the first to the last. Then the
  /// last ones of all are left in the cache.
  [[nodiscard]] ChannelGrid interleaved() const {
    ChannelGrid other = *this;
    other.isInterleaved = true;
    return other;
  }
  /// The same with the last chunk first, of which the cache may have something.
  [[nodiscard]] ChannelGrid reversed() const {
    ChannelGrid other = *this;
    other.isReversed = true;
    return other;
  }

  [[nodiscard]] __device__ std::uint32_t vector() const { return blockIdx.y * blockDim.x + threadIdx.x; }

  /// The first of this thread's pixels, how far they lie apart, and where they end.
  [[nodiscard]] __device__ std::uint32_t firstPixel() const {
    return chunk() * (isInterleaved ? blockDim.y : pixelsPerChunk) + threadIdx.y;
  }
  [[nodiscard]] __device__ std::uint32_t step() const {
    return isInterleaved ? blockDim.y * gridDim.x : blockDim.y;
  }
  [[nodiscard]] __device__ std::uint32_t endOfPixels() const {
    return isInterleaved ? pixels : min((chunk() + 1) * pixelsPerChunk, pixels);
  }
  [[nodiscard]] __device__ ElementPlace placeOf(std::uint32_t pixel, std::uint32_t channel) const {
    if (isRow) return {0, 0, static_cast<std::int32_t>(pixel), static_cast<std::int32_t>(channel)};
    const std::uint32_t row = width.divide(pixel);
    const std::uint32_t image = height.divide(row);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * height.divisor()),
            static_cast<std::int32_t>(pixel - row * width.divisor()), static_cast<std::int32_t>(channel)};
  }

 private:
  [[nodiscard]] __device__ std::uint32_t chunk() const {
    return isReversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  }
  static std::int64_t divideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
};

/// Vectors on their way to the threads of a block, in places of each thread's own in shared memory: of loads to registers
/// the first one that is used would be waited for together with all that came later.
/// @tparam byImage of image blockIdx.z, whose grid it is; else of all images
template <class Access, bool byImage, int inputs>
class StagedPixels {
 public:
  static constexpr int kAhead = 6 / inputs;  ///< slots

  /// @param sources those without memory are left out
  __device__ StagedPixels(const ChannelGrid& grid, std::uint32_t channel, const SourceView (&sources)[inputs])
      : grid_(grid),
        sources_(sources),
        channel_(channel),
        end_(grid.endOfPixels()),
        thread_(threadIdx.y * blockDim.x + threadIdx.x) {
#pragma unroll
    for (int k = 0; k < inputs; ++k) {
      next_[k] = addressOf(sources[k], placeOf(grid.firstPixel()));
      step_[k] = static_cast<std::int64_t>(grid.step()) * sources[k].pixel * kBytesPerLane;
    }
  }

  [[nodiscard]] __device__ ElementPlace placeOf(std::uint32_t pixel) const {
    ElementPlace place = grid_.placeOf(pixel, channel_);
    if constexpr (byImage) place.image = static_cast<std::int32_t>(blockIdx.z);
    return place;
  }
  /// Begins to load this thread's vectors of a pixel. To be called for all of its pixels, in their order, and then for as
  /// many beyond the last one as pleases.
  __device__ void fetch(std::uint32_t pixel, int slot) {
    if (pixel < end_) {
#pragma unroll
      for (int k = 0; k < inputs; ++k) {
        if (sources_[k].memory == nullptr) continue;
        // In a row a step takes less time than a place.
        const std::byte* const from = grid_.isRow ? next_[k] : addressOf(sources_[k], placeOf(pixel));
        __pipeline_memcpy_async(&vectors()[slot][k][thread_], from, 16);
        next_[k] += step_[k];
      }
    }
    __pipeline_commit();
  }
  /// Waits until this thread's vectors are there, but for those of the last calls of fetch().
  template <int calls>
  __device__ static void waitForAllBut() {
    __pipeline_wait_prior(calls);
  }
  /// What lies in a slot. @param neighbour of this thread, in the block's order
  [[nodiscard]] __device__ uint4 vector(int slot, int input, int neighbour = 0) const {
    return vectors()[slot][input][static_cast<int>(thread_) + neighbour];
  }

 private:
  static constexpr std::int64_t kBytesPerLane = 16 / Access::lanes;
  using Vectors = uint4[kAhead][inputs][ChannelGrid::kThreads];

  __device__ static Vectors& vectors() {
    __shared__ Vectors shared;
    return shared;
  }
  __device__ static const std::byte* addressOf(const SourceView& source, const ElementPlace& place) {
    return source.memory + source.offset(place) * kBytesPerLane;
  }

  const ChannelGrid& grid_;
  const SourceView (&sources_)[inputs];
  std::uint32_t channel_;
  std::uint32_t end_;
  unsigned thread_;
  const std::byte* next_[inputs];
  std::int64_t step_[inputs];
};

/// For the pixels of this thread: finish(place, what Access fetched of each source). Sources without memory are left out.
/// @tparam byImage as StagedPixels has it
template <class Access, bool byImage, int inputs, class Finish>
__device__ void forEachPixel(const ChannelGrid& grid, std::uint32_t channel,
                             const SourceView (&sources)[inputs], Finish finish) {
  const std::uint32_t end = grid.endOfPixels();
  const std::uint32_t step = grid.step();
  typename Access::Fetched fetched[inputs];
  if constexpr (Access::lanes == 1) {
    for (std::uint32_t pixel = grid.firstPixel(); pixel < end; pixel += step) {
      ElementPlace place = grid.placeOf(pixel, channel);
      if constexpr (byImage) place.image = static_cast<std::int32_t>(blockIdx.z);
#pragma unroll
      for (int k = 0; k < inputs; ++k)
        if (sources[k].memory != nullptr) fetched[k] = Access::fetch(sources[k], place);
      finish(place, fetched);
    }
  } else {
    using Staged = StagedPixels<Access, byImage, inputs>;
    Staged staged(grid, channel, sources);
    for (int slot = 0; slot < Staged::kAhead; ++slot)
      staged.fetch(grid.firstPixel() + static_cast<std::uint32_t>(slot) * step, slot);
    int slot = 0;
    for (std::uint32_t pixel = grid.firstPixel(); pixel < end; pixel += step) {
      staged.template waitForAllBut<Staged::kAhead - 1>();
#pragma unroll
      for (int k = 0; k < inputs; ++k) fetched[k] = staged.vector(slot, k);
      finish(staged.placeOf(pixel), fetched);
      staged.fetch(pixel + Staged::kAhead * step, slot);
      slot = slot == Staged::kAhead - 1 ? 0 : slot + 1;
    }
  }
}

/// Adds up the numbers of each column of threads, in a fixed order; those with threadIdx.y 0 get the sums. All
/// threads of the block take part.
template <int count, int threads>
__device__ void sumColumns(double (&values)[count], double (&shared)[count][threads]) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  __syncthreads();  // the sums of the call before were read
#pragma unroll
  for (int i = 0; i < count; ++i) shared[i][thread] = values[i];
  for (unsigned rows = blockDim.y; rows > 1;) {
    const unsigned half = (rows + 1) / 2;
    __syncthreads();
    if (threadIdx.y < rows - half)
#pragma unroll
      for (int i = 0; i < count; ++i) shared[i][thread] += shared[i][thread + half * blockDim.x];
    rows = half;
  }
#pragma unroll
  for (int i = 0; i < count; ++i) values[i] = shared[i][thread];
}

}  // namespace mps::detail::cuda
