#include "mtl/verbose.hpp"

#include <cstdio>
#include <cstdlib>

namespace mtl {

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

}  // namespace mtl
