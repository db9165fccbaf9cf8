#include "tools/program.hpp"

#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include "tools/commands.hpp"
#include "tools/text.hpp"

namespace unmetal {
namespace {

void printError(std::string message) {
  while (message.ends_with(' ') || message.ends_with('\n')) message.pop_back();
  std::cerr << "unmetal: " << printable(message) << std::endl;
}

void addCommands(CLI::App& program) {
  program.require_subcommand(1);
  program.set_version_flag("--version", "unmetal " UNMETAL_VERSION);
  addTrainCommand(program);
  addEvalCommand(program);
  addPredictCommand(program);
  addDevicesCommand(program);
  addConformCommand(program);
  addCheckGradientsCommand(program);
  addBenchCommand(program);
  addTuneCommand(program);
  addTrainingStepCommand(program);
}

/// CLI11 calls a wrong command a missing one; say which word is wrong.
std::string describe(const CLI::ParseError& error, const CLI::App& program) {
  const bool noCommand = program.get_subcommands().empty();
  if (const auto rest = program.remaining(); noCommand && !rest.empty())
    return "there is no command or option " + rest.front() + "; unmetal --help lists them";
  if (noCommand) return "a command is missing; unmetal --help lists them";
  return error.what();
}

int parseAndRun(CLI::App& program, int argumentCount, const char* const* arguments) {
  try {
    program.parse(argumentCount, arguments);
  } catch (const CLI::RuntimeError& ended) {
    return ended.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // help and version
    printError(describe(error, program));
    return kExitError;
  } catch (const std::bad_alloc&) {
    printError("there is not enough memory");
    return kExitError;
  } catch (const std::system_error& error) {
    // What the C++ library throws when it cannot make a thread says no more than this.
    const bool isThread = error.code() == std::errc::resource_unavailable_try_again;
    printError(isThread ? std::string("cannot make one more thread: ") + error.what() : error.what());
    return kExitError;
  } catch (const std::exception& error) {
    printError(error.what());
    return kExitError;
  }
  return 0;
}

}  // namespace

void exitProgram(int status) {
  throw CLI::RuntimeError(status);
}

int runProgram(int argumentCount, const char* const* arguments) {
  CLI::App program("Trains convolutional neural networks with the kernels of Metal Performance Shaders.",
                   "unmetal");
  addCommands(program);
  const int status = parseAndRun(program, argumentCount, arguments);
  if (std::cout.flush()) return status;
  printError("cannot write to standard output");
  return kExitError;
}

}  // namespace unmetal
