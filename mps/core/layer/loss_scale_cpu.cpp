#include <array>
#include <atomic>

#include "mps/core/layer/loss_scale_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Values that a thread takes at least.
constexpr std::int64_t kGrain = 16384;

bool isFinite(const float* values, std::int64_t count) {
  float sum = 0;  // of zeros, or of NaN
  for (std::int64_t i = 0; i < count; ++i) sum += values[i] * 0.0F;
  return sum == 0;
}

class LossScalePlan final : public Plan {
 public:
  explicit LossScalePlan(const LossScaleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    auto& numbers = *reinterpret_cast<LossScaleNumbers*>(operands.destination);
    if (problem_.operation == LossScaleOperation::Update) return LossScaleRule(operands).apply(numbers);
    const LossScaleValues array{reinterpret_cast<const float*>(operands.source), problem_.count, &numbers};
    inspectValuesCpu(stream, {&array, 1});
  }

 private:
  LossScaleProblem problem_;
};

Preparation prepareLossScale(const LossScaleProblem& problem) {
  return std::make_shared<const LossScalePlan>(problem);
}

}  // namespace

void inspectValuesCpu(mtl::Stream& stream, std::span<const LossScaleValues> arrays) {
  for (const LossScaleValues& array : arrays) {
    std::atomic<bool> overflowed{false};
    mtl::cpu::asCpu(stream).parallelFor(array.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      if (!isFinite(array.values + begin, end - begin)) overflowed = true;
    });
    if (overflowed) array.numbers->overflowed = 1;
  }
}

std::span<const Implementation<LossScaleProblem>> lossScaleImplementationsCpu() {
  static constexpr std::array<Implementation<LossScaleProblem>, 1> implementations{
      {{"parallel loop", prepareLossScale}}};
  return implementations;
}

}  // namespace mps::detail
