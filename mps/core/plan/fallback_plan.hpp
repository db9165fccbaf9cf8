#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "mps/core/plan/plan.hpp"
#include "mps/core/types/tensor_shape.hpp"

/// What addresses are is known only when a plan runs. A kernel that does not take all of them has another one behind it.
namespace mps::detail {

/// A plan whose kernels do not take the operands of every run.
class SelectivePlan : public Plan {
 public:
  /// Why it does not take them, as a sentence without a full stop, or "".
  [[nodiscard]] virtual std::string_view objectionTo(const Operands& /*operands*/) const { return {}; }
};

/// The objection of kernels that access so many bytes at once, or "". Addresses of operands that are not there are null.
std::string_view objectionToUnaligned(std::initializer_list<const std::byte*> addresses,
                                      std::size_t bytes = 16);

/// Runs `preferred` where it takes the operands, else `general`, which takes all. describe() names both. The dispatch log
/// says when the general one runs for the first time, and why.
/// @param name of the general one @param problem in words
std::shared_ptr<const Plan> fallbackPlan(std::shared_ptr<const SelectivePlan> preferred,
                                         std::shared_ptr<const Plan> general, std::string_view name,
                                         std::string problem);

/// The same with another entry of a list behind it.
template <class Problem>
Preparation withFallback(std::shared_ptr<const SelectivePlan> preferred,
                         const Implementation<Problem>& general, const Problem& problem) {
  Preparation prepared = general.prepare(problem);
  auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&prepared);
  if (plan == nullptr) return prepared;
  return fallbackPlan(std::move(preferred), std::move(*plan), general.name, problem.describe());
}

/// Whether so many bytes of channels can be accessed together everywhere in a tensor, if its address is a multiple of them.
bool takesLanes(const TensorShape& shape, std::size_t bytes = 16);

/// A tensor that kernels access.
struct AccessedTensor {
  AccessedTensor() = default;
  AccessedTensor(const TensorShape& tensor, const std::byte* at, bool isThere = true)
      : shape(isThere && tensor.channels > 0 ? &tensor : nullptr), address(at) {}

  const TensorShape* shape = nullptr;  ///< null: it is not there
  const std::byte* address = nullptr;
};
using AccessedTensors = std::array<AccessedTensor, 7>;

/// A plan of kernels that are compiled for single elements, and for 16 bytes, which earn a GPU's bandwidth.
class AccessPlan : public SelectivePlan {
 public:
  /// Accesses vectors from now on. Returns whether formats and strides allow it.
  [[nodiscard]] bool useVectors();
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override;

 protected:
  [[nodiscard]] virtual AccessedTensors accessed(const Operands& operands) const = 0;
  /// Whether the only channel of a tensor may stand for all; it is accessed by itself.
  [[nodiscard]] virtual bool repeatsChannels() const { return false; }
  /// None: elements are accessed by themselves.
  [[nodiscard]] ImageFeatureChannelFormat vectorFormat() const { return vectorFormat_; }
  /// Elements that are accessed at once.
  [[nodiscard]] int lanes() const;

 private:
  [[nodiscard]] bool hasVectors(const AccessedTensor& tensor) const {
    return tensor.shape != nullptr && (tensor.shape->channels > 1 || !repeatsChannels());
  }

  ImageFeatureChannelFormat vectorFormat_ = ImageFeatureChannelFormat::None;
};

/// An entry of vectors, with that of single elements behind it. @tparam Made an AccessPlan
template <class Made, class Problem>
Preparation inVectors(std::shared_ptr<Made> plan, const Implementation<Problem>& elements,
                      const Problem& problem) {
  if (!plan->useVectors()) return Refusal{"formats, channels or strides that do not suit 16 bytes at once"};
  return withFallback(std::shared_ptr<const SelectivePlan>(std::move(plan)), elements, problem);
}
template <class Made, const auto& elements, class Problem>
Preparation prepareVectors(const Problem& problem) {
  return inVectors(std::make_shared<Made>(problem), elements, problem);
}

}  // namespace mps::detail
