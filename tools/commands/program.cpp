#include "tools/commands/program.hpp"

#include <algorithm>
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "tools/commands/commands.hpp"
#include "tools/commands/help.hpp"
#include "tools/terminal/suggestion.hpp"

namespace unmetal {
namespace {

void addCommands(CLI::App& program) {
  program.require_subcommand(1);
  program.set_version_flag("--version", "unmetal " UNMETAL_VERSION);
  addTrainCommand(program);
  addEvalCommand(program);
  addPredictCommand(program);
  addExportCommand(program);
  addDevicesCommand(program);
  addConformCommand(program);
  addCheckGradientsCommand(program);
  addBenchCommand(program);
  addTuneCommand(program);
  addFindLearningRateCommand(program);
  addTrainingStepCommand(program);
  addCompletionCommand(program);
  addManCommand(program);
  addHelpCommand(program);
}

/// What may stand in place of a mistyped word of a command: its long options.
std::vector<std::string> optionsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> commandsOf(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) names.push_back(command->get_name());
  return names;
}

/// CLI11 calls a wrong command a missing one, and what is missing because of a typing error just missing; say which word
/// is wrong.
std::string describe(const CLI::ParseError& error, const CLI::App& program) {
  const auto selected = program.get_subcommands();
  if (selected.empty()) {
    const auto rest = program.remaining();
    if (rest.empty()) return "a command is missing; unmetal --help lists them";
    const bool isOption = rest.front().starts_with('-');
    return "there is no command or option " + rest.front() +
           suggestion(rest.front(), isOption ? optionsOf(program) : commandsOf(program)) +
           "; unmetal --help lists them";
  }
  const CLI::App& command = *selected.front();
  const auto rest = command.remaining();
  const auto wrong =
      std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with('-'); });
  if (wrong != rest.end()) {
    const std::string option = wrong->substr(0, wrong->find('='));
    return command.get_name() + " has no option " + option + suggestion(option, optionsOf(command)) +
           "; unmetal help " + command.get_name() + " lists them";
  }
  if (!rest.empty()) return command.get_name() + " takes no argument " + rest.front();
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

int runProgram(int argumentCount, const char* const* arguments) {
  CLI::App program("Trains convolutional neural networks with the kernels of Metal Performance Shaders.",
                   "unmetal");
  program.formatter(std::make_shared<HelpFormatter>(terminalColumns()));
  addCommands(program);
  const int status = parseAndRun(program, argumentCount, arguments);
  if (std::cout.flush()) return status;
  printError("cannot write to standard output");
  return kExitError;
}

}  // namespace unmetal
