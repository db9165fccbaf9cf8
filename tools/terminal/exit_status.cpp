#include "tools/terminal/exit_status.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

#include "tools/terminal/text.hpp"

namespace unmetal {

void printError(std::string message) {
  while (message.ends_with(' ') || message.ends_with('\n')) message.pop_back();
  std::cerr << "unmetal: " << printable(message) << std::endl;
}

void exitProgram(int status) {
  throw CLI::RuntimeError(status);
}

}  // namespace unmetal
