#pragma once

#include <algorithm>
#include <cctype>
#include <string_view>

namespace mps::detail {

/// Whether `part` occurs in `text`, upper and lower case of ASCII alike. An empty part always does.
inline bool containsIgnoringCase(std::string_view text, std::string_view part) {
  const auto equal = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return part.empty() || std::search(text.begin(), text.end(), part.begin(), part.end(), equal) != text.end();
}

}  // namespace mps::detail
