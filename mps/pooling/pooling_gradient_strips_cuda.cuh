#pragma once

#include "mps/pooling/pooling_strips_cuda.cuh"

/// Gradients of windows that overlap, gathered in strips. A row of windows is read once and added to all rows
/// of pixels that its taps read.
namespace mps::detail::cuda {

/// `kernelSize` over the taps of a window that count: exact for sizes up to 3.
template <int kernelSize>
__device__ float weightOf(std::int32_t taps) {
  if (taps == kernelSize) return 1.0F;
  return kernelSize == 3 && taps == 2 ? 1.5F : static_cast<float>(kernelSize);
}

/// Saved places of a pack's lanes, two in a word: as halves, of which one instruction compares two.
template <int lanes>
struct PlacePairs {
  unsigned words[lanes / 2];

  __device__ explicit PlacePairs(const IndexBytes<lanes>& places) {
#pragma unroll
    for (int pair = 0; pair < lanes / 2; ++pair)
      words[pair] = __byte_perm(places.words[pair / 2], 0, pair % 2 == 0 ? 0x4140 : 0x4342);
  }
};

/// Adds what has chosen `tap`.
template <class T>
__device__ void addChosen(const Lanes<T>& g, const PlacePairs<kLanes<T>>& chosen, unsigned tap,
                          float (&sum)[kLanes<T>]) {
#pragma unroll
  for (int pair = 0; pair < kLanes<T> / 2; ++pair)
    asm("{\n"
        ".reg .pred low, high;\n"
        "setp.eq.f16x2 low|high, %4, %5;\n"
        "@low add.rn.f32 %0, %0, %2;\n"
        "@high add.rn.f32 %1, %1, %3;\n"
        "}"
        : "+f"(sum[2 * pair]), "+f"(sum[2 * pair + 1])
        : "f"(g.values[2 * pair]), "f"(g.values[2 * pair + 1]), "r"(chosen.words[pair]),
          "r"(tap * 0x00010001U));
}

/// Calls visit(window, tap) for the windows of which a tap is outside and stands for a pixel at the border; of
/// a window's several such taps the first, which alone can be chosen.
template <class Visit>
__device__ void forEachClampedTap(const PoolingAxis& axis, const StripArguments::ClampedWindows& windows,
                                  std::int32_t pixel, Visit visit) {
  const std::int32_t last = axis.sourceSize - 1;
  const std::int32_t before = pixel == 0 ? windows.before : 0;
  const std::int32_t count = before + (pixel == last ? windows.behind : 0);
  for (std::int32_t i = 0; i < count; ++i) {
    const bool isBefore = i < before;
    const std::int32_t window = isBefore ? i : axis.windows - 1 - (i - before);
    const std::int32_t first = axis.firstTap(window);
    const std::int32_t tap = isBefore ? 0 : axis.tapFrom(first, last);
    if (isBefore || first + axis.dilation * tap != last) visit(window, tap);
  }
}

/// Blocks of a multiprocessor at least: what registers are left for. Blocks are small, since warps at the border
/// take longer where taps are clamped.
template <class T, PoolingKind kind>
inline constexpr unsigned kCellBlocks = kind != PoolingKind::Max ? 12
                                        : kLanes<T> == 4         ? 10
                                                                 : 8;

template <class T, PoolingKind kind, int kernelSize, int stride>
__global__ void __launch_bounds__(kCellThreads, kCellBlocks<T, kind>)
    gatherStrips(StripArguments a, const T* gradient, const std::uint8_t* saved, T* destination) {
  constexpr int lanes = kLanes<T>;
  constexpr int reach = (kernelSize + stride - 1) / stride;  // windows of an axis that read a cell
  constexpr bool isMaximum = kind == PoolingKind::Max;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.threads) return;
  const StripPlace at(a, thread, lanes);
  if (at.count == 0) return;

  struct Windows {
    uint4 packs[reach];
    IndexBytes<lanes> chosen[isMaximum ? reach : 1];
  };
  const std::int32_t cellX = a.firstColumn + at.column;
  const std::int32_t firstX = a.x.firstTap(cellX);
  const T* const from = settled(gradient + at.image * a.gradient.image + at.channel);
  const std::uint8_t* const places =
      isMaximum ? settled(saved + at.image * a.savedImage + at.channel) : nullptr;
  std::int32_t row = a.firstLine + at.line - a.y.dilation * (reach - 1);
  std::int32_t loadedRow = row - a.y.dilation;  // where the columns' addresses are, which go on row by row
  const T* columns[reach];
  const std::uint8_t* placeColumns[reach];
  bool isColumnInside[reach];
  bool areColumnsInside = true;
  float weights[reach];
#pragma unroll
  for (int b = 0; b < reach; ++b) {
    const std::int32_t column = cellX - a.x.dilation * b;
    isColumnInside[b] = column >= 0 && column < a.x.windows;
    areColumnsInside = areColumnsInside && isColumnInside[b];
    columns[b] = settled(from + loadedRow * a.gradient.row + column * a.gradient.pixel);
    if constexpr (isMaximum)
      placeColumns[b] =
          settled(places + loadedRow * a.savedRow + static_cast<std::int64_t>(column) * a.savedPixel);
    weights[b] = 1;
    if constexpr (!isMaximum) weights[b] = weightOf<kernelSize>(a.x.countedTaps(column, a.countsNearTaps));
  }
  /// @param offset of the row from the columns' addresses, @param placeOffset likewise
  const auto loadRow = [&](std::int32_t number, std::int64_t offset, std::int64_t placeOffset,
                           Windows& windows) {
    const bool isInside = number >= 0 && number < a.y.windows;
    const auto load = [&](int b) {
      windows.packs[b] = loadPack(columns[b] + offset);
      if constexpr (isMaximum) windows.chosen[b] = IndexBytes<lanes>::load(placeColumns[b] + placeOffset);
    };
    if (isInside && areColumnsInside) {
#pragma unroll
      for (int b = 0; b < reach; ++b) load(b);
      return;
    }
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      windows.packs[b] = {0, 0, 0, 0};
      if constexpr (isMaximum)
        for (unsigned& word : windows.chosen[b].words) word = ~0U;  // of no tap
      if (isInside && isColumnInside[b]) load(b);
    }
  };
  // Addresses go on before a load, since after it they would have to wait until it has read them.
  const auto loadNextRow = [&](Windows& windows) {
    loadedRow += a.y.dilation;
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      columns[b] += a.gradientStep;
      if constexpr (isMaximum) placeColumns[b] += a.savedStep;
    }
    loadRow(loadedRow, 0, 0, windows);
  };

  // Rows of pixels from the one that tap row 0 of the present windows reads.
  float sums[kernelSize][stride][lanes] = {};
  const auto addWindows = [&](const Windows& windows) {
    const float rowWeight = isMaximum ? 1 : weightOf<kernelSize>(a.y.countedTaps(row, a.countsNearTaps));
    float rowSums[stride][lanes];
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      const Lanes<T> g = lanesOf(windows.packs[b], static_cast<const T*>(nullptr));
      const PlacePairs<lanes> chosen(windows.chosen[isMaximum ? b : 0]);
#pragma unroll
      for (int dx = 0; dx < stride; ++dx) {
        const int p = dx + stride * b;
        if (p >= kernelSize) continue;
        if constexpr (isMaximum) {
#pragma unroll
          for (int q = 0; q < kernelSize; ++q) addChosen(g, chosen, p + kernelSize * q, sums[q][dx]);
        } else {
          const float weight = rowWeight * weights[b];
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane)
            rowSums[dx][lane] =
                b == 0 ? weight * g.values[lane] : fmaf(weight, g.values[lane], rowSums[dx][lane]);
        }
      }
    }
    if constexpr (!isMaximum) {
#pragma unroll
      for (int q = 0; q < kernelSize; ++q)
#pragma unroll
        for (int dx = 0; dx < stride; ++dx)
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) sums[q][dx][lane] += rowSums[dx][lane];
    }
  };
  /// Maxima whose taps are clamped to a column of the cell: calls add(dx, p, g, chosen).
  const auto forEachClampedColumn = [&](std::int32_t windowRow, auto add) {
#pragma unroll
    for (int dx = 0; dx < stride; ++dx)
      forEachClampedTap(a.x, a.clampedX, firstX + dx, [&](std::int32_t column, std::int32_t p) {
        const uint4 pack = loadPack(from + windowRow * a.gradient.row + column * a.gradient.pixel);
        const auto chosen = IndexBytes<lanes>::load(places + windowRow * a.savedRow + column * a.savedPixel);
        add(dx, static_cast<unsigned>(p), lanesOf(pack, static_cast<const T*>(nullptr)),
            PlacePairs<lanes>(chosen));
      });
  };
  const auto clampsAt = [&](std::int32_t pixel, std::int32_t windows) {
    return windows > 0 && firstX <= pixel && pixel < firstX + stride;
  };
  const bool isBorderColumn =
      a.clamps && (clampsAt(0, a.clampedX.before) || clampsAt(a.x.sourceSize - 1, a.clampedX.behind));
  /// Adds row q of the taps of a row of windows to the cell's row dy.
  const auto addTapRow = [&](std::int32_t windowRow, std::int32_t q, float(&sum)[stride][lanes]) {
    const unsigned firstTap = static_cast<unsigned>(kernelSize * q);
    Windows windows;
    loadRow(windowRow, (windowRow - loadedRow) * a.gradient.row, (windowRow - loadedRow) * a.savedRow,
            windows);
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      const PlacePairs<lanes> chosen(windows.chosen[b]);
#pragma unroll
      for (int dx = 0; dx < stride; ++dx)
        if (dx + stride * b < kernelSize)
          addChosen(lanesOf(windows.packs[b], static_cast<const T*>(nullptr)), chosen,
                    dx + stride * b + firstTap, sum[dx]);
    }
    if (isBorderColumn)
      forEachClampedColumn(windowRow,
                           [&](int dx, unsigned p, const Lanes<T>& g, const PlacePairs<lanes>& chosen) {
                             addChosen(g, chosen, p + firstTap, sum[dx]);
                           });
  };

  T* to = destination + at.image * a.destination.image + at.channel +
          (a.y.firstTap(row) - a.originY) * a.destination.row + (firstX - a.originX) * a.destination.pixel;
  const auto placeOf = [&](int dy, int dx) { return to + dy * a.destination.row + dx * a.destination.pixel; };
  const auto resultOf = [&](const float(&sum)[lanes]) {
    Lanes<T> result;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      result.values[lane] = isMaximum ? sum[lane] : a.byAllTaps(sum[lane]);
    return result;
  };
  const auto finishBorderCell = [&](bool isLeadIn) {
    if constexpr (isMaximum)
      if (isBorderColumn && row >= 0 && row < a.y.windows)
        forEachClampedColumn(row,
                             [&](int dx, unsigned p, const Lanes<T>& g, const PlacePairs<lanes>& chosen) {
#pragma unroll
                               for (int q = 0; q < kernelSize; ++q)
                                 addChosen(g, chosen, p + kernelSize * q, sums[q][dx]);
                             });
    if (isLeadIn) return;
#pragma unroll
    for (int dy = 0; dy < stride; ++dy) {
      const std::int32_t y = a.y.firstTap(row) + dy;
      if (y < a.originY || y - a.originY >= a.viewHeight) continue;
      const bool isRowInside = y >= 0 && y < a.y.sourceSize;
      if constexpr (isMaximum)
        if (a.clamps && isRowInside)
          forEachClampedTap(a.y, a.clampedY, y, [&](std::int32_t windowRow, std::int32_t q) {
            addTapRow(windowRow, q, sums[dy]);
          });
#pragma unroll
      for (int dx = 0; dx < stride; ++dx) {
        const std::int32_t x = firstX + dx;
        if (x < a.originX || x - a.originX >= a.viewWidth) continue;
        Lanes<T> result{};
        if (isRowInside && x >= 0 && x < a.x.sourceSize) result = resultOf(sums[dy][dx]);
        if (a.accumulate) addTo(placeOf(dy, dx), result);
        storeLanes(result, placeOf(dy, dx));
      }
    }
  };
  // Most cells: inside and in view, with no clamped tap, and their sums are all that is stored.
  const bool isPlainColumn = !a.accumulate && !isBorderColumn && firstX >= max(0, a.originX) &&
                             firstX + stride <= min(a.x.sourceSize, a.originX + a.viewWidth);
  const std::int32_t lastPlain =
      isPlainColumn ? min(a.y.sourceSize - 1, a.originY + a.viewHeight) - stride : 0;

  Windows next[2];  // on their way
  loadNextRow(next[0]);
  loadNextRow(next[1]);
  // Where windows were moved from one to the other, their loads would be waited for.
  const auto finishRow = [&](std::int32_t i, Windows& windows) {
    addWindows(windows);
    if (i + 2 < at.count) loadNextRow(windows);
    const std::int32_t y = a.y.origin + stride * row;
    if (i >= 0 && y >= max(1, a.originY) && y <= lastPlain) {
#pragma unroll
      for (int dy = 0; dy < stride; ++dy)
#pragma unroll
        for (int dx = 0; dx < stride; ++dx) storeLanes(resultOf(sums[dy][dx]), placeOf(dy, dx));
    } else {
      finishBorderCell(i < 0);
    }
#pragma unroll
    for (int q = 0; q < kernelSize; ++q)
#pragma unroll
      for (int dx = 0; dx < stride; ++dx)
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          sums[q][dx][lane] =
              q + stride < kernelSize ? sums[min(q + stride, kernelSize - 1)][dx][lane] : 0.0F;
    row += a.y.dilation;
    to += a.destinationStep;
  };
  for (std::int32_t i = 1 - reach; i < at.count; i += 2) {
    finishRow(i, next[0]);
    if (i + 1 < at.count) finishRow(i + 1, next[1]);
  }
}

}  // namespace mps::detail::cuda
