#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/arithmetic/arithmetic_vectors.hpp"
#include "mps/core/tile_io.hpp"

namespace mps::detail {
namespace {

/// The operand over the whole result: axes of size 1 are repeated by strides of 0. Channels stay as they are.
TensorShape repeated(TensorShape shape, const TensorShape& result) {
  if (shape.width == 1) shape.pixelStride = 0;
  if (shape.height == 1) shape.rowStride = 0;
  shape.width = result.width;
  shape.height = result.height;
  return shape;
}

/// A tile of an operand, its only channel repeated if need be.
const float* loadOperand(const TensorShape& shape, const std::byte* memory, const Tile& tile,
                         std::int64_t channels, float* buffer) {
  if (shape.channels == channels) return loadTile(shape, memory, tile, buffer);
  alignas(64) float single[Tiling::capacity];
  const float* values = loadTile(shape, memory, {tile.firstPixel, tile.pixels, 0, 1}, single);
  repeatChannels(values, tile.pixels, tile.channels, buffer);
  return buffer;
}

/// Tile by tile: convert to float32, compute, round once.
class ForwardPlan final : public Plan {
 public:
  explicit ForwardPlan(const ArithmeticProblem& problem)
      : problem_(problem),
        primary_(repeated(problem.primary, problem.destination)),
        secondary_(repeated(problem.secondary, problem.destination)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem_.destination;
    forEachTile(stream, Tiling(destination.pixels(), destination.channels), [&](const Tile& tile) {
      alignas(64) float xBuffer[Tiling::capacity];
      alignas(64) float yBuffer[Tiling::capacity];
      alignas(64) float maskBuffer[Tiling::capacity];
      alignas(64) float quotientBuffer[Tiling::capacity];
      std::byte* mask = operands.saved + problem_.maskOffset;
      std::byte* quotient = operands.saved + problem_.quotientOffset;
      ArithmeticRun run;
      run.count = tile.elements();
      run.primary = loadOperand(primary_, operands.source, tile, destination.channels, xBuffer);
      run.secondary = loadOperand(secondary_, operands.secondary, tile, destination.channels, yBuffer);
      if (problem_.hasMask()) run.newMask = tileTarget(problem_.mask, mask, tile, maskBuffer);
      if (problem_.hasQuotient())
        run.newQuotient = tileTarget(problem_.quotient, quotient, tile, quotientBuffer);
      float* result = tileTarget(destination, operands.destination, tile, xBuffer);
      arithmeticValues(problem_, run, result);
      storeTile(destination, operands.destination, tile, result);
      if (problem_.hasMask()) storeTile(problem_.mask, mask, tile, run.newMask);
      if (problem_.hasQuotient()) storeTile(problem_.quotient, quotient, tile, run.newQuotient);
    });
  }

 private:
  ArithmeticProblem problem_;
  TensorShape primary_;
  TensorShape secondary_;
};

/// The values of a gradient before they are summed.
class GradientPlan : public Plan {
 public:
  explicit GradientPlan(const ArithmeticProblem& problem)
      : problem_(problem), secondary_(repeated(problem.secondary, problem.gradient)) {}

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  /// Computes a tile of values. @param target where to; null: a buffer, whose address is returned
  float* computeTile(const Operands& operands, const Tile& tile, float* target, float* buffer) const {
    alignas(64) float secondaryBuffer[Tiling::capacity];
    alignas(64) float maskBuffer[Tiling::capacity];
    alignas(64) float quotientBuffer[Tiling::capacity];
    ArithmeticRun run;
    run.count = tile.elements();
    run.gradient = loadTile(problem_.gradient, operands.gradient, tile, buffer);
    if (problem_.needsSecondary())
      run.secondary =
          loadOperand(secondary_, operands.secondary, tile, problem_.gradient.channels, secondaryBuffer);
    if (problem_.hasMask())
      run.mask = loadTile(problem_.mask, operands.saved + problem_.maskOffset, tile, maskBuffer);
    if (problem_.hasQuotient())
      run.quotient =
          loadTile(problem_.quotient, operands.saved + problem_.quotientOffset, tile, quotientBuffer);
    float* result = target != nullptr ? target : buffer;
    arithmeticGradients(problem_, run, result);
    return result;
  }

  [[nodiscard]] const ArithmeticProblem& problem() const { return problem_; }

 private:
  ArithmeticProblem problem_;
  TensorShape secondary_;
};

/// Nothing is summed.
class ElementGradientPlan final : public GradientPlan {
 public:
  using GradientPlan::GradientPlan;

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem().destination;
    forEachTile(stream, Tiling(destination.pixels(), destination.channels), [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      float* target = tileTarget(destination, operands.destination, tile, buffer, operands.accumulate);
      computeTile(operands, tile, target, buffer);
      storeTile(destination, operands.destination, tile, target, operands.accumulate);
    });
  }
};

/// Only the channels of each pixel are summed, and they fit into a tile.
class ChannelSumPlan final : public GradientPlan {
 public:
  using GradientPlan::GradientPlan;

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& gradient = problem().gradient;
    const TensorShape& destination = problem().destination;
    forEachTile(stream, Tiling(gradient.pixels(), gradient.channels), [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      float* values = computeTile(operands, tile, nullptr, buffer);
      sumChannels(values, tile.pixels, tile.channels);
      const Tile sums{tile.firstPixel, tile.pixels, 0, 1};
      float* target = tileTarget(destination, operands.destination, sums, values, operands.accumulate);
      if (target != values) std::copy_n(values, sums.elements(), target);
      storeTile(destination, operands.destination, sums, target, operands.accumulate);
    });
  }

  [[nodiscard]] std::string describe() const override { return "channel sums"; }
};

/// Sums over any axes. Each piece of an image, whole rows in a number that depends on the problem alone, is
/// summed to float64 in scratch memory; then the pieces are added in order.
class SumPlan final : public GradientPlan {
 public:
  explicit SumPlan(const ArithmeticProblem& problem)
      : GradientPlan(problem),
        sumsX_(problem.destination.width < problem.gradient.width),
        sumsY_(problem.destination.height < problem.gradient.height),
        sumsChannels_(problem.destination.channels < problem.gradient.channels),
        sumsPerPiece_(problem.destination.width * problem.destination.channels) {
    constexpr std::int64_t elementsPerPiece = 32768;
    constexpr std::int64_t rowsPerPiece = 16;  // so that the sums are few beside what is summed
    const std::int64_t rowElements =
        std::max<std::int64_t>(1, problem.gradient.width * problem.gradient.channels);
    if (sumsY_) rowsPerPiece_ = std::max(rowsPerPiece, (elementsPerPiece + rowElements - 1) / rowElements);
    piecesPerImage_ = (problem.gradient.height + rowsPerPiece_ - 1) / rowsPerPiece_;
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(problem().gradient.images * piecesPerImage_ * sumsPerPiece_) *
           sizeof(double);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    auto* sums = reinterpret_cast<double*>(operands.scratch);
    const TensorShape& gradient = problem().gradient;
    const std::int64_t pieceElements = rowsPerPiece_ * gradient.width * gradient.channels;
    const std::int64_t grain = std::max<std::int64_t>(1, Tiling::capacity * Tiling::grain / pieceElements);
    mtl::cpu::asCpu(stream).parallelFor(gradient.images * piecesPerImage_, grain,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t i = begin; i < end; ++i)
                                            sumPiece(operands, i, sums + i * sumsPerPiece_);
                                        });
    const TensorShape& destination = problem().destination;
    forEachTile(stream, Tiling(destination.pixels(), destination.channels),
                [&](const Tile& tile) { storeSums(operands, tile, sums); });
  }

  [[nodiscard]] std::string describe() const override { return "sums in float64"; }

 private:
  void sumPiece(const Operands& operands, std::int64_t piece, double* sums) const {
    const TensorShape& gradient = problem().gradient;
    std::fill_n(sums, sumsPerPiece_, 0.0);
    const std::int64_t image = piece / piecesPerImage_;
    const std::int64_t firstRow = piece % piecesPerImage_ * rowsPerPiece_;
    const std::int64_t rows = std::min(rowsPerPiece_, gradient.height - firstRow);
    const std::int64_t firstPixel = (image * gradient.height + firstRow) * gradient.width;
    if (sumsX_) return sumRun(operands, firstPixel, rows * gradient.width, sums);
    for (std::int64_t row = 0; row < rows; ++row)
      sumRun(operands, firstPixel + row * gradient.width, gradient.width, sums);
  }

  /// Adds adjacent pixels: all of them to the same sums, or one row of pixels each to its own.
  void sumRun(const Operands& operands, std::int64_t firstPixel, std::int64_t pixels, double* sums) const {
    alignas(64) float buffer[Tiling::capacity];
    const Tiling tiling(pixels, problem().gradient.channels);
    const std::int64_t channels = problem().destination.channels;
    for (std::int64_t i = 0; i < tiling.count(); ++i) {
      Tile tile = tiling[i];
      double* target =
          sums + (sumsX_ ? 0 : tile.firstPixel * channels) + (sumsChannels_ ? 0 : tile.firstChannel);
      tile.firstPixel += firstPixel;
      float* values = computeTile(operands, tile, nullptr, buffer);
      if (sumsChannels_) {
        sumChannels(values, tile.pixels, tile.channels);
        tile.channels = 1;
      }
      if (sumsX_) {
        sumPixels(values, tile.pixels, tile.channels);
        tile.pixels = 1;
      }
      addToSums(values, tile.elements(), target);
    }
  }

  void storeSums(const Operands& operands, const Tile& tile, const double* sums) const {
    const TensorShape& destination = problem().destination;
    const std::int64_t piecesPerRow = sumsY_ ? piecesPerImage_ : 1;
    alignas(64) float buffer[Tiling::capacity];
    float* values = tileTarget(destination, operands.destination, tile, buffer, operands.accumulate);
    for (std::int64_t i = 0; i < tile.pixels; ++i) {
      const std::int64_t row = (tile.firstPixel + i) / destination.width;  // of all images
      const std::int64_t x = (tile.firstPixel + i) % destination.width;
      const double* pixel =
          sums + row * piecesPerRow * sumsPerPiece_ + x * destination.channels + tile.firstChannel;
      for (std::int64_t c = 0; c < tile.channels; ++c) {
        double sum = pixel[c];
        for (std::int64_t piece = 1; piece < piecesPerRow; ++piece) sum += pixel[piece * sumsPerPiece_ + c];
        values[i * tile.channels + c] = static_cast<float>(sum);
      }
    }
    storeTile(destination, operands.destination, tile, values, operands.accumulate);
  }

  bool sumsX_;
  bool sumsY_;
  bool sumsChannels_;
  std::int64_t sumsPerPiece_;
  std::int64_t rowsPerPiece_ = 1;
  std::int64_t piecesPerImage_ = 1;
};

Preparation prepareTiles(const ArithmeticProblem& problem) {
  if (problem.isForward()) return std::make_shared<const ForwardPlan>(problem);
  const bool sumsPixels = problem.destination.width < problem.gradient.width ||
                          problem.destination.height < problem.gradient.height;
  const bool sumsChannels = problem.destination.channels < problem.gradient.channels;
  if (!sumsPixels && !sumsChannels) return std::make_shared<const ElementGradientPlan>(problem);
  if (!sumsPixels && problem.gradient.channels <= Tiling::capacity)
    return std::make_shared<const ChannelSumPlan>(problem);
  return std::make_shared<const SumPlan>(problem);
}

constexpr std::array<Implementation<ArithmeticProblem>, 1> kImplementations{{{"tiles", prepareTiles}}};

}  // namespace

const char* name(ArithmeticOperation operation) {
  switch (operation) {
    case ArithmeticOperation::Add:
      return "add";
    case ArithmeticOperation::Subtract:
      return "subtract";
    case ArithmeticOperation::Multiply:
      return "multiply";
    case ArithmeticOperation::Divide:
      return "divide";
  }
  return "unknown";
}

std::string ArithmeticProblem::describe() const {
  std::string text = name(operation);
  if (isForward()) {
    text += " " + primary.describe() + ", " + secondary.describe();
  } else {
    text += direction == ArithmeticDirection::PrimaryGradient ? " gradient of x, " : " gradient of y, ";
    text += gradient.describe();
    if (needsSecondary()) text += ", " + secondary.describe();
  }
  if (hasMask()) text += ", mask";
  if (hasQuotient()) text += ", quotient";
  return text + " -> " + destination.describe();
}

std::span<const Implementation<ArithmeticProblem>> arithmeticImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
