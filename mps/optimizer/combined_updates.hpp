#pragma once

#include <memory>
#include <vector>

#include "mps/core/layer/deferred_updates.hpp"
#include "mps/optimizer/gradient_norm.hpp"
#include "mps/optimizer/optimizer_problem.hpp"
#include "mtl/command.hpp"

namespace mps {
class LossScale;
}

namespace mps::detail {

/// Updates of several layers that become one command: a GPU then runs them in one launch. The library's own.
class CombinedUpdates final : public DeferredUpdates {
 public:
  /// @param identity stands for the updates of a graph from step to step, so that the device can replay them
  /// @param gradientNormLimit of all gradients together (NNGraph::setGradientNormLimit()); 0: none
  CombinedUpdates(mtl::Device& device, std::shared_ptr<const void> identity, float gradientNormLimit = 0);

  /// That of the innermost scope, or null.
  static CombinedUpdates* current() { return static_cast<CombinedUpdates*>(innermost()); }

  /// Whether an update with this loss scale (null: none) is to be put off: on devices that gain by it, and
  /// where it must wait until all gradients were inspected or measured.
  [[nodiscard]] bool takes(const std::shared_ptr<LossScale>& lossScale) const {
    return onCuda_ || lossScale != nullptr || factor_ != nullptr;
  }
  /// @param lossScale null, or that of the step: all gradients are inspected before the first update, and its step ends
  ///        behind the last one
  /// @param command what would have been recorded: its label and memory count
  void add(OptimizerStep step, OptimizerTensor tensor, const std::shared_ptr<LossScale>& lossScale,
           mtl::Command command);
  /// What is added from now on runs behind what was added before: it updates some of the same values again.
  void separate() { rounds_.push_back(tensors_.size()); }
  /// Records what was put off.
  void record(mtl::CommandBuffer& commandBuffer);

 private:
  std::shared_ptr<mtl::Memory> allocateSums();

  mtl::Device& device_;
  bool onCuda_;
  std::shared_ptr<const void> identity_;
  float gradientNormLimit_;
  std::shared_ptr<mtl::Memory>
      factor_;  ///< what the limit of the norm makes of gradients; null: there is none
  std::vector<GradientNormPart> normParts_;
  std::vector<LossScaleValues> inspected_;
  std::vector<std::shared_ptr<LossScale>> scales_;
  std::vector<OptimizerStep> steps_;
  std::vector<OptimizerTensor> tensors_;
  std::vector<std::size_t> rounds_;  ///< tensors before each separate()
  mtl::Command command_;
};

}  // namespace mps::detail
