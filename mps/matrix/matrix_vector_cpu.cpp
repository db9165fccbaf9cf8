#include "mps/matrix/matrix_vector_cpu.hpp"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "mps/core/highway_targets.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/matrix/matrix_vector_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"

#ifndef UNMETAL_MPS_MATRIX_STRIP_OF_COLUMNS
#define UNMETAL_MPS_MATRIX_STRIP_OF_COLUMNS
namespace mps::detail {

/// Some columns of one matrix, and what belongs to them.
template <class Element>
struct StripOfColumns {
  static constexpr std::int64_t capacity = 2048;

  const Element* matrix = nullptr;
  std::int64_t rowStride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  ///< capacity at most
  const Element* factors = nullptr;
  std::int64_t factorStride = 0;
  float alpha = 1;
  float beta = 0;
  Element* result = nullptr;
};

/// Some rows of one matrix, the column that they are multiplied with, and the results.
template <class Element>
struct RowsTimesColumn {
  const Element* matrix = nullptr;
  std::int64_t rowStride = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const Element* factors = nullptr;
  float alpha = 1;
  float beta = 0;
  Element* result = nullptr;
  std::int64_t resultStride = 0;
};

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// sums += the next `rows` rows, each times its factor.
template <int rows, class Element>
HWY_INLINE void addRowsOfStrip(const StripOfColumns<Element>& strip, std::int64_t firstRow, float* sums) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const Element* const from = strip.matrix + firstRow * strip.rowStride;
  const std::int64_t stride = strip.rowStride;
  V factors[rows];
  unrolled<rows>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
    factors[k()] = hn::Set(d, loadFloat(strip.factors + (firstRow + k()) * strip.factorStride));
  });
  forVectors(
      d, static_cast<std::size_t>(strip.columns),
      [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        V sum = lanes.load(d, sums + i);
        unrolled<rows>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
          // The next rows lie in other pages, in which the processor begins to read ahead anew.
          __builtin_prefetch(from + (rows + k()) * stride + i);
          sum = hn::MulAdd(factors[k()], lanes.load(d, ConstFloatRun(from + k() * stride + i)), sum);
        });
        lanes.store(d, sum, sums + i);
      });
}

template <class Element>
HWY_INLINE void multiplyStrip(const StripOfColumns<Element>& strip) {
  const hn::ScalableTag<float> d;
  const auto count = static_cast<std::size_t>(strip.columns);
  alignas(64) float sums[StripOfColumns<Element>::capacity];
  std::fill_n(sums, count, 0.0F);
  constexpr int together = 4;
  std::int64_t row = 0;
  for (; row + together <= strip.rows; row += together) addRowsOfStrip<together>(strip, row, sums);
  for (; row < strip.rows; ++row) addRowsOfStrip<1>(strip, row, sums);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    auto value = hn::Mul(hn::Set(d, strip.alpha), lanes.load(d, sums + i));
    const FloatRun result(strip.result + i);
    if (strip.beta != 0)
      value = hn::MulAdd(hn::Set(d, strip.beta), lanes.load(d, ConstFloatRun(strip.result + i)), value);
    lanes.store(d, value, result);
  });
}

/// The sum of products of a row. Four sums are added to by turns, as each addition waits for the one before.
template <class Element>
HWY_INLINE float multiplyRow(const Element* row, const Element* factors, std::int64_t columns) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t together = 4;
  constexpr std::int64_t line = 64 / std::int64_t{sizeof(Element)};
  constexpr std::int64_t ahead = 32 * line;
  constexpr auto step = static_cast<std::int64_t>(hn::MaxLanes(d));
  V sums[together] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::int64_t i = 0;
  for (; i + together * step <= columns; i += together * step) {
    for (std::int64_t c = 0; c < together * step; c += line) __builtin_prefetch(row + i + ahead + c);
    unrolled<together>([&](auto k) HWY_ATTR __attribute__((always_inline)) {
      const std::int64_t c = i + k() * step;
      sums[k()] = hn::MulAdd(loadFloats(d, row + c), loadFloats(d, factors + c), sums[k()]);
    });
  }
  forVectors(d, static_cast<std::size_t>(columns - i), [&](std::size_t c, auto lanes) HWY_ATTR {
    sums[0] = hn::MulAdd(lanes.load(d, ConstFloatRun(row + i + c)),
                         lanes.load(d, ConstFloatRun(factors + i + c)), sums[0]);
  });
  const V sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class Element>
HWY_INLINE void multiplyRows(const RowsTimesColumn<Element>& rows) {
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    Element* const result = rows.result + row * rows.resultStride;
    float value = rows.alpha * multiplyRow(rows.matrix + row * rows.rowStride, rows.factors, rows.columns);
    if (rows.beta != 0) value += rows.beta * loadFloat(result);
    storeFloat(value, result);
  }
}

void multiplyRowsOfFloats(const RowsTimesColumn<float>& rows) {
  multiplyRows(rows);
}
void multiplyRowsOfHalves(const RowsTimesColumn<Float16>& rows) {
  multiplyRows(rows);
}

void multiplyStripOfFloats(const StripOfColumns<float>& strip) {
  multiplyStrip(strip);
}
void multiplyStripOfHalves(const StripOfColumns<Float16>& strip) {
  multiplyStrip(strip);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(multiplyStripOfFloats);
HWY_EXPORT(multiplyStripOfHalves);
HWY_EXPORT(multiplyRowsOfFloats);
HWY_EXPORT(multiplyRowsOfHalves);

namespace {

class RowTimesMatrixPlan final : public Plan {
 public:
  explicit RowTimesMatrixPlan(const MatrixMultiplicationProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    withElements(problem_, [&](auto element) { multiply<decltype(element)>(stream, operands); });
  }

 private:
  template <class Element>
  void multiply(mtl::Stream& stream, const Operands& operands) const {
    const TensorShape& result = problem_.result;
    const std::int64_t pieces = (result.channels + kPiece - 1) / kPiece;
    const std::int64_t grain =
        kGrainElements / (kPiece * std::max<std::int64_t>(1, problem_.interiorColumns()));
    mtl::cpu::asCpu(stream).parallelFor(
        result.images * pieces, grain + 1, [&](std::int64_t begin, std::int64_t end) {
          while (begin < end) {
            const std::int64_t first = begin % pieces;
            const std::int64_t count =
                std::min({end - begin, pieces - first, StripOfColumns<Element>::capacity / kPiece});
            multiplyPieces<Element>(operands, begin / pieces, first * kPiece, count * kPiece);
            begin += count;
          }
        });
  }

  template <class Element>
  void multiplyPieces(const Operands& operands, std::int64_t n, std::int64_t first,
                      std::int64_t count) const {
    StripOfColumns<Element> strip;
    strip.matrix =
        reinterpret_cast<const Element*>(operands.secondary) + problem_.right.offset(n, 0, 0, first);
    strip.rowStride = problem_.right.rowStride;
    strip.rows = problem_.interiorColumns();
    strip.columns = std::min(count, problem_.result.channels - first);
    strip.factors = reinterpret_cast<const Element*>(operands.source) + problem_.left.offset(n, 0, 0, 0);
    strip.factorStride = problem_.transposeLeft ? problem_.left.rowStride : 1;
    strip.alpha = problem_.alpha;
    strip.beta = problem_.beta;
    strip.result = reinterpret_cast<Element*>(operands.destination) + problem_.result.offset(n, 0, 0, first);
    if constexpr (std::is_same_v<Element, float>)
      HWY_DYNAMIC_DISPATCH(multiplyStripOfFloats)(strip);
    else
      HWY_DYNAMIC_DISPATCH(multiplyStripOfHalves)(strip);
  }

  /// Columns that stay together: a cache line of float16.
  static constexpr std::int64_t kPiece = 32;
  static constexpr std::int64_t kGrainElements = 16384;

  MatrixMultiplicationProblem problem_;
};

class MatrixTimesColumnPlan final : public Plan {
 public:
  explicit MatrixTimesColumnPlan(const MatrixMultiplicationProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    withElements(problem_, [&](auto element) { multiply<decltype(element)>(stream, operands); });
  }

 private:
  template <class Element>
  void multiply(mtl::Stream& stream, const Operands& operands) const {
    constexpr std::int64_t grainElements = 16384;
    const TensorShape& result = problem_.result;
    mtl::cpu::asCpu(stream).parallelFor(
        result.images * result.height, grainElements / problem_.interiorColumns() + 1,
        [&](std::int64_t begin, std::int64_t end) {
          while (begin < end) {
            const std::int64_t first = begin % result.height;
            const std::int64_t count = std::min(end - begin, result.height - first);
            multiplyRows<Element>(operands, begin / result.height, first, count);
            begin += count;
          }
        });
  }

  template <class Element>
  void multiplyRows(const Operands& operands, std::int64_t n, std::int64_t first, std::int64_t count) const {
    RowsTimesColumn<Element> rows;
    rows.matrix = reinterpret_cast<const Element*>(operands.source) + problem_.left.offset(n, first, 0, 0);
    rows.rowStride = problem_.left.rowStride;
    rows.rows = count;
    rows.columns = problem_.interiorColumns();
    rows.factors = reinterpret_cast<const Element*>(operands.secondary) + problem_.right.offset(n, 0, 0, 0);
    rows.alpha = problem_.alpha;
    rows.beta = problem_.beta;
    rows.result = reinterpret_cast<Element*>(operands.destination) + problem_.result.offset(n, first, 0, 0);
    rows.resultStride = problem_.result.rowStride;
    if constexpr (std::is_same_v<Element, float>)
      HWY_DYNAMIC_DISPATCH(multiplyRowsOfFloats)(rows);
    else
      HWY_DYNAMIC_DISPATCH(multiplyRowsOfHalves)(rows);
  }

  MatrixMultiplicationProblem problem_;
};

}  // namespace

Preparation prepareMatrixTimesColumn(const MatrixMultiplicationProblem& problem) {
  constexpr std::int64_t fewestRows = 64;
  constexpr std::int64_t fewestColumns = 64;
  if (problem.result.channels != 1) return Refusal{"the result has several columns"};
  if (problem.transposeLeft) return Refusal{"the matrix is transposed"};
  if (!problem.transposeRight && problem.right.rowStride != 1) return Refusal{"gaps between the factors"};
  if (problem.result.height < fewestRows) return Refusal{"too few rows to share among threads"};
  if (problem.interiorColumns() < fewestColumns) return Refusal{"short rows"};
  return std::make_shared<const MatrixTimesColumnPlan>(problem);
}

Preparation prepareRowTimesMatrix(const MatrixMultiplicationProblem& problem) {
  constexpr std::int64_t fewestColumns = 256;
  if (problem.result.height != 1) return Refusal{"the result has several rows"};
  if (problem.transposeRight) return Refusal{"the matrix is transposed"};
  if (problem.result.channels < fewestColumns) return Refusal{"too few columns to share among threads"};
  return std::make_shared<const RowTimesMatrixPlan>(problem);
}

}  // namespace mps::detail

#endif  // HWY_ONCE
