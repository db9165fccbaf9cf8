#include "tools/terminal/text.hpp"

#include <array>
#include <cstdio>

namespace unmetal {

std::string printable(std::string_view text) {
  constexpr unsigned char firstPrinted = 0x20;
  constexpr unsigned char erased = 0x7F;
  std::string result;
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n') {
      result += "\\n";
    } else if (letter == '\r') {
      result += "\\r";
    } else if (letter == '\t') {
      result += "\\t";
    } else if (code < firstPrinted || code == erased) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\x%02X", static_cast<unsigned>(code));
      result += escaped.data();
    } else {
      result += letter;
    }
  }
  return result;
}

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "\u2026";
}

}  // namespace unmetal
