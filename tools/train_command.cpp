#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/network_option.hpp"
#include "tools/number_options.hpp"
#include "tools/optimizers.hpp"
#include "tools/picture_options.hpp"
#include "tools/text.hpp"
#include "tools/trainer.hpp"

namespace unmetal {

void addTrainCommand(CLI::App& program) {
  auto* command =
      program.add_subcommand("train", "Train a network and write checkpoints, metrics and curves");
  auto options = std::make_shared<TrainingOptions>();
  auto device = std::make_shared<DeviceOptions>();
  auto learningRate = std::make_shared<double>(0);
  command
      ->add_option(
          "--data", options->data,
          "fashion-mnist[:FOLDER], folder:FOLDER of pictures with a folder for each class, synthetic[:HxWxC]")
      ->capture_default_str();
  addPictureOptions(*command, options->pictures);
  command
      ->add_option("--validation", options->pictures.validation,
                   "Of a folder: the share of each class that is kept for tests")
      ->type_name("SHARE")
      ->check(number(0.001, 0.999))
      ->capture_default_str();
  addNetworkOption(*command, options->network)->capture_default_str();
  command->add_option("--epochs", options->epochs, "Passes over the data")
      ->type_name("N")
      ->check(wholeNumber(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--batch", options->batchSize, "Pictures per step")
      ->type_name("N")
      ->check(wholeNumber(1))
      ->capture_default_str();
  command->add_option("--optimizer", options->optimizer, "Optimizer")
      ->check(CLI::IsMember(optimizerNames()))
      ->capture_default_str();
  auto* rate =
      command
          ->add_option("--lr", *learningRate,
                       "Learning rate (default: 0.1 for sgd, 0.01 with momentum, 0.001 for the others)")
          ->type_name("X")
          ->check(number(1e-30, 1e30));
  command->add_option("--lr-schedule", options->schedule, "Learning rate over the steps")
      ->check(CLI::IsMember({"constant", "step", "cosine"}))
      ->capture_default_str();
  command
      ->add_option("--weight-decay", options->weightDecay,
                   "Factor of the weights that is added to their gradients")
      ->type_name("X")
      ->check(number(0, 1e30))
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
      ->check(CLI::IsMember({"float32", "float16"}))
      ->capture_default_str();
  command->add_flag("--allow-reduced-precision", options->allowReducedPrecision,
                    "A GPU may multiply with the 11 bits of TF32; faster, not the CPU's bits");
  command
      ->add_option("--out", options->out,
                   "Folder for metrics.csv, curves.svg, graph.dot and the checkpoints, in place of those of "
                   "an earlier training")
      ->check(nameOf("a folder"))
      ->capture_default_str();
  auto* resume =
      command->add_flag("--resume", options->resume, "Go on from the folder's checkpoint.safetensors");
  command
      ->add_option(
          "--init-from", options->initialWeights,
          "Begin with weights of PyTorch: a safetensors file with the names of the network's tensors, which "
          "are torchvision's for resnets")
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
  addDeviceOptions(*command, *device);
  command->callback([options, device, learningRate, rate] {
    if (rate->count() > 0) options->learningRate = *learningRate;
    Trainer trainer(openDevice(*device), *options);
    const std::optional<double> accuracy = trainer.run();
    const std::string checkpoint = printable((options->out / "checkpoint.safetensors").string());
    if (accuracy)
      std::printf("final test accuracy %.2f %%, checkpoint %s\n", 100 * *accuracy, checkpoint.c_str());
    else
      std::printf("stopped after step %llu, checkpoint %s\n", static_cast<unsigned long long>(trainer.step()),
                  checkpoint.c_str());
  });
}

}  // namespace unmetal
