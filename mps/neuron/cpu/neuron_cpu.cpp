#include <array>
#include <memory>
#include <string>

#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/neuron/neuron_span.hpp"
#include "mps/neuron/neuron_problem.hpp"

namespace mps::detail {
namespace {

/// Tile by tile; formats other than float16 and float32, and strides, through float32 copies.
class NeuronPlan final : public Plan {
 public:
  explicit NeuronPlan(const NeuronProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::byte* input =
        problem_.direction == NeuronDirection::GradientFromResult ? operands.secondary : operands.source;
    const Tiling tiling(problem_.destination.pixels(), problem_.destination.channels);
    forEachTile(stream, tiling, [&](const Tile& tile) {
      alignas(64) float inputBuffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float addendBuffer[Tiling::capacity];
      const TensorShape& destination = problem_.destination;
      ConstFloatRun x;
      if (input != nullptr) x = loadRun(problem_.input, input, tile, inputBuffer);
      const FloatRun result =
          runTarget(destination, operands.destination, tile, inputBuffer, operands.accumulate);
      const NeuronRun run{tile.pixels, tile.channels, tile.firstChannel};
      switch (problem_.direction) {
        case NeuronDirection::Forward:
          if (problem_.hasSides)
            neuronSides(x, static_cast<std::size_t>(tile.elements()), sidesOf(operands, tile));
          neuronValues(problem_.neuron, run, x, result);
          break;
        case NeuronDirection::Gradient: {
          const ConstFloatRun dy = loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer);
          if (problem_.hasSides)
            neuronGradientsFromSides(problem_.neuron, run, sidesOf(operands, tile), dy, result);
          else
            neuronGradients(problem_.neuron, run, x, dy, result);
          break;
        }
        case NeuronDirection::GradientFromResult:
          neuronGradientsFromResult(problem_.neuron, run, x,
                                    loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer),
                                    result, addendRun(operands, tile, addendBuffer));
          break;
      }
      storeTile(destination, operands.destination, tile, result, operands.accumulate);
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction != NeuronDirection::Forward &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  [[nodiscard]] std::byte* sidesOf(const Operands& operands, const Tile& tile) const {
    return operands.saved + (tile.firstPixel * problem_.destination.channels + tile.firstChannel) / 4;
  }
  [[nodiscard]] ConstFloatRun addendRun(const Operands& operands, const Tile& tile, float* buffer) const {
    if (!problem_.hasAddend()) return {};
    return loadRun(problem_.addend, operands.parameters[0], tile, buffer);
  }

  NeuronProblem problem_;
};

Preparation prepareTiles(const NeuronProblem& problem) {
  if (auto refusal = refusalOfResult(problem)) return *refusal;
  return std::make_shared<const NeuronPlan>(problem);
}

constexpr std::array<Implementation<NeuronProblem>, 1> kImplementations{{{"tiles", prepareTiles}}};

}  // namespace

std::string NeuronProblem::describe() const {
  const bool isForward = direction == NeuronDirection::Forward;
  std::string text = isForward ? "neuron" : "neuron gradient";
  if (direction == NeuronDirection::GradientFromResult) text += " from the result";
  text += ", " + neuron.describe() + ", " + input.describe();
  if (!isForward) text += ", gradient " + gradient.describe();
  if (hasAddend()) text += " + " + addend.describe();
  if (hasSides) text += isForward ? ", saves sides" : ", from sides";
  return text + " -> " + destination.describe();
}

bool NeuronProblem::canHaveSides() const {
  const CNNNeuronType type = neuron.neuronType();
  return (type == CNNNeuronType::ReLU || type == CNNNeuronType::PReLU) && input.channels % 4 == 0 &&
         (input.format == ImageFeatureChannelFormat::Float16 ||
          input.format == ImageFeatureChannelFormat::Float32);
}

std::optional<Refusal> refusalOfResult(const NeuronProblem& problem) {
  if (problem.direction != NeuronDirection::GradientFromResult) return std::nullopt;
  if (!derivativeFromResult(problem.neuron))
    return Refusal{"the derivative of " + problem.neuron.describe() + " cannot be computed from its result"};
  if (problem.input.format != ImageFeatureChannelFormat::Float16 &&
      problem.input.format != ImageFeatureChannelFormat::Float32)
    return Refusal{std::string("a result stored as ") + name(problem.input.format) + " has lost its sign"};
  return std::nullopt;
}

std::span<const Implementation<NeuronProblem>> neuronImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
