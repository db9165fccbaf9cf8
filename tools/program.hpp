#pragma once

#include <string>

/// The program `unmetal`, callable from tests.
namespace unmetal {

/// Exit status of a check that ran and failed.
inline constexpr int kExitFailed = 1;
/// Exit status of a mistake in the arguments, in a file that they name, or of the machine.
inline constexpr int kExitError = 2;
/// Exit status of a rank that others have left alone: they have died or stopped, or what joins them has failed.
inline constexpr int kExitRankMissing = 3;
/// What is added to the number of a signal that ended a command, as shells do: 130 for Ctrl-C, 143 for SIGTERM.
inline constexpr int kExitSignal = 128;

/// Parses the arguments and runs the command. What the command throws is printed as one line on stderr:
/// "unmetal: " and a sentence that names the argument or file and the trouble.
/// @return the exit status
int runProgram(int argumentCount, const char* const* arguments);

/// Prints it on stderr as the program does what a command throws.
void printError(std::string message);

/// Thrown by a command that has said all there is to say: ends the program with this status.
[[noreturn]] void exitProgram(int status);

}  // namespace unmetal
