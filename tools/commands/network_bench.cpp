#include "tools/commands/network_bench.hpp"

#include <unistd.h>
#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/conform/text.hpp"
#include "mps/conform/timing/bench_report.hpp"
#include "mps/conform/timing/measure.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/commands/commands.hpp"
#include "tools/networks/networks.hpp"
#include "tools/options/network_option.hpp"
#include "tools/options/number_options.hpp"
#include "tools/terminal/child_program.hpp"
#include "tools/terminal/progress.hpp"
#include "tools/terminal/text.hpp"
#include "tools/timing/repeated_step.hpp"
#include "tools/timing/step_profile.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/pictures/synthetic.hpp"
#include "train/training/optimizers.hpp"

namespace unmetal {
namespace {

constexpr const char* stepCommand = "training-step";
constexpr std::size_t defaultBatch = 64;

using Format = mps::ImageFeatureChannelFormat;

constexpr const char* kMayRound = "--allow-reduced-precision";

/// What the steps of a network are timed with.
struct TimedStep {
  std::string network;
  train::Shape size;
  std::size_t batch = defaultBatch;
  Format format = Format::Float32;
  /// Only when the filter has the network's name.
  bool takesLong = false;
  /// Of what convolutions multiply, to TF32 or bfloat16.
  bool mayRound = false;
};

constexpr train::Shape smallPicture{28, 28, 1};
constexpr train::Shape mediumPicture{64, 64, 3};
constexpr train::Shape largePicture{224, 224, 3};

/// @param cpuMayRound whether a CPU may round, too, as a GPU always does
std::vector<TimedStep> stepsFor(const mtl::Device& device, bool cpuMayRound) {
  const bool isCpu = device.kind() == mtl::DeviceKind::CPU;
  std::vector<TimedStep> steps;
  const std::vector<std::size_t> batches = isCpu ? std::vector<std::size_t>{16, defaultBatch, 128}
                                                 : std::vector<std::size_t>{defaultBatch, 128, 1024};
  for (const char* network : {"lenet", "mnist-cnn"})
    for (const std::size_t batch : batches) steps.push_back({network, smallPicture, batch});
  const auto addLong = [&](const char* network, const train::Shape& size, std::size_t batch,
                           Format format = Format::Float32) {
    steps.push_back({network, size, batch, format, true});
  };
  if (isCpu) {
    addLong("resnet18", smallPicture, 16);
    addLong("resnet50", mediumPicture, 16);
    addLong("alexnet-lrn", smallPicture, 16);
    addLong("unet-small", smallPicture, 16);
    addLong("style", smallPicture, 16);
  } else {
    addLong("resnet18", smallPicture, 128);
    addLong("resnet50", largePicture, 256);
    addLong("resnet50", largePicture, 256, Format::Float16);
    addLong("alexnet-lrn", largePicture, 128);
    addLong("unet-small", mediumPicture, 128);
    addLong("style", mediumPicture, 128);
  }
  for (TimedStep& step : steps) step.mayRound = !isCpu || cpuMayRound;
  return steps;
}

NetworkOptions optionsOf(const TimedStep& step) {
  NetworkOptions options;
  options.name = step.network;
  options.height = step.size.height;
  options.width = step.size.width;
  options.channels = step.size.channels;
  options.batchSize = step.batch;
  options.format = step.format;
  options.allowReducedPrecision = step.mayRound;
  return options;
}

std::string shapeOf(const NetworkOptions& options) {
  return std::to_string(options.height) + "x" + std::to_string(options.width) + "x" +
         std::to_string(options.channels);
}

std::string nameOf(Format format) {
  return format == Format::Float16 ? "float16" : "float32";
}

/// What is chosen while a step is encoded.
std::set<std::string_view> namesOfOneStep(RepeatedStep& step) {
  const mps::detail::ChoiceRecord record;
  step.run(1);
  step.finish();
  std::set<std::string_view> names;
  for (const mps::detail::ImplementationChoice& choice : record.choices()) names.insert(choice.taken);
  return names;
}

std::vector<std::string> withDevice(std::vector<std::string> arguments, const DeviceOptions& device) {
  arguments.insert(arguments.end(), {"--device", device.name});
  if (device.threads > 0) arguments.insert(arguments.end(), {"--threads", std::to_string(device.threads)});
  if (!device.plans.empty()) arguments.insert(arguments.end(), {"--plans", device.plans});
  return arguments;
}

/// Removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "unmetal-bench-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw mps::Error("cannot make a folder as " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double firstStepMilliseconds(const std::string& network, const DeviceOptions& device) {
  constexpr int runs = 5;
  std::vector<double> milliseconds;
  for (int run = 0; run < runs; ++run) {
    const TemporaryFolder folder;
    const ChildOutput child = runThisProgram(withDevice(
        {"train", "--data", "synthetic", "--net", network, "--steps", "1", "--out", folder.path()}, device));
    milliseconds.push_back(1e3 * child.secondsToFirstLine);
  }
  return mps::detail::summarize(milliseconds).milliseconds;
}

mps::detail::BenchRow rowFor(const Network& network, std::size_t pictureBytes) {
  const auto batch = static_cast<double>(network.options.batchSize);
  constexpr double valuesPerParameter = 3;  // itself, Adam's momentum and velocity
  constexpr double labelAndLossBytes = 8;
  mps::detail::BenchRow row;
  row.kernel = network.options.name;
  row.isNet = true;
  row.direction = "step";
  row.format = nameOf(network.options.format);
  row.shape = shapeOf(network.options);
  row.batch = static_cast<std::int64_t>(network.options.batchSize);
  row.bytes = batch * (static_cast<double>(pictureBytes) + labelAndLossBytes) +
              2 * valuesPerParameter * sizeof(float) * static_cast<double>(network.parameterCount);
  row.flops = batch * network.trainingFlopsPerPicture;
  return row;
}

/// The step in a process of its own; without this implementation, unless it is empty. @param runs to take the median of
nlohmann::json timedStep(const TimedStep& step, const DeviceOptions& device, const std::string& without = "",
                         int runs = mps::detail::kTimedRuns) {
  std::vector<std::string> arguments{stepCommand,
                                     "--net",
                                     step.network,
                                     "--batch",
                                     std::to_string(step.batch),
                                     "--picture-size",
                                     shapeOf(optionsOf(step)),
                                     "--format",
                                     nameOf(step.format)};
  if (!without.empty()) arguments.insert(arguments.end(), {"--without", without});
  if (step.mayRound) arguments.push_back(kMayRound);
  arguments.insert(arguments.end(), {"--runs", std::to_string(runs)});
  return nlohmann::json::parse(runThisProgram(withDevice(arguments, device)).text);
}

/// Times the step with and without an implementation, in turns: medians of their medians. False where the step does without
/// it anyway.
bool timeWithAndWithout(const TimedStep& step, const DeviceOptions& device, const std::string& implementation,
                        nlohmann::json& measured, mps::detail::BenchRow& row) {
  constexpr int pairs = 3;
  constexpr int runs = 3;  // of each process
  std::vector<double> with;
  std::vector<double> without;
  for (int pair = 0; pair < pairs; ++pair) {
    measured = timedStep(step, device, "", runs);
    const auto names = measured.at("implementations").get<std::vector<std::string>>();
    if (std::ranges::find(names, implementation) == names.end()) return false;
    with.push_back(measured.at("ms"));
    without.push_back(timedStep(step, device, implementation, runs).at("ms"));
  }
  measured["ms"] = mps::detail::summarize(with).milliseconds;
  row.implementation = implementation;
  row.nextOverThis = mps::detail::summarize(without).milliseconds / measured["ms"].get<double>();
  return true;
}

}  // namespace

void benchNetworks(mps::detail::Bench& bench, const DeviceOptions& device, bool cpuMayRound) {
  if (bench.implementation() == mps::detail::kAllImplementations) return;
  for (const TimedStep& step : stepsFor(*bench.device(), cpuMayRound)) {
    const NetworkOptions options = optionsOf(step);
    const std::size_t pictureBytes = options.width * options.height * options.channels *
                                     mps::bytesPerChannel(train::pictureFormat(*bench.device()));
    const std::string shape = shapeOf(options);
    const std::string format = nameOf(step.format);
    const std::string batch = std::to_string(step.batch);
    if (!bench.isSelected(step.network + " step " + format + " " + shape + " batch " + batch)) continue;
    if (step.takesLong && !bench.filterHas(step.network)) continue;
    mps::detail::BenchRow row = rowFor(buildNetwork(bench.device(), options), pictureBytes);
    nlohmann::json measured;
    if (bench.implementation().empty())
      measured = timedStep(step, device);
    else if (!timeWithAndWithout(step, device, bench.implementation(), measured, row))
      continue;
    row.milliseconds = measured.at("ms");
    row.spread = measured.at("spread");
    row.imagesPerSecond = 1e3 * static_cast<double>(step.batch) / row.milliseconds;
    row.peakBytes = measured.at("peak_bytes").get<double>();
    if (step.batch == defaultBatch && bench.implementation().empty())
      row.firstStepMilliseconds = firstStepMilliseconds(step.network, device);
    bench.add(row);
  }
}

namespace {

/// Milliseconds of one of many repetitions on the slowest rank.
/// @param run does so many; what it leaves in flight keeps the device busy between calls @param finish waits for it
double slowest(const train::detail::Ranks& ranks, const std::function<void(int)>& run,
               const std::function<void()>& finish) {
  constexpr int runs = 5;
  constexpr int most = 1000;
  constexpr double leastMilliseconds = 250;
  const auto timeOf = [&](int repetitions) {
    const double start = steadySeconds();
    run(repetitions);
    return 1e3 * (steadySeconds() - start) / repetitions;
  };
  const auto slowestOf = [&](double milliseconds) {
    double largest = 0;
    for (const std::string& text : ranks->gather(std::to_string(milliseconds)))
      largest = std::max(largest, std::stod(text));
    return largest;
  };
  constexpr int warmUp = 12;  // by then a device has recorded the step for replays
  run(warmUp);
  const double estimate = timeOf(warmUp);
  finish();
  const int repetitions = std::clamp(static_cast<int>(leastMilliseconds / slowestOf(estimate)), 1, most);
  run(warmUp);
  std::vector<double> milliseconds;
  for (int i = 0; i < runs; ++i) milliseconds.push_back(timeOf(repetitions));
  finish();
  for (double& own : milliseconds) own = slowestOf(own);
  return mps::detail::summarize(milliseconds).milliseconds;
}

struct RankStep {
  double milliseconds = 0;
  std::size_t bytes = 0;  ///< that the device has given away; what earlier steps had serves later ones
};

/// @param joined who do it as one; null: each rank for itself
RankStep stepOf(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options,
                const train::detail::Ranks& ranks, const train::detail::Ranks& joined, bool synchronizes) {
  RepeatedStep step(device, options, joined, synchronizes);
  const double milliseconds = slowest(
      ranks, [&](int repetitions) { step.run(repetitions); }, [&] { step.finish(); });
  return {milliseconds, device->currentAllocatedSize()};
}

double sumOf(const train::detail::Ranks& ranks, std::size_t values) {
  const auto buffer = ranks->device()->newBuffer(values * sizeof(float));
  const auto queue = ranks->device()->newCommandQueue();
  const auto run = [&](int repetitions) {
    const auto commandBuffer = queue->commandBuffer();
    for (int i = 0; i < repetitions; ++i) ranks->allReduce(commandBuffer, buffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  };
  return slowest(ranks, run, [] {});
}

void benchRanksOn(const std::shared_ptr<mtl::Device>& device, const train::detail::Ranks& ranks,
                  const NetworkOptions& options, const std::string& title) {
  // On the other ranks, too: a machine's processors are busy then, as they are when the ranks work together.
  const RankStep alone = stepOf(device, options, ranks, nullptr, false);
  const RankStep groupOfOne = stepOf(device, options, ranks, mps::Communicator::create(device), true);
  const RankStep own = stepOf(device, options, ranks, ranks, false);
  const RankStep synchronized = stepOf(device, options, ranks, ranks, true);
  const std::size_t values = buildNetwork(device, options).parameterCount;
  const double sum = sumOf(ranks, values);
  if (ranks->rank() != 0) return;
  std::printf("%s on each of %d ranks, joined by %s\n", title.c_str(), ranks->size(),
              ranks->engineName().c_str());
  const auto print = [&](const char* what, const RankStep& step) {
    std::printf("  %-38s %9.3f ms  %9.0f images/s  %5.1f %%  %8.1f MiB\n", what, step.milliseconds,
                1e3 * static_cast<double>(options.batchSize) * ranks->size() / step.milliseconds,
                100 * alone.milliseconds / step.milliseconds, static_cast<double>(step.bytes) * 0x1p-20);
  };
  print("each for itself", alone);
  print("each in a group of one", groupOfOne);
  print("together", own);
  print("together, statistics of the whole batch", synchronized);
  std::printf("  %-38s %9.3f ms\n", ("sum of " + std::to_string(values) + " gradients").c_str(), sum);
  std::fflush(stdout);
}

}  // namespace

void benchRanks(const std::shared_ptr<mtl::Device>& device, const train::detail::Ranks& ranks,
                const std::string& filter, std::size_t batch) {
  bool isFound = false;
  std::set<std::string> seen;
  for (TimedStep step : stepsFor(*device, false)) {
    if (batch > 0) step.batch = batch;
    const NetworkOptions options = optionsOf(step);
    const std::string title = step.network + " step " + nameOf(step.format) + " " + shapeOf(options) +
                              " batch " + std::to_string(step.batch);
    if (!mps::detail::hasWords(title, filter) ||
        (step.takesLong && filter.find(step.network) == std::string::npos))
      continue;
    isFound = true;
    if (!seen.insert(title).second) continue;  // rows that differ in their batches alone
    benchRanksOn(device, ranks, options, title);
  }
  if (!isFound)
    throw train::detail::SharedError("--filter " + filter +
                                     ": no net has these words, and of several ranks nets are timed");
}

void profileNetwork(const std::shared_ptr<mtl::Device>& device, const ProfileRequest& request) {
  TimedStep step{request.network, smallPicture};
  for (const TimedStep& row : stepsFor(*device, request.cpuMayRound))
    if (row.network == request.network) step = row;
  step.mayRound = device->kind() == mtl::DeviceKind::CUDA || request.cpuMayRound;
  step.format = request.isFloat16 ? Format::Float16 : Format::Float32;
  if (request.batch > 0) step.batch = request.batch;
  if (request.pictures) step.size = *request.pictures;
  std::optional<mps::AtomicFile> trace;
  if (!request.traceFile.empty()) trace.emplace(request.traceFile);

  const mps::detail::MachineFigures machine = mps::detail::measureMachine(device);
  std::cout << mps::detail::machineLine(machine) << std::endl;
  RepeatedStep repeated(device, optionsOf(step));
  constexpr int runs = 3;
  constexpr int timedSteps = 9;
  const double milliseconds = repeated.time(runs).milliseconds;
  std::vector<std::vector<mtl::CommandTime>> steps;
  for (int i = 0; i < timedSteps; ++i) steps.push_back(repeated.runTimed());
  const StepProfile profile(std::move(steps), machine);
  std::printf("%s, %s, %s, batch %zu: %.3f ms in a training; command by command ", step.network.c_str(),
              nameOf(step.format).c_str(), shapeOf(optionsOf(step)).c_str(), step.batch, milliseconds);
  std::fputs(profile.report().c_str(), stdout);
  if (!trace) return;
  trace->write(profile.trace());
  trace->commit();
  std::printf("\n%s opens in Perfetto or chrome://tracing\n", printable(request.traceFile).c_str());
}

void runTrainingStep(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options) {
  RepeatedStep step(device, options);
  step.run(1);
  step.finish();
}

void addTrainingStepCommand(CLI::App& program) {
  struct Arguments {
    DeviceOptions device;
    TimedStep step;
    std::string format;
    std::string without;
    int runs = mps::detail::kTimedRuns;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand(stepCommand, "What bench runs to time a network");
  command->group("");  // not in the list of commands
  addDeviceOptions(*command, arguments->device);
  addNetworkOption(*command, arguments->step.network)->required();
  command->add_option("--batch", arguments->step.batch)->check(wholeNumber(1, 4096));
  addPictureSizeOption(*command, arguments->step.size)->required();
  command->add_option("--format", arguments->format)
      ->required()
      ->check(CLI::IsMember({"float32", "float16"}));
  command->add_option("--without", arguments->without, "An implementation that is not chosen");
  command->add_flag(kMayRound, arguments->step.mayRound);
  command->add_option("--runs", arguments->runs, "Medians are taken of so many")->check(wholeNumber(1, 1000));
  command->callback([arguments] {
    const mps::detail::LeaveOutImplementation leaveOut(arguments->without);
    const std::size_t idleBytes = mps::detail::residentBytes();
    const auto device = openDevice(arguments->device);
    if (arguments->format == "float16") arguments->step.format = Format::Float16;
    RepeatedStep step(device, optionsOf(arguments->step));
    const mps::detail::Timing timing = step.time(arguments->runs);
    constexpr int encodes = 100;
    const double encodeMilliseconds = step.encodeAlone(encodes);
    const bool isCpu = device->kind() == mtl::DeviceKind::CPU;
    const std::size_t peakBytes =
        isCpu ? mps::detail::peakResidentBytes() - idleBytes : device->currentAllocatedSize();
    // Last: a step that is watched repeats no commands and takes memory of its own.
    const std::set<std::string_view> implementations = namesOfOneStep(step);
    std::cout << nlohmann::json{{"ms", timing.milliseconds},
                                {"spread", timing.spread},
                                {"encode_ms", encodeMilliseconds},
                                {"implementations", implementations},
                                {"peak_bytes", peakBytes}}
              << std::endl;
  });
}

}  // namespace unmetal
