#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unmetal {

/// Checks of options that are numbers, for CLI::Option::check: what is not wholly a number, or lies outside,
/// is an error that says what to give.
CLI::Validator wholeNumber(std::uint64_t least,
                           std::uint64_t most = std::numeric_limits<std::uint64_t>::max());
CLI::Validator number(double least, double most);
/// Bytes: a whole number, with K, M, G or T behind it for powers of 1024; nothing for another text.
std::optional<std::uint64_t> parseMemorySize(std::string_view text);
/// One of some names, the nearest of which is suggested for another one.
CLI::Validator oneOf(const std::vector<std::string>& names);
/// A check of an option that is a name, which must not be empty. @param what e.g. "a folder"
CLI::Validator nameOf(const std::string& what);

}  // namespace unmetal
