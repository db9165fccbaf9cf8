#pragma once

#include "mps/pooling/pooling_windows_cuda.cuh"

/// Pooling kernels over 16 bytes of channels; T is float or Float16, of all tensors.
namespace mps::detail::cuda {

/// A piece of a row: the pixel or window and the first of its channels.
struct Piece {
  std::int32_t x;
  std::int32_t channel;

  __device__ Piece(const Divider& packs, std::uint32_t number, int lanes)
      : x(static_cast<std::int32_t>(packs.divide(number))),
        channel((static_cast<std::int32_t>(number) - x * static_cast<std::int32_t>(packs.divisor())) *
                lanes) {}
};
/// A row of an image.
struct Row {
  std::int32_t image;
  std::int32_t y;

  __device__ Row(const Divider& height, std::uint32_t number)
      : image(static_cast<std::int32_t>(height.divide(number))),
        y(static_cast<std::int32_t>(number) - image * static_cast<std::int32_t>(height.divisor())) {}
};

/// One index of each lane, in as many bytes.
template <int lanes>
struct IndexBytes {
  unsigned words[lanes / 4];

  __device__ std::int32_t at(int lane) const {
    return static_cast<std::int32_t>(words[lane / 4] >> (8 * (lane % 4)) & 0xFFU);
  }
  /// @param from a multiple of `lanes`
  __device__ static IndexBytes load(const std::uint8_t* from) {
    if constexpr (lanes == 8) {
      const uint2 both = __ldg(reinterpret_cast<const uint2*>(from));
      return {{both.x, both.y}};
    } else {
      return {{__ldg(reinterpret_cast<const unsigned*>(from))}};
    }
  }
  __device__ void store(std::uint8_t* to) const {
    if constexpr (lanes == 8)
      *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
    else
      *reinterpret_cast<unsigned*>(to) = words[0];
  }
  __device__ static IndexBytes of(const std::int32_t* indices) {
    IndexBytes bytes;
    for (int w = 0; w < lanes / 4; ++w)
      bytes.words[w] =
          static_cast<unsigned>(indices[4 * w]) | static_cast<unsigned>(indices[4 * w + 1]) << 8U |
          static_cast<unsigned>(indices[4 * w + 2]) << 16U | static_cast<unsigned>(indices[4 * w + 3]) << 24U;
    return bytes;
  }
};

/// Calls visit(tap, values) for the taps of a window in row-major order.
template <class T, class Visit>
__device__ void forEachTap(const PoolingArguments& a, const TapRange& rows, const TapRange& columns,
                           const T* image, Visit visit) {
  for (std::int32_t q = rows.begin; q < rows.end; ++q) {
    const T* const row = image + a.y.clamped(rows.first + a.y.dilation * q) * a.source.row;
    for (std::int32_t p = columns.begin; p < columns.end; ++p)
      visit(p + a.x.kernelSize * q,
            loadLanes(row + a.x.clamped(columns.first + a.x.dilation * p) * a.source.pixel));
  }
}

/// What a window pass writes besides, or in place of, the maximum.
enum class MaximumOutput { Value, Index, Both };

constexpr std::int32_t kNoIndex = 0xFF;

/// The first NaN of a window, otherwise its first maximum; an outside zero where that is greater.
template <class T>
__device__ void choose(const PoolingArguments& a, const TapRange& rows, const TapRange& columns,
                       const T* image, Lanes<T>& best, std::int32_t (&index)[kLanes<T>]) {
  constexpr int lanes = kLanes<T>;
  best = {};
  for (int lane = 0; lane < lanes; ++lane) index[lane] = kNoIndex;
  bool isFirst = true;
  forEachTap(a, rows, columns, image, [&](std::int32_t tap, const Lanes<T>& values) {
    for (int lane = 0; lane < lanes; ++lane) {
      const float value = values.values[lane];
      const float known = best.values[lane];
      if (!isFirst && (value <= known || known != known)) continue;
      best.values[lane] = value;
      index[lane] = tap;
    }
    isFirst = false;
  });
  if (a.zeroWins && (rows.isPartial(a.y) || columns.isPartial(a.x)))
    for (int lane = 0; lane < lanes; ++lane) {
      if (!isFirst && !(best.values[lane] < 0)) continue;
      best.values[lane] = 0;
      index[lane] = kNoIndex;
    }
  if (a.afterReLU)
    for (int lane = 0; lane < lanes; ++lane)
      if (isCutOff(best.values[lane])) index[lane] = kNoIndex;
}

/// Maxima, and their places in `saved`, which is dense.
template <class T, MaximumOutput output>
__global__ void poolMaxima(PoolingArguments a, const T* source, T* destination, std::uint8_t* saved) {
  constexpr int lanes = kLanes<T>;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const TapRange rows(a.y, row.y, a.clamps);
    const T* const image = source + row.image * a.source.image;
    T* const to = destination + row.image * a.destination.image + row.y * a.destination.row;
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.packs, pieceNumber, lanes);
      Lanes<T> best;
      std::int32_t index[lanes];
      choose(a, rows, TapRange(a.x, piece.x, a.clamps), image + piece.channel, best, index);
      if constexpr (output != MaximumOutput::Index)
        storeLanes(best, to + piece.x * a.destination.pixel + piece.channel);
      if constexpr (output != MaximumOutput::Value)
        IndexBytes<lanes>::of(index).store(
            saved + (static_cast<std::int64_t>(number) * a.grid.pieces + pieceNumber) * lanes);
    });
  });
}

/// Divides a sum by the number of taps that count.
template <class T>
__device__ void divideByTaps(const PoolingArguments& a, std::int32_t taps, Lanes<T>& sum) {
  if (taps == a.allTaps) {
    for (float& value : sum.values) value = a.byAllTaps(value);
    return;
  }
  const auto divisor = static_cast<float>(max(1, taps));  // without a tap the sum is 0
  for (float& value : sum.values) value /= divisor;
}

template <class T>
__global__ void poolAverages(PoolingArguments a, const T* source, T* destination) {
  constexpr int lanes = kLanes<T>;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const TapRange rows(a.y, row.y, false);
    const std::int32_t countedRows = a.y.countedTaps(row.y, a.countsNearTaps);
    const T* const image = source + row.image * a.source.image;
    T* const to = destination + row.image * a.destination.image + row.y * a.destination.row;
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.packs, pieceNumber, lanes);
      Lanes<T> sum{};
      forEachTap(a, rows, TapRange(a.x, piece.x, false), image + piece.channel,
                 [&](std::int32_t /*tap*/, const Lanes<T>& values) {
                   for (int lane = 0; lane < lanes; ++lane) sum.values[lane] += values.values[lane];
                 });
      divideByTaps(a, countedRows * a.x.countedTaps(piece.x, a.countsNearTaps), sum);
      storeLanes(sum, to + piece.x * a.destination.pixel + piece.channel);
    });
  });
}

template <class T>
__device__ Lanes<T> normOf(const PoolingArguments& a, const TapRange& rows, const TapRange& columns,
                           const T* image) {
  Lanes<T> sum{};
  forEachTap(a, rows, columns, image, [&](std::int32_t /*tap*/, const Lanes<T>& values) {
    for (int lane = 0; lane < kLanes<T>; ++lane)
      sum.values[lane] = fmaf(values.values[lane], values.values[lane], sum.values[lane]);
  });
  for (float& value : sum.values) value = sqrtf(value);
  return sum;
}

template <class T>
__global__ void poolNorms(PoolingArguments a, const T* source, T* destination) {
  constexpr int lanes = kLanes<T>;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const TapRange rows(a.y, row.y, false);
    const T* const image = source + row.image * a.source.image;
    T* const to = destination + row.image * a.destination.image + row.y * a.destination.row;
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.packs, pieceNumber, lanes);
      storeLanes(normOf(a, rows, TapRange(a.x, piece.x, false), image + piece.channel),
                 to + piece.x * a.destination.pixel + piece.channel);
    });
  });
}

/// g / norm of each window, 0 where the norm is 0; dense float32, for gatherNorms.
template <class T>
__global__ void divideByNorms(PoolingArguments a, const T* source, const T* gradient, float* quotients) {
  constexpr int lanes = kLanes<T>;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const TapRange rows(a.y, row.y, false);
    const T* const image = source + row.image * a.source.image;
    const T* const from = gradient + row.image * a.gradient.image + row.y * a.gradient.row;
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.packs, pieceNumber, lanes);
      const Lanes<T> norm = normOf(a, rows, TapRange(a.x, piece.x, false), image + piece.channel);
      const Lanes<T> g = loadLanes(from + piece.x * a.gradient.pixel + piece.channel);
      float* const to = quotients + (static_cast<std::int64_t>(number) * a.grid.pieces + pieceNumber) * lanes;
      for (int lane = 0; lane < lanes; lane += 4) {
        Lanes<float> quotient;
        for (int k = 0; k < 4; ++k) {
          const float n = norm.values[lane + k];
          quotient.values[k] = n == 0 ? 0.0F : g.values[lane + k] / n;
        }
        storeLanes(quotient, to + lane);
      }
    });
  });
}

/// Adds what the destination holds.
template <class T>
__device__ void addTo(const T* place, Lanes<T>& sum) {
  const Lanes<T> old = loadLanes(place);
  for (int lane = 0; lane < kLanes<T>; ++lane) sum.values[lane] += old.values[lane];
}

/// Walks over the destination of a gradient: calls gather(row, y, x, channel, sum) where a pixel lies in the
/// source, and stores the sum.
template <class T, class Gather>
__device__ void gatherPixels(const PoolingArguments& a, T* destination, Gather gather) {
  constexpr int lanes = kLanes<T>;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const std::int32_t y = row.y + a.originY;
    const bool isRowInside = y >= 0 && y < a.y.sourceSize;
    const WindowRange windowRows(a.y, isRowInside ? y : 0, a.clamps);
    T* const to = destination + row.image * a.destination.image + row.y * a.destination.row;
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.packs, pieceNumber, lanes);
      const std::int32_t x = piece.x + a.originX;
      T* const place = to + piece.x * a.destination.pixel + piece.channel;
      Lanes<T> sum{};
      if (isRowInside && x >= 0 && x < a.x.sourceSize)
        gather(row.image, windowRows, y, WindowRange(a.x, x, a.clamps), x, piece.channel, sum);
      if (a.accumulate) addTo(place, sum);
      storeLanes(sum, place);
    });
  });
}

/// Each pixel sums the gradients of the windows that have chosen it.
template <class T>
__global__ void gatherMaxima(PoolingArguments a, const T* gradient, const std::uint8_t* saved,
                             T* destination) {
  constexpr int lanes = kLanes<T>;
  const std::int32_t channels = static_cast<std::int32_t>(a.packs.divisor()) * lanes;
  gatherPixels(
      a, destination,
      [&](std::int32_t image, const WindowRange& windowRows, std::int32_t y, const WindowRange& windowColumns,
          std::int32_t x, std::int32_t channel, Lanes<T>& sum) {
        const T* const imageGradient = gradient + image * a.gradient.image + channel;
        for (std::int32_t j = windowRows.begin; j < windowRows.end; ++j) {
          const std::int32_t q = tapAt(a.y, j, y, a.clamps);
          if (q < 0) continue;
          const T* const from = imageGradient + j * a.gradient.row;
          const std::uint8_t* const indexRow =
              saved + (static_cast<std::int64_t>(image) * a.y.windows + j) * a.x.windows * channels + channel;
          for (std::int32_t i = windowColumns.begin; i < windowColumns.end; ++i) {
            const std::int32_t p = tapAt(a.x, i, x, a.clamps);
            if (p < 0) continue;
            const std::int32_t tap = p + a.x.kernelSize * q;
            const auto chosen = IndexBytes<lanes>::load(indexRow + static_cast<std::int64_t>(i) * channels);
            const Lanes<T> g = loadLanes(from + i * a.gradient.pixel);
            for (int lane = 0; lane < lanes; ++lane)
              if (chosen.at(lane) == tap) sum.values[lane] += g.values[lane];
          }
        }
      });
}

template <class T>
__global__ void gatherAverages(PoolingArguments a, const T* gradient, T* destination) {
  constexpr int lanes = kLanes<T>;
  gatherPixels(a, destination,
               [&](std::int32_t image, const WindowRange& windowRows, std::int32_t y,
                   const WindowRange& windowColumns, std::int32_t x, std::int32_t channel, Lanes<T>& sum) {
                 const T* const imageGradient = gradient + image * a.gradient.image + channel;
                 // Neighbouring windows that are divided by the same number are added first.
                 Lanes<T> part{};
                 std::int32_t taps = a.allTaps;
                 const auto addPart = [&] {
                   divideByTaps(a, taps, part);
                   for (int lane = 0; lane < lanes; ++lane) sum.values[lane] += part.values[lane];
                   part = {};
                 };
                 for (std::int32_t j = windowRows.begin; j < windowRows.end; ++j) {
                   if (tapAt(a.y, j, y, false) < 0) continue;
                   const T* const from = imageGradient + j * a.gradient.row;
                   const std::int32_t countedRows = a.y.countedTaps(j, a.countsNearTaps);
                   for (std::int32_t i = windowColumns.begin; i < windowColumns.end; ++i) {
                     if (tapAt(a.x, i, x, false) < 0) continue;
                     const std::int32_t counted = countedRows * a.x.countedTaps(i, a.countsNearTaps);
                     if (counted != taps) {
                       addPart();
                       taps = counted;
                     }
                     const Lanes<T> g = loadLanes(from + i * a.gradient.pixel);
                     for (int lane = 0; lane < lanes; ++lane) part.values[lane] += g.values[lane];
                   }
                 }
                 addPart();
               });
}

/// source * (sum of the quotients of divideByNorms)
template <class T>
__global__ void gatherNorms(PoolingArguments a, const T* source, const float* quotients, T* destination) {
  constexpr int lanes = kLanes<T>;
  const std::int32_t channels = static_cast<std::int32_t>(a.packs.divisor()) * lanes;
  gatherPixels(
      a, destination,
      [&](std::int32_t image, const WindowRange& windowRows, std::int32_t y, const WindowRange& windowColumns,
          std::int32_t x, std::int32_t channel, Lanes<T>& sum) {
        bool isRead = false;
        for (std::int32_t j = windowRows.begin; j < windowRows.end; ++j) {
          if (tapAt(a.y, j, y, false) < 0) continue;
          const float* const row =
              quotients + (static_cast<std::int64_t>(image) * a.y.windows + j) * a.x.windows * channels +
              channel;
          for (std::int32_t i = windowColumns.begin; i < windowColumns.end; ++i) {
            if (tapAt(a.x, i, x, false) < 0) continue;
            isRead = true;
            for (int lane = 0; lane < lanes; lane += 4) {
              const Lanes<float> q = loadLanes(row + static_cast<std::int64_t>(i) * channels + lane);
              for (int k = 0; k < 4; ++k) sum.values[lane + k] += q.values[k];
            }
          }
        }
        if (!isRead) return;  // 0 even where the source is infinite
        const Lanes<T> factor =
            loadLanes(source + image * a.source.image + y * a.source.row + x * a.source.pixel + channel);
        for (int lane = 0; lane < lanes; ++lane) sum.values[lane] *= factor.values[lane];
      });
}

}  // namespace mps::detail::cuda
