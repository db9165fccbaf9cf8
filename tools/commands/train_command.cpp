#include <CLI/CLI.hpp>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "tools/commands/commands.hpp"
#include "tools/options/config_file.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/network_option.hpp"
#include "tools/options/number_options.hpp"
#include "tools/options/picture_options.hpp"
#include "tools/ranks/ranks.hpp"
#include "tools/terminal/exit_status.hpp"
#include "tools/terminal/signals.hpp"
#include "tools/terminal/suggestion.hpp"
#include "tools/terminal/text.hpp"
#include "tools/training/resume_settings.hpp"
#include "tools/training/trainer.hpp"
#include "train/text/fixed_point.hpp"
#include "train/training/optimizers.hpp"
#include "train/training/schedule.hpp"

namespace unmetal {
namespace {

/// Below 1.
constexpr double largestDecay = 0.999999;

/// Of a learning rate, see train::Schedule.
CLI::Validator scheduleText() {
  const auto check = [](const std::string& text) -> std::string {
    try {
      static_cast<void>(train::Schedule(text));
    } catch (const mps::Error& error) {
      const std::vector<std::string> names{"constant", "step", "cosine", "one-cycle"};
      return error.what() + suggestion(text, names);
    }
    return {};
  };
  return {check, ""};
}

/// Headings for its help.
void groupOptions(CLI::App& command) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> groups{
      {"Data",
       {"--data", "--picture-size", "--skip-bad", "--loader-threads", "--memory-budget", "--validation",
        "--augment", "--normalize"}},
      {"Network", {"--net", "--init-from", "--freeze", "--format", "--allow-reduced-precision"}},
      {"Training",
       {"--epochs", "--batch", "--optimizer", "--lr", "--lr-schedule", "--warmup", "--weight-decay",
        "--clip-norm", "--ema", "--class-weights", "--best-by", "--patience", "--seed", "--steps"}},
      {"Files",
       {"--out", "--resume", "--overwrite", "--checkpoint-every", "--graph", "--tensorboard", "--quiet",
        "--config"}},
      {"Devices",
       {"--device", "--threads", "--plans", "--devices", "--collective-timeout", "--no-sync-batch-norm"}}};
  for (const auto& [heading, names] : groups)
    for (const char* name : names) command.get_option(name)->group(heading);
}

void runTraining(const std::shared_ptr<mtl::Device>& device, TrainingOptions options) {
  const OutputWithoutReader output;
  options.isStopWanted = [] { return StopSignals::received() != 0; };
  std::unique_ptr<Trainer> own;
  train::detail::together(options.ranks, [&] { own = std::make_unique<Trainer>(device, options); });
  Trainer& trainer = *own;
  trainer.begin();
  // Not before: while data are read there is nothing to write.
  const StopSignals signals;
  const std::optional<double> accuracy = trainer.run();
  if (train::detail::areSeveral(options.ranks) && options.ranks->rank() != 0) {
    if (!accuracy && StopSignals::received() != 0) exitProgram(kExitSignal + StopSignals::received());
    return;
  }
  const auto file = [&](const char* name) { return printable((options.out / name).string()); };
  const std::string goOn = "unmetal train --resume --out " + printable(options.out.string());
  const int signal = StopSignals::received();
  if (accuracy) {
    if (trainer.hasLostPatience())
      std::cout << "no better epoch in " << options.patience
                << " epochs: the training ends before its last epoch\n";
    std::cout << "final validation accuracy " << formatFixed(100 * *accuracy, 2) << " %, best "
              << formatFixed(100 * trainer.bestAccuracy(), 2) << " %\n"
              << "weights of the best epoch: " << file("best.safetensors")
              << "; of the last one, to go on: " << file("checkpoint.safetensors") << "\n"
              << "next: unmetal predict " << file("best.safetensors") << " PICTURE";
  } else {
    const std::string cause = signal == SIGINT ? " by Ctrl-C" : " by SIGTERM";
    std::cout << "stopped after step " << trainer.step() << (signal == 0 ? "" : cause) << ", checkpoint "
              << file("checkpoint.safetensors") << "; to go on: " << goOn;
  }
  std::cout << std::endl;
  if (signal != 0 && !accuracy) exitProgram(kExitSignal + signal);
}

}  // namespace

void addTrainCommand(CLI::App& program) {
  auto* command =
      program.add_subcommand("train", "Train a network and write checkpoints, metrics and curves");
  auto options = std::make_shared<TrainingOptions>();
  auto device = std::make_shared<DeviceOptions>();
  auto ranks = std::make_shared<RankOptions>();
  auto learningRate = std::make_shared<double>(0);
  auto config = std::make_shared<std::filesystem::path>();
  command
      ->add_option("--data", options->data,
                   "fashion-mnist[:FOLDER], cifar-10:FOLDER, folder:FOLDER of pictures with a folder for "
                   "each class, synthetic[:HxWxC]")
      ->type_name("DATA")
      ->capture_default_str();
  addPictureOptions(*command, options->pictures);
  addLoadingOptions(*command, options->pictures);
  command
      ->add_option("--validation", options->pictures.validation,
                   "Of a folder: the share of each class that is kept for validation")
      ->type_name("SHARE")
      ->check(number(0.001, 0.999))
      ->capture_default_str();
  addNetworkOption(*command, options->network)->default_str("mnist-cnn, of a folder small-cnn");
  addAugmentOption(*command, options->augmentation);
  command
      ->add_option("--normalize", options->normalization,
                   "What pictures are normalised by: nothing, mean and deviation of ImageNet's, or those "
                   "computed of the training pictures; eval and predict do the same")
      ->check(oneOf({"none", "imagenet", "computed"}))
      ->capture_default_str();
  command->add_option("--epochs", options->epochs, "Passes over the data")
      ->type_name("N")
      ->check(wholeNumber(1, 1'000'000))
      ->default_str("5, of a folder 8 to 120, more of fewer pictures");
  command->add_option("--batch", options->batchSize, "Pictures per step")
      ->type_name("N")
      ->check(wholeNumber(1))
      ->default_str("64, of a folder up to 16");
  command->add_option("--optimizer", options->optimizer, "Optimizer")
      ->check(oneOf(train::optimizerNames()))
      ->capture_default_str();
  auto* rate = command
                   ->add_option("--lr", *learningRate,
                                "Learning rate (default: 0.1 for sgd, 0.01 with momentum, 0.001 for the "
                                "others; of a folder 0.01)")
                   ->type_name("X")
                   ->check(number(1e-30, 1e30));
  command
      ->add_option("--lr-schedule", options->schedule,
                   "Learning rate over the steps: constant, step[:EPOCHS[:FACTOR]], cosine or one-cycle")
      ->type_name("SCHEDULE")
      ->check(scheduleText())
      ->default_str("constant, of a folder one-cycle");
  command
      ->add_option("--warmup", options->warmup,
                   "Epochs in which the learning rate rises to where its schedule begins")
      ->type_name("EPOCHS")
      ->check(number(0, 1e6))
      ->capture_default_str();
  command
      ->add_option(
          "--weight-decay", options->weightDecay,
          "Factor of the weights that is added to their gradients; adamw takes it, times the learning rate, "
          "off the weights")
      ->type_name("X")
      ->check(number(0, 1e30))
      ->default_str("0, for adamw 0.01, of a folder 0.0005");
  command
      ->add_option("--clip-norm", options->clipNorm,
                   "Longest vector of all gradients of a step: longer ones are shortened; 0 for no limit")
      ->type_name("X")
      ->check(number(0, 1e30))
      ->capture_default_str();
  command
      ->add_option(
          "--ema", options->averageDecay,
          "Decay of a moving average of the weights, e.g. 0.999, which validation and best.safetensors "
          "have; 0 for none")
      ->type_name("DECAY")
      ->check(number(0, largestDecay))
      ->capture_default_str();
  command
      ->add_option("--freeze", options->frozen,
                   "Do not train layers whose labels begin with this word; several may follow each other "
                   "with commas between")
      ->type_name("PREFIX")
      ->delimiter(',');
  command
      ->add_option("--class-weights", options->classWeights,
                   "none, balanced (rare classes count as much as frequent ones), or a number for each "
                   "class: factors of the "
                   "loss")
      ->type_name("HOW")
      ->capture_default_str();
  command
      ->add_option("--best-by", options->bestBy,
                   "What of the validation pictures makes an epoch the best one")
      ->check(oneOf({"accuracy", "loss"}))
      ->capture_default_str();
  command
      ->add_option(
          "--patience", options->patience,
          "End when so many epochs in a row were not better than the best one before them; 0 for never")
      ->type_name("EPOCHS")
      ->check(wholeNumber(0, 1'000'000))
      ->capture_default_str();
  command
      ->add_option("--seed", options->seed,
                   "Of weights, order and dropout: the same seed gives the same bytes")
      ->type_name("N")
      ->check(wholeNumber(0))
      ->capture_default_str();
  command
      ->add_option("--format", options->format,
                   "Of activations; weights stay float32. float16 scales the loss, dynamically")
      ->check(oneOf({"float32", "float16"}))
      ->capture_default_str();
  command->add_flag(
      "--allow-reduced-precision", options->allowReducedPrecision,
      "Convolutions may round what they multiply: a GPU to the 11 bits of TF32, a CPU with AMX to "
      "the 8 bits of bfloat16; faster, less accurate");
  command
      ->add_option("--out", options->out,
                   "Folder for metrics.csv, the checkpoints and pictures of the training (.svg)")
      ->type_name("FOLDER")
      ->check(nameOf("a folder"))
      ->capture_default_str();
  command
      ->add_option(
          "--graph", options->graph,
          "graph.svg shows the layers; all: and graph.dot each step of a training step, for Graphviz")
      ->check(oneOf({"forward", "all"}))
      ->capture_default_str();
  command->add_flag(
      "--tensorboard", options->tensorBoard,
      "Write event files beside metrics.csv: scalars, histograms of weights and their gradients, mistakes "
      "as pictures, the layers");
  auto* resume = command->add_flag(
      "--resume", options->resume,
      "Go on from the checkpoint.safetensors of --out, with its options; epochs, learning rate "
      "and device may be others");
  command->add_flag("--overwrite", options->overwrite,
                    "Replace a training that the folder of --out holds already");
  command
      ->add_option(
          "--init-from", options->initialWeights,
          "Begin with weights of a checkpoint, or of PyTorch: a safetensors file with the names of "
          "the network's tensors, "
          "which are torchvision's for resnets; or of the ONNX file that --net names. A last layer for "
          "other classes begins anew")
      ->type_name("FILE")
      ->check(nameOf("a file"))
      ->excludes(resume);
  command
      ->add_option("--checkpoint-every", options->checkpointSeconds,
                   "Most seconds between checkpoints, 0 for one after each step; short trainings write more")
      ->type_name("SECONDS")
      ->check(number(0, 1e9))
      ->capture_default_str();
  command
      ->add_option("--steps", options->lastStep, "Stop after so many steps of the training; --resume goes on")
      ->type_name("N")
      ->check(wholeNumber(1));
  command->add_flag("--quiet", options->quiet, "Print the result alone");
  addDeviceOptions(*command, *device);
  addRankOptions(*command, *ranks);
  command->add_flag_callback(
      "--no-sync-batch-norm", [options] { options->synchronizesBatchNormalization = false; },
      "Of several ranks: each normalises with the statistics of its own pictures, not of the whole batch");
  addConfigOption(*command, *config);
  groupOptions(*command);
  command->callback([command, options, device, ranks, learningRate, rate, config] {
    if (!config->empty()) takeConfig(*command, *config);
    // Not by excludes(): help would name the two in an order that changes from run to run.
    if (options->resume && options->overwrite) throw CLI::ExcludesError("--overwrite", "--resume");
    if (options->resume)
      takeSettings(*command, CheckpointFile::read(options->out / "checkpoint.safetensors"));
    if (rate->count() > 0) options->learningRate = *learningRate;
    const std::string hint = "; to go on from the last checkpoint: unmetal train --resume --out " +
                             printable(options->out.string());
    runAsRank(*device, *ranks, hint, [&](const auto& opened, const train::detail::Ranks& communicator) {
      options->ranks = communicator;
      runTraining(opened, *options);
      options->ranks = nullptr;
    });
  });
}

}  // namespace unmetal
