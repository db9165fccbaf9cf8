#include "mps/graph/run/step_scratch.hpp"

#include <utility>

namespace mps::detail {

StepScratch::StepScratch(std::shared_ptr<mtl::Heap> shared, const GraphLayout& layout,
                         std::shared_ptr<mtl::Memory> block)
    : shared_(std::move(shared)), block_(std::move(block)) {
  for (const MemoryGap& gap : layout.gaps)
    ofStep_.push_back(std::make_shared<mtl::Heap>(shared_, block_, gap.offset, gap.bytes));
}

std::shared_ptr<StepScratch> StepScratch::withHeap(std::shared_ptr<mtl::Heap> shared,
                                                   const GraphLayout& layout) const {
  return std::make_shared<StepScratch>(std::move(shared), layout, block_);
}

StepScratch::Scope::Scope(const StepScratch& scratch, StepIndex step,
                          std::shared_ptr<mtl::Submission> submission)
    : submission_(std::move(submission)), before_(submission_->exchangeHeap(scratch.ofStep_[step])) {}

StepScratch::Scope::~Scope() {
  submission_->exchangeHeap(std::move(before_));
}

}  // namespace mps::detail
