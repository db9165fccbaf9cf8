#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "tools/commands/commands.hpp"
#include "tools/commands/help.hpp"
#include "tools/commands/manual.hpp"
#include "tools/options/number_options.hpp"

namespace unmetal {

void addCompletionCommand(CLI::App& program) {
  auto* command = program.add_subcommand("completion",
                                         "Print a script that completes the words of the program in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->check(oneOf({"bash", "zsh", "fish"}))
      ->required();
  command->callback([&program, shell] { std::cout << completionScript(program, *shell); });
}

void addManCommand(CLI::App& program) {
  auto* command = program.add_subcommand("man", "Print a page of the manual, for man -l");
  auto name = std::make_shared<std::string>();
  command->add_option("command", *name, "Its name; without one, the page of the program");
  command->callback([&program, name] {
    const CLI::App* described = nullptr;
    if (!name->empty()) described = &commandNamed(program, *name);
    std::cout << manualPage(program, described, UNMETAL_VERSION);
  });
}

}  // namespace unmetal
