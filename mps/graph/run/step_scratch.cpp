#include "mps/graph/run/step_scratch.hpp"

#include <utility>

namespace mps::detail {

StepScratch::StepScratch(std::shared_ptr<mtl::Heap> shared, const GraphLayout& layout,
                         std::shared_ptr<mtl::Memory> block)
    : shared_(std::move(shared)), block_(std::move(block)), gaps_(layout.gaps) {
  for (const MemoryGap& gap : gaps_)
    ofStep_.push_back(std::make_shared<mtl::Heap>(shared_, block_, gap.offset, gap.bytes));
}

std::shared_ptr<StepScratch> StepScratch::withHeap(std::shared_ptr<mtl::Heap> shared,
                                                   const GraphLayout& layout) const {
  return std::make_shared<StepScratch>(std::move(shared), layout, block_);
}

StepScratch::Scope::Scope(StepScratch& scratch, StepIndex step, std::shared_ptr<mtl::Submission> submission)
    : scratch_(scratch),
      step_(step),
      submission_(std::move(submission)),
      before_(submission_->exchangeHeap(scratch.ofStep_[step])) {}

StepScratch::Scope::~Scope() {
  if (scratch_.bytesOf(step_) > scratch_.gaps_[step_].bytes) scratch_.lacksRoom_ = true;
  submission_->exchangeHeap(std::move(before_));
}

}  // namespace mps::detail
