#include "tools/commands/help.hpp"

#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <vector>

#include "mps/core/types/error.hpp"
#include "tools/commands/commands.hpp"
#include "tools/terminal/suggestion.hpp"

namespace unmetal {
namespace {

constexpr std::size_t usualColumns = 80;
constexpr std::size_t fewestColumns = 40;
/// Of names, before what they mean.
constexpr std::size_t nameColumns = 30;

}  // namespace

const CLI::App& commandNamed(const CLI::App& program, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return *command;
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  throw mps::Error("there is no command " + name + suggestion(name, names) + "; unmetal help lists them");
}

std::size_t terminalColumns() {
  if (const char* const text = std::getenv("COLUMNS")) {
    std::size_t columns = 0;
    const std::string_view digits(text);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), columns);
    if (error == std::errc{} && end == digits.data() + digits.size() && columns > 0)
      return std::max(columns, fewestColumns);
  }
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return usualColumns;
  return std::max<std::size_t>(size.ws_col, fewestColumns);
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent, std::size_t first) {
  std::string result;
  std::size_t column = first;
  bool isFirstOfLine = true;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (!isFirstOfLine && column + 1 + word.size() > columns) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
      isFirstOfLine = true;
    }
    if (!isFirstOfLine) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    isFirstOfLine = false;
  }
  return result;
}

std::string HelpFormatter::entry(const std::string& name, const std::string& meaning) const {
  const std::size_t indent = std::min(nameColumns, columns_ / 2);
  std::string text = "  " + wrapped(name, columns_, 6, 2);
  if (meaning.empty()) return text + "\n";
  const std::size_t used = text.size() - (text.rfind('\n') + 1);  // of its last line
  if (used + 1 < indent)
    text += std::string(indent - used, ' ');
  else
    text += "\n" + std::string(indent, ' ');
  return text + wrapped(meaning, columns_, indent, indent) + "\n";
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool isPositional) const {
  return entry(make_option_name(option, isPositional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_name(), command->get_description());
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return wrapped(command->get_description(), columns_, 0, 0) + "\n";
}

void addHelpCommand(CLI::App& program) {
  auto* command = program.add_subcommand("help", "Print the help of a command");
  auto name = std::make_shared<std::string>();
  command->add_option("command", *name, "Its name; without one, the commands are listed");
  command->callback([&program, name] {
    const CLI::App& described = name->empty() ? program : commandNamed(program, *name);
    const std::string words = program.get_name() + (name->empty() ? "" : " " + *name);
    std::cout << program.get_formatter()->make_help(&described, words, CLI::AppFormatMode::Normal);
  });
}

}  // namespace unmetal
