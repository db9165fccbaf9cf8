#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/image_batch.hpp"
#include "mps/core/state.hpp"

namespace mtl {
class Device;
}

namespace unmetal::train::detail {

/// TrainerOptions::classWeights. @throws mps::Error for another number of them, and those that are negative or not finite
void checkClassWeights(std::span<const float> weights, std::size_t classes);

/// train::balancedClassWeights() of these labels, all below `classes`.
std::vector<float> balancedWeights(std::span<const std::uint32_t> labels, std::size_t classes);

/// The labels of a step, with the weights of their classes.
class StepLabels {
 public:
  /// @param classWeights empty: 1
  StepLabels(const std::shared_ptr<mtl::Device>& device, std::size_t count, std::size_t classes,
             std::span<const float> classWeights);

  /// What the training graph takes.
  [[nodiscard]] const mps::StateBatch& states() const { return states_; }
  /// No work that reads the old ones may be in flight.
  void write(std::span<const std::uint32_t> labels);
  /// Of the step, which has run: the sum over the pictures.
  [[nodiscard]] double loss() const;

 private:
  std::size_t classes_;
  std::vector<float> classWeights_;
  mps::ImageBatch targets_, weights_;  ///< only with weights
  mps::StateBatch states_;
};

}  // namespace unmetal::train::detail
