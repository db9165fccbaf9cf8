#pragma once

#include <string_view>

namespace unmetal::train::detail {

/// Whether a text can stand in a file of weights, whose settings and names are JSON.
bool isUtf8(std::string_view text);

}  // namespace unmetal::train::detail
