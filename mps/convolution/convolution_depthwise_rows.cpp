#include "mps/core/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/convolution/convolution_depthwise_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "mps/convolution/convolution_depthwise_rows.hpp"
#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {
namespace {

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

constexpr std::int64_t kPositions = 4;       // results whose sums are in registers at once
constexpr std::int64_t kBlockChannels = 64;  // whose inputs and weights stay in the first-level cache

/// Brings memory to the caches, in `steps` equal parts.
class Prefetches {
 public:
  Prefetches(const Ahead& ahead, std::int64_t steps)
      : next_(ahead.memory),
        left_(ahead.bytes / kLine),
        linesPerStep_((left_ + steps - 1) / std::max<std::int64_t>(1, steps)) {}
  HWY_INLINE void step() {
    const std::int64_t lines = std::min(linesPerStep_, left_);
    // To the second-level cache: a row would fill the first.
    for (std::int64_t i = 0; i < lines; ++i) __builtin_prefetch(next_ + i * kLine, 0, 2);
    next_ += lines * kLine;
    left_ -= lines;
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const std::byte* next_;
  std::int64_t left_;
  std::int64_t linesPerStep_;
};

HWY_INLINE void put(FirstLanes lanes, FloatVector value, float* to, bool /*pastCaches*/) {
  lanes.store(FloatTag(), value, to);
}
HWY_INLINE void put(AllLanes lanes, FloatVector value, float* to, bool pastCaches) {
  if (pastCaches)
    hn::Stream(value, FloatTag(), to);
  else
    lanes.store(FloatTag(), value, to);
}
HWY_INLINE void put(FirstLanes lanes, FloatVector value, Float16* to, bool /*pastCaches*/) {
  storeFloats(FloatTag(), value, to, lanes.count);
}
HWY_INLINE void put(AllLanes /*lanes*/, FloatVector value, Float16* to, bool /*pastCaches*/) {
  storeFloats(FloatTag(), value, to);
}

/// The taps of a run: `triples` of three neighbours each, then `singles`.
struct RunTaps {
  std::span<TapValues> triples;
  std::span<TapValues> singles;
};

/// kPositions neighbouring results, `inputStep` and `resultStep` elements apart, channels c, c + 1, ...
template <class Lanes, class T>
HWY_INLINE void gatherSeveral(const ResultRow& row, const RunTaps& taps, std::size_t inputStep, std::size_t c,
                              Lanes lanes, T* to, std::size_t resultStep) {
  const FloatTag d;
  FloatVector sum0 = lanes.load(d, row.bias + c);
  FloatVector sum1 = sum0;
  FloatVector sum2 = sum0;
  FloatVector sum3 = sum0;
  for (const TapValues& tap : taps.triples) {
    // Neighbouring results share most of what three taps read.
    const FloatVector weights0 = lanes.load(d, tap.weights + c);
    const FloatVector weights1 = lanes.load(d, tap.weights + tap.nextWeights + c);
    const FloatVector weights2 = lanes.load(d, tap.weights + 2 * tap.nextWeights + c);
    const float* input = tap.input + c;
    const FloatVector value0 = lanes.load(d, input);
    const FloatVector value1 = lanes.load(d, input + inputStep);
    const FloatVector value2 = lanes.load(d, input + 2 * inputStep);
    const FloatVector value3 = lanes.load(d, input + 3 * inputStep);
    const FloatVector value4 = lanes.load(d, input + 4 * inputStep);
    const FloatVector value5 = lanes.load(d, input + 5 * inputStep);
    sum0 = hn::MulAdd(weights0, value0, sum0);
    sum1 = hn::MulAdd(weights0, value1, sum1);
    sum2 = hn::MulAdd(weights0, value2, sum2);
    sum3 = hn::MulAdd(weights0, value3, sum3);
    sum0 = hn::MulAdd(weights1, value1, sum0);
    sum1 = hn::MulAdd(weights1, value2, sum1);
    sum2 = hn::MulAdd(weights1, value3, sum2);
    sum3 = hn::MulAdd(weights1, value4, sum3);
    sum0 = hn::MulAdd(weights2, value2, sum0);
    sum1 = hn::MulAdd(weights2, value3, sum1);
    sum2 = hn::MulAdd(weights2, value4, sum2);
    sum3 = hn::MulAdd(weights2, value5, sum3);
  }
  for (const TapValues& tap : taps.singles) {
    const FloatVector weights = lanes.load(d, tap.weights + c);
    const float* input = tap.input + c;
    sum0 = hn::MulAdd(weights, lanes.load(d, input), sum0);
    sum1 = hn::MulAdd(weights, lanes.load(d, input + inputStep), sum1);
    sum2 = hn::MulAdd(weights, lanes.load(d, input + 2 * inputStep), sum2);
    sum3 = hn::MulAdd(weights, lanes.load(d, input + 3 * inputStep), sum3);
  }
  put(lanes, sum0, to + c, row.writesPastCaches);
  put(lanes, sum1, to + resultStep + c, row.writesPastCaches);
  put(lanes, sum2, to + 2 * resultStep + c, row.writesPastCaches);
  put(lanes, sum3, to + 3 * resultStep + c, row.writesPastCaches);
}

template <class Lanes, class T>
HWY_INLINE void gatherOne(const ResultRow& row, const RunTaps& taps, std::size_t inputStep, std::size_t c,
                          Lanes lanes, T* to) {
  const FloatTag d;
  FloatVector sum = lanes.load(d, row.bias + c);
  const auto add = [&](const float* weights, const float* input) {
    sum = hn::MulAdd(lanes.load(d, weights + c), lanes.load(d, input + c), sum);
  };
  for (const TapValues& tap : taps.triples) {
    add(tap.weights, tap.input);
    add(tap.weights + tap.nextWeights, tap.input + inputStep);
    add(tap.weights + 2 * tap.nextWeights, tap.input + 2 * inputStep);
  }
  for (const TapValues& tap : taps.singles) add(tap.weights, tap.input);
  put(lanes, sum, to + c, row.writesPastCaches);
}

/// The taps of a run's first position, in the memory that the row has for them.
RunTaps tapsOf(const GatherAxis& axis, const GatherRun& run, std::span<const InputRow> inputRows,
               const ResultRow& row) {
  const auto columns = static_cast<std::int64_t>(run.taps.size());
  const auto column = [&](std::int64_t i) { return run.taps[static_cast<std::size_t>(i)]; };
  const bool areNeighbours = columns >= 3 && axis.inputStep == 1 && column(1).shift - column(0).shift == 1;
  const std::int64_t inTriples = areNeighbours ? columns / 3 * 3 : 0;
  const std::int64_t nextWeights = columns > 1 ? (column(1).tap - column(0).tap) * row.channels : 0;
  TapValues* next = row.taps;
  const auto append = [&](const InputRow& inputRow, std::int64_t i) {
    *next++ = {inputRow.values + (column(i).shift + axis.inputStep * run.positions.begin) * row.inputPixel,
               row.weights + (inputRow.tap * row.kernelWidth + column(i).tap) * row.channels, nextWeights};
  };
  for (const InputRow& inputRow : inputRows)
    for (std::int64_t i = 0; i < inTriples; i += 3) append(inputRow, i);
  TapValues* singles = next;
  for (const InputRow& inputRow : inputRows)
    for (std::int64_t i = inTriples; i < columns; ++i) append(inputRow, i);
  return {{row.taps, singles}, {singles, next}};
}

template <class T>
void gatherRowOf(const GatherAxis& axis, std::span<const InputRow> inputRows, const ResultRow& row) {
  const FloatTag d;
  const auto inputStep = static_cast<std::size_t>(axis.inputStep * row.inputPixel);
  const auto resultStep = static_cast<std::size_t>(axis.resultStep * row.resultPixel);
  const std::int64_t blocks = (row.channels + kBlockChannels - 1) / kBlockChannels;
  Prefetches prefetches(row.ahead, axis.size * blocks / kPositions);
  for (const GatherPhase& phase : axis.phases)
    for (const GatherRun& run : phase.runs)
      for (std::int64_t block = 0; block < row.channels; block += kBlockChannels) {
        const auto channels = static_cast<std::size_t>(std::min(kBlockChannels, row.channels - block));
        const RunTaps taps = tapsOf(axis, run, inputRows, row);
        T* to = reinterpret_cast<T*>(row.values) +
                (phase.first + axis.resultStep * run.positions.begin) * row.resultPixel;
        const auto advance = [&](std::size_t positions) {
          for (TapValues& tap : taps.triples) tap.input += positions * inputStep;
          for (TapValues& tap : taps.singles) tap.input += positions * inputStep;
          to += positions * resultStep;
        };
        const auto first = static_cast<std::size_t>(block);
        const std::int64_t end = run.positions.size();
        std::int64_t i = 0;
        for (; i + kPositions <= end; i += kPositions) {
          if (i > 0) advance(kPositions);
          prefetches.step();
          forVectors(d, channels, [&](std::size_t c, auto lanes) {
            gatherSeveral(row, taps, inputStep, first + c, lanes, to, resultStep);
          });
        }
        if (i > 0 && i < end) advance(kPositions);
        for (; i < end; ++i) {
          forVectors(d, channels, [&](std::size_t c, auto lanes) {
            gatherOne(row, taps, inputStep, first + c, lanes, to);
          });
          if (i + 1 < end) advance(1);
        }
      }
  if (row.writesPastCaches) hwy::FlushStream();
}

void gatherRow(const GatherAxis& axis, std::span<const InputRow> inputRows, const ResultRow& row) {
  if (row.isFloat16)
    gatherRowOf<Float16>(axis, inputRows, row);
  else
    gatherRowOf<float>(axis, inputRows, row);
}

/// Sums for one tap, or for three neighbours in a row of the kernel.
template <std::int64_t columns, class Lanes>
class TapSums {
 public:
  HWY_INLINE TapSums(Lanes lanes, float* sums, std::int64_t distance)
      : lanes_(lanes), memory_(sums), distance_(distance) {
    const FloatTag d;
    sum0_ = lanes.load(d, sums);
    sum1_ = columns == 3 ? lanes.load(d, sums + distance) : hn::Zero(d);
    sum2_ = columns == 3 ? lanes.load(d, sums + 2 * distance) : hn::Zero(d);
  }
  HWY_INLINE void add(FloatVector factor, const float* from, std::int64_t step) {
    const FloatTag d;
    sum0_ = hn::MulAdd(factor, lanes_.load(d, from), sum0_);
    if constexpr (columns == 3) {
      sum1_ = hn::MulAdd(factor, lanes_.load(d, from + step), sum1_);
      sum2_ = hn::MulAdd(factor, lanes_.load(d, from + 2 * step), sum2_);
    }
  }
  HWY_INLINE void store() const {
    const FloatTag d;
    lanes_.store(d, sum0_, memory_);
    if constexpr (columns == 3) {
      lanes_.store(d, sum1_, memory_ + distance_);
      lanes_.store(d, sum2_, memory_ + 2 * distance_);
    }
  }

 private:
  Lanes lanes_;
  float* memory_;
  std::int64_t distance_;
  FloatVector sum0_, sum1_, sum2_;
};

/// A block of taps, 1 or 3 rows and columns of the kernel, and neighbouring windows that read inside the
/// source with all of them. Distances are in elements.
struct TapBlock {
  const float* gradient;
  const float* sources[3];  ///< of the first window and tap, for each row
  float* sums[3];
  std::int64_t windows;
  std::int64_t gradientStep;
  std::int64_t sourceStep;
  std::int64_t tapStep;
  std::int64_t channels;
};

template <std::int64_t rows, std::int64_t columns>
HWY_INLINE void addBlock(const TapBlock& block, Prefetches& ahead0, Prefetches& ahead1) {
  constexpr std::size_t kSecond = rows == 3 ? 1 : 0;
  constexpr std::size_t kThird = rows == 3 ? 2 : 0;
  const FloatTag d;
  forVectors(d, static_cast<std::size_t>(block.channels), [&](std::size_t c, auto lanes) {
    using Sums = TapSums<columns, decltype(lanes)>;
    Sums sums0(lanes, block.sums[0] + c, block.channels);
    Sums sums1(lanes, block.sums[kSecond] + c, block.channels);
    Sums sums2(lanes, block.sums[kThird] + c, block.channels);
    const float* gradient = block.gradient + c;
    const float* source0 = block.sources[0] + c;
    const float* source1 = block.sources[kSecond] + c;
    const float* source2 = block.sources[kThird] + c;
    for (std::int64_t i = 0; i < block.windows; ++i) {
      ahead0.step();
      ahead1.step();
      const FloatVector factor = lanes.load(d, gradient + i * block.gradientStep);
      const std::int64_t at = i * block.sourceStep;
      sums0.add(factor, source0 + at, block.tapStep);
      if constexpr (rows == 3) {
        sums1.add(factor, source1 + at, block.tapStep);
        sums2.add(factor, source2 + at, block.tapStep);
      }
    }
    sums0.store();
    if constexpr (rows == 3) {
      sums1.store();
      sums2.store();
    }
  });
}

/// sums[c] += sum over i < count of values[i][c].
void addPixels(const float* values, std::int64_t step, std::int64_t count, std::int64_t channels,
               float* sums) {
  const FloatTag d;
  forVectors(d, static_cast<std::size_t>(channels), [&](std::size_t c, auto lanes) {
    FloatVector even = lanes.load(d, sums + c);
    FloatVector odd = hn::Zero(d);
    const float* from = values + c;
    for (std::int64_t i = 0; i + 2 <= count; i += 2) {
      even = hn::Add(even, lanes.load(d, from + i * step));
      odd = hn::Add(odd, lanes.load(d, from + (i + 1) * step));
    }
    if (count % 2 == 1) even = hn::Add(even, lanes.load(d, from + (count - 1) * step));
    lanes.store(d, hn::Add(even, odd), sums + c);
  });
}

void addParameterGradients(const WindowAxis& axis, std::span<const Range> insideOfTap,
                           std::span<const InputRow> inputRows, const WindowRow& row) {
  const auto rowCount = static_cast<std::int64_t>(inputRows.size());
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  const std::int64_t blocks = (rowCount / 3 + rowCount % 3) * (axis.kernelSize / 3 + axis.kernelSize % 3);
  const std::int64_t steps = blocks * axis.destinationSize * ((row.channels + lanes - 1) / lanes);
  Prefetches sourceAhead(row.sourceAhead, steps);
  Prefetches gradientAhead(row.gradientAhead, steps);
  if (row.biasSums != nullptr)
    addPixels(row.gradient, row.gradientPixel, axis.destinationSize, row.channels, row.biasSums);

  const auto inside = [&](std::int64_t tap) { return insideOfTap[static_cast<std::size_t>(tap)]; };
  const auto add = [&](auto rows, auto columns, std::int64_t firstRow, std::int64_t tap, Range windows) {
    if (windows.size() <= 0) return;
    TapBlock block{.gradient = row.gradient + windows.begin * row.gradientPixel,
                   .sources = {},
                   .sums = {},
                   .windows = windows.size(),
                   .gradientStep = row.gradientPixel,
                   .sourceStep = axis.stride * row.sourcePixel,
                   .tapStep = axis.dilation * row.sourcePixel,
                   .channels = row.channels};
    const std::int64_t pixel = axis.firstTap(windows.begin) + axis.dilation * tap;
    for (std::int64_t i = 0; i < rows; ++i) {
      const InputRow& inputRow = inputRows[static_cast<std::size_t>(firstRow + i)];
      block.sources[i] = inputRow.values + pixel * row.sourcePixel;
      block.sums[i] = row.weightSums + (inputRow.tap * axis.kernelSize + tap) * row.channels;
    }
    addBlock<rows, columns>(block, sourceAhead, gradientAhead);
  };
  using One = std::integral_constant<std::int64_t, 1>;
  using Three = std::integral_constant<std::int64_t, 3>;
  const auto addRows = [&](auto rows, std::int64_t firstRow) {
    std::int64_t tap = 0;
    for (; tap + 3 <= axis.kernelSize; tap += 3) {
      // Taps of higher columns enter the source earlier, and leave it earlier.
      const Range common{inside(tap).begin, std::max(inside(tap).begin, inside(tap + 2).end)};
      add(rows, Three(), firstRow, tap, common);
      for (std::int64_t i = tap; i < tap + 3; ++i) {
        add(rows, One(), firstRow, i, {inside(i).begin, std::min(inside(i).end, common.begin)});
        add(rows, One(), firstRow, i, {std::max(inside(i).begin, common.end), inside(i).end});
      }
    }
    for (; tap < axis.kernelSize; ++tap) add(rows, One(), firstRow, tap, inside(tap));
  };
  std::int64_t i = 0;
  for (; i + 3 <= rowCount; i += 3) addRows(Three(), i);
  for (; i < rowCount; ++i) addRows(One(), i);
}

}  // namespace
}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(gatherRow);
HWY_EXPORT(addParameterGradients);

}  // namespace

void gatherRow(const GatherAxis& axis, std::span<const InputRow> inputRows, const ResultRow& row) {
  HWY_DYNAMIC_DISPATCH(gatherRow)(axis, inputRows, row);
}

void addParameterGradients(const WindowAxis& axis, std::span<const Range> insideOfTap,
                           std::span<const InputRow> inputRows, const WindowRow& row) {
  HWY_DYNAMIC_DISPATCH(addParameterGradients)(axis, insideOfTap, inputRows, row);
}

}  // namespace mps::detail

#endif
