#pragma once

#include <cstdint>

#include "mps/arithmetic/cuda/arithmetic_cuda.cuh"
#include "mps/core/cuda/element_grid_cuda.cuh"

/// Sums over axes of a tensor, of a fixed shape: float32 for some items of a thread, float64 from there on. Chunks of what
/// one element of the destination sums go to different blocks; their sums are added in order.
namespace mps::detail::cuda {

/// A tensor whose axes are kept, or summed over. Chunks are parts of the summed elements.
struct SumShape {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;  ///< of what is summed
  bool sumsX = false, sumsY = false, sumsChannels = false;

  SumShape() = default;
  /// @param destination has size 1 along the axes that are summed over
  SumShape(const TensorShape& source, const TensorShape& destination)
      : images(source.images),
        height(source.height),
        width(source.width),
        channels(source.channels),
        sumsX(destination.width < source.width),
        sumsY(destination.height < source.height),
        sumsChannels(destination.channels < source.channels) {}
  [[nodiscard]] std::int64_t keptPixels() const {
    return images * (sumsY ? 1 : height) * (sumsX ? 1 : width);
  }
  [[nodiscard]] std::int64_t keptChannels() const { return sumsChannels ? 1 : channels; }
  [[nodiscard]] std::int64_t summedPixels() const { return (sumsY ? height : 1) * (sumsX ? width : 1); }
  /// Whether the numbers are small enough.
  [[nodiscard]] bool fits() const {
    return images * height * width <= ElementGrid::kLongestRow &&
           height * width * channels <= ElementGrid::kLongestRow &&
           keptPixels() * channels <= ElementGrid::kLongestRow;
  }
};

/// How the threads share a sum.
struct SumGrid {
  static constexpr std::int64_t kMostChunks = 256;
  static constexpr std::int64_t kItemsPerThread = 16;  ///< at least
  static constexpr std::int64_t kWantedBlocks = 2048;

  Divider keptHeight, keptWidth;  ///< a pixel of the destination
  Divider summedWidth;            ///< a pixel among those that are summed
  Divider vectors;                ///< of a pixel
  Divider blocksOfChannels;       ///< that share the vectors of a pixel, where channels are kept
  std::uint32_t keptPixels = 0;
  std::uint32_t items = 0;  ///< summed pixels, or vectors of them, of each element of the destination
  std::uint32_t itemsPerChunk = 0;
  std::uint32_t channels = 0;
  dim3 grid;   ///< y: chunks
  dim3 block;  ///< where channels are summed, x goes over items and y over pixels; else y over items

  SumGrid() = default;
  SumGrid(const SumShape& shape, int lanes)
      : keptHeight(shape.sumsY ? 1 : shape.height),
        keptWidth(shape.sumsX ? 1 : shape.width),
        summedWidth(shape.sumsX ? shape.width : 1),
        vectors(shape.channels / lanes),
        keptPixels(static_cast<std::uint32_t>(shape.keptPixels())),
        channels(static_cast<std::uint32_t>(shape.channels)) {
    const std::int64_t pixelVectors = shape.channels / lanes;
    const std::int64_t count = shape.summedPixels() * (shape.sumsChannels ? pixelVectors : 1);
    const std::int64_t across = powerOfTwoFor(shape.sumsChannels ? count : pixelVectors);
    const std::int64_t down = kThreads / across;
    block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down));
    const std::int64_t perPass = shape.sumsChannels ? across : down;
    items = static_cast<std::uint32_t>(count);
    const std::int64_t ofChannels = (pixelVectors + across - 1) / across;
    blocksOfChannels = Divider(ofChannels);
    const std::int64_t blocks =
        shape.sumsChannels ? (shape.keptPixels() + down - 1) / down : shape.keptPixels() * ofChannels;
    const std::int64_t chunks =
        std::clamp<std::int64_t>(kWantedBlocks / std::max<std::int64_t>(1, blocks), 1, kMostChunks);
    itemsPerChunk =
        static_cast<std::uint32_t>(std::max(perPass * kItemsPerThread, (count + chunks - 1) / chunks));
    grid = dim3(static_cast<unsigned>(blocks), (items + itemsPerChunk - 1) / itemsPerChunk);
  }

  /// The place of an item of a pixel of the destination.
  __device__ ElementPlace place(std::uint32_t keptPixel, std::uint32_t summedPixel) const {
    const std::uint32_t row = keptWidth.divide(keptPixel);
    const std::uint32_t image = keptHeight.divide(row);
    const std::uint32_t summedRow = summedWidth.divide(summedPixel);
    // Of either two numbers one is 0.
    const std::uint32_t y = row - image * keptHeight.divisor() + summedRow;
    const std::uint32_t x =
        keptPixel - row * keptWidth.divisor() + summedPixel - summedRow * summedWidth.divisor();
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(y), static_cast<std::int32_t>(x), 0};
  }

  static constexpr std::int64_t kThreads = 256;

 private:
  static std::int64_t powerOfTwoFor(std::int64_t count) {
    std::int64_t power = 1;
    while (power < kThreads && power < count) power *= 2;
    return power;
  }
};

template <int inputs>
struct SumArguments {
  SumGrid grid;
  SourceView sources[inputs];
  double* sums = nullptr;  ///< [pixel of the destination][chunk][channel]
};

/// function's results for some items: visits those that `isInside` says, all loads first. A function may read what a
/// division has kept, too.
template <class Access, int batch, int inputs, class Function, class PlaceOf, class Visit>
__device__ void visitItems(const SourceView (&sources)[inputs], const Function& function, PlaceOf placeOf,
                           Visit visit) {
  typename Access::Fetched fetched[batch][inputs];
  typename Access::Values kept[batch];
  ElementPlace places[batch];
  bool isInside[batch];
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    isInside[i] = placeOf(i, places[i]);
    if (!isInside[i]) continue;
#pragma unroll
    for (int k = 0; k < inputs; ++k) fetched[i][k] = Access::fetch(sources[k], places[i]);
    if constexpr (Function::readsKept(inputs))
      kept[i] = function.template keptAt<typename Access::Values>(places[i]);
  }
#pragma unroll
  for (int i = 0; i < batch; ++i) {
    if (!isInside[i]) continue;
    typename Access::Values in[inputs];
#pragma unroll
    for (int k = 0; k < inputs; ++k) in[k] = Access::valuesOf(fetched[i][k]);
    typename Access::Values result;
    function.finish(places[i], in, kept[i], result);
    visit(result);
  }
}

/// What a thread sums where channels are kept: some items of a pixel, and of those a vector of channels.
struct SumPart {
  std::uint32_t pixel, vector, begin, end;
  bool isInside;

  __device__ explicit SumPart(const SumGrid& grid)
      : pixel(grid.blocksOfChannels.divide(blockIdx.x)),
        vector((blockIdx.x - pixel * grid.blocksOfChannels.divisor()) * blockDim.x + threadIdx.x),
        begin(blockIdx.y * grid.itemsPerChunk),
        isInside(vector < grid.vectors.divisor()) {
    end = isInside ? min(begin + grid.itemsPerChunk, grid.items) : 0;
  }
  __device__ ElementPlace place(const SumGrid& grid, std::uint32_t item, int lanes) const {
    ElementPlace place = grid.place(pixel, item);
    place.channel = static_cast<std::int32_t>(vector) * lanes;
    return place;
  }
};

/// Adds function's results to the sums. @tparam batch items on their way at once
template <class Access, int batch, int inputs, class Function>
__device__ void addItems(const SumGrid& grid, const SourceView (&sources)[inputs], const Function& function,
                         const SumPart& part, double (&sums)[Access::lanes]) {
  constexpr int lanes = Access::lanes;
  for (std::uint32_t first = part.begin + threadIdx.y; first < part.end; first += batch * blockDim.y) {
    float ofBatch[lanes] = {};
    visitItems<Access, batch>(
        sources, function,
        [&](int i, ElementPlace& place) {
          const std::uint32_t item = first + static_cast<std::uint32_t>(i) * blockDim.y;
          place = part.place(grid, item, lanes);
          return item < part.end;
        },
        [&](const typename Access::Values& values) {
          for (int lane = 0; lane < lanes; ++lane) ofBatch[lane] += values.values[lane];
        });
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += static_cast<double>(ofBatch[lane]);
  }
}

/// Adds up the sums of a block's threads. Returns whether this thread has those of its channels.
template <int lanes>
__device__ bool addThreads(const SumPart& part, double (&sums)[lanes]) {
  __shared__ double partial[lanes][SumGrid::kThreads];
  const std::uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int i = 0; i < lanes; ++i) partial[i][thread] = sums[i];
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half)
      for (int i = 0; i < lanes; ++i) partial[i][thread] += partial[i][thread + half * blockDim.x];
  }
  for (int i = 0; i < lanes; ++i) sums[i] = partial[i][thread];
  return threadIdx.y == 0 && part.isInside;
}

template <int lanes>
__device__ void storeSums(const SumGrid& grid, const SumPart& part, const double (&sums)[lanes], double* to) {
  to +=
      (static_cast<std::int64_t>(part.pixel) * gridDim.y + blockIdx.y) * grid.channels + part.vector * lanes;
  for (int i = 0; i < lanes; ++i) to[i] = sums[i];
}

/// Sums function's results over pixels; channels are kept.
template <class Access, int inputs, class Function>
__global__ void sumPixels(SumArguments<inputs> a, Function function) {
  constexpr int lanes = Access::lanes;
  // What is kept may come beside two inputs.
  constexpr int batch = lanes == 1                                    ? 2 / inputs
                        : inputs == 1 && !Function::readsKept(inputs) ? 8
                                                                      : 16 / lanes;
  const SumPart part(a.grid);
  double sums[lanes] = {};
  addItems<Access, batch>(a.grid, a.sources, function, part, sums);
  if (addThreads(part, sums)) storeSums(a.grid, part, sums, a.sums);
}

/// The same over channels, and pixels, element by element.
template <int inputs, class Function>
__global__ void sumChannels(SumArguments<inputs> a, Function function) {
  __shared__ double partial[SumGrid::kThreads];
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  const bool isInside = pixel < a.grid.keptPixels;
  const std::uint32_t begin = blockIdx.y * a.grid.itemsPerChunk;
  const std::uint32_t end = isInside ? min(begin + a.grid.itemsPerChunk, a.grid.items) : 0;
  float sum = 0;
  for (std::uint32_t item = begin + threadIdx.x; item < end; item += blockDim.x) {
    const std::uint32_t summedPixel = a.grid.vectors.divide(item);
    ElementPlace place = a.grid.place(pixel, summedPixel);
    place.channel = static_cast<std::int32_t>(item - summedPixel * a.grid.vectors.divisor());
    visitItems<OneByOne, 1>(
        a.sources, function,
        [&](int /*i*/, ElementPlace& at) {
          at = place;
          return true;
        },
        [&](const OneByOne::Values& values) { sum += values.values[0]; });
  }
  const std::uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  partial[thread] = static_cast<double>(sum);
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[thread] += partial[thread + half];
  }
  if (threadIdx.x == 0 && isInside)
    a.sums[static_cast<std::int64_t>(pixel) * gridDim.y + blockIdx.y] = partial[thread];
}

/// Adds the chunks of each element of the destination.
static __global__ void addChunks(ElementGrid grid, std::int64_t height, std::int64_t width,
                                 std::int64_t channels, std::uint32_t chunks, const double* sums,
                                 ResultView destination, bool accumulate) {
  grid.forEachBatch<1, 1>([](int, const ElementPlace&) {},
                          [&](int, const ElementPlace& place) {
                            const std::int64_t pixel = (place.image * height + place.y) * width + place.x;
                            double sum = 0;
                            for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
                              sum += sums[(pixel * chunks + chunk) * channels + place.channel];
                            OneByOne::store({{static_cast<float>(sum)}}, destination, place, accumulate);
                          });
}

}  // namespace mps::detail::cuda
