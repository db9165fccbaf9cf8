#include <algorithm>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mps/conform/conform.hpp"
#include "mps/conform/conform_report.hpp"
#include "mps/conform/conform_side_by_side.hpp"
#include "mps/conform/families.hpp"
#include "mps/core/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/number_options.hpp"
#include "tools/program.hpp"

namespace unmetal {
namespace {

struct ConformArguments {
  DeviceOptions device;
  std::string filter;
  std::vector<std::string> without;
  std::string json;
  std::string share = "1/1";
  std::int64_t jobs = 1;
  std::int64_t mostCases = 0;
  std::uint64_t seed = 1;
};

/// "2/12" -> the 1 and 12 of ConformOptions. @throws mps::Error for other text.
std::pair<std::int64_t, std::int64_t> parseShare(const std::string& text) {
  const char* const end = text.data() + text.size();
  std::int64_t share = 0;
  std::int64_t shares = 0;
  const auto first = std::from_chars(text.data(), end, share);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, shares);
    if (second.ec == std::errc() && second.ptr == end && share >= 1 && share <= shares)
      return {share - 1, shares};
  }
  throw mps::Error("--share " + text + ": expected K/N with 1 <= K <= N");
}

void runConform(const ConformArguments& arguments) {
  mps::detail::ConformOptions options;
  options.device = openDevice(arguments.device);
  options.filter = arguments.filter;
  options.without = arguments.without;
  options.seed = arguments.seed;
  options.mostCases = arguments.mostCases;
  std::tie(options.share, options.shares) = parseShare(arguments.share);
  options.rowFinished = [](const auto& row) { std::cout << mps::detail::conformLine(row) << std::endl; };
  // Opened first: nobody waits for minutes to read that the folder is missing.
  std::optional<mps::AtomicFile> json;
  if (!arguments.json.empty()) json.emplace(arguments.json);

  const auto result =
      mps::detail::conformSideBySide(options, arguments.jobs, mps::detail::conformAllFamilies);
  // A share may have nothing to do.
  if (result.rows.empty() && (options.shares == 1 || result.selectedCount == 0))
    throw mps::Error("--filter " + arguments.filter + ": no kernel has these words");
  if (json) {
    json->write(mps::detail::conformJson(result.rows));
    json->commit();
  }
  std::cout << mps::detail::conformSummary(result.rows) << std::endl;
  if (!std::ranges::all_of(result.rows, &mps::detail::ConformRow::passed)) exitProgram(kExitFailed);
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
  command->add_option("--without", arguments->without, "None of the rows that contain one of these words")
      ->type_name("TEXT");
  command
      ->add_option(
          "--share", arguments->share,
          "Only every Nth of these rows, beginning with the Kth: processes side by side take a share each")
      ->type_name("K/N")
      ->capture_default_str();
  command
      ->add_option(
          "--jobs", arguments->jobs,
          "Rows side by side, on so many threads of this process: on a GPU faster than processes are")
      ->type_name("N")
      ->check(wholeNumber(1))
      ->capture_default_str();
  command
      ->add_option("--cases", arguments->mostCases,
                   "Only so many cases of each row, from all over its table: for tools that check memory")
      ->type_name("N")
      ->check(wholeNumber(1));
  command->add_option("--json", arguments->json, "Also write the rows to this file")->type_name("FILE");
  command->add_option("--seed", arguments->seed, "Other random inputs")
      ->type_name("N")
      ->check(wholeNumber(0))
      ->capture_default_str();
  command->callback([arguments] { runConform(*arguments); });
}

}  // namespace unmetal
