#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace unmetal {

/// The text in one line that moves no terminal's cursor: control characters are written as \n, \t, \r or \x1B.
std::string printable(std::string_view text);

/// At most so many bytes of it, with an ellipsis in place of the rest. Characters of UTF-8 are not cut in two.
std::string shortened(const std::string& text, std::size_t most);

}  // namespace unmetal
