#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"
#include "tools/commands/commands.hpp"
#include "tools/data/data.hpp"
#include "tools/networks/networks.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/network_option.hpp"
#include "tools/options/number_options.hpp"
#include "tools/options/picture_options.hpp"
#include "tools/training/training_choice.hpp"
#include "train/data/dataset.hpp"
#include "train/training/learning_rate_finder.hpp"
#include "train/training/optimizers.hpp"

namespace unmetal {
namespace {

struct FindArguments {
  DeviceOptions device;
  std::string data = "fashion-mnist";
  DataOptions pictures;
  std::string network;        ///< empty: what chooseTraining() says
  std::size_t batchSize = 0;  ///< 0: likewise
  std::string optimizer = "adam";
  std::uint64_t seed = 0;
  train::LearningRateRange range;
};

train::Network networkFor(const std::shared_ptr<mtl::Device>& device, const FindArguments& arguments,
                          const std::string& name, const train::Dataset& data) {
  NetworkOptions options;
  options.name = name;
  options.width = data.shape().width;
  options.height = data.shape().height;
  options.channels = data.shape().channels;
  options.classNames = data.classNames();
  options.seed = arguments.seed;
  return defineNetwork(device, options);
}

void findRate(const FindArguments& arguments) {
  const NamedData data = loadDataset(arguments.data, Split::Training, arguments.pictures);
  const TrainingChoice choice = chooseTraining(isPictureFolder(arguments.data), data.pictures->size());
  train::TrainerOptions options;
  options.batchSize = arguments.batchSize != 0 ? arguments.batchSize : choice.batchSize;
  options.optimizer = arguments.optimizer;
  options.seed = arguments.seed;
  options.loaderThreads = arguments.pictures.threads;
  const train::Network network =
      networkFor(openDevice(arguments.device), arguments,
                 arguments.network.empty() ? choice.network : arguments.network, *data.pictures);
  const auto curve = train::findLearningRate(network, *data.pictures, options, arguments.range);
  std::printf("learning rate        loss    smoothed\n");
  for (const auto& point : curve.points)
    std::printf("%13.3e %11.4f %11.4f\n", point.learningRate, point.loss, point.smoothed);
  if (curve.suggestion == 0)
    throw mps::Error("the loss falls at none of these learning rates; give another --lowest and --highest");
  std::printf("suggestion: --lr %.2g\n", curve.suggestion);
}

}  // namespace

void addFindLearningRateCommand(CLI::App& program) {
  const auto arguments = std::make_shared<FindArguments>();
  auto* command = program.add_subcommand(
      "find-lr",
      "Train for some steps with growing learning rates, print the losses and suggest a rate for train");
  command
      ->add_option(
          "--data", arguments->data,
          "fashion-mnist[:FOLDER], cifar-10:FOLDER, folder:FOLDER of pictures with a folder for each class, "
          "synthetic[:HxWxC]")
      ->capture_default_str();
  addPictureOptions(*command, arguments->pictures);
  addLoadingOptions(*command, arguments->pictures);
  addNetworkOption(*command, arguments->network)->default_str("mnist-cnn, of a folder small-cnn");
  command->add_option("--batch", arguments->batchSize, "Pictures per step")
      ->type_name("N")
      ->check(wholeNumber(1))
      ->default_str("64, of a folder up to 16");
  command->add_option("--optimizer", arguments->optimizer, "Optimizer")
      ->check(oneOf(train::optimizerNames()))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "Of weights and order")
      ->type_name("N")
      ->check(wholeNumber(0))
      ->capture_default_str();
  command->add_option("--lowest", arguments->range.lowest, "First learning rate")
      ->type_name("X")
      ->check(number(1e-30, 1e30))
      ->capture_default_str();
  command->add_option("--highest", arguments->range.highest, "Last learning rate")
      ->type_name("X")
      ->check(number(1e-30, 1e30))
      ->capture_default_str();
  command->add_option("--steps", arguments->range.steps, "From the first one to the last one")
      ->type_name("N")
      ->check(wholeNumber(2, 1'000'000))
      ->capture_default_str();
  addDeviceOptions(*command, arguments->device);
  command->callback([arguments] { findRate(*arguments); });
}

}  // namespace unmetal
