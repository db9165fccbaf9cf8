#pragma once

#include <type_traits>

#include "mps/normalization/normalization_strips_cuda.cuh"

/// Windows of whole images: threads beside one another have four channels of each pixel of a row, or four elements of a
/// row of pixels of few channels, and go down the rows together. Sums of columns stay in registers; their sums along the row
/// go through shared memory. What gradients have of windows goes the same way one row later, so that nothing goes through
/// memory but the tensors.
namespace mps::detail::cuda {

inline constexpr unsigned kImageThreads = 512;  ///< of a block, at most

/// Four channels or elements as float32.
using FourValues = Few<float, 4>::Values;
/// And as memory has them. @tparam T float or Float16
template <class T>
using FourStored = std::conditional_t<sizeof(T) == sizeof(float), uint4, uint2>;

__device__ inline FourValues fourOf(const uint4& stored) {
  return {{__uint_as_float(stored.x), __uint_as_float(stored.y), __uint_as_float(stored.z),
           __uint_as_float(stored.w)}};
}
__device__ inline FourValues fourOf(const uint2& stored) {
  const float2 low = halvesOf(stored.x);
  const float2 high = halvesOf(stored.y);
  return {{low.x, low.y, high.x, high.y}};
}
__device__ inline uint4 storedOf(const FourValues& four, const float* /*type*/) {
  return {__float_as_uint(four.values[0]), __float_as_uint(four.values[1]), __float_as_uint(four.values[2]),
          __float_as_uint(four.values[3])};
}
__device__ inline uint2 storedOf(const FourValues& four, const Float16* /*type*/) {
  return {toHalves(four.values[0], four.values[1]), toHalves(four.values[2], four.values[3])};
}

struct ImageArguments {
  Divider chunks;        ///< of the rows of an image
  Divider packs;         ///< fours of a row of an item, which is an image's slice of channels
  Divider slices;        ///< of an image
  Divider packsOfSlice;  ///< fours of a pixel
  std::uint32_t items = 0, itemsPerBlock = 1;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;
  /// Fours from row to row, item to item and sum to sum in shared memory.
  std::int32_t sharedRow = 0, sharedItem = 0, sharedField = 0;
  bool isAligned = false;  ///< fours can be accessed at once
  bool accumulate = false;
  bool isNormal = false;  ///< T is no smaller than delta, which is a normal number
  SourceView source;
  SourceView gradient;
  ResultView destination;
  float ofWindow = 1;  ///< 1 / taps
  float ofColumn = 1;  ///< 1 / height of a window
  float delta = 0, ofSquares = 0, p0 = 0, pm = 0, ps = 1;
  float ofSum = 0;   ///< 2 alpha beta / taps
  float ofMean = 0;  ///< p0 / taps
  PowerRule rule{1.0F};
};

/// What the columns beside a four have. @tparam channels of a pixel, where rows are fours of elements; 0: fours of channels
template <int channels, int radius>
struct Neighbours {
  static constexpr int beside = channels == 0 ? radius : (radius * channels + 3) / 4;  ///< fours
  FourValues fours[2 * beside + 1];

  __device__ explicit Neighbours(const FourValues* own) {
#pragma unroll
    for (int k = 0; k <= 2 * beside; ++k) fours[k] = own[k - beside];
  }
  /// @param column from -radius to radius
  [[nodiscard]] __device__ float at(int column, int lane) const {
    const int element = channels == 0 ? 4 * (beside + column) + lane : 4 * beside + lane + column * channels;
    return fours[element / 4].values[element % 4];
  }
  [[nodiscard]] __device__ float sum(int lane) const {
    float result = at(-radius, lane);
#pragma unroll
    for (int column = 1 - radius; column <= radius; ++column) result += at(column, lane);
    return result;
  }
};

/// The four of a thread, row after row. What is not aligned goes through loops that stay loops: as instructions with a
/// condition they would wait for the loads that are on their way.
template <class T>
struct FourColumn {
  T* next;
  std::int64_t row;

  /// @param isThere false: it counts as 0
  __device__ FourStored<T> fetch(bool isThere, bool isAligned) {
    FourStored<T> result{};
    if (isThere) {
      if (isAligned) {
        result = *reinterpret_cast<const FourStored<T>*>(next);
      } else {
        FourValues values{};
#pragma unroll 1
        for (int i = 0; i < 4; ++i) values = shifted(values, cuda::load(next + i));
        result = storedOf(values, next);
      }
    }
    next += row;
    return result;
  }
  __device__ void store(FourValues values, bool isAligned, bool accumulate) {
    if (accumulate) {
#pragma unroll 1
      for (int i = 0; i < 4; ++i) values = shifted(values, cuda::load(next + i) + values.values[0]);
    }
    if (isAligned) {
      *reinterpret_cast<FourStored<T>*>(next) = storedOf(values, next);
    } else {
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        cuda::store(values.values[0], next + i);
        values = shifted(values, 0);
      }
    }
    next += row;
  }

 private:
  __device__ static FourValues shifted(const FourValues& four, float last) {
    return {{four.values[1], four.values[2], four.values[3], last}};
  }
};

/// Results of windows of `size` pixels by `size`, or their gradient.
template <class T, int channels, bool isContrast, bool isGradient, int size>
__global__ void __launch_bounds__(kImageThreads, 1) normalizeImages(ImageArguments a) {
  constexpr int radius = size / 2;
  constexpr int ahead = sizeof(T) == 2 ? (size + 1) / 2 : 2;  // rows that are on their way
  constexpr int kept =
      size + 1;  // rows: even, so that what the first copy of the loop's body shares goes on in the next
  using Beside = Neighbours<channels, radius>;
  extern __shared__ float4 memory[];
  constexpr int fields = (isContrast ? 2 : 1) * (isGradient ? 2 : 1);
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < 2 * fields * a.sharedField;
       i += static_cast<std::int32_t>(blockDim.x))
    memory[i] = float4{};

  const std::uint32_t group = a.chunks.divide(blockIdx.x);
  const std::uint32_t ofBlock = a.packs.divide(threadIdx.x);
  const std::uint32_t pack = threadIdx.x - ofBlock * a.packs.divisor();
  const std::uint32_t item = group * a.itemsPerBlock + ofBlock;
  const bool isInside = item < a.items;
  const std::uint32_t image = a.slices.divide(item);
  const std::uint32_t slice = item - image * a.slices.divisor();
  const std::uint32_t x = a.packsOfSlice.divide(pack);
  const std::uint32_t ofPixel = pack - x * a.packsOfSlice.divisor();
  const auto offset = [&](const auto& view) {
    return image * view.image + static_cast<std::int64_t>(x) * (channels == 0 ? view.pixel : 4) +
           4 * (slice * a.packsOfSlice.divisor() + ofPixel);
  };
  FourValues* const own =
      reinterpret_cast<FourValues*>(memory) + static_cast<std::int32_t>(ofBlock) * a.sharedItem +
      static_cast<std::int32_t>(ofPixel) * a.sharedRow + Beside::beside + static_cast<std::int32_t>(x);
  const std::int32_t begin =
      static_cast<std::int32_t>(blockIdx.x - group * a.chunks.divisor()) * a.rowsPerChunk;
  const std::int32_t end = min(begin + a.rowsPerChunk, a.height);
  PowerRule rule = a.rule;
  rule.isGeneral = false;

  // The latest rows of the source, and of windows: what their gradients have for their center, for all pixels that they
  // see, and without a factor for these.
  FourValues rows[kept] = {};
  FourValues centers[kept] = {};
  FourValues terms[kept] = {};
  FourValues rests[kept] = {};
  const std::int32_t first = max(0, begin - (isGradient ? 2 : 1) * radius);
  const std::int32_t last = end + (isGradient ? size : radius);
  const auto columnOf = [&](const auto& view, std::int32_t y) {
    auto* const memory = reinterpret_cast<T*>(const_cast<std::byte*>(view.memory));
    return FourColumn<T>{memory + offset(view) + y * view.row, view.row};
  };
  FourColumn<T> source = columnOf(a.source, first);
  FourColumn<T> gradient = columnOf(a.gradient, first - radius);
  FourColumn<T> destination = columnOf(a.destination, begin);
  const auto isThere = [&](std::int32_t y) { return isInside && y >= 0 && y < a.height; };
  FourStored<T> nextRows[ahead];
  FourStored<T> nextGradients[ahead];
#pragma unroll
  for (int i = 0; i < ahead; ++i) {
    nextRows[i] = source.fetch(isThere(first + i), a.isAligned);
    if (isGradient) nextGradients[i] = gradient.fetch(isThere(first - radius + i), a.isAligned);
  }
  __syncthreads();
  for (std::int32_t start = first; start < last; start += kept) {
#pragma unroll
    for (int u = 0; u < kept; ++u) {
      const std::int32_t y = start + u;
      if (y >= last) break;
      const auto ago = [&](int count) { return (u - count + kept) % kept; };
      rows[u] = fourOf(nextRows[u % ahead]);
      nextRows[u % ahead] = source.fetch(isThere(y + ahead), a.isAligned);

      // Sums of the columns, with the windows of which this row is the last one.
      FourValues* const shared = own + u % 2 * fields * a.sharedField;
      FourValues sums{};
      FourValues distances{};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int k = size - 1; k >= 0; --k) {
          const float value = rows[ago(k)].values[i];
          sums.values[i] = isContrast ? sums.values[i] + value : fmaf(value, value, sums.values[i]);
        }
        if (isContrast)
#pragma unroll
          for (int k = size - 1; k >= 0; --k) {
            const float distance = rows[ago(k)].values[i] - sums.values[i] * a.ofColumn;
            distances.values[i] = fmaf(distance, distance, distances.values[i]);
          }
      }
      shared[0] = sums;
      if (isContrast) shared[a.sharedField] = distances;
      if (isGradient) {
        // Of the windows up to those of the row before.
        const auto sumOf = [&](const FourValues(&of)[kept]) {
          FourValues result = of[ago(size)];
#pragma unroll
          for (int k = size - 1; k > 0; --k)
#pragma unroll
            for (int i = 0; i < 4; ++i) result.values[i] += of[ago(k)].values[i];
          return result;
        };
        shared[fields / 2 * a.sharedField] = sumOf(terms);
        if (isContrast) shared[3 * a.sharedField] = sumOf(rests);
      }
      __syncthreads();

      const std::int32_t window = y - radius;
      FourValues result{};
      FourValues term{};
      FourValues rest{};
      if (isGradient ? window >= 0 && window < a.height : window >= begin) {
        FourValues center = rows[ago(radius)];
        float t[4];
        float means[4] = {};
        {
          const Beside found(shared);
          if constexpr (isContrast) {
            const Beside foundDistances(shared + a.sharedField);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              means[i] = found.sum(i) * a.ofWindow;
              float between = 0;
#pragma unroll
              for (int column = -radius; column <= radius; ++column) {
                const float distance = fmaf(found.at(column, i), a.ofColumn, -means[i]);
                between = fmaf(distance, distance, between);
              }
              const float squares = fmaf(static_cast<float>(size), between, foundDistances.sum(i));
              t[i] = fmaf(a.ofSquares, squares, a.delta);
              center.values[i] = fmaf(-a.p0, means[i], center.values[i]);
            }
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) t[i] = fmaf(a.ofSquares, found.sum(i), a.delta);
          }
        }
        float powers[4];
        if constexpr (isGradient) {
          const FourValues dy = fourOf(nextGradients[u % ahead]);
          float next[4];
          bothNegativePowers(rule, t, powers, next, a.isNormal);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            result.values[i] = dy.values[i] * powers[i];
            term.values[i] = dy.values[i] * center.values[i] * next[i];
            rest.values[i] = fmaf(a.ofSum, term.values[i] * means[i], -a.ofMean * result.values[i]);
          }
        } else {
          negativePowers(rule, t, powers, a.isNormal);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float value = center.values[i] * powers[i];
            result.values[i] = isContrast ? fmaf(a.ps, value, a.pm) : value;
          }
          if (isInside) destination.store(result, a.isAligned, a.accumulate);
        }
      }
      if constexpr (isGradient) {
        nextGradients[u % ahead] = gradient.fetch(isThere(window + ahead), a.isAligned);
        centers[u] = result;
        terms[u] = term;
        rests[u] = rest;
        // The row of pixels whose windows were all there in the round before.
        const std::int32_t pixel = y - size;
        if (pixel >= begin) {
          const Beside found(shared + fields / 2 * a.sharedField);
          FourValues values = centers[ago(radius + 1)];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            values.values[i] = fmaf(-a.ofSum * rows[ago(size)].values[i], found.sum(i), values.values[i]);
          if constexpr (isContrast) {
            const Beside foundRests(shared + 3 * a.sharedField);
#pragma unroll
            for (int i = 0; i < 4; ++i) values.values[i] = a.ps * (values.values[i] + foundRests.sum(i));
          }
          if (isInside) destination.store(values, a.isAligned, a.accumulate);
        }
      }
    }
  }
}

}  // namespace mps::detail::cuda
