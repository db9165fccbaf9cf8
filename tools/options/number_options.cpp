#include "tools/options/number_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "tools/terminal/suggestion.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal {
namespace {

template <class Number>
CLI::Validator inside(const std::string& kind, Number least, Number most) {
  const bool isOpen = most == std::numeric_limits<Number>::max();
  const std::string range = kind + " from " + textOf(least) + (isOpen ? " up" : " to " + textOf(most));
  CLI::Validator validator;
  validator.operation([=](const std::string& text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool isNumber = error == std::errc() && end == text.data() + text.size();
    // Written so that NaN lies outside.
    if (isNumber && value >= least && value <= most) return std::string();
    return "give " + range + ", not \"" + text + "\"";
  });
  return validator;
}

}  // namespace

CLI::Validator wholeNumber(std::uint64_t least, std::uint64_t most) {
  return inside("a whole number", least, most);
}

CLI::Validator number(double least, double most) {
  return inside("a number", least, most);
}

std::optional<std::uint64_t> parseMemorySize(std::string_view text) {
  constexpr std::string_view units = "KMGT";
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.empty()) return number;
  const std::size_t power = units.find(unit);
  if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
  const std::size_t bits = 10 * (power + 1);
  if (number > std::numeric_limits<std::uint64_t>::max() >> bits) return std::nullopt;
  return number << bits;
}

CLI::Validator oneOf(const std::vector<std::string>& names) {
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  CLI::Validator validator;
  validator.operation([names, known](const std::string& text) {
    if (std::ranges::find(names, text) != names.end()) return std::string();
    return "give one of " + known + ", not \"" + text + "\"" + suggestion(text, names);
  });
  validator.description("{" + known + "}");
  return validator;
}

CLI::Validator nameOf(const std::string& what) {
  CLI::Validator validator;
  validator.operation(
      [what](const std::string& name) { return name.empty() ? "give the name of " + what : std::string(); });
  return validator;
}

}  // namespace unmetal
