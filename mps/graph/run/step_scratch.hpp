#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mps/graph/layout/graph_layout.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mps::detail {

/// Scratch memory of the steps of a layout on one queue, whose commands run in order. Small blocks come from a heap that all
/// steps share, and so stay in a cache. Large ones lie where the layout's block is free during their step. Those that do not fit
/// there come from the shared heap, too. The library's own.
class StepScratch {
 public:
  /// @param block memory of the layout's plan
  StepScratch(std::shared_ptr<mtl::Heap> shared, const GraphLayout& layout,
              std::shared_ptr<mtl::Memory> block);

  /// The same with another heap.
  [[nodiscard]] std::shared_ptr<StepScratch> withHeap(std::shared_ptr<mtl::Heap> shared,
                                                      const GraphLayout& layout) const;
  [[nodiscard]] const std::shared_ptr<mtl::Heap>& shared() const { return shared_; }
  /// Whether a step had large blocks that did not fit.
  [[nodiscard]] bool lacksRoom() const { return lacksRoom_; }
  /// What the step has had in large blocks at a time.
  [[nodiscard]] std::size_t bytesOf(StepIndex step) const { return ofStep_[step]->peakBytes(); }

  /// While alive, a command buffer's heap is the scratch memory of a step.
  class Scope {
   public:
    Scope(StepScratch& scratch, StepIndex step, std::shared_ptr<mtl::Submission> submission);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepScratch& scratch_;
    StepIndex step_;
    std::shared_ptr<mtl::Submission> submission_;
    std::shared_ptr<mtl::Heap> before_;
  };

 private:
  std::shared_ptr<mtl::Heap> shared_;
  std::shared_ptr<mtl::Memory> block_;
  std::vector<std::shared_ptr<mtl::Heap>> ofStep_;
  std::vector<MemoryGap> gaps_;
  bool lacksRoom_ = false;
};

}  // namespace mps::detail
