#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/array/vector.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/trainable/trainable_layer.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
}  // namespace mtl

namespace unmetal::train::detail {

/// The moving average of the numbers of layers: TrainerOptions::averageDecay.
class WeightAverage {
 public:
  /// Begins with the layers' values; no work on them may be in flight.
  WeightAverage(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                const std::shared_ptr<mtl::Device>& device, double decay);

  /// Records what follows a step.
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
  /// Whether the layers have the averages or their own values; each keeps the other ones. No work may be in flight.
  /// @{
  void useForEvaluation() { use(true); }
  void useForTraining() { use(false); }
  /// @}
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  struct Array {
    std::shared_ptr<mtl::Buffer> values;
    std::shared_ptr<mps::Vector> valuesVector, average;
  };
  void use(bool forEvaluation);
  void synchronize() const;

  std::shared_ptr<mtl::Device> device_;
  double decay_;
  std::vector<Array> arrays_;
  std::shared_ptr<mps::NNOptimizerStochasticGradientDescent> mean_;
  std::uint64_t steps_ = 0;
  bool areExchanged_ = false;
};

}  // namespace unmetal::train::detail
