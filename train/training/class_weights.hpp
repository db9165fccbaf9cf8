#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/arithmetic/compare.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/reduction/reduction.hpp"
#include "train/batches/augmentation.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/ranks/ranks.hpp"

namespace mtl {
class CommandBuffer;
class Device;
}  // namespace mtl

namespace unmetal::train::detail {

/// TrainerOptions::classWeights. @throws mps::Error for another number of them, and those that are negative or not finite
void checkClassWeights(std::span<const float> weights, std::size_t classes);

/// train::balancedClassWeights() of these labels, all below `classes`.
std::vector<float> balancedWeights(std::span<const std::uint32_t> labels, std::size_t classes);

/// The labels of a step, with the weights of their classes: class indices, or a share for each class where there are weights,
/// pictures are mixed or labels smoothed.
class StepLabels {
 public:
  /// @param count of all ranks @param classWeights empty: 1
  StepLabels(const std::shared_ptr<mtl::Device>& device, std::size_t count, std::size_t classes,
             std::span<const float> classWeights, const Augmentation& augmentation = {},
             Ranks ranks = nullptr);

  /// What the training graph takes: this rank's part.
  [[nodiscard]] const mps::StateBatch& states() const { return ownStates_; }
  /// No work that reads the old ones may be in flight. @param batch this rank's part
  /// @param wantsStop whether this rank asks all of them to end the training
  void write(const Batch& batch, bool wantsStop = false);
  /// Records, behind the step, what makes the results known. @param scores of this rank's part
  void encodeResults(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const mps::ImageBatch& scores);
  /// Of the step, which has run: the sum over the pictures of all ranks.
  [[nodiscard]] double loss() const;
  /// Part of the pictures of all ranks whose own class has the largest score; 0 without pictures. @param scores of this rank
  [[nodiscard]] double accuracy(const mps::ImageBatch& scores) const;
  /// Whether one of several ranks has asked for the end.
  [[nodiscard]] bool isStopWanted() const;

 private:
  /// What several ranks tell each other. Each writes its part, the others 0: the sum is the whole.
  struct Shared {
    mps::ImageBatch labels;   ///< of this rank
    mps::ImageBatch answers;  ///< of this rank: the class with the largest score
    /// 1 where the answer is the label, for the pictures of all ranks; and one number more, above 0 where a rank wants to stop.
    mps::ImageBatch hits;
    std::shared_ptr<mps::NNReduceFeatureChannelsArgumentMax> findAnswers;
    std::shared_ptr<mps::NNCompare> compare;
  };
  void beginSharing(const std::shared_ptr<mtl::Device>& device);
  [[nodiscard]] mps::ImageBatch ownPart(const mps::ImageBatch& images) const;
  void writeShares(const Batch& batch);

  Ranks ranks_;
  std::size_t count_;
  Part part_;
  std::size_t classes_;
  std::vector<float> classWeights_;
  float smoothing_;
  std::vector<std::uint32_t> labels_;
  mps::ImageBatch targets_;  ///< empty of class indices
  mps::ImageBatch weights_;  ///< only with weights
  mps::StateBatch states_;   ///< of all ranks
  mps::StateBatch ownStates_;
  Shared shared_;  ///< of several ranks
};

}  // namespace unmetal::train::detail
