#pragma once

#include <array>
#include <charconv>
#include <string>

namespace unmetal {

/// A number with so many digits behind its point, whatever the locale says.
inline std::string formatFixed(double value, int decimals) {
  std::array<char, 400> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals).ptr;
  return {text.data(), end};
}

/// A number with as few digits as it takes to read the same one back, whatever the locale says.
template <class Number>
std::string textOf(Number value) {
  std::array<char, 400> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace unmetal
