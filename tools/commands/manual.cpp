#include "tools/commands/manual.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>
#include <vector>

#include "mps/core/types/error.hpp"

namespace unmetal {
namespace {

std::vector<const CLI::App*> listedCommandsOf(const CLI::App& program) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) commands.push_back(command);
  return commands;
}

std::string commandNames(const CLI::App& program) {
  std::string names;
  for (const CLI::App* command : listedCommandsOf(program))
    names += (names.empty() ? "" : " ") + command->get_name();
  return names;
}

/// "--epochs", and "-h" where it has a short name.
std::vector<std::string> wordsOf(const CLI::Option& option) {
  std::vector<std::string> words;
  for (const std::string& name : option.get_snames()) words.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.push_back("--" + name);
  return words;
}

/// Those with a name; what stands without one is not completed by word.
std::vector<const CLI::Option*> namedOptionsOf(const CLI::App& command) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : command.get_options())
    if (option->nonpositional()) options.push_back(option);
  return options;
}

bool takesValue(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

/// The words that an option of oneOf() takes, of "TEXT:{sgd, adam}"; empty for others.
std::string choicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  if (begin == std::string::npos || type.back() != '}') return {};
  std::string words = type.substr(begin + 1, type.size() - begin - 2);
  std::erase(words, ',');
  return words;
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// In single quotes for a shell.
std::string inQuotes(std::string_view text) {
  std::string result = "'";
  for (const char character : text) {
    if (character == '\'')
      result += "'\\''";
    else
      result += character;
  }
  return result + "'";
}

std::string bashScript(const CLI::App& program) {
  std::ostringstream text;
  text << "# Completion of unmetal for bash.\n"
          "_unmetal() {\n"
          "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words=\n"
          "  COMPREPLY=()\n"
          "  if ((COMP_CWORD == 1)); then\n"
          "    COMPREPLY=($(compgen -W "
       << inQuotes(commandNames(program) + " --help --version")
       << " -- \"$current\"))\n"
          "    return\n"
          "  fi\n"
          "  case ${COMP_WORDS[1]}:$previous in\n";
  for (const CLI::App* command : listedCommandsOf(program))
    for (const CLI::Option* option : namedOptionsOf(*command)) {
      if (!takesValue(*option)) continue;
      std::vector<std::string> patterns;
      for (const std::string& word : wordsOf(*option)) patterns.push_back(command->get_name() + ":" + word);
      text << "    " << joined(patterns, "|") << ") ";
      // Without words of its own: files, as bash has them.
      text << "COMPREPLY=($(compgen "
           << (choicesOf(*option).empty() ? "-f" : "-W " + inQuotes(choicesOf(*option)))
           << " -- \"$current\")); return ;;\n";
    }
  text << "  esac\n"
          "  case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* command : listedCommandsOf(program)) {
    std::vector<std::string> words;
    for (const CLI::Option* option : namedOptionsOf(*command))
      for (const std::string& word : wordsOf(*option)) words.push_back(word);
    text << "    " << command->get_name() << ") words=" << inQuotes(joined(words, " ")) << " ;;\n";
  }
  text << "  esac\n"
          "  if [[ $current == -* ]]; then\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "  else\n"
          "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
          "  fi\n"
          "}\n"
          "complete -o filenames -F _unmetal unmetal\n";
  return text.str();
}

/// For _arguments, which splits at colons and takes brackets for itself.
std::string zshText(const std::string& text) {
  std::string result;
  for (const char character : text) {
    if (character == '[' || character == ']' || character == ':' || character == '\\') result += '\\';
    result += character;
  }
  return result;
}

std::string zshScript(const CLI::App& program) {
  std::ostringstream text;
  text << "#compdef unmetal\n"
          "# Completion of unmetal for zsh.\n"
          "_unmetal() {\n"
          "  local -a commands\n"
          "  commands=(\n";
  for (const CLI::App* command : listedCommandsOf(program))
    text << "    " << inQuotes(zshText(command->get_name()) + ":" + command->get_description()) << "\n";
  text << "  )\n"
          "  if ((CURRENT == 2)); then\n"
          "    _describe command commands\n"
          "    return\n"
          "  fi\n"
          "  local command=$words[2]\n"
          "  shift words\n"
          "  ((CURRENT--))\n"
          "  case $command in\n";
  for (const CLI::App* command : listedCommandsOf(program)) {
    text << "    " << command->get_name() << ") _arguments";
    for (const CLI::Option* option : namedOptionsOf(*command))
      for (const std::string& word : wordsOf(*option)) {
        std::string rule = word + "[" + zshText(option->get_description()) + "]";
        if (takesValue(*option))
          rule += ":value:" + (choicesOf(*option).empty() ? "_files" : "(" + choicesOf(*option) + ")");
        text << " \\\n      " << inQuotes(rule);
      }
    text << " \\\n      '*:file:_files' ;;\n";
  }
  text << "  esac\n"
          "}\n"
          "_unmetal \"$@\"\n";
  return text.str();
}

std::string fishScript(const CLI::App& program) {
  std::ostringstream text;
  text << "# Completion of unmetal for fish.\n";
  for (const CLI::App* command : listedCommandsOf(program))
    text << "complete -c unmetal -n __fish_use_subcommand -f -a " << command->get_name() << " -d "
         << inQuotes(command->get_description()) << "\n";
  for (const CLI::App* command : listedCommandsOf(program))
    for (const CLI::Option* option : namedOptionsOf(*command)) {
      text << "complete -c unmetal -n '__fish_seen_subcommand_from " << command->get_name() << "'";
      for (const std::string& name : option->get_snames()) text << " -s " << name;
      for (const std::string& name : option->get_lnames()) text << " -l " << name;
      if (takesValue(*option)) text << " -r";
      if (!choicesOf(*option).empty()) text << " -f -a " << inQuotes(choicesOf(*option));
      text << " -d " << inQuotes(option->get_description()) << "\n";
    }
  return text.str();
}

/// A line of text for man(7): nothing in it is taken for a request.
std::string manualText(const std::string& text) {
  std::string result;
  for (const char character : text) {
    if (character == '\\')
      result += "\\e";
    else if (character == '-')
      result += "\\-";
    else if (character == '\n')
      result += ' ';
    else
      result += character;
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string inCapitals(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

void writeOptions(std::ostringstream& text, const CLI::App& command) {
  text << ".SH OPTIONS\n";
  for (const CLI::Option* option : command.get_options()) {
    std::vector<std::string> words = wordsOf(*option);
    if (words.empty()) words.push_back(option->get_name(true));
    text << ".TP\n\\fB" << manualText(joined(words, ", ")) << "\\fR";
    if (takesValue(*option)) text << " \\fI" << manualText(option->get_type_name()) << "\\fR";
    text << "\n" << manualText(option->get_description());
    if (!option->get_default_str().empty())
      text << ". Default: " << manualText(option->get_default_str()) << ".";
    text << "\n";
  }
}

}  // namespace

std::string completionScript(const CLI::App& program, const std::string& shell) {
  if (shell == "bash") return bashScript(program);
  if (shell == "zsh") return zshScript(program);
  if (shell == "fish") return fishScript(program);
  throw mps::Error("completion", "shell", shell, "bash, zsh or fish");
}

std::string manualPage(const CLI::App& program, const CLI::App* command, const std::string& version) {
  const std::string name = "unmetal" + (command == nullptr ? "" : "-" + command->get_name());
  const CLI::App& described = command == nullptr ? program : *command;
  std::ostringstream text;
  text << ".TH " << inCapitals(name) << " 1 \"\" \"unmetal " << version << "\" \"unmetal\"\n"
       << ".SH NAME\n"
       << manualText(name) << " \\- " << manualText(described.get_description()) << "\n"
       << ".SH SYNOPSIS\n.B unmetal";
  if (command != nullptr) text << " " << manualText(command->get_name());
  text << "\n" << (command == nullptr ? ".I COMMAND\n" : "") << "[\\fIOPTION\\fR]...\n";
  writeOptions(text, described);
  if (command == nullptr) {
    text << ".SH COMMANDS\n";
    for (const CLI::App* one : listedCommandsOf(program))
      text << ".TP\n\\fB" << manualText(one->get_name()) << "\\fR\n"
           << manualText(one->get_description()) << "; see " << manualText("unmetal-" + one->get_name())
           << "(1)\n";
  }
  return text.str();
}

}  // namespace unmetal
