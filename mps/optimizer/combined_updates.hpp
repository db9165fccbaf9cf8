#pragma once

#include <memory>
#include <vector>

#include "mps/optimizer/optimizer_problem.hpp"
#include "mtl/command_buffer.hpp"

namespace mps::detail {

/// Updates of several layers that become one command: a GPU then runs them in one launch. The library's own.
class CombinedUpdates {
 public:
  /// @param identity stands for the updates of a graph from step to step, so that the device can replay them
  explicit CombinedUpdates(std::shared_ptr<const void> identity) : identity_(std::move(identity)) {}

  /// Whether the device has something to gain.
  static bool helps(const mtl::Device& device);

  /// While alive, updates in place that this thread encodes are put off. Their memory stays alive; nobody may
  /// read or write it until they are recorded.
  class Scope {
   public:
    explicit Scope(CombinedUpdates& updates);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CombinedUpdates* previous_;
  };
  /// That of the innermost scope, or null.
  static CombinedUpdates* current();

  /// @param command what would have been recorded: its label and memory count
  void add(const OptimizerStep& step, OptimizerTensor tensor, mtl::Command command);
  /// Records what was put off.
  void record(mtl::CommandBuffer& commandBuffer);

 private:
  std::shared_ptr<const void> identity_;
  std::vector<OptimizerStep> steps_;
  std::vector<OptimizerTensor> tensors_;
  mtl::Command command_;
};

}  // namespace mps::detail
