#include <array>
#include <memory>
#include <string>

#include "mps/arithmetic/arithmetic_problem.hpp"
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

/// A tile of an operand with all channels of the result.
const float* loadOperand(const TensorShape& shape, const std::byte* memory, const Tile& tile,
                         std::int64_t channels, float* buffer) {
  if (shape.channels == channels) return loadTile(shape, memory, tile, buffer);
  alignas(64) float single[Tiling::capacity];
  const float* values = loadTile(shape, memory, {tile.firstPixel, tile.pixels, 0, 1}, single);
  for (std::int64_t i = 0; i < tile.pixels; ++i)
    std::fill_n(buffer + i * tile.channels, tile.channels, values[i]);
  return buffer;
}

float value(const ArithmeticProblem& problem, float x, float y) {
  const float a = problem.primaryScale * x;
  const float b = problem.secondaryScale * y;
  switch (problem.operation) {
    case ArithmeticOperation::Add:
      return a + b + problem.bias;
    case ArithmeticOperation::Subtract:
      return a - b + problem.bias;
    case ArithmeticOperation::Multiply:
      return a * b + problem.bias;
    case ArithmeticOperation::Divide:
      break;
  }
  return a / b + problem.bias;
}

/// Tile by tile: convert to float32, compute, round once.
class TilePlan final : public Plan {
 public:
  explicit TilePlan(const ArithmeticProblem& problem)
      : problem_(problem),
        primary_(repeated(problem.primary, problem.destination)),
        secondary_(repeated(problem.secondary, problem.destination)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem_.destination;
    forEachTile(stream, Tiling(destination.pixels(), destination.channels), [&](const Tile& tile) {
      alignas(64) float xBuffer[Tiling::capacity];
      alignas(64) float yBuffer[Tiling::capacity];
      const float* x = loadOperand(primary_, operands.source, tile, destination.channels, xBuffer);
      const float* y = loadOperand(secondary_, operands.secondary, tile, destination.channels, yBuffer);
      float* result = tileTarget(destination, operands.destination, tile, xBuffer);
      for (std::int64_t i = 0; i < tile.elements(); ++i) {
        const float r = value(problem_, x[i], y[i]);
        result[i] = r > problem_.maximumValue   ? problem_.maximumValue
                    : r < problem_.minimumValue ? problem_.minimumValue
                                                : r;
      }
      storeTile(destination, operands.destination, tile, result);
    });
  }

 private:
  ArithmeticProblem problem_;
  TensorShape primary_;
  TensorShape secondary_;
};

Preparation prepareTiles(const ArithmeticProblem& problem) {
  if (!problem.isForward()) return Refusal{"it computes no gradients"};
  return std::make_shared<const TilePlan>(problem);
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
  const auto limits = [this] {
    return (hasMask() ? std::string(", mask") : std::string()) + (hasQuotient() ? ", quotient" : "");
  };
  std::string text = name(operation);
  if (isForward()) {
    text += " " + primary.describe() + ", " + secondary.describe();
  } else {
    text += direction == ArithmeticDirection::PrimaryGradient ? " gradient of x, " : " gradient of y, ";
    text += gradient.describe();
    if (needsSecondary()) text += ", " + secondary.describe();
  }
  return text + limits() + " -> " + destination.describe();
}

std::span<const Implementation<ArithmeticProblem>> arithmeticImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
