#pragma once

#include <string>
#include <string_view>

namespace unmetal {

/// The text in one line that moves no terminal's cursor: control characters are written as \n, \t, \r or \x1B.
std::string printable(std::string_view text);

}  // namespace unmetal
