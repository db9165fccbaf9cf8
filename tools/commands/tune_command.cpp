#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "mps/conform/text.hpp"
#include "mps/convolution/convolution_plan_file.hpp"
#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mtl/device.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/network_bench.hpp"
#include "tools/networks/networks.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/network_option.hpp"
#include "tools/options/number_options.hpp"

namespace unmetal {
namespace {

struct TuneArguments {
  DeviceOptions device;
  std::string network = "mnist-cnn";
  std::vector<std::size_t> batches{64};
  train::Shape pictureSize{28, 28, 1};
  std::string format = "float32";
  bool allowReducedPrecision = false;
  std::string filter;
  std::string out;
};

void runTune(const TuneArguments& arguments) {
  const auto device = openDevice(arguments.device);
  if (device->kind() == mtl::DeviceKind::CPU)
    throw mps::Error("--device " + device->name() + ": only GPUs have plans to tune");
  NetworkOptions options;
  options.name = arguments.network;
  options.height = arguments.pictureSize.height;
  options.width = arguments.pictureSize.width;
  options.channels = arguments.pictureSize.channels;
  if (arguments.format == "float16") options.format = mps::ImageFeatureChannelFormat::Float16;
  options.allowReducedPrecision = arguments.allowReducedPrecision;
  mps::AtomicFile file(arguments.out);
  mps::detail::ConvolutionTuning tuning(
      [&](const std::string& problem) { return mps::detail::hasWords(problem, arguments.filter); });
  for (const std::size_t batch : arguments.batches) {
    options.batchSize = batch;
    runTrainingStep(device, options);
  }
  if (tuning.file().libraries.empty())
    throw mps::Error("no convolution of " + arguments.network + " has candidates to measure" +
                     (arguments.filter.empty() ? "" : " and the words of --filter " + arguments.filter));
  for (const auto& [library, choices] : tuning.file().libraries)
    for (const auto& [problem, choice] : choices.convolutions)
      std::printf("%8.3f ms, first choice %8.3f ms: %s, %s %s\n", choice.milliseconds,
                  choice.firstMilliseconds, problem.c_str(), library.c_str(), choice.engine.c_str());
  file.write(tuning.file().text());
  file.commit();
}

}  // namespace

void addTuneCommand(CLI::App& program) {
  const auto arguments = std::make_shared<TuneArguments>();
  CLI::App* command = program.add_subcommand("tune",
                                             "Measure which of cuDNN's and cuBLASLt's candidates computes "
                                             "each convolution and fully connected layer of a "
                                             "training step fastest; --plans takes the result");
  addDeviceOptions(*command, arguments->device);
  addNetworkOption(*command, arguments->network)->capture_default_str();
  command->add_option("--batch", arguments->batches, "Pictures per step; several may follow each other")
      ->type_name("N")
      ->check(wholeNumber(1, 4096))
      ->capture_default_str();
  addPictureSizeOption(*command, arguments->pictureSize)->default_str("28x28x1");
  command->add_option("--format", arguments->format, "Of images and gradients between the layers")
      ->check(oneOf({"float32", "float16"}))
      ->capture_default_str();
  command->add_flag("--allow-reduced-precision", arguments->allowReducedPrecision,
                    "A GPU may multiply with the 11 bits of TF32");
  command
      ->add_option(
          "--filter", arguments->filter,
          "Only convolutions whose description contains these words; the others keep the first choice")
      ->type_name("TEXT");
  command->add_option("--out", arguments->out, "Where to write the plans")->type_name("FILE")->required();
  command->callback([arguments] { runTune(*arguments); });
}

}  // namespace unmetal
