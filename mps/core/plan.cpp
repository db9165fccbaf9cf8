#include "mps/core/plan.hpp"

#include <cstdio>
#include <cstdlib>
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

bool verboseDispatch() {
  static const bool verbose = [] {
    const char* value = std::getenv("UNMETAL_VERBOSE");
    return value != nullptr && std::string_view(value).find("dispatch") != std::string_view::npos;
  }();
  return verbose;
}

void printDispatch(std::string_view line) {
  std::fprintf(stderr, "unmetal: %.*s\n", static_cast<int>(line.size()), line.data());
}

void throwNoImplementation(const std::string& problem, const std::string& refusals) {
  throw NoImplementation("no implementation accepts " + problem + ":" +
                         (refusals.empty() ? std::string(" none is built for this device") : refusals));
}

}  // namespace mps::detail
