#include "mps/core/plan/plan.hpp"

#include <utility>

#include "mps/core/plan/no_implementation.hpp"

namespace mps::detail {
namespace {
// A thread's own choices.
thread_local std::string forced;              // NOLINT
thread_local std::string leftOut;             // NOLINT
thread_local bool forcedIsKept = false;       // NOLINT
thread_local ChoiceRecord* record = nullptr;  // NOLINT
}  // namespace

std::string_view forcedImplementation() {
  return forced;
}
std::string_view leftOutImplementation() {
  return leftOut;
}

ForceImplementation::ForceImplementation(std::string_view name, bool keepsPlans)
    : previous_(std::exchange(forced, name)), previouslyKept_(std::exchange(forcedIsKept, keepsPlans)) {}
ForceImplementation::~ForceImplementation() {
  forced = previous_;
  forcedIsKept = previouslyKept_;
}

LeaveOutImplementation::LeaveOutImplementation(std::string_view name)
    : previous_(std::exchange(leftOut, name)) {}
LeaveOutImplementation::~LeaveOutImplementation() {
  leftOut = previous_;
}

ChoiceRecord::ChoiceRecord() : previous_(std::exchange(record, this)) {}
ChoiceRecord::~ChoiceRecord() {
  record = previous_;
}
ChoiceRecord* choiceRecord() {
  return record;
}

bool keepsPlans() {
  return record == nullptr && (forced.empty() || forcedIsKept);
}

std::string choiceKey() {
  std::string key;
  if (!forced.empty()) key += "only " + forced;
  if (!leftOut.empty()) key += "without " + leftOut;
  return key;
}

void throwNoImplementation(const std::string& problem, const std::string& refusals) {
  throw NoImplementation("no implementation accepts " + problem + ":" +
                         (refusals.empty() ? std::string(" none is built for this device") : refusals));
}

}  // namespace mps::detail
