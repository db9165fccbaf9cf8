#pragma once

#include <string>
#include <string_view>

namespace unmetal {

/// Whether it can stand in a checkpoint, whose settings and names are JSON.
bool isUtf8(std::string_view text);

/// The text in one line that moves no terminal's cursor: control characters are written as \n, \t, \r or \x1B.
std::string printable(std::string_view text);

}  // namespace unmetal
