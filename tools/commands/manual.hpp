#pragma once

#include <CLI/CLI.hpp>
#include <string>

/// What is made of the program's commands and options for the shell and the manual.
namespace unmetal {

/// A script that completes commands, options and their words. @param shell "bash", "zsh" or "fish"
std::string completionScript(const CLI::App& program, const std::string& shell);

/// A page of the manual, section 1, in the language of man(7). @param command null: of the program itself
std::string manualPage(const CLI::App& program, const CLI::App* command, const std::string& version);

}  // namespace unmetal
