#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/row_reduction_cuda.cuh"
#include "mps/core/cuda/special_functions_cuda.cuh"
#include "mps/reduction/reduction_problem.hpp"

/// Reductions along an axis, each in an order that only the problem's numbers decide.
namespace mps::detail::cuda {

// What is reduced: what a thread makes of its elements (Running), how the values of two threads become one, and what the
// result is made of.

struct SumOfElements {
  using Value = float;
  using Running = float;
  float factor = 1;
  bool divides = false;

  static __device__ Value none() { return 0; }
  static __device__ Running begin(std::uint32_t /*index*/) { return none(); }
  __device__ void add(Running& sum, float element, std::uint32_t /*index*/) const { sum += element; }
  __device__ Value valueOf(Running sum, bool /*isAny*/) const { return sum; }
  __device__ Value operator()(Value a, Value b) const { return a + b; }
  __device__ float result(Value sum) const { return divides ? sum / factor : sum * factor; }
};

/// Of negated elements the maximum is the minimum. NaN goes through.
struct Extremum {
  using Value = float;
  using Running = float;
  bool isMin = false;

  static __device__ Value none() { return -std::numeric_limits<float>::infinity(); }
  static __device__ Running begin(std::uint32_t /*index*/) { return none(); }
  __device__ void add(Running& largest, float element, std::uint32_t /*index*/) const {
    largest = largerOrNaN(largest, isMin ? -element : element);
  }
  __device__ Value valueOf(Running largest, bool /*isAny*/) const { return largest; }
  __device__ Value operator()(Value a, Value b) const { return largerOrNaN(a, b); }
  __device__ float result(Value value) const { return isMin ? -value : value; }
};

/// The index of the extremum: numbers that are larger for a larger element, NaN above all, and of equals for the
/// lower index.
struct IndexOfExtremum {
  using Value = unsigned long long;
  struct Running {
    float largest;
    std::uint32_t index;
  };
  bool isMin = false;

  static __device__ Value none() { return 0; }
  /// @param index of a thread's first element
  static __device__ Running begin(std::uint32_t index) {
    return {-std::numeric_limits<float>::infinity(), index};
  }
  /// Elements come in ascending order.
  __device__ void add(Running& place, float element, std::uint32_t index) const {
    const float value = isMin ? -element : element;
    if (!(value <= place.largest) && place.largest == place.largest) place = {value, index};
  }
  __device__ Value valueOf(const Running& place, bool isAny) const {
    if (!isAny) return none();
    const unsigned bits = __float_as_uint(place.largest + 0.0F);  // one zero
    const unsigned ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    return static_cast<Value>(isnan(place.largest) ? 0xFFFFFFFFU : ordered) << 32 |
           (0xFFFFFFFFU - place.index);
  }
  __device__ Value operator()(Value a, Value b) const { return a > b ? a : b; }
  static __device__ std::uint32_t indexOf(Value value) { return 0xFFFFFFFFU - static_cast<unsigned>(value); }
  __device__ float result(Value value) const { return static_cast<float>(indexOf(value)); }
};

// Rows, columns, pixels -----------------------------------------------------------------------------------------------

/// The threads of a block: x goes over adjacent vectors of the result, y over elements of the reduced axis, z over rows
/// of the result, or over its images.
struct AxisArguments {
  std::uint32_t vectors = 0;  ///< of a row of the result, or of an image
  std::uint32_t rows = 0;
  std::uint32_t count = 0;  ///< elements that make one
  Divider vectorsOfPixel;
  Divider height;  ///< of the result
  Divider width;   ///< of the reduced pixels
  bool overX = false;
  bool overY = false;
  SourceView source;
  SourceView gradient;
  ResultView destination;
  bool accumulate = false;
  dim3 grid;
  dim3 block;

  /// @param shape of the source, not empty
  AxisArguments(const ReductionProblem& problem, const TensorShape& shape, std::int64_t lanes)
      : overX(problem.axis != ReductionAxis::Column), overY(problem.axis != ReductionAxis::Row) {
    const std::int64_t ofPixel = shape.channels / lanes;
    vectors = static_cast<std::uint32_t>(overX ? ofPixel : shape.width * ofPixel);
    rows = static_cast<std::uint32_t>(overY ? shape.images : shape.images * shape.height);
    count = static_cast<std::uint32_t>(problem.count());
    vectorsOfPixel = Divider(ofPixel);
    height = Divider(overY ? 1 : shape.height);
    width = Divider(overX ? shape.width : 1);
    constexpr std::int64_t threads = mtl::cuda::kBlockThreads;
    // A vector is at least 4 bytes: 32 of them fill the lines of memory that they touch.
    const std::int64_t across = powerOfTwo(vectors, 32);
    const std::int64_t each = 8;  // elements that a thread takes
    const std::int64_t down =
        powerOfTwo((static_cast<std::int64_t>(count) + each - 1) / each, threads / across);
    const std::int64_t deep = powerOfTwo(rows, std::min<std::int64_t>(64, threads / (across * down)));
    block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down), static_cast<unsigned>(deep));
    grid = dim3(static_cast<unsigned>((rows + deep - 1) / deep),
                static_cast<unsigned>(std::min<std::int64_t>((vectors + across - 1) / across, 65535)));
  }

  /// The source's place of element `index` of the reduced axis, moved there from the result's.
  [[nodiscard]] __device__ ElementPlace moved(ElementPlace place, std::uint32_t index) const {
    const std::uint32_t y = width.divide(index);
    if (overY) place.y = static_cast<std::int32_t>(y);
    if (overX) place.x = static_cast<std::int32_t>(index - y * width.divisor());
    return place;
  }

 private:
  /// The least power of two that is not below `wanted`, at most `most`, itself one.
  static std::int64_t powerOfTwo(std::int64_t wanted, std::int64_t most) {
    std::int64_t number = 1;
    while (number < wanted && number < most) number *= 2;
    return number;
  }
};

/// Calls finish(place, values) once for each vector of the result by the thread with threadIdx.y 0, or by all of the
/// threads that share it.
template <class Access, class Reduce, class Finish>
__device__ void reduceAxis(const AxisArguments& a, const Reduce& reduce, bool allFinish, Finish finish) {
  constexpr int lanes = Access::lanes;
  constexpr int batch = 4;
  using Value = typename Reduce::Value;
  __shared__ Value shared[lanes][mtl::cuda::kBlockThreads];
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const std::uint32_t row = blockIdx.x * blockDim.z + threadIdx.z;
  for (std::uint32_t first = blockIdx.y * blockDim.x; first < a.vectors; first += gridDim.y * blockDim.x) {
    const std::uint32_t vector = first + threadIdx.x;
    const bool isAny = row < a.rows && vector < a.vectors;
    const std::uint32_t image = a.height.divide(row);
    const std::uint32_t x = a.vectorsOfPixel.divide(vector);
    const ElementPlace place{static_cast<std::int32_t>(image),
                             static_cast<std::int32_t>(row - image * a.height.divisor()),
                             static_cast<std::int32_t>(x),
                             static_cast<std::int32_t>((vector - x * a.vectorsOfPixel.divisor()) * lanes)};
    typename Reduce::Running running[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) running[lane] = Reduce::begin(threadIdx.y);
    const std::uint32_t count = isAny ? a.count : 0;
    for (std::uint32_t begin = threadIdx.y; begin < count; begin += batch * blockDim.y) {
      typename Access::Fetched fetched[batch];
#pragma unroll
      for (unsigned i = 0; i < batch; ++i)
        if (begin + i * blockDim.y < count)
          fetched[i] = Access::fetch(a.source, a.moved(place, begin + i * blockDim.y));
#pragma unroll
      for (unsigned i = 0; i < batch; ++i) {
        if (begin + i * blockDim.y >= count) continue;
        const typename Access::Values elements = Access::valuesOf(fetched[i]);
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          reduce.add(running[lane], elements.values[lane], begin + i * blockDim.y);
      }
    }
    __syncthreads();  // the values of the vector before were read
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      shared[lane][thread] = reduce.valueOf(running[lane], threadIdx.y < count);
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.y < half)
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          shared[lane][thread] = reduce(shared[lane][thread], shared[lane][thread + half * blockDim.x]);
    }
    if (allFinish) __syncthreads();
    if (!isAny || (threadIdx.y > 0 && !allFinish)) continue;
    Value values[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) values[lane] = shared[lane][thread - threadIdx.y * blockDim.x];
    finish(place, values);
  }
}

template <class Access, class Reduce>
__global__ void reduceAlongAxis(AxisArguments a, Reduce reduce) {
  reduceAxis<Access>(a, reduce, false, [&](const ElementPlace& place, const auto& values) {
    typename Access::Values result;
#pragma unroll
    for (int lane = 0; lane < Access::lanes; ++lane) result.values[lane] = reduce.result(values[lane]);
    Access::store(result, a.destination, place);
  });
}

/// The incoming gradient where the extremum lies, 0 elsewhere.
template <class Access>
__global__ void selectAlongAxis(AxisArguments a, IndexOfExtremum reduce) {
  reduceAxis<Access>(a, reduce, true, [&](const ElementPlace& place, const auto& values) {
    const typename Access::Values gradient = Access::load(a.gradient, place);
    for (std::uint32_t index = threadIdx.y; index < a.count; index += blockDim.y) {
      typename Access::Values result;
#pragma unroll
      for (int lane = 0; lane < Access::lanes; ++lane)
        result.values[lane] = index == IndexOfExtremum::indexOf(values[lane]) ? gradient.values[lane] : 0.0F;
      Access::store(result, a.destination, a.moved(place, index), a.accumulate);
    }
  });
}

// Feature channels ----------------------------------------------------------------------------------------------------

/// Vectors that a thread stores.
inline constexpr int kSpreadBatch = 4;

/// Rows of threads (threadIdx.x) share the vectors of a pixel.
struct ChannelArguments {
  std::uint32_t pixels = 0;
  std::uint32_t vectors = 0;  ///< of a pixel
  Divider height, width;
  SourceView source;
  SourceView gradient;  ///< one channel
  ResultView destination;
  bool accumulate = false;
  dim3 grid;
  dim3 block;

  ChannelArguments(const TensorShape& shape, std::int64_t lanes)
      : pixels(static_cast<std::uint32_t>(shape.pixels())),
        vectors(static_cast<std::uint32_t>(shape.channels / lanes)),
        height(shape.height),
        width(shape.width) {
    const unsigned across = threadsOfRow(vectors, 2);
    block = dim3(across, mtl::cuda::kBlockThreads / across);
    grid = dim3((pixels + block.y - 1) / block.y);
  }
  [[nodiscard]] __device__ ElementPlace place(std::uint32_t pixel) const {
    const std::uint32_t row = width.divide(pixel);
    const std::uint32_t image = height.divide(row);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * height.divisor()),
            static_cast<std::int32_t>(pixel - row * width.divisor()), 0};
  }
};

/// What the channels of this thread's pixel are reduced to, in all threads of its row.
/// @param vectors of the pixel; 0 behind the last one
template <class Access, class Reduce>
__device__ typename Reduce::Value reducePixel(const ChannelArguments& a, const Reduce& reduce,
                                              ElementPlace place, std::uint32_t vectors) {
  constexpr int batch = 2;
  __shared__ typename Reduce::Value shared[kMostWarps];
  typename Reduce::Running running = Reduce::begin(threadIdx.x * Access::lanes);
  for (std::uint32_t first = threadIdx.x; first < vectors; first += batch * blockDim.x) {
    typename Access::Fetched fetched[batch];
#pragma unroll
    for (unsigned i = 0; i < batch; ++i) {
      const std::uint32_t vector = first + i * blockDim.x;
      place.channel = static_cast<std::int32_t>(vector * Access::lanes);
      if (vector < vectors) fetched[i] = Access::fetch(a.source, place);
    }
#pragma unroll
    for (unsigned i = 0; i < batch; ++i) {
      const std::uint32_t vector = first + i * blockDim.x;
      if (vector >= vectors) continue;
      const typename Access::Values elements = Access::valuesOf(fetched[i]);
#pragma unroll
      for (unsigned lane = 0; lane < Access::lanes; ++lane)
        reduce.add(running, elements.values[lane], vector * Access::lanes + lane);
    }
  }
  return combineRow(reduce.valueOf(running, threadIdx.x < vectors), shared, reduce);
}

template <class Access, class Reduce>
__global__ void reduceChannels(ChannelArguments a, Reduce reduce) {
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  const bool isAny = pixel < a.pixels;
  const ElementPlace place = a.place(isAny ? pixel : 0);
  const auto value = reducePixel<Access>(a, reduce, place, isAny ? a.vectors : 0);
  if (isAny && threadIdx.x == 0) OneByOne::store({{reduce.result(value)}}, a.destination, place);
}

/// Gives all channels of a pixel what function makes of the source's only one.
template <class Access, class Function>
__global__ void spreadChannels(MapArguments<1> a, Function function) {
  OneByOne::Values fetched[kSpreadBatch];
  a.grid.template forEachBatch<kSpreadBatch, Access::lanes>(
      [&](int i, const ElementPlace& place) { fetched[i] = OneByOne::fetch(a.sources[0], place); },
      [&](int i, const ElementPlace& place) {
        const OneByOne::Values input[1] = {fetched[i]};
        OneByOne::Values share;
        function(place, input, share);
        typename Access::Values result;
#pragma unroll
        for (float& value : result.values) value = share.values[0];
        Access::store(result, a.destination, place, a.accumulate);
      });
}

template <class Access>
__global__ void selectChannels(ChannelArguments a, IndexOfExtremum reduce) {
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  const bool isAny = pixel < a.pixels;
  ElementPlace place = a.place(isAny ? pixel : 0);
  const float gradient = isAny ? OneByOne::load(a.gradient, place).values[0] : 0.0F;
  const std::uint32_t vectors = isAny ? a.vectors : 0;
  const std::uint32_t selected = IndexOfExtremum::indexOf(reducePixel<Access>(a, reduce, place, vectors));
  for (std::uint32_t vector = threadIdx.x; vector < vectors; vector += blockDim.x) {
    typename Access::Values result;
    place.channel = static_cast<std::int32_t>(vector * Access::lanes);
#pragma unroll
    for (unsigned lane = 0; lane < Access::lanes; ++lane)
      result.values[lane] = vector * Access::lanes + lane == selected ? gradient : 0.0F;
    Access::store(result, a.destination, place, a.accumulate);
  }
}

}  // namespace mps::detail::cuda
