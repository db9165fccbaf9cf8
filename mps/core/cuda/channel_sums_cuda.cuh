#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mps/core/cuda/channel_grid_cuda.cuh"

/// Two float64 sums over the pixels of each channel: chunks of pixels first, which are joined then. Either of all images
/// together, where blockIdx.z is 0, or of each image, where it is the image and a ChannelGrid is that of one.
namespace mps::detail::cuda {

/// Two sums of each channel of the tensors from each chunk: [image][chunk][which][channel].
struct ChunkSums {
  double* memory = nullptr;
  std::int64_t channels = 0;  ///< of the tensors, a multiple of the caller's
  std::uint32_t chunks = 0;

  [[nodiscard]] __device__ double* of(std::int64_t image, std::uint32_t chunk, std::int64_t channel) const {
    return memory + (image * chunks + chunk) * 2 * channels + channel;
  }
};

/// Stores the sums of a block's chunk. All threads of the block take part.
template <int lanes>
__device__ void storeChunk(const ChunkSums& to, std::uint32_t vector, bool isInside, double (&first)[lanes],
                           double (&second)[lanes]) {
  __shared__ double shared[lanes][ChannelGrid::kThreads];
  sumColumns(first, shared);
  sumColumns(second, shared);
  if (threadIdx.y != 0 || !isInside) return;
  double* const sums = to.of(blockIdx.z, blockIdx.x, static_cast<std::int64_t>(vector) * lanes);
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    sums[lane] = first[lane];
    sums[to.channels + lane] = second[lane];
  }
}

/// The caller's channel behind one of the tensors. Divisions of 64 bits would take longer than all of a short sum.
/// @param channels as the caller has them
__device__ inline std::uint32_t channelOf(std::uint32_t channel, std::int64_t channels) {
  return channel % static_cast<std::uint32_t>(channels);
}

/// What moments of a channel are taken of differences from: the image's first pixel. An infinite one would make NaN
/// of every difference.
static __device__ __noinline__ double shiftOf(SourceView source, std::int64_t image, std::int64_t channel) {
  const ElementPlace place{static_cast<std::int32_t>(image), 0, 0, static_cast<std::int32_t>(channel)};
  const float first = OneByOne::load(source, place).values[0];
  return first - first == 0.0F ? static_cast<double>(first) : 0.0;
}

/// Whether all numbers that it was shown are finite.
struct FiniteWatch {
  float sum = 0;
  __half2 seen{};

  __device__ void see(float value) { sum = fmaf(value, 0.0F, sum); }
  __device__ void seeFloat16(std::uint32_t bits) {
    __half2 both;
    memcpy(&both, &bits, sizeof both);
    seen = __hfma2(both, __half2{}, seen);
  }
  __device__ void seeFloat16(const uint4& vector) {
    seeFloat16(vector.x);
    seeFloat16(vector.y);
    seeFloat16(vector.z);
    seeFloat16(vector.w);
  }
  [[nodiscard]] __device__ bool allFinite() const {
    const float2 both = __half22float2(seen);
    return sum + both.x + both.y == 0.0F;
  }
};

/// A vector as float64 numbers.
template <class Access>
struct ConvertedVector {
  static constexpr double factor = 1;
  static constexpr double gradientFactor = 1;
  static constexpr bool areSmall = false;
  double values[Access::lanes];

  __device__ ConvertedVector(const typename Access::Fetched& fetched, FiniteWatch& /*watch*/) {
    const typename Access::Values from = Access::valuesOf(fetched);
#pragma unroll
    for (int lane = 0; lane < Access::lanes; ++lane) values[lane] = static_cast<double>(from.values[lane]);
  }
  __device__ static double widen(float value) {
    return static_cast<double>(value);
  }
};

/// A finite float32 number as float64, times 2^-896: its bits at their new places. The instruction that converts takes
/// as long as four sums; an fma with the factor takes the power away again, exactly.
inline constexpr double kMovedFloatFactor = 0x1p896;
__device__ inline double movedFloat(std::uint32_t bits) {
  return __hiloint2double((static_cast<int>(bits) >> 3) & static_cast<int>(0x8FFFFFFFU),
                          static_cast<int>(bits << 29));
}
/// The same for a float16 number in the upper half of `bits`, times 2^-1008.
inline constexpr double kMovedHalfFactor = 0x1p1008;
__device__ inline double movedHalf(std::uint32_t bits) {
  return __hiloint2double((static_cast<int>(bits) >> 6) & static_cast<int>(0x81FFFC00U), 0);
}

/// ConvertedVector divided by `factor`, if the watch says that all numbers are finite.
template <class T>
struct MovedVector {
  static constexpr bool isHalf = sizeof(T) == 2;
  static constexpr double factor = isHalf ? kMovedHalfFactor : kMovedFloatFactor;
  static constexpr double gradientFactor = kMovedFloatFactor;  ///< of what widen() gives
  static constexpr bool areSmall = isHalf;                     ///< far from the ends of float32
  double values[kLanes<T>];

  __device__ MovedVector(const uint4& vector, FiniteWatch& watch) {
    const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (isHalf) {
        watch.seeFloat16(words[i]);
        values[2 * i] = movedHalf(words[i] << 16);
        values[2 * i + 1] = movedHalf(words[i]);
      } else {
        watch.see(__uint_as_float(words[i]));
        values[i] = movedFloat(words[i]);
      }
    }
  }
  /// @param value that is finite
  __device__ static double widen(float value) {
    return movedFloat(__float_as_uint(value));
  }
};
template <class Access>
struct FastVector {
  using Type = ConvertedVector<Access>;
};
template <class T>
struct FastVector<InVectors<T>> {
  using Type = MovedVector<T>;
};

/// Calls add(null pointer to a type of vectors, watch) for numbers whose bits are moved, and again where not all were finite.
/// @tparam moves false: at once for numbers that are converted, which takes less code
template <class Access, bool moves, int lanes, class Add>
__device__ void addFast(double (&first)[lanes], double (&second)[lanes], Add add) {
  FiniteWatch watch;
  if constexpr (moves) {
    add(static_cast<typename FastVector<Access>::Type*>(nullptr), watch);
    if (watch.allFinite()) return;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) first[lane] = second[lane] = 0;
  }
  add(static_cast<ConvertedVector<Access>*>(nullptr), watch);
}

/// sum (x - shift) and sum (x - shift)^2 of each chunk. @tparam byImage of each image @param channels as the caller has
/// them
template <class Access, bool byImage>
__global__ void __launch_bounds__(ChannelGrid::kThreads, Access::lanes == 4 ? 4 : 3)
    sumMoments(ChannelGrid grid, std::int64_t channels, SourceView source, ChunkSums sums) {
  constexpr int lanes = Access::lanes;
  const std::uint32_t vector = grid.vector();
  const bool isInside = vector < grid.vectors;
  double first[lanes] = {};
  double second[lanes] = {};
  if (isInside) {
    double shift[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      shift[lane] = shiftOf(source, byImage ? blockIdx.z : 0, channelOf(vector * lanes + lane, channels));
    addFast<Access, (lanes > 1)>(first, second, [&](auto* type, FiniteWatch& watch) {
      using Vector = std::remove_pointer_t<decltype(type)>;
      forEachPixel<Access, byImage, 1>(
          grid, vector * lanes, {source},
          [&](const ElementPlace& /*place*/, const typename Access::Fetched(&fetched)[1]) {
            const Vector x(fetched[0], watch);
#pragma unroll
            for (int lane = 0; lane < lanes; ++lane) {
              const double difference = fma(x.values[lane], Vector::factor, -shift[lane]);
              first[lane] += difference;
              second[lane] = fma(difference, difference, second[lane]);
            }
          });
    });
  }
  storeChunk(sums, vector, isInside, first, second);
}

/// g where it is dy.
struct SameGradient {
  static constexpr bool knowsFinite = false;
  __device__ void watchNumbers(FiniteWatch& /*watch*/) const {}
};
struct IgnoredGradients {
  template <class Values>
  __device__ void operator()(const ElementPlace& /*place*/, const Values& /*g*/) const {}
};

/// g of a vector; shows the watch what it needs to know of dy, of which memory has `fetched`.
template <class Vector, class Function, class Fetched, class Values>
__device__ Values watchedGradients(const Function& function, const Fetched& fetched, const Values& dy,
                                   const Values& x, FiniteWatch& watch) {
  if constexpr (Function::knowsFinite && Vector::areSmall) {
    watch.seeFloat16(fetched);
    return function.gradientsOfFinite(dy, x);
  } else {
    const Values g = function.gradientsOf(dy, x);
    for (const float value : g.values) watch.see(value);
    return g;
  }
}

/// sum g and sum g (x - mean) of this thread's pixels, into `first` and `second`, which are 0.
/// @tparam byImage of each image @tparam moves as addFast has it
/// @param function its gradientsOf(dy, x) are g; or SameGradient. If it knowsFinite, for float16 watchNumbers() shows a watch
/// its numbers, and gradientsOfFinite() does what gradientsOf() does where all that the watch saw is finite.
/// @param visit visit(place, g) of each vector of a function's, of some twice, at last with what is right
template <class Access, bool byImage, bool moves, class Function, class Visit = IgnoredGradients>
__device__ void addGradients(const ChannelGrid& grid, SourceView source, SourceView gradient,
                             const double (&mean)[Access::lanes], const Function& function,
                             double (&first)[Access::lanes], double (&second)[Access::lanes],
                             Visit visit = {}) {
  constexpr int lanes = Access::lanes;
  addFast<Access, moves>(first, second, [&](auto* type, FiniteWatch& watch) {
    using Vector = std::remove_pointer_t<decltype(type)>;
    constexpr bool isSame = std::is_same_v<Function, SameGradient>;
    // Of few digits nothing is lost by means that are subtracted at last: converting them again and again takes long.
    constexpr bool shiftsLater = Function::knowsFinite && Vector::areSmall;
    const auto addLane = [&](int lane, double x, double g) {
      first[lane] += g;
      const double difference = shiftsLater ? x * Vector::factor : fma(x, Vector::factor, -mean[lane]);
      second[lane] = fma(g, difference, second[lane]);
    };
    if constexpr (shiftsLater) function.watchNumbers(watch);
    forEachPixel<Access, byImage, 2>(
        grid, grid.vector() * lanes, {source, gradient},
        [&](const ElementPlace& place, const typename Access::Fetched(&fetched)[2]) {
          const Vector x(fetched[0], watch);
          if constexpr (isSame) {
            const Vector dy(fetched[1], watch);
#pragma unroll
            for (int lane = 0; lane < lanes; ++lane)
              addLane(lane, x.values[lane], dy.values[lane] * Vector::factor);
          } else {
            const typename Access::Values xs = Access::valuesOf(fetched[0]);
            const typename Access::Values dys = Access::valuesOf(fetched[1]);
            const typename Access::Values g = watchedGradients<Vector>(function, fetched[1], dys, xs, watch);
#pragma unroll
            for (int lane = 0; lane < lanes; ++lane)
              addLane(lane, x.values[lane], Vector::widen(g.values[lane]));
            visit(place, g);
          }
        });
    if constexpr (!isSame && Vector::gradientFactor != 1) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        first[lane] *= Vector::gradientFactor;
        second[lane] *= Vector::gradientFactor;
      }
    }
    if constexpr (shiftsLater) {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) second[lane] = fma(-mean[lane], first[lane], second[lane]);
    }
  });
}

/// The sums of all chunks for the channel of this column of threads, in the threads with threadIdx.y 0.
/// @tparam threads of a block
template <unsigned threads>
struct JoinedSums {
  double both[2] = {};

  /// @param channels as the caller has them; all threads of the block take part
  __device__ JoinedSums(const ChunkSums& sums, std::int64_t channels, std::int64_t channel) {
    __shared__ double shared[2][threads];
    if (channel < channels) {
      constexpr int kBatch = 6;  // loads that wait for each other would take nearly all the time
      const auto repeats = static_cast<std::uint32_t>(sums.channels / channels);
      const std::uint32_t count = sums.chunks * repeats;
      for (std::uint32_t first = threadIdx.y; first < count; first += kBatch * blockDim.y) {
        double loaded[kBatch][2] = {};
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          const std::uint32_t i = first + static_cast<std::uint32_t>(k) * blockDim.y;
          if (i >= count) continue;
          const std::uint32_t chunk = repeats == 1 ? i : i / repeats;
          const double* const from = sums.of(blockIdx.z, chunk, (i - chunk * repeats) * channels + channel);
          loaded[k][0] = from[0];
          loaded[k][1] = from[sums.channels];
        }
#pragma unroll
        for (const auto& one : loaded) {
          both[0] += one[0];
          both[1] += one[1];
        }
      }
    }
    sumColumns(both, shared);
  }
};

}  // namespace mps::detail::cuda
