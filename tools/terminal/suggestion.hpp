#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace unmetal {

/// How many letters must be put in, taken out, replaced or exchanged with their neighbour to make one word of the other.
std::size_t editDistance(std::string_view left, std::string_view right);

/// `; did you mean WORD?` with the known word that is nearest to a mistyped one; empty where none is near.
std::string suggestion(std::string_view mistyped, std::span<const std::string> known);

}  // namespace unmetal
