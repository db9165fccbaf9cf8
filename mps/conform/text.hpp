#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>

namespace mps::detail {

/// Whether `part` occurs in `text`, upper and lower case of ASCII alike. An empty part always does.
inline bool containsIgnoringCase(std::string_view text, std::string_view part) {
  const auto equal = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return part.empty() || std::search(text.begin(), text.end(), part.begin(), part.end(), equal) != text.end();
}

/// Whether each of `words`, which spaces separate, occurs somewhere in `text`, as containsIgnoringCase says.
inline bool hasWords(std::string_view text, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (!containsIgnoringCase(text, words.substr(0, end))) return false;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return true;
}

}  // namespace mps::detail
