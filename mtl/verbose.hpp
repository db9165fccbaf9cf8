#pragma once

#include <string_view>

namespace mtl {

/// True when UNMETAL_VERBOSE contains "dispatch".
bool verboseDispatch();
/// Prints dispatch commentary to stderr.
void printDispatch(std::string_view line);

}  // namespace mtl
