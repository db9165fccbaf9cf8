#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "mps/core/neuron_span.hpp"
#include "mps/core/storage.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements of a row that are worked on together.
constexpr std::int64_t kPiece = 1024;
/// Elements that a thread takes at least.
constexpr std::int64_t kGrain = 16384;

/// Row by row, piece by piece.
class TermPlan final : public Plan {
 public:
  explicit TermPlan(const MatrixTermProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem_.destination;
    const std::int64_t grain = kGrain / std::max<std::int64_t>(1, destination.channels) + 1;
    mtl::cpu::asCpu(stream).parallelFor(destination.height, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t first = 0; first < destination.channels; first += kPiece)
          runPiece(operands, row, first, std::min(kPiece, destination.channels - first));
    });
  }

 private:
  void runPiece(const Operands& operands, std::int64_t row, std::int64_t first, std::int64_t count) const {
    alignas(64) std::array<float, kPiece> values;
    loadTerm(operands, row, first, count, values.data());
    const TensorShape& destination = problem_.destination;
    if (problem_.addsToSum) {
      const auto* sum =
          reinterpret_cast<const float*>(operands.secondary) + row * destination.channels + first;
      for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] += sum[i];
    }
    withElementType(destination.format, [&](auto element) {
      using Element = decltype(element);
      if (problem_.hasBias) {
        const auto* bias = reinterpret_cast<const Element*>(operands.parameters[2]) + first;
        for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] += loadFloat(bias + i);
      }
      if (problem_.neuron.neuronType() != CNNNeuronType::None)
        neuronValues(problem_.neuron, {1, count, first}, values.data(), values.data());
      auto* to = reinterpret_cast<Element*>(operands.destination) + destination.offset(0, row, 0, first);
      for (std::int64_t i = 0; i < count; ++i) storeFloat(values[static_cast<std::size_t>(i)], to + i);
    });
  }

  void loadTerm(const Operands& operands, std::int64_t row, std::int64_t first, std::int64_t count,
                float* values) const {
    const TensorShape& source = problem_.source;
    const auto* offsets = reinterpret_cast<const std::uint32_t*>(operands.parameters[1]);
    std::int64_t y = (problem_.hasOffsets ? offsets[0] : 0) + (problem_.transpose ? first : row);
    std::int64_t x = (problem_.hasOffsets ? offsets[1] : 0) + (problem_.transpose ? row : first);
    const float scale = problem_.hasScale ? *reinterpret_cast<const float*>(operands.parameters[0]) : 1.0F;
    withElementType(source.format, [&](auto element) {
      const auto* from = reinterpret_cast<const decltype(element)*>(operands.source);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool isInside = y < source.height && x < source.channels;
        values[i] = isInside ? scale * loadFloat(from + source.offset(0, y, 0, x)) : 0.0F;
        ++(problem_.transpose ? y : x);
      }
    });
  }

  MatrixTermProblem problem_;
};

Preparation prepareRows(const MatrixTermProblem& problem) {
  return std::make_shared<const TermPlan>(problem);
}

constexpr std::array<Implementation<MatrixTermProblem>, 1> kImplementations{{{"rows", prepareRows}}};

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
  return kImplementations;
}

}  // namespace mps::detail
