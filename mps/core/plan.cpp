#include "mps/core/plan.hpp"

#include <utility>

#include "mps/core/no_implementation.hpp"

namespace mps::detail {
namespace {
thread_local std::string forced;  // NOLINT: a thread's own choice
}

std::string_view forcedImplementation() {
  return forced;
}

ForceImplementation::ForceImplementation(std::string_view name) : previous_(std::exchange(forced, name)) {}
ForceImplementation::~ForceImplementation() {
  forced = previous_;
}

void throwNoImplementation(const std::string& problem, const std::string& refusals) {
  throw NoImplementation("no implementation accepts " + problem + ":" +
                         (refusals.empty() ? std::string(" none is built for this device") : refusals));
}

}  // namespace mps::detail
