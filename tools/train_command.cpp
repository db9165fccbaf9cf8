#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/trainer.hpp"

namespace unmetal {

void addTrainCommand(CLI::App& program) {
  auto* command =
      program.add_subcommand("train", "Train a network and write checkpoints, metrics and curves");
  auto options = std::make_shared<TrainingOptions>();
  auto device = std::make_shared<DeviceOptions>();
  auto learningRate = std::make_shared<double>(0);
  command->add_option("--data", options->data, "fashion-mnist[:FOLDER] or synthetic")->capture_default_str();
  command->add_option("--net", options->network, "Network")
      ->check(CLI::IsMember(networkNames()))
      ->capture_default_str();
  command->add_option("--epochs", options->epochs, "Passes over the data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", options->batchSize, "Pictures per step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--optimizer", options->optimizer, "Optimizer")
      ->check(CLI::IsMember(optimizerNames()))
      ->capture_default_str();
  auto* rate =
      command
          ->add_option("--lr", *learningRate, "Learning rate (default: 0.01 for sgd, 0.001 for the others)")
          ->check(CLI::PositiveNumber);
  command->add_option("--lr-schedule", options->schedule, "Learning rate over the steps")
      ->check(CLI::IsMember({"constant", "step", "cosine"}))
      ->capture_default_str();
  command
      ->add_option("--weight-decay", options->weightDecay,
                   "Factor of the weights that is added to their gradients")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--seed", options->seed,
                   "Of weights, order and dropout: the same seed gives the same bytes")
      ->capture_default_str();
  command
      ->add_option("--out", options->out, "Folder for metrics.csv, curves.svg, graph.dot and the checkpoints")
      ->capture_default_str();
  command->add_flag("--resume", options->resume, "Go on from the folder's checkpoint.safetensors");
  command->add_option("--checkpoint-every", options->checkpointSeconds, "Seconds between checkpoints")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  addDeviceOptions(*command, *device);
  command->callback([options, device, learningRate, rate] {
    if (rate->count() > 0) options->learningRate = *learningRate;
    Trainer trainer(openDevice(*device), *options);
    const double accuracy = trainer.run();
    std::printf("final test accuracy %.2f %%, checkpoint %s\n", 100 * accuracy,
                (options->out / "checkpoint.safetensors").c_str());
  });
}

}  // namespace unmetal
