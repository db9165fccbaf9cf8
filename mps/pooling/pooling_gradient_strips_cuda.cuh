#pragma once

#include <cuda_pipeline.h>

#include "mps/pooling/pooling_average_strips_cuda.cuh"
#include "mps/pooling/pooling_staged_rows_cuda.cuh"

/// Gradients of windows that overlap, gathered in strips. A row of windows is read once and added to all rows
/// of pixels that its taps read.
namespace mps::detail::cuda {

/// Saved places of a pack's lanes, two in a word: as halves, of which one instruction compares two.
template <int lanes>
struct PlacePairs {
  unsigned words[lanes / 2];

  PlacePairs() = default;
  __device__ explicit PlacePairs(const IndexBytes<lanes>& places) {
#pragma unroll
    for (int pair = 0; pair < lanes / 2; ++pair)
      words[pair] = __byte_perm(places.words[pair / 2], 0, pair % 2 == 0 ? 0x4140 : 0x4342);
  }
  /// Adds a small number to all; what then is negative is no place.
  __device__ void shift(std::int32_t distance) {
#pragma unroll
    for (unsigned& word : words) word = (word + twice(distance + 0x100)) ^ 0x01000100U;
  }
  /// Moves the `count` places from `first` on. @param areAlone all others are none
  __device__ void move(std::int32_t first, std::int32_t count, std::int32_t distance, bool areAlone) {
#pragma unroll
    for (unsigned& word : words) {
      const unsigned moves = __hge2_mask(halves(word), halves(twice(first))) &
                             __hlt2_mask(halves(word), halves(twice(first + count)));
      word += moves & twice(max(distance, 0));
      word -= moves & twice(max(-distance, 0));
      if (areAlone) word = (word & moves) | (twice(kNoIndex) & ~moves);
    }
  }

 private:
  __device__ static unsigned twice(std::int32_t number) {
    return static_cast<unsigned>(number) * 0x00010001U;
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

/// Blocks of a multiprocessor at least: what registers are left for.
template <class T>
inline constexpr unsigned kCellBlocks = kLanes<T> == 4 ? 7 : 6;

template <class T, PoolingKind kind, int kernelSize, int stride>
__global__ void __launch_bounds__(kCellThreads, kCellBlocks<T>)
    gatherStrips(StripArguments a, const T* gradient, const std::uint8_t* saved, T* destination) {
  constexpr int lanes = kLanes<T>;
  constexpr int reach = (kernelSize + stride - 1) / stride;  // windows of an axis that read a cell
  constexpr bool isMaximum = kind == PoolingKind::Max;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= a.threads) return;
  const StripPlace at(a, thread, lanes);
  if (at.count == 0) return;

  __shared__ StagedRows<T, reach, isMaximum, kCellThreads> staged;
  constexpr int ahead = decltype(staged)::kAhead;
  const std::int32_t cellX = a.firstColumn + at.column;
  const std::int32_t firstX = a.x.firstTap(cellX);
  std::int32_t row = a.firstLine + at.line - a.y.dilation * (reach - 1);
  std::int32_t fetchedRow = row - a.y.dilation;  // where the columns' addresses are, which go on row by row
  const T* const from = gradient + at.image * a.gradient.image + at.channel + fetchedRow * a.gradient.row;
  const std::uint8_t* const places =
      isMaximum ? saved + at.image * a.savedImage + at.channel + fetchedRow * a.savedRow : nullptr;
  const T* columns[reach];
  const std::uint8_t* placeColumns[reach];
  std::uint32_t rows[reach];  // of a column's windows: none where it is outside
  float weights[reach];
  std::int32_t shifts[reach] = {};  // of the columns' places
  bool areShifted = false;
#pragma unroll
  for (int b = 0; b < reach; ++b) {
    std::int32_t column = cellX - a.x.dilation * b;
    if constexpr (isMaximum)
#pragma unroll
      for (const ClampedTap& clamped : a.clampedX.taps)
        if (clamped.cell == cellX && clamped.back == b) {
          column = clamped.window;
          shifts[b] = clamped.asTap - clamped.tap;
          areShifted = true;
        }
    rows[b] = column >= 0 && column < a.x.windows ? static_cast<std::uint32_t>(a.y.windows) : 0;
    columns[b] = settled(from + column * a.gradient.pixel);
    if constexpr (isMaximum)
      placeColumns[b] = settled(places + static_cast<std::int64_t>(column) * a.savedPixel);
    weights[b] = 1;
    if constexpr (!isMaximum) weights[b] = weightOf<kernelSize>(a.x.countedTaps(column, a.countsNearTaps));
  }
  const auto fetchRow = [&](auto& to, std::int32_t window, std::int64_t offset, std::int64_t placeOffset) {
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      const bool isInside = static_cast<std::uint32_t>(window) < rows[b];
      to.fetchPack(b, columns[b] + offset, isInside);
      if constexpr (isMaximum) to.fetchPlaces(b, placeColumns[b] + placeOffset, isInside);
    }
  };
  const auto fetchNextRow = [&](auto& to) {
    fetchedRow += a.y.dilation;
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      columns[b] += a.gradientStep;
      if constexpr (isMaximum) placeColumns[b] += a.savedStep;
    }
    if (!isMaximum || a.clampedY.isOrdinary(fetchedRow)) [[likely]] {
      fetchRow(to, fetchedRow, 0, 0);
    } else {
      const std::int32_t window = a.clampedY.windowOf(fetchedRow);
      fetchRow(to, window, (window - fetchedRow) * a.gradient.row, (window - fetchedRow) * a.savedRow);
    }
  };

  // Rows of pixels from the one that tap row 0 of the present windows reads.
  float sums[kernelSize][stride][lanes] = {};
  const auto addMaxima = [&](const uint4(&packs)[reach], PlacePairs<lanes>(&chosen)[reach]) {
    if (!a.clampedY.isOrdinary(row)) [[unlikely]]
#pragma unroll
      for (const ClampedTap& clamped : a.clampedY.taps)
        if (clamped.reader == row)
#pragma unroll
          for (int b = 0; b < reach; ++b)
            chosen[b].move(kernelSize * clamped.tap, kernelSize, kernelSize * (clamped.asTap - clamped.tap),
                           clamped.isAlone);
    if (areShifted) [[unlikely]]
#pragma unroll
      for (int b = 0; b < reach; ++b) chosen[b].shift(shifts[b]);
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      const Lanes<T> g = lanesOf(packs[b], static_cast<const T*>(nullptr));
#pragma unroll
      for (int dx = 0; dx < stride; ++dx)
#pragma unroll
        for (int q = 0; q < kernelSize; ++q)
          if (dx + stride * b < kernelSize)
            addChosen(g, chosen[b], dx + stride * b + kernelSize * q, sums[q][dx]);
    }
  };
  const auto addAverages = [&](const uint4(&packs)[reach]) {
    const float rowWeight = weightOf<kernelSize>(a.y.countedTaps(row, a.countsNearTaps));
    float rowSums[stride][lanes];
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      const Lanes<T> g = lanesOf(packs[b], static_cast<const T*>(nullptr));
      const float weight = rowWeight * weights[b];
#pragma unroll
      for (int dx = 0; dx < stride; ++dx) {
        if (dx + stride * b >= kernelSize) continue;
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane)
          rowSums[dx][lane] =
              b == 0 ? weight * g.values[lane] : fmaf(weight, g.values[lane], rowSums[dx][lane]);
      }
    }
#pragma unroll
    for (int q = 0; q < kernelSize; ++q)
#pragma unroll
      for (int dx = 0; dx < stride; ++dx)
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) sums[q][dx][lane] += rowSums[dx][lane];
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
  bool isStored[stride];
  bool isPlainColumn = !a.accumulate;  // what is stored lies inside
#pragma unroll
  for (int dx = 0; dx < stride; ++dx) {
    const std::int32_t x = firstX + dx;
    isStored[dx] = x >= a.originX && x - a.originX < a.viewWidth;
    isPlainColumn = isPlainColumn && (!isStored[dx] || (x >= 0 && x < a.x.sourceSize));
  }
  const std::int32_t firstPlain = isPlainColumn ? max(0, a.originY) : 0;
  const std::int32_t lastPlain = isPlainColumn ? min(a.y.sourceSize, a.originY + a.viewHeight) - stride : -1;
  const auto storeBorderCell = [&] {
#pragma unroll
    for (int dy = 0; dy < stride; ++dy) {
      const std::int32_t y = a.y.firstTap(row) + dy;
      if (y < a.originY || y - a.originY >= a.viewHeight) continue;
#pragma unroll
      for (int dx = 0; dx < stride; ++dx) {
        const std::int32_t x = firstX + dx;
        if (!isStored[dx]) continue;
        Lanes<T> result{};
        if (y >= 0 && y < a.y.sourceSize && x >= 0 && x < a.x.sourceSize) result = resultOf(sums[dy][dx]);
        if (a.accumulate) addTo(placeOf(dy, dx), result);
        storeLanes(result, placeOf(dy, dx));
      }
    }
  };

  // What is outside is read as zeros, which change no sum whatever tap they have chosen.
#pragma unroll 1
  for (int slot = 0; slot < ahead; ++slot) {
    if (slot < at.count + reach - 1) fetchNextRow(staged.rows[slot]);
    __pipeline_commit();
  }
  int slot = 0;
#pragma unroll 1
  for (std::int32_t i = 1 - reach; i < at.count; ++i) {
    __pipeline_wait_prior(ahead - 1);
    uint4 packs[reach];
    PlacePairs<lanes> chosen[isMaximum ? reach : 1];
#pragma unroll
    for (int b = 0; b < reach; ++b) {
      packs[b] = staged.rows[slot].pack(b);
      if constexpr (isMaximum) chosen[b] = PlacePairs<lanes>(staged.rows[slot].placesOf(b));
    }
    if (i + ahead < at.count) fetchNextRow(staged.rows[slot]);
    __pipeline_commit();
    slot = staged.behind(slot);
    if constexpr (isMaximum)
      addMaxima(packs, chosen);
    else
      addAverages(packs);
    if (i >= 0) {
      const std::int32_t y = a.y.firstTap(row);
      if (y >= firstPlain && y <= lastPlain) [[likely]] {
#pragma unroll
        for (int dy = 0; dy < stride; ++dy)
#pragma unroll
          for (int dx = 0; dx < stride; ++dx)
            if (isStored[dx]) storeLanes(resultOf(sums[dy][dx]), placeOf(dy, dx));
      } else {
        storeBorderCell();
      }
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
  }
}

}  // namespace mps::detail::cuda
