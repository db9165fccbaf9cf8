#pragma once

#include <algorithm>
#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "mtl/stream.hpp"
#include "mtl/verbose.hpp"

namespace mtl {
class Device;
}

/// The seam between a family's front end and its back ends.
///
/// The front end turns one call into a problem: a plain struct with every number of the call. An
/// implementation turns the problem into a plan, or refuses with a sentence. A plan runs on addresses and a
/// stream; it knows no images, states or kernels, so it is tested and timed alone, and a compiled graph
/// replays it.
namespace mps::detail {

/// Addresses (on the plan's device) and per-call scalars of one run. The problem says what shape each has and
/// what the family's parameters are; unused ones stay null.
struct Operands {
  const std::byte* source = nullptr;     ///< the forward source
  const std::byte* secondary = nullptr;  ///< second input: forward result, other operand, labels
  const std::byte* gradient = nullptr;   ///< incoming gradient
  std::byte* destination = nullptr;
  std::byte* saved =
      nullptr;  ///< what the forward pass keeps for the gradient (docs/decisions.md, D14); may be null
  /// Plan::scratchBytes() bytes at a multiple of 256, undefined content.
  std::byte* scratch = nullptr;
  std::array<std::byte*, 8>
      parameters{};                 ///< weights, biases, optimiser slots: the family's problem numbers them
  std::array<double, 8> scalars{};  ///< values that change from step to step, numbered likewise
  bool accumulate = false;          ///< add to the destination; only when Plan::canAccumulate()
};

/// A prepared implementation of one problem. Immutable; run() may be called from several streams.
class Plan {
 public:
  virtual ~Plan() = default;
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  virtual void run(mtl::Stream& stream, const Operands& operands) const = 0;

  /// Bytes of scratch memory that a run needs.
  [[nodiscard]] virtual std::size_t scratchBytes() const { return 0; }
  /// Whether a run can add its result to what the destination holds (float32 only).
  [[nodiscard]] virtual bool canAccumulate() const { return false; }
  /// Whether a run waits for what earlier work wrote (mtl::Stream::read): the device cannot replay it.
  [[nodiscard]] virtual bool readsResults() const { return false; }
  /// Extra words for debugDescription, e.g. the library's name of the chosen algorithm.
  [[nodiscard]] virtual std::string describe() const { return {}; }
};

/// Why an implementation declined, as a sentence without a full stop.
struct Refusal {
  std::string reason;
};

using Preparation = std::variant<std::shared_ptr<const Plan>, Refusal>;

/// One entry of a family's ordered list for a device.
template <class Problem>
struct Implementation {
  std::string_view name;
  Preparation (*prepare)(const Problem& problem);
};

/// A plan together with the name of the implementation that made it.
struct ChosenPlan {
  std::shared_ptr<const Plan> plan;
  std::string_view implementation;
  /// What it was made for, so that a check can compute it again.
  std::shared_ptr<const std::any> problem = nullptr;
};

/// @name What a thread takes in place of the first implementation that accepts; for tests, conform and bench
/// @{

/// The name that ForceImplementation set, or empty.
std::string_view forcedImplementation();
/// The name that LeaveOutImplementation set, or empty.
std::string_view leftOutImplementation();

/// While alive, only the implementation of this name is chosen, in this thread. Lists without that name are not touched:
/// helpers of a call, such as the copies of loose images, have implementations of other names.
class ForceImplementation {
 public:
  /// @param keepsPlans whether plans are kept, as without it; else each call makes a new one
  explicit ForceImplementation(std::string_view name, bool keepsPlans = false);
  ~ForceImplementation();
  ForceImplementation(const ForceImplementation&) = delete;
  ForceImplementation& operator=(const ForceImplementation&) = delete;

 private:
  std::string previous_;
  bool previouslyKept_;
};

/// While alive, the implementation of this name is passed over, in this thread, unless it is the last of its list.
class LeaveOutImplementation {
 public:
  explicit LeaveOutImplementation(std::string_view name);
  ~LeaveOutImplementation();
  LeaveOutImplementation(const LeaveOutImplementation&) = delete;
  LeaveOutImplementation& operator=(const LeaveOutImplementation&) = delete;

 private:
  std::string previous_;
};

/// One list of implementations that was asked, and what was taken from it.
struct ImplementationChoice {
  std::vector<std::string_view> names;  ///< of the whole list, in order of preference
  std::string_view taken;
};

/// While alive, notes what this thread chooses; meanwhile no plans are kept.
class ChoiceRecord {
 public:
  ChoiceRecord();
  ~ChoiceRecord();
  ChoiceRecord(const ChoiceRecord&) = delete;
  ChoiceRecord& operator=(const ChoiceRecord&) = delete;

  [[nodiscard]] const std::vector<ImplementationChoice>& choices() const { return choices_; }
  void add(ImplementationChoice choice) { choices_.push_back(std::move(choice)); }

 private:
  std::vector<ImplementationChoice> choices_;
  ChoiceRecord* previous_;
};

/// Of this thread; null where nothing is noted.
ChoiceRecord* choiceRecord();
/// Whether this thread takes plans from caches and puts them there.
bool keepsPlans();
/// Differs where what is chosen differs; empty where nothing is forced or left out.
std::string choiceKey();
/// @}

using mtl::printDispatch;
using mtl::verboseDispatch;

/// Throws mps::Error: no implementation accepts the problem; lists the refusals.
[[noreturn]] void throwNoImplementation(const std::string& problem, const std::string& refusals);

/// Asks the implementations in order and returns the first plan. Refusals are printed when asked for.
template <class Problem>
ChosenPlan preparePlan(std::span<const Implementation<Problem>> implementations, const Problem& problem) {
  std::vector<std::string_view> names;
  for (const auto& implementation : implementations) names.push_back(implementation.name);
  const std::string_view forced = forcedImplementation();
  const bool isForced = std::ranges::find(names, forced) != names.end();
  std::string refusals;
  for (const auto& implementation : implementations) {
    if (isForced && forced != implementation.name) continue;
    if (implementation.name == leftOutImplementation() && &implementation != &implementations.back()) {
      refusals += "\n  " + std::string(implementation.name) + ": it is left out";
      continue;
    }
    Preparation preparation = implementation.prepare(problem);
    if (auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation)) {
      if (verboseDispatch())
        printDispatch(problem.describe() + ": " + std::string(implementation.name) + " " +
                      (*plan)->describe() + (refusals.empty() ? "" : "; refused by" + refusals));
      if (choiceRecord() != nullptr) choiceRecord()->add({std::move(names), implementation.name});
      return {std::move(*plan), implementation.name, std::make_shared<const std::any>(problem)};
    }
    refusals += "\n  " + std::string(implementation.name) + ": " + std::get<Refusal>(preparation).reason;
  }
  throwNoImplementation(problem.describe(), refusals);
}

/// Bounded cache of plans, keyed by problem; the least recently used plan goes first. Thread safe.
template <class Problem>
class PlanCache {
 public:
  explicit PlanCache(std::size_t capacity = 256) : capacity_(capacity) {}

  ChosenPlan choose(std::span<const Implementation<Problem>> implementations, const Problem& problem) {
    if (!keepsPlans()) return preparePlan(implementations, problem);
    const std::lock_guard lock(mutex_);
    if (auto found = index_.find(problem); found != index_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->second;
    }
    ChosenPlan chosen = preparePlan(implementations, problem);
    entries_.emplace_front(problem, chosen);
    index_.emplace(problem, entries_.begin());
    if (entries_.size() > capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return chosen;
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Hash {
    std::size_t operator()(const Problem& problem) const { return problem.hash(); }
  };
  using Entries = std::list<std::pair<Problem, ChosenPlan>>;

  mutable std::mutex mutex_;
  std::size_t capacity_;
  Entries entries_;
  std::unordered_map<Problem, typename Entries::iterator, Hash> index_;
};

}  // namespace mps::detail
