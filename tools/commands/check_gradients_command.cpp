#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/conform/check_gradients.hpp"
#include "mps/conform/compare.hpp"
#include "mps/graph/compile/graph_passes.hpp"
#include "mps/loss/loss.hpp"
#include "mps/weights/atomic_file.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/gradient_check_report.hpp"
#include "tools/networks/networks.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/network_option.hpp"
#include "tools/options/number_options.hpp"
#include "tools/terminal/exit_status.hpp"
#include "train/training/optimizers.hpp"

namespace unmetal {
namespace {

/// Pictures large enough for every net, and small, because references in float64 take their time.
constexpr std::size_t kSide = 12;
constexpr std::uint64_t kMostPictures = 256;

struct CheckGradientsArguments {
  DeviceOptions device;
  std::string network;
  /// With two, too many elements of a deep net lie next to the kink of a ReLU.
  std::uint64_t batchSize = 4;
  std::uint64_t seed = 1;
  std::string without;
  std::string json;
};

constexpr const char* kEachPass = "each";
constexpr const char* kAllPasses = "all";

/// Passes of the graph's compiler that are left out, and what the user calls them; empty for none.
struct LeftOut {
  std::string name;
  mps::detail::GraphPasses passes;
};

/// Each pass, and all of them.
std::vector<LeftOut> leftOutChoices() {
  std::vector<LeftOut> choices;
  for (std::size_t pass = 0; pass < mps::detail::kGraphPassNames.size(); ++pass)
    choices.push_back(
        {std::string(mps::detail::kGraphPassNames[pass]), mps::detail::GraphPasses().set(pass)});
  choices.push_back({kAllPasses, mps::detail::GraphPasses().set()});
  return choices;
}

/// What `--without` asks for, in turn.
std::vector<LeftOut> leftOutInTurn(const std::string& without) {
  std::vector<LeftOut> choices{LeftOut()};
  if (without.empty()) return choices;
  for (const LeftOut& choice : leftOutChoices()) choices.push_back(choice);
  if (without != kEachPass)
    std::erase_if(choices, [&](const LeftOut& choice) { return choice.name != without; });
  return choices;
}

std::vector<std::string> wordsOfWithout() {
  std::vector<std::string> words;
  for (const LeftOut& choice : leftOutChoices()) words.push_back(choice.name);
  words.emplace_back(kEachPass);
  return words;
}

mps::GradientCheckReport check(const std::shared_ptr<mtl::Device>& device, const std::string& name,
                               const CheckGradientsArguments& arguments) {
  NetworkOptions options;
  options.name = name;
  options.width = options.height = kSide;
  options.batchSize = arguments.batchSize;
  options.seed = arguments.seed;
  options.optimizer = train::makeOptimizer(device, "sgd", train::defaultLearningRate("sgd"), 0);
  const Network network = buildNetwork(device, options);

  // Values of their own for all pixels: no ties.
  const auto images = mps::ImageBatch::create(
      device, {mps::ImageFeatureChannelFormat::Float32, kSide, kSide, options.channels}, options.batchSize);
  const auto values = mps::detail::randomValues(options.batchSize * kSide * kSide * options.channels,
                                                arguments.seed, mps::detail::RandomKind::Uniform);
  const std::vector<float> pixels(values.begin(), values.end());
  images.writeBytes(std::span(pixels), mps::DataLayout::HeightxWidthxFeatureChannels);
  const auto labels = mps::CNNLossLabels::createClassBatch(device, options.batchSize);
  std::vector<std::uint32_t> classes(options.batchSize);
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = static_cast<std::uint32_t>((arguments.seed + i) % options.classNames.size());
  mps::CNNLossLabels::writeClassIndices(labels, classes);

  mps::GradientCheckOptions check;
  check.seed = arguments.seed;
  return mps::checkGradients(*network.training, {images}, {labels}, check);
}

void runCheckGradients(const CheckGradientsArguments& arguments) {
  const auto device = openDevice(arguments.device);
  // Opened first: nobody waits to read that the folder is missing.
  std::optional<mps::AtomicFile> json;
  if (!arguments.json.empty()) json.emplace(arguments.json);
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::vector<NetworkGradientRow> rows;
  const auto names = arguments.network.empty() ? narrowNetworkNames() : std::vector{arguments.network};
  for (const std::string& name : names) {
    for (const LeftOut& leftOut : leftOutInTurn(arguments.without)) {
      const mps::detail::LeaveOutPasses scope(leftOut.passes);
      const mps::GradientCheckReport report = check(device, name, arguments);
      for (const mps::GradientCheckRow& row : report.rows) {
        rows.push_back({name, leftOut.name, row});
        std::cout << gradientCheckLine(rows.back()) << std::endl;
      }
      passed += report.passedCount();
      failed += report.failedCount();
    }
  }
  if (json) {
    json->write(gradientCheckJson(rows));
    json->commit();
  }
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  if (failed > 0) exitProgram(kExitFailed);
}

}  // namespace

void addCheckGradientsCommand(CLI::App& program) {
  const auto arguments = std::make_shared<CheckGradientsArguments>();
  CLI::App* command = program.add_subcommand(
      "check-gradients",
      "Compare the gradients of the nets with float64 references, and these with central differences; exit "
      "status 1 when one is off");
  addDeviceOptions(*command, arguments->device);
  command
      ->add_option("--net", arguments->network,
                   "Only this net [all, the larger ones with 2 channels in the first layer]")
      ->type_name("NAME")
      ->check(networkName());
  command->add_option("--batch", arguments->batchSize, "Pictures, of 12 x 12 pixels")
      ->type_name("N")
      ->check(wholeNumber(1, kMostPictures))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "Other weights, pictures and elements")
      ->type_name("N")
      ->check(wholeNumber(0))
      ->capture_default_str();
  command
      ->add_option("--without", arguments->without,
                   "Compile the nets without a pass that joins kernels or images: " +
                       fmt::format("{}", fmt::join(wordsOfWithout(), ", ")) +
                       ". With each: with every pass, without each one, without all")
      ->type_name("PASS")
      ->check(CLI::IsMember(wordsOfWithout()).description(""));
  command->add_option("--json", arguments->json, "Also write the rows to this file")
      ->type_name("FILE")
      ->check(nameOf("a file"));
  command->callback([arguments] { runCheckGradients(*arguments); });
}

}  // namespace unmetal
