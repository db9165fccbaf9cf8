#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <span>
#include <string>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/runner.hpp"
#include "fuzz/random_calls/supervisor.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"
#include "tools/options/number_options.hpp"

namespace unmetal::random_calls {
namespace {

constexpr int kExitDifferent = 1;
constexpr int kExitError = 2;
constexpr double kLongestCall = 120;

struct Arguments {
  std::string against;
  std::uint64_t seed = 1;
  double seconds = 60;
  std::uint64_t calls = 0;
  std::string family;
  std::uint64_t only = 0;
  bool isLarge = false;
  bool withoutText = false;
  bool describesAll = false;
};

void addOptions(CLI::App& program, Arguments& arguments) {
  program
      .add_option("--against", arguments.against,
                  "What is compared: a GPU with the CPU (cuda:N), or a CPU device of several threads with "
                  "one of a single "
                  "thread (cpu) [cuda:0 where there is a GPU, else cpu]")
      ->type_name("NAME");
  program.add_option("--seed", arguments.seed, "Other calls")
      ->type_name("N")
      ->check(wholeNumber(0))
      ->capture_default_str();
  program.add_option("--seconds", arguments.seconds, "No call begins later")
      ->type_name("S")
      ->check(number(0, 1e9))
      ->capture_default_str();
  program.add_option("--calls", arguments.calls, "At most so many calls")
      ->type_name("N")
      ->check(wholeNumber(1));
  program
      .add_option("--family", arguments.family, "Only calls of this family, as the table at the end names it")
      ->type_name("NAME");
  program.add_option("--only", arguments.only, "Only the call of this number")
      ->type_name("N")
      ->check(wholeNumber(0));
  program.add_flag("--large", arguments.isLarge, "Images ten times as large, and sides beyond 65535");
  program.add_flag("--no-text", arguments.withoutText, "Exceptions are compared without their words");
  program.add_flag("--verbose", arguments.describesAll, "Print each call before it is made");
}

Devices openDevices(std::string against) {
  constexpr int severalThreads = 4;
  if (against.empty()) against = mtl::copyAllDevices().size() > 1 ? "cuda:0" : "cpu";
  if (against == "cpu") return {mtl::newCPUDevice(1), mtl::newCPUDevice(severalThreads)};
  return {mtl::createSystemDefaultDevice(), mtl::deviceNamed(against)};
}

RunOptions runOptions(const CLI::App& program, const Arguments& arguments) {
  RunOptions options;
  options.seed = arguments.seed;
  options.end = steadySeconds() + arguments.seconds;
  if (arguments.calls > 0) options.mostCalls = arguments.calls;
  options.family = arguments.family;
  if (program.count("--only") > 0) options.only = arguments.only;
  options.words = arguments.withoutText ? Words::Ignored : Words::Compared;
  if (arguments.isLarge) options.limits = Limits::large();
  options.describesAll = arguments.describesAll;
  options.command = program.get_name();
  if (!arguments.against.empty()) options.command += " --against " + arguments.against;
  options.command += " --seed " + std::to_string(arguments.seed) + (arguments.isLarge ? " --large" : "");
  return options;
}

int run(const CLI::App& program, const Arguments& arguments) {
  const std::span<const Family> families = allFamilies();
  const RunOptions options = runOptions(program, arguments);
  if (!options.family.empty() && std::ranges::find(families, options.family, &Family::name) == families.end())
    throw mps::Error("--family " + options.family + ": there is no such family");
  std::cout << "seed " << options.seed << std::endl;

  const auto progress = sharedProgress();
  const auto makeCallsFrom = [&](std::uint64_t first) {
    const Devices devices = openDevices(arguments.against);
    if (first == 0) {
      std::cout << "cpu (" << devices.first->description() << ") and " << devices.second->name() << " ("
                << devices.second->description() << ")" << std::endl;
      for (const std::string& sentence : devices.second->missingLibraries())
        std::cout << sentence << std::endl;
    }
    const Ending ending = makeCalls(devices, families, options, first, *progress, std::cout);
    return ending == Ending::Done ? ChildEnding::Done : ChildEnding::StartAgain;
  };
  const auto reportLost = [&](const LostCall& lost) {
    const std::size_t family = familyOf(lost.call, families);
    ++progress->tallies.at(family).lost;
    std::cout << "LOST, " << families[family].name << ": call " << lost.call << ' ' << lost.how
              << "\n  again: " << options.command << " --verbose --only " << lost.call << std::endl;
  };
  if (!superviseCalls(*progress, kLongestCall, makeCallsFrom, reportLost)) return kExitError;
  printTallies(*progress, families, std::cout);
  if (progress->calls == 0) throw mps::Error("no call was made");
  return progress->findings() == 0 ? 0 : kExitDifferent;
}

int runProgram(int argumentCount, const char* const* argumentValues) {
  CLI::App program(
      "Makes random calls of every kernel on two devices and compares; exit status 1 when they differ",
      argumentValues[0]);
  Arguments arguments;
  addOptions(program, arguments);
  try {
    program.parse(argumentCount, argumentValues);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : kExitError;
  }
  return run(program, arguments);
}

}  // namespace
}  // namespace unmetal::random_calls

/// Makes random calls of every kernel family on two devices and compares what they leave. Exit status 1 when they differ.
int main(int argumentCount, char** argumentValues) {
  try {
    return unmetal::random_calls::runProgram(argumentCount, argumentValues);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "random_calls: %s\n", exception.what());
    return unmetal::random_calls::kExitError;
  }
}
