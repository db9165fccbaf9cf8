#pragma once

#include <string>

namespace unmetal {

/// Exit status of a check that ran and failed.
inline constexpr int kExitFailed = 1;
/// Exit status of a mistake in the arguments, in a file that they name, or of the machine.
inline constexpr int kExitError = 2;
/// Exit status of a rank that others have left alone: they have died or stopped, or what joins them has failed.
inline constexpr int kExitRankMissing = 3;
/// What is added to the number of a signal that ended a command, as shells do: 130 for Ctrl-C, 143 for SIGTERM.
inline constexpr int kExitSignal = 128;

/// Prints it on stderr as the program does what a command throws.
void printError(std::string message);

/// Thrown by a command that has said all there is to say: ends the program with this status.
[[noreturn]] void exitProgram(int status);

}  // namespace unmetal
