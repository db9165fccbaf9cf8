#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "mps/conform/families.hpp"
#include "mps/conform/timing/bench.hpp"
#include "mps/conform/timing/bench_report.hpp"
#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/loading_bench.hpp"
#include "tools/commands/network_bench.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/implementation_option.hpp"
#include "tools/options/network_option.hpp"
#include "tools/options/number_options.hpp"
#include "tools/options/picture_options.hpp"
#include "tools/ranks/ranks.hpp"
#include "tools/terminal/text.hpp"

namespace unmetal {
namespace {

struct BenchArguments {
  DeviceOptions device;
  RankOptions ranks;
  std::string filter;
  std::string implementation;
  std::string json;
  double megabytes = 0;
  LoadingOptions loading;
  ProfileRequest profile;
  std::string profileFormat = "float32";
  std::optional<train::Augmentation> augmentation;
};

void runLoadingBench(const BenchArguments& arguments) {
  LoadingOptions options = arguments.loading;
  options.pictures.augmentation = arguments.augmentation.value_or(train::Augmentation{});
  options.threads = static_cast<std::size_t>(arguments.device.threads);
  std::optional<mps::AtomicFile> json;
  if (!arguments.json.empty()) json.emplace(arguments.json);
  const LoadingRate rate = measureLoading(options);
  std::printf("loading %s, %s: %.0f images/s with %zu threads\n", printable(options.data).c_str(),
              nameOf(options.pictures.augmentation).c_str(), rate.imagesPerSecond, rate.threads);
  if (json) {
    json->write(nlohmann::ordered_json{{"data", options.data},
                                       {"augmentation", nameOf(options.pictures.augmentation)},
                                       {"images_per_s", rate.imagesPerSecond},
                                       {"threads", rate.threads}}
                    .dump(1) +
                "\n");
    json->commit();
  }
}

void runProfile(const BenchArguments& arguments, bool hasBatch, bool hasPictures) {
  ProfileRequest request = arguments.profile;
  if (hasBatch) request.batch = arguments.loading.batchSize;
  if (hasPictures) request.pictures = arguments.loading.pictures.size;
  request.isFloat16 = arguments.profileFormat == "float16";
  profileNetwork(openDevice(arguments.device), request);
}

void runBench(const BenchArguments& arguments) {
  mps::detail::BenchOptions options;
  options.device = openDevice(arguments.device);
  options.filter = arguments.filter;
  options.implementation = arguments.implementation;
  if (!options.implementation.empty() && options.implementation != mps::detail::kAllImplementations)
    checkImplementation(options.device, options.implementation);
  options.workingSetBytes = static_cast<std::size_t>(arguments.megabytes * 1e6);
  options.rowFinished = [](const auto& row) { std::cout << mps::detail::benchLine(row) << std::endl; };
  std::optional<mps::AtomicFile> json;
  if (!arguments.json.empty()) json.emplace(arguments.json);

  mps::detail::Bench bench(options);
  std::cout << mps::detail::machineLine(bench.machine()) << std::endl;
  benchNetworks(bench, arguments.device, arguments.profile.cpuMayRound);
  mps::detail::benchAllFamilies(bench);
  for (const std::string& sentence : bench.missing()) std::cerr << "not timed: " << sentence << std::endl;
  if (bench.rows().empty()) {
    if (!arguments.implementation.empty())
      throw mps::Error("--implementation " + arguments.implementation +
                       ": no kernel or net with the words of --filter has it");
    throw mps::Error("--filter " + arguments.filter + ": no kernel or net has these words");
  }
  if (json) {
    json->write(mps::detail::benchJson(bench));
    json->commit();
  }
}

}  // namespace

void addBenchCommand(CLI::App& program) {
  const auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = program.add_subcommand(
      "bench",
      "Time every kernel against what the machine could do at best, and a training step of each net; with "
      "--devices, or under mpirun, a step of each net on several ranks");
  addDeviceOptions(*command, arguments->device);
  addRankOptions(*command, arguments->ranks);
  command
      ->add_option("--filter", arguments->filter,
                   "Only rows that contain these words: kernel or net, forward or gradient, format, shape")
      ->type_name("TEXT");
  addImplementationOption(*command, arguments->implementation,
                          "Only kernels that have the implementation of this name: it and the next one that "
                          "accepts, in turns; nets with and "
                          "without it. With \"all\" every implementation of each kernel");
  command
      ->add_option(
          "--megabytes", arguments->megabytes,
          "What the images of a kernel's row take, 0.1 to 100000; a few stay in the caches, where no "
          "memory bounds a kernel [four times the last-level cache]")
      ->check(number(0.1, 1e5))
      ->type_name("X");
  command->add_option("--json", arguments->json, "Also write the rows to this file")
      ->type_name("FILE")
      ->check(nameOf("a file"));
  auto* data = command->add_option(
      "--data", arguments->loading.data,
      "In place of all that: images/s that the loader of these training pictures makes, as train "
      "names them; those of a folder are decoded each time");
  data->check(nameOf("data"));
  addPictureOptions(*command, arguments->loading.pictures);
  addAugmentOption(*command, arguments->augmentation);
  command
      ->add_option("--batch", arguments->loading.batchSize,
                   "Of the loader, of the net of --profile, or of each of several ranks: pictures in a batch "
                   "[64; of a net that "
                   "of its row]")
      ->type_name("N")
      ->check(wholeNumber(1));
  for (const char* name : {"--skip-bad", "--augment"}) command->get_option(name)->needs(data);
  auto* profile = command->add_option(
      "--profile", arguments->profile.network,
      "In place of all that: where the time of a training step of this net (as train names it) goes, by kind "
      "of "
      "kernel and by layer, beside what the machine could do at best; commands run one by one");
  profile->type_name("NAME")->check(networkName());
  command->add_option("--format", arguments->profileFormat, "Of the net: float32 or float16")
      ->needs(profile)
      ->check(CLI::IsMember({"float32", "float16"}))
      ->type_name("FORMAT");
  command->add_flag(
      "--allow-reduced-precision", arguments->profile.cpuMayRound,
      "In nets on a CPU, too, convolutions may round what they multiply (to bfloat16, where the "
      "processor has AMX), as on a GPU (to TF32)");
  command
      ->add_option("--trace", arguments->profile.traceFile,
                   "Also write the commands of nine steps to this file, which Perfetto opens")
      ->needs(profile)
      ->type_name("FILE")
      ->check(nameOf("a file"));
  command->callback([arguments, command] {
    const bool isProfile = command->count("--profile") > 0;
    const bool isLoading = command->count("--data") > 0;
    const bool isRank = isOneOfSeveral(arguments->ranks);
    const bool hasBatch = command->count("--batch") > 0;
    if (command->count("--picture-size") > 0 && !isProfile && !isLoading)
      throw mps::Error("bench: --picture-size is about --data or --profile; give one of them");
    if (hasBatch && !isProfile && !isLoading && !isRank)
      throw mps::Error("bench: --batch is about --data or --profile, or several ranks; give one of them");
    if (isRank) {
      for (const char* name :
           {"--data", "--profile", "--implementation", "--megabytes", "--json", "--allow-reduced-precision"})
        if (command->count(name) > 0)
          throw mps::Error(std::string("bench: ") + name + " is not for several ranks");
      return runAsRank(arguments->device, arguments->ranks, "",
                       [&](const auto& device, const train::detail::Ranks& ranks) {
                         benchRanks(device, ranks, arguments->filter,
                                    hasBatch ? arguments->loading.batchSize : 0);
                       });
    }
    if (!isLoading && !isProfile) return runBench(*arguments);
    const std::string wanted = isProfile ? "--profile about one net" : "--data about the loader";
    for (const char* name : {"--filter", "--implementation", "--megabytes"})
      if (command->count(name) > 0)
        throw mps::Error(std::string("bench: ") + name + " is about kernels, " + wanted +
                         "; give one of them");
    if (isProfile) {
      for (const char* name : {"--data", "--json"})
        if (command->count(name) > 0)
          throw mps::Error(std::string("bench: ") + name + " does not go with --profile");
      return runProfile(*arguments, hasBatch, command->count("--picture-size") > 0);
    }
    if (command->count("--allow-reduced-precision") > 0)
      throw mps::Error(
          "bench: --allow-reduced-precision is about nets, --data about the loader; give one of them");
    runLoadingBench(*arguments);
  });
}

}  // namespace unmetal
