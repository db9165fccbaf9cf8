#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>

namespace unmetal {

/// Columns of the terminal: the environment variable COLUMNS, else what standard output says, else 80; 40 at least.
std::size_t terminalColumns();

/// The words of a text in lines of at most so many letters, the second and later ones behind `indent` spaces. A word that is
/// longer has a line of its own. @param first how far the first line reaches already
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent, std::size_t first);

/// @throws mps::Error with the name that is meant when there is no such command
const CLI::App& commandNamed(const CLI::App& program, const std::string& name);

/// Help in lines that are not longer than the terminal is wide.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t columns) : columns_(columns) {}
  std::string make_option(const CLI::Option* option, bool isPositional) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* command) const override;

 private:
  /// A name at the left and what it means at the right.
  [[nodiscard]] std::string entry(const std::string& name, const std::string& meaning) const;

  std::size_t columns_;
};

}  // namespace unmetal
