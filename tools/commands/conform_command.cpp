#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/conform/conform.hpp"
#include "mps/conform/conform_report.hpp"
#include "mps/conform/conform_side_by_side.hpp"
#include "mps/conform/families.hpp"
#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "tools/commands/commands.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/implementation_option.hpp"
#include "tools/options/number_options.hpp"
#include "tools/terminal/exit_status.hpp"

namespace unmetal {
namespace {

struct ConformArguments {
  DeviceOptions device;
  std::string filter;
  std::vector<std::string> without;
  std::string implementation;
  std::string json;
  std::int64_t jobs = 1;
  std::int64_t mostCases = 0;
  std::uint64_t seed = 1;
};

void runConform(const ConformArguments& arguments) {
  mps::detail::ConformOptions options;
  options.device = openDevice(arguments.device);
  options.filter = arguments.filter;
  options.without = arguments.without;
  options.implementation = arguments.implementation;
  if (!arguments.implementation.empty()) checkImplementation(options.device, arguments.implementation);
  options.seed = arguments.seed;
  options.mostCases = arguments.mostCases;
  options.rowFinished = [](const auto& row) { std::cout << mps::detail::conformLine(row) << std::endl; };
  // Opened first: nobody waits for minutes to read that the folder is missing.
  std::optional<mps::AtomicFile> json;
  if (!arguments.json.empty()) json.emplace(arguments.json);

  const std::vector<mps::detail::ConformRow> rows =
      mps::detail::conformSideBySide(options, arguments.jobs, mps::detail::conformAllFamilies);
  if (rows.empty()) {
    if (!arguments.implementation.empty())
      throw mps::Error("--implementation " + arguments.implementation +
                       ": it refuses all cases, or no row of it has the words of --filter");
    throw mps::Error("--filter " + arguments.filter + ": no kernel has these words");
  }
  if (json) {
    json->write(mps::detail::conformJson(rows));
    json->commit();
  }
  std::cout << mps::detail::conformSummary(rows) << std::endl;
  if (!std::ranges::all_of(rows, &mps::detail::ConformRow::passed)) exitProgram(kExitFailed);
}

}  // namespace

void addConformCommand(CLI::App& program) {
  const auto arguments = std::make_shared<ConformArguments>();
  CLI::App* command = program.add_subcommand(
      "conform", "Compare every kernel with its float64 reference; exit status 1 when one is off");
  addDeviceOptions(*command, arguments->device);
  command
      ->add_option(
          "--filter", arguments->filter,
          "Only rows that contain these words: kernel, forward or gradient, format, implementation, tier")
      ->type_name("TEXT");
  addImplementationOption(*command, arguments->implementation,
                          "Only rows of the implementation of this name");
  command->add_option("--without", arguments->without, "None of the rows that contain one of these words")
      ->type_name("TEXT");
  command->add_option("--jobs", arguments->jobs, "Rows side by side, on so many threads")
      ->type_name("N")
      ->check(wholeNumber(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--cases", arguments->mostCases,
                   "Only so many cases of each row, from all over its table: for tools that check memory")
      ->type_name("N")
      ->check(wholeNumber(1));
  command->add_option("--json", arguments->json, "Also write the rows to this file")
      ->type_name("FILE")
      ->check(nameOf("a file"));
  command->add_option("--seed", arguments->seed, "Other random inputs")
      ->type_name("N")
      ->check(wholeNumber(0))
      ->capture_default_str();
  command->callback([arguments] { runConform(*arguments); });
}

}  // namespace unmetal
