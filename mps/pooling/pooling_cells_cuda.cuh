#pragma once

#include "mps/pooling/pooling_vectors_cuda.cuh"

/// Gradients of windows that do not overlap: each window writes the pixels from its own first one up to the
/// next window's. So all is read once, and written once without atomics.
namespace mps::detail::cuda {

/// Pixels [begin, end) that a window writes: together those of all windows are the destination.
struct CellRange {
  std::int32_t begin;
  std::int32_t end;

  /// @param origin, size the part of the source, and around it, that the destination shows
  __device__ CellRange(const PoolingAxis& axis, std::int32_t window, std::int32_t origin, std::int32_t size) {
    const std::int32_t first = axis.firstTap(window);
    begin = window == 0 ? origin : max(origin, first);
    end = window == axis.windows - 1 ? origin + size : min(origin + size, first + axis.stride);
  }
};

/// What the pixels of a window get.
enum class CellKind { SavedMaximum, Maximum, Average, Norm };

/// A cell of 2 x 2 pixels, which are those of its window. @param image first pixel in the source
/// @param place first pixel in the destination
template <class T, CellKind kind>
__device__ void scatterSquare(const PoolingArguments& a, Lanes<T> g, const IndexBytes<kLanes<T>>& chosen,
                              const T* image, T* place) {
  constexpr int lanes = kLanes<T>;
  Lanes<T> terms[4];
  if constexpr (kind == CellKind::Norm) {
    Lanes<T> sum{};
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      terms[tap] = loadLanes(image + tap / 2 * a.source.row + tap % 2 * a.source.pixel);
      for (int lane = 0; lane < lanes; ++lane) {
        const float value = terms[tap].values[lane];
        sum.values[lane] = fmaf(value, value, sum.values[lane]);
      }
    }
    for (int lane = 0; lane < lanes; ++lane) {
      const float norm = sqrtf(sum.values[lane]);
      const float quotient = norm == 0 ? 0.0F : g.values[lane] / norm;
      for (Lanes<T>& term : terms) term.values[lane] *= quotient;
    }
  } else {
#pragma unroll
    for (int tap = 0; tap < 4; ++tap)
      for (int lane = 0; lane < lanes; ++lane)
        terms[tap].values[lane] = kind == CellKind::Average || chosen.at(lane) == tap ? g.values[lane] : 0.0F;
  }
#pragma unroll
  for (int tap = 0; tap < 4; ++tap) {
    T* const to = place + tap / 2 * a.destination.row + tap % 2 * a.destination.pixel;
    if (a.accumulate) addTo(to, terms[tap]);
    storeLanes(terms[tap], to);
  }
}

/// Three blocks of a multiprocessor: with two, memory waits for threads.
template <class T, CellKind kind>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads, 3)
    scatterCells(PoolingArguments a, const T* source, const T* gradient, const std::uint8_t* saved,
                 T* destination) {
  constexpr int lanes = kLanes<T>;
  constexpr bool isMaximum = kind == CellKind::SavedMaximum || kind == CellKind::Maximum;
  forEachRow(a.grid, [&](std::uint32_t number) {
    const Row row(a.height, number);
    const TapRange rows(a.y, row.y, false);
    const CellRange cellRows(a.y, row.y, a.originY, a.viewHeight);
    const T* const from = gradient + row.image * a.gradient.image + row.y * a.gradient.row;
    forEachPiece(a.grid, [&](std::uint32_t pieceNumber) {
      const Piece piece(a.packs, pieceNumber, lanes);
      const TapRange columns(a.x, piece.x, false);
      const CellRange cellColumns(a.x, piece.x, a.originX, a.viewWidth);
      const T* const image = source + row.image * a.source.image + piece.channel;
      T* const to = destination + row.image * a.destination.image + piece.channel;
      Lanes<T> g = loadLanes(from + piece.x * a.gradient.pixel + piece.channel);
      IndexBytes<lanes> chosen{};
      if constexpr (kind == CellKind::SavedMaximum)
        chosen = IndexBytes<lanes>::load(
            saved + (static_cast<std::int64_t>(number) * a.grid.pieces + pieceNumber) * lanes);
      if constexpr (kind == CellKind::Maximum) {
        Lanes<T> value;
        std::int32_t index[lanes];
        choose(a, rows, columns, image, value, index);
        chosen = IndexBytes<lanes>::of(index);
      }
      const bool isSquare = a.y.kernelSize == 2 && a.x.kernelSize == 2 && rows.begin == 0 && rows.end == 2 &&
                            columns.begin == 0 && columns.end == 2 && cellRows.begin == rows.first &&
                            cellRows.end == rows.first + 2 && cellColumns.begin == columns.first &&
                            cellColumns.end == columns.first + 2;
      if constexpr (kind == CellKind::Average)
        divideByTaps(a, a.y.countedTaps(row.y, a.countsNearTaps) * a.x.countedTaps(piece.x, a.countsNearTaps),
                     g);
      if (isSquare)
        return scatterSquare<T, kind>(a, g, chosen,
                                      image + rows.first * a.source.row + columns.first * a.source.pixel,
                                      to + (rows.first - a.originY) * a.destination.row +
                                          (columns.first - a.originX) * a.destination.pixel);
      if constexpr (kind == CellKind::Norm) {
        const Lanes<T> norm = normOf(a, rows, columns, image);
        for (int lane = 0; lane < lanes; ++lane)
          g.values[lane] = norm.values[lane] == 0 ? 0.0F : g.values[lane] / norm.values[lane];
      }
      for (std::int32_t y = cellRows.begin; y < cellRows.end; ++y) {
        const std::int32_t q = y - rows.first;
        const bool isRowInside = q >= rows.begin && q < rows.end;
        for (std::int32_t x = cellColumns.begin; x < cellColumns.end; ++x) {
          const std::int32_t p = x - columns.first;
          T* const place = to + (y - a.originY) * a.destination.row + (x - a.originX) * a.destination.pixel;
          Lanes<T> sum{};
          if (isRowInside && p >= columns.begin && p < columns.end) {
            for (int lane = 0; lane < lanes; ++lane)
              if (!isMaximum || chosen.at(lane) == p + a.x.kernelSize * q) sum.values[lane] = g.values[lane];
            if constexpr (kind == CellKind::Norm) {
              const Lanes<T> factor = loadLanes(image + y * a.source.row + x * a.source.pixel);
              for (int lane = 0; lane < lanes; ++lane) sum.values[lane] *= factor.values[lane];
            }
          }
          if (a.accumulate) addTo(place, sum);
          storeLanes(sum, place);
        }
      }
    });
  });
}

/// Whether no pixel is read by two windows.
inline bool windowsAreApart(const PoolingProblem& problem) {
  const bool clamps = problem.kind == PoolingKind::Max && problem.edgeMode == ImageEdgeMode::Clamp;
  const auto areApart = [&](const WindowAxis& axis) {
    const bool isInside = axis.paddingBefore() <= 0 && axis.paddingAfter() <= 0;
    return axis.destinationSize > 0 && axis.dilation == 1 && axis.stride >= axis.kernelSize &&
           (!clamps || isInside);  // clamped taps all read the same pixel
  };
  return areApart(problem.x) && areApart(problem.y);
}

}  // namespace mps::detail::cuda
