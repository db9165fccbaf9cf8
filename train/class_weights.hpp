#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/image_batch.hpp"
#include "mps/core/state.hpp"
#include "train/augmentation.hpp"
#include "train/batch_loader.hpp"

namespace mtl {
class Device;
}

namespace unmetal::train::detail {

/// TrainerOptions::classWeights. @throws mps::Error for another number of them, and those that are negative or not finite
void checkClassWeights(std::span<const float> weights, std::size_t classes);

/// train::balancedClassWeights() of these labels, all below `classes`.
std::vector<float> balancedWeights(std::span<const std::uint32_t> labels, std::size_t classes);

/// The labels of a step, with the weights of their classes: class indices, or a share for each class where there are weights,
/// pictures are mixed or labels smoothed.
class StepLabels {
 public:
  /// @param classWeights empty: 1
  StepLabels(const std::shared_ptr<mtl::Device>& device, std::size_t count, std::size_t classes,
             std::span<const float> classWeights, const Augmentation& augmentation = {});

  /// What the training graph takes.
  [[nodiscard]] const mps::StateBatch& states() const { return states_; }
  /// No work that reads the old ones may be in flight.
  void write(const Batch& batch);
  /// Of the step, which has run: the sum over the pictures.
  [[nodiscard]] double loss() const;
  /// Part of the pictures whose own class has the largest score; 0 without pictures.
  [[nodiscard]] double accuracy(const mps::ImageBatch& scores) const;

 private:
  std::size_t classes_;
  std::vector<float> classWeights_;
  float smoothing_;
  std::vector<std::uint32_t> labels_;
  mps::ImageBatch targets_;  ///< empty of class indices
  mps::ImageBatch weights_;  ///< only with weights
  mps::StateBatch states_;
};

}  // namespace unmetal::train::detail
