#pragma once

#include "tools/terminal/exit_status.hpp"

/// The program `unmetal`, callable from tests.
namespace unmetal {

/// Parses the arguments and runs the command. What the command throws is printed as one line on stderr:
/// "unmetal: " and a sentence that names the argument or file and the trouble.
/// @return the exit status
int runProgram(int argumentCount, const char* const* arguments);

}  // namespace unmetal
