#include "mps/core/plan/fallback_plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace mps::detail {
namespace {

class FallbackPlan final : public Plan {
 public:
  FallbackPlan(std::shared_ptr<const SelectivePlan> preferred, std::shared_ptr<const Plan> general,
               std::string_view name, std::string problem)
      : preferred_(std::move(preferred)),
        general_(std::move(general)),
        name_(name),
        problem_(std::move(problem)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::string_view objection = preferred_->objectionTo(operands);
    if (objection.empty()) return preferred_->run(stream, operands);
    if (verboseDispatch() && !isPrinted_.test_and_set())
      printDispatch(problem_ + ": left to " + name_ + ", since " + std::string(objection));
    general_->run(stream, operands);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return std::max(preferred_->scratchBytes(), general_->scratchBytes());
  }
  [[nodiscard]] bool canAccumulate() const override { return general_->canAccumulate(); }
  [[nodiscard]] bool readsResults() const override {
    return preferred_->readsResults() || general_->readsResults();
  }
  [[nodiscard]] std::string describe() const override {
    const std::string own = preferred_->describe();
    const std::string other = general_->describe();
    return own + (own.empty() ? "" : ", ") + "else " + name_ + (other.empty() ? "" : " " + other);
  }

 private:
  std::shared_ptr<const SelectivePlan> preferred_;
  std::shared_ptr<const Plan> general_;
  std::string name_;
  std::string problem_;
  mutable std::atomic_flag isPrinted_;
};

}  // namespace

std::string_view objectionToUnaligned(std::initializer_list<const std::byte*> addresses, std::size_t bytes) {
  const bool areAligned = std::ranges::all_of(addresses, [=](const std::byte* address) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
  });
  return areAligned ? "" : "an address is unaligned";
}

std::shared_ptr<const Plan> fallbackPlan(std::shared_ptr<const SelectivePlan> preferred,
                                         std::shared_ptr<const Plan> general, std::string_view name,
                                         std::string problem) {
  return std::make_shared<const FallbackPlan>(std::move(preferred), std::move(general), name,
                                              std::move(problem));
}

bool takesLanes(const TensorShape& shape, std::size_t bytes) {
  const auto lanes = static_cast<std::int64_t>(bytes / bytesPerChannel(shape.format));
  return shape.channels % lanes == 0 && shape.pixelStride % lanes == 0 && shape.rowStride % lanes == 0 &&
         shape.imageStride % lanes == 0;
}

bool AccessPlan::useVectors() {
  const AccessedTensors tensors = accessed({});
  for (const AccessedTensor& tensor : tensors)
    if (tensor.shape != nullptr) vectorFormat_ = tensor.shape->format;
  return (vectorFormat_ == ImageFeatureChannelFormat::Float32 ||
          vectorFormat_ == ImageFeatureChannelFormat::Float16) &&
         std::ranges::any_of(tensors, [&](const AccessedTensor& tensor) { return hasVectors(tensor); }) &&
         std::ranges::all_of(tensors, [&](const AccessedTensor& tensor) {
           return tensor.shape == nullptr || (tensor.shape->format == vectorFormat_ &&
                                              (!hasVectors(tensor) || takesLanes(*tensor.shape)));
         });
}

std::string_view AccessPlan::objectionTo(const Operands& operands) const {
  std::string_view objection;
  for (const AccessedTensor& tensor : accessed(operands))
    if (hasVectors(tensor) && objection.empty()) objection = objectionToUnaligned({tensor.address});
  return objection;
}

int AccessPlan::lanes() const {
  const bool inVectors = vectorFormat_ != ImageFeatureChannelFormat::None;
  return inVectors ? 16 / static_cast<int>(bytesPerChannel(vectorFormat_)) : 1;
}

}  // namespace mps::detail
