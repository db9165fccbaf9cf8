#pragma once

#include "mps/pooling/cuda/pooling_windows_cuda.cuh"
#include "mps/pooling/pooling_direct.hpp"

/// Pooling kernels over 16 bytes of channels; T is float or Float16, of all tensors.
namespace mps::detail::cuda {

/// A piece of a row: the pixel or window and the first of its channels.
struct Piece {
  std::int32_t x;
  std::int32_t channel;

  __device__ Piece(const Divider& vectors, std::uint32_t number, int lanes)
      : x(static_cast<std::int32_t>(vectors.divide(number))),
        channel((static_cast<std::int32_t>(number) - x * static_cast<std::int32_t>(vectors.divisor())) *
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

inline constexpr std::int32_t kNoIndex = 0xFF;

/// Calls visit(tap, values) for the taps of a window in row-major order.
template <class T, class Visit>
__device__ void forEachTap(const PoolingArguments& a, const TapRange& rows, const TapRange& columns,
                           const T* image, Visit visit) {
  for (std::int32_t q = rows.begin; q < rows.end; ++q) {
    const T* const row = image + rows.pixel(a.y, q) * a.source.row;
    for (std::int32_t p = columns.begin; p < columns.end; ++p)
      visit(columns.tap(p) + a.x.kernelSize * rows.tap(q),
            loadLanes(row + columns.pixel(a.x, p) * a.source.pixel));
  }
}

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
      if (isCutOffByReLU(best.values[lane])) index[lane] = kNoIndex;
}

/// Calls with(what divides by the number of taps that count).
template <class With>
__device__ void withDivisor(const PoolingArguments& a, std::int32_t taps, With with) {
  if (taps == a.allTaps) return with(a.byAllTaps);
  const auto divisor = static_cast<float>(max(1, taps));  // without a tap there is nothing to divide
  with([divisor](float value) { return value / divisor; });
}

/// What a window's partial results come to. @param taps that count
template <class Operation, class T>
__device__ void finish(const PoolingArguments& a, std::int32_t taps, Lanes<T>& partial) {
  withDivisor(a, taps, [&](const auto& divide) {
    for (float& value : partial.values) value = Operation::finish(value, divide);
  });
}

/// Taps of window (x, y) that count, where the function asks.
template <class Operation>
__device__ std::int32_t countedTaps(const PoolingArguments& a, std::int32_t y, std::int32_t x) {
  if constexpr (Operation::kTraits.countsTaps)
    return a.y.countedTaps(y, a.countsNearTaps) * a.x.countedTaps(x, a.countsNearTaps);
  return a.allTaps;
}

/// The result of window (x, y).
template <class Operation, class T>
__device__ Lanes<T> resultOf(const PoolingArguments& a, std::int32_t y, std::int32_t x, const TapRange& rows,
                             const TapRange& columns, const T* image) {
  Lanes<T> partial{};
  forEachTap(a, rows, columns, image, [&](std::int32_t /*tap*/, const Lanes<T>& values) {
    for (int lane = 0; lane < kLanes<T>; ++lane)
      partial.values[lane] = Operation::add(partial.values[lane], values.values[lane]);
  });
  finish<Operation>(a, countedTaps<Operation>(a, y, x), partial);
  return partial;
}

/// The forward pass. @param destination null: the indices alone are wanted
/// @param saved of selected taps, dense; or null
template <class Operation, class T>
__global__ void poolWindows(PoolingArguments a, const T* source, T* destination, std::uint8_t* saved) {
  constexpr int lanes = kLanes<T>;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const TapRange rows(a.y, row.y, a.clamps);
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.vectors, pieceNumber, lanes);
      const TapRange columns(a.x, piece.x, a.clamps);
      const T* const image = source + row.image * a.source.image + piece.channel;
      Lanes<T> result{};
      if constexpr (Operation::kTraits.selects) {
        std::int32_t index[lanes];
        choose(a, rows, columns, image, result, index);
        if (saved != nullptr)
          IndexBytes<lanes>::of(index).store(
              saved + (static_cast<std::int64_t>(number) * a.grid.pieces + pieceNumber) * lanes);
      } else {
        result = resultOf<Operation>(a, row.y, piece.x, rows, columns, image);
      }
      if (destination != nullptr)
        storeLanes(result, destination + row.image * a.destination.image + row.y * a.destination.row +
                               piece.x * a.destination.pixel + piece.channel);
    });
  });
}

/// The share of each window, dense float32, for gatherWindows.
template <class Operation, class T>
__global__ void shareWindows(PoolingArguments a, const T* source, const T* gradient, float* shares) {
  constexpr int lanes = kLanes<T>;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const TapRange rows(a.y, row.y, false);
    const T* const image = source + row.image * a.source.image;
    const T* const from = gradient + row.image * a.gradient.image + row.y * a.gradient.row;
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.vectors, pieceNumber, lanes);
      const Lanes<T> result =
          resultOf<Operation>(a, row.y, piece.x, rows, TapRange(a.x, piece.x, false), image + piece.channel);
      const Lanes<T> g = loadLanes(from + piece.x * a.gradient.pixel + piece.channel);
      float* const to = shares + (static_cast<std::int64_t>(number) * a.grid.pieces + pieceNumber) * lanes;
      withDivisor(a, countedTaps<Operation>(a, row.y, piece.x), [&](const auto& divide) {
        for (int lane = 0; lane < lanes; lane += 4) {
          Lanes<float> share;
          for (int k = 0; k < 4; ++k)
            share.values[k] = Operation::share(g.values[lane + k], result.values[lane + k], divide);
          storeLanes(share, to + lane);
        }
      });
    });
  });
}

/// Adds what the destination holds.
template <class T>
__device__ void addTo(const T* place, Lanes<T>& sum) {
  const Lanes<T> old = loadLanes(place);
  for (int lane = 0; lane < kLanes<T>; ++lane) sum.values[lane] += old.values[lane];
}

/// The gradient: each pixel sums what the windows that read it give.
/// @param saved the selected taps, where the function selects
/// @param shares what shareWindows has found, where the function is not linear
template <class Operation, class T>
__global__ void gatherWindows(PoolingArguments a, const T* source, const T* gradient,
                              const std::uint8_t* saved, const float* shares, T* destination) {
  constexpr bool selects = Operation::kTraits.selects;
  constexpr bool isLinear = Operation::kTraits.isLinear;
  constexpr int lanes = kLanes<T>;
  const std::int32_t channels = static_cast<std::int32_t>(a.vectors.divisor()) * lanes;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const std::int32_t y = row.y + a.originY;
    const bool isRowInside = y >= 0 && y < a.y.sourceSize;
    const PoolingWindowRange windowRows(a.y, isRowInside ? y : 0, a.clamps);
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.vectors, pieceNumber, lanes);
      const std::int32_t x = piece.x + a.originX;
      const bool isInside = isRowInside && x >= 0 && x < a.x.sourceSize;
      const PoolingWindowRange windowColumns(a.x, isInside ? x : 0, a.clamps);
      Lanes<T> sum{};
      bool isRead = false;
      const auto add = [&](std::int32_t j, std::int32_t q, std::int32_t i, std::int32_t p) {
        isRead = true;
        const std::int64_t dense =
            ((static_cast<std::int64_t>(row.image) * a.y.windows + j) * a.x.windows + i) * channels +
            piece.channel;
        if constexpr (!selects && !isLinear) {
          for (int lane = 0; lane < lanes; lane += 4) {
            const Lanes<float> share = loadLanes(shares + dense + lane);
            for (int k = 0; k < 4; ++k) sum.values[lane + k] += share.values[k];
          }
        } else {
          const Lanes<T> g = loadLanes(gradient + row.image * a.gradient.image + j * a.gradient.row +
                                       i * a.gradient.pixel + piece.channel);
          if constexpr (selects) {
            const auto chosen = IndexBytes<lanes>::load(saved + dense);
            for (int lane = 0; lane < lanes; ++lane)
              if (chosen.at(lane) == p + a.x.kernelSize * q) sum.values[lane] += g.values[lane];
          } else {
            withDivisor(a, countedTaps<Operation>(a, j, i), [&](const auto& divide) {
              for (int lane = 0; lane < lanes; ++lane)
                sum.values[lane] += Operation::share(g.values[lane], divide);
            });
          }
        }
      };
      for (std::int32_t j = windowRows.begin; isInside && j < windowRows.end; ++j) {
        const std::int32_t q = tapAt(a.y, j, y, a.clamps);
        for (std::int32_t i = windowColumns.begin; q >= 0 && i < windowColumns.end; ++i) {
          const std::int32_t p = tapAt(a.x, i, x, a.clamps);
          if (p >= 0) add(j, q, i, p);
        }
      }
      if constexpr (!selects && !isLinear)
        if (isRead) {  // else 0 even where the source is infinite
          const Lanes<T> pixel = loadLanes(source + row.image * a.source.image + y * a.source.row +
                                           x * a.source.pixel + piece.channel);
          for (int lane = 0; lane < lanes; ++lane)
            sum.values[lane] = Operation::factor(sum.values[lane], pixel.values[lane]);
        }
      T* const to = destination + row.image * a.destination.image + row.y * a.destination.row +
                    piece.x * a.destination.pixel + piece.channel;
      if (a.accumulate) addTo(to, sum);
      storeLanes(sum, to);
    });
  });
}

}  // namespace mps::detail::cuda
