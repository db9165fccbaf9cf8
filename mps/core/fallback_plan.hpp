#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "mps/core/plan.hpp"

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

}  // namespace mps::detail
