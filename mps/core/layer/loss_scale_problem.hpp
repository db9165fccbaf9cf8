#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// What a LossScale keeps in device memory. Loss kernels read `scale` as the gradient of the loss, optimisers
/// all but the counters.
struct LossScaleNumbers {
  float scale = 1;
  float inverse = 1;  ///< of scale
  std::uint32_t overflowed = 0;
  std::uint32_t finiteSteps = 0;
  std::uint32_t skippedSteps = 0;
};

enum class LossScaleOperation : std::uint8_t { Inspect, Update };

/// One command of a LossScale. Operands: destination, its LossScaleNumbers; Inspect: source, `count` float32
/// values, one of which sets `overflowed` when it is not finite. Update: LossScale::update().
/// scalars: [0] growthFactor, [1] backoffFactor, [2] growthInterval.
struct LossScaleProblem {
  LossScaleOperation operation = LossScaleOperation::Inspect;
  std::int64_t count = 0;

  bool operator==(const LossScaleProblem&) const = default;
  [[nodiscard]] std::size_t hash() const { return hashOf(operation, count); }
  [[nodiscard]] std::string describe() const {
    if (operation == LossScaleOperation::Update) return "update of a loss scale";
    return "inspection of " + std::to_string(count) + " values";
  }
};

/// Values that belong to a LossScale.
struct LossScaleValues {
  const float* values = nullptr;
  std::int64_t count = 0;
  LossScaleNumbers* numbers = nullptr;
};
/// Inspects many arrays: those whose values are not all finite set their numbers' `overflowed`.
void inspectValuesCpu(mtl::Stream& stream, std::span<const LossScaleValues> arrays);
/// The same in one launch, where the arrays are some hundred at most.
void inspectValuesCuda(mtl::Stream& stream, std::span<const LossScaleValues> arrays);

std::span<const Implementation<LossScaleProblem>> lossScaleImplementationsCpu();
std::span<const Implementation<LossScaleProblem>> lossScaleImplementationsCuda();
inline constexpr BackEnds<LossScaleProblem> lossScaleBackEnds{
    lossScaleImplementationsCpu, UNMETAL_CUDA_LIST(lossScaleImplementationsCuda)};

/// How a scale changes.
struct LossScaleRule {
  float growthFactor;
  float backoffFactor;
  std::uint32_t growthInterval;

  explicit LossScaleRule(const Operands& operands)
      : growthFactor(static_cast<float>(operands.scalars[0])),
        backoffFactor(static_cast<float>(operands.scalars[1])),
        growthInterval(static_cast<std::uint32_t>(operands.scalars[2])) {}

  constexpr void apply(LossScaleNumbers& numbers) const {
    if (numbers.overflowed != 0) {
      ++numbers.skippedSteps;
      change(numbers, backoffFactor);
    } else if (++numbers.finiteSteps >= growthInterval) {
      change(numbers, growthFactor);
    }
    numbers.overflowed = 0;
  }

 private:
  /// Leaves it alone where it or its inverse would not be a normal number.
  static constexpr void change(LossScaleNumbers& numbers, float factor) {
    constexpr float most = 0x1p126F;
    const float scale = numbers.scale * factor;
    numbers.finiteSteps = 0;
    if (!(scale <= most && scale >= 1 / most)) return;
    numbers.scale = scale;
    numbers.inverse = 1 / scale;
  }
};

}  // namespace mps::detail
