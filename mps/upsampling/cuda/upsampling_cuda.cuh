#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/upsampling/upsampling_problem.hpp"
#include "mps/upsampling/upsampling_samples.hpp"

/// What the kernels of upsampling share: tables of both axes, and how threads share the work.
namespace mps::detail::cuda {

inline constexpr unsigned kUpsamplingThreads = 128;

/// What a result row or column is made of.
struct alignas(16) Samples {
  std::int32_t first;
  std::int32_t second;
  float firstWeight;  ///< 0: none
  float secondWeight;
};

/// Results that a source row or column may give shares to, as input rows or columns [begin, end).
struct alignas(8) Readers {
  std::int32_t begin;
  std::int32_t end;
};

/// The tables of one axis.
struct AxisTables {
  Samples* samples = nullptr;
  Readers* readers = nullptr;  ///< gradient only
  std::int32_t results = 0;
  std::int32_t destinations = 0;

  /// At once, the last ones for all beyond it.
  [[nodiscard]] __device__ Samples at(std::int32_t result) const {
    const int4 loaded = __ldg(reinterpret_cast<const int4*>(samples) + min(result, results - 1));
    return {loaded.x, loaded.y, __int_as_float(loaded.z), __int_as_float(loaded.w)};
  }
};

struct TableArguments {
  UpsamplingSampling sampling;
  ImageEdgeMode edgeMode;
  UpsamplingAxis axes[2];
  AxisTables tables[2];
};

/// First result from `begin` on, below `end`, whose pixel, moved by `step`, is at least `pixel`.
__host__ __device__ inline std::int32_t firstReaching(UpsamplingSampling sampling, const UpsamplingAxis& axis,
                                                      std::int64_t pixel, std::int64_t step,
                                                      std::int32_t end) {
  std::int32_t begin = 0;
  while (begin < end) {
    const std::int32_t middle = begin + (end - begin) / 2;
    const std::int64_t at = upsamplingPosition(sampling, axis, axis.firstResult + middle).pixel + step;
    const std::int64_t inside = at < 0 ? 0 : at < axis.sourceSize ? at : axis.sourceSize - 1;
    if (inside >= pixel)
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

/// What the tables have of one result, and of one destination position.
__host__ __device__ inline Samples samplesAt(UpsamplingSampling sampling, ImageEdgeMode edgeMode,
                                             const UpsamplingAxis& axis, std::int64_t result) {
  const UpsamplingSamples samples = upsamplingSamples(sampling, edgeMode, axis, axis.firstResult + result);
  return {static_cast<std::int32_t>(samples.first), static_cast<std::int32_t>(samples.second),
          static_cast<float>(samples.firstWeight), static_cast<float>(samples.secondWeight)};
}
__host__ __device__ inline Readers readersAt(UpsamplingSampling sampling, const UpsamplingAxis& axis,
                                             std::int64_t destination, std::int32_t results) {
  const std::int64_t pixel = destination + axis.destinationOrigin;
  if (pixel < 0 || pixel >= axis.sourceSize) return {0, 0};
  // The next pixel counts, too, but for Nearest.
  const std::int64_t reach = sampling == UpsamplingSampling::Nearest ? 0 : 1;
  return {firstReaching(sampling, axis, pixel, reach, results),
          firstReaching(sampling, axis, pixel + 1, 0, results)};
}

/// One thread for each result and each destination position of both axes; blockIdx.y is the axis.
static __global__ void fillTables(TableArguments a) {
  const UpsamplingAxis& axis = a.axes[blockIdx.y];
  const AxisTables& tables = a.tables[blockIdx.y];
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = thread; i < tables.results; i += step)
    tables.samples[i] = samplesAt(a.sampling, a.edgeMode, axis, i);
  if (tables.readers == nullptr) return;
  for (std::int64_t i = thread; i < tables.destinations; i += step)
    tables.readers[i] = readersAt(a.sampling, axis, i, tables.results);
}

/// A thread stays with one channel, or 16 bytes of channels, of a column of the destination and goes down some rows, so
/// that what rows share is computed once.
struct UpsamplingArguments {
  Divider columns;  ///< threads of a row
  Divider pixel;    ///< threads of a pixel
  Divider chunks;   ///< of the rows of an image
  std::uint32_t items = 0;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;
  SourceView input;
  ResultView destination;
  AxisTables x;
  AxisTables y;
  std::int64_t originX = 0;
  std::int64_t originY = 0;
  bool accumulate = false;
  bool rowsFollow = false;  ///< most results read the rows behind those that the one above reads, or the same

  /// @param lanes channels of a thread
  void setGrid(const TensorShape& shape, std::int64_t lanes) {
    const std::int64_t threadsOfPixel = shape.channels / lanes;
    const std::int64_t threadsOfRow = shape.width * threadsOfPixel;
    // Enough threads for a large GPU come first.
    constexpr std::int64_t threads = std::int64_t{1} << 19;
    constexpr std::int64_t fewestRows = 4;
    constexpr std::int64_t mostRows = 16;
    const std::int64_t all = shape.images * threadsOfRow;
    const std::int64_t rows = std::clamp<std::int64_t>(shape.height * all / threads, fewestRows, mostRows);
    const std::int64_t most = std::max<std::int64_t>(1, 0x7FFFFFFF / all);
    const std::int64_t count = std::min(most, (shape.height + rows - 1) / rows);
    rowsPerChunk = static_cast<std::int32_t>((shape.height + count - 1) / count);
    chunks = Divider((shape.height + rowsPerChunk - 1) / rowsPerChunk);
    columns = Divider(threadsOfRow);
    pixel = Divider(threadsOfPixel);
    items = static_cast<std::uint32_t>(all * chunks.divisor());
    height = static_cast<std::int32_t>(shape.height);
  }
  /// How often the images of a tensor may be there so that the numbers are small enough.
  static std::int64_t mostTimes(const TensorShape& shape) {
    return 0x7FFFFFFF / std::max<std::int64_t>(1, shape.images * shape.width * shape.channels);
  }
  static bool fits(const TensorShape& shape) { return mostTimes(shape) > 0; }
};

/// The work of this thread: channels of a column, and rows [begin, end) of an image.
struct ColumnWork {
  bool isAny;
  std::int32_t image;
  std::int32_t x;
  std::int32_t channel;  ///< the first one
  std::int32_t begin;
  std::int32_t end;

  __device__ ColumnWork(const UpsamplingArguments& a, int lanes) {
    const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    isAny = item < a.items;
    const std::uint32_t chunk = a.columns.divide(item);
    const std::uint32_t ofRow = item - chunk * a.columns.divisor();
    const std::uint32_t column = a.pixel.divide(ofRow);
    x = static_cast<std::int32_t>(column);
    channel = static_cast<std::int32_t>(ofRow - column * a.pixel.divisor()) * lanes;
    const std::uint32_t ofImage = a.chunks.divide(chunk);
    image = static_cast<std::int32_t>(ofImage);
    begin = static_cast<std::int32_t>(chunk - ofImage * a.chunks.divisor()) * a.rowsPerChunk;
    end = min(begin + a.rowsPerChunk, a.height);
  }
};

/// One element of type T, float or Float16.
template <class T>
struct OneOf {
  static constexpr int lanes = 1;
  using Values = OneByOne::Values;
  using Fetched = Values;

  __device__ static Fetched fetch(const SourceView& view, const ElementPlace& place) {
    return {{cuda::load(reinterpret_cast<const T*>(view.memory) + view.offset(place))}};
  }
  __device__ static Values valuesOf(const Fetched& fetched) { return fetched; }
  __device__ static void store(Values values, const ResultView& view, const ElementPlace& place,
                               bool accumulate) {
    T* const to = reinterpret_cast<T*>(view.memory) + view.offset(place);
    cuda::store(accumulate ? cuda::load(to) + values.values[0] : values.values[0], to);
  }
};

/// Begins to copy 16 bytes to shared memory, through the first cache, where the threads beside this one find what they
/// have in common.
__device__ inline void copyCached(uint4* to, const void* from) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}

/// sum += weight * values.
template <class Values>
__device__ void addWeighted(Values& sum, float weight, const Values& values) {
#pragma unroll
  for (int lane = 0; lane < static_cast<int>(sizeof(Values) / sizeof(float)); ++lane)
    sum.values[lane] = fmaf(weight, values.values[lane], sum.values[lane]);
}

/// What a pixel counts in a result. @tparam Pixel an integer; 64 bits take twice the comparisons
template <class Pixel>
__host__ __device__ float weightOf(const Samples& samples, Pixel pixel) {
  const float first = samples.first == pixel ? samples.firstWeight : 0.0F;
  return first + (samples.second == pixel ? samples.secondWeight : 0.0F);
}

}  // namespace mps::detail::cuda
