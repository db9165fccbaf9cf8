#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/array/vector.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "mps/weights/safetensors.hpp"

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
  /// The averages, while the layers have their own values, named "average." and as the layer's tensor. The bytes stay this
  /// object's. No work may be in flight.
  [[nodiscard]] std::vector<mps::SafetensorsTensor> tensors() const;
  /// Takes such tensors. @param steps of the average @throws mps::Error when one is missing or has another shape; nothing has
  /// changed then
  void read(const mps::SafetensorsFile& file, std::uint64_t steps);

 private:
  struct Array {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::shared_ptr<mtl::Buffer> values;
    std::shared_ptr<mps::Vector> valuesVector, average;
  };
  static void write(const Array& array, std::span<const std::byte> values);
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
