#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/neuron/neuron_span.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/matrix/cpu/matrix_term_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"

#ifndef UNMETAL_MPS_MATRIX_TERM_RUN
#define UNMETAL_MPS_MATRIX_TERM_RUN
namespace mps::detail {

/// Adjacent elements of a result before its neuron: scale source + sum + bias, of what there is.
struct TermRun {
  ConstFloatRun source;
  ConstFloatRun sum;
  ConstFloatRun bias;
  std::size_t count = 0;
  const float* scale = nullptr;  ///< null: 1
};

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

void addTerm(const TermRun& term, FloatRun to) {
  const hn::ScalableTag<float> d;
  const TermRun own = term;  // no store can change it
  const auto scale = hn::Set(d, own.scale == nullptr ? 1.0F : *own.scale);
  forVectors(
      d, own.count, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        auto value = lanes.load(d, own.source + i);
        if (own.scale != nullptr) value = hn::Mul(value, scale);
        if (own.sum) value = hn::Add(value, lanes.load(d, own.sum + i));
        if (own.bias) value = hn::Add(value, lanes.load(d, own.bias + i));
        lanes.store(d, value, to + i);
      });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(addTerm);

/// Elements of a row that are worked on together, and rows, which are one but for transposed sources: of those each line
/// of a cache is read once.
constexpr std::int64_t kPiece = 1024;
constexpr std::int64_t kTransposedPiece = 64;
constexpr std::int64_t kTransposedRows = 32;
/// Elements that a thread takes at least.
constexpr std::int64_t kGrainOfTerms = 16384;

/// Piece by piece of a row, or of a few rows.
class TermPlan final : public Plan {
 public:
  explicit TermPlan(const MatrixTermProblem& problem)
      : problem_(problem),
        biasShape_(TensorShape::dense(1, 1, 1, problem.destination.channels, problem.destination.format)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem_.destination;
    const std::int64_t most = problem_.transpose ? kTransposedRows : 1;
    const std::int64_t length = problem_.transpose ? kTransposedPiece : kPiece;
    const std::int64_t groups = (destination.height + most - 1) / most;
    const std::int64_t grain = kGrainOfTerms / std::max<std::int64_t>(1, most * destination.channels) + 1;
    mtl::cpu::asCpu(stream).parallelFor(groups, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t group = begin; group < end; ++group) {
        const std::int64_t row = group * most;
        for (std::int64_t first = 0; first < destination.channels; first += length)
          runPiece(operands, {row, std::min(most, destination.height - row), first,
                              std::min(length, destination.channels - first)});
      }
      finishNonTemporalStores();
    });
  }

 private:
  /// Of the destination.
  struct Piece {
    std::int64_t row, rows, first, count;
  };
  static constexpr std::size_t kCapacity = std::max(kPiece, kTransposedPiece* kTransposedRows);
  using Values = std::array<float, kCapacity>;

  void runPiece(const Operands& operands, const Piece& piece) const {
    alignas(64) Values values;
    if (!problem_.transpose)
      return finishRow(operands, piece.row, piece.first, piece.count,
                       loadRow(operands, piece.row, piece.first, piece.count, values.data()));
    loadTransposed(operands, piece, values);
    for (std::int64_t i = 0; i < piece.rows; ++i)
      finishRow(operands, piece.row + i, piece.first, piece.count, values.data() + i * piece.count);
  }

  void finishRow(const Operands& operands, std::int64_t row, std::int64_t first, std::int64_t count,
                 ConstFloatRun source) const {
    alignas(64) std::array<float, kPiece> sum;
    alignas(64) std::array<float, kPiece> bias;
    alignas(64) std::array<float, kPiece> result;
    const TensorShape& destination = problem_.destination;
    const Tile tile{row, 1, first, count};
    TermRun term;
    term.source = source;
    term.count = static_cast<std::size_t>(count);
    if (problem_.hasScale) term.scale = reinterpret_cast<const float*>(operands.parameters[0]);
    if (problem_.addsToSum) term.sum = loadRun(problem_.sum, operands.secondary, tile, sum.data());
    if (problem_.hasBias)
      term.bias = loadRun(biasShape_, operands.parameters[2], {0, 1, first, count}, bias.data());
    const FloatRun target = runTarget(destination, operands.destination, tile, result.data());
    if (problem_.neuron.neuronType() == CNNNeuronType::None) {
      HWY_DYNAMIC_DISPATCH(addTerm)(term, target);
    } else {
      alignas(64) std::array<float, kPiece> values;
      HWY_DYNAMIC_DISPATCH(addTerm)(term, values.data());
      neuronValues(problem_.neuron, {1, count, first}, values.data(), target);
    }
    storeTile(destination, operands.destination, tile, target);
  }

  /// Adjacent elements (y, x) of the source: where they lie, or in `values`.
  ConstFloatRun loadRow(const Operands& operands, std::int64_t y, std::int64_t x, std::int64_t count,
                        float* values) const {
    if (!problem_.hasOffsets && y < problem_.source.height && x + count <= problem_.source.channels)
      return loadRun(problem_.source, operands.source, {y, 1, x, count}, values);
    load(operands, y, x, count, values);
    return values;
  }

  /// Adjacent elements (y, x) of the source, those outside as 0.
  void load(const Operands& operands, std::int64_t y, std::int64_t x, std::int64_t count,
            float* values) const {
    const TensorShape& source = problem_.source;
    const auto* offsets = reinterpret_cast<const std::uint32_t*>(operands.parameters[1]);
    if (problem_.hasOffsets) {
      y += offsets[0];
      x += offsets[1];
    }
    const std::int64_t inside =
        y < source.height ? std::clamp<std::int64_t>(source.channels - x, 0, count) : 0;
    if (inside > 0) {
      const float* const found = loadTile(source, operands.source, {y, 1, x, inside}, values);
      if (found != values) std::copy_n(found, inside, values);
    }
    std::fill_n(values + inside, count - inside, 0.0F);
  }

  void loadTransposed(const Operands& operands, const Piece& piece, Values& values) const {
    alignas(64) std::array<float, kTransposedRows> column;
    for (std::int64_t i = 0; i < piece.count; ++i) {
      load(operands, piece.first + i, piece.row, piece.rows, column.data());
      for (std::int64_t k = 0; k < piece.rows; ++k)
        values[static_cast<std::size_t>(k * piece.count + i)] = column[static_cast<std::size_t>(k)];
    }
  }

  MatrixTermProblem problem_;
  TensorShape biasShape_;
};

Preparation prepareRows(const MatrixTermProblem& problem) {
  return std::make_shared<const TermPlan>(problem);
}

}  // namespace

std::string MatrixTermProblem::describe() const {
  std::string text = hasScale ? "scaled term" : "term";
  if (hasOffsets) text += " at an offset";
  text += " of " + source.describe();
  if (transpose) text += " transposed";
  if (addsToSum) text += ", added";
  if (hasBias) text += ", with bias";
  if (neuron.neuronType() != CNNNeuronType::None) text += ", " + neuron.describe();
  return text + " -> " + destination.describe();
}

std::span<const Implementation<MatrixTermProblem>> matrixTermImplementationsCpu() {
  static constexpr std::array<Implementation<MatrixTermProblem>, 1> implementations{
      {{"term by term", prepareRows}}};
  return implementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
