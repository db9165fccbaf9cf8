#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "onnx/export.hpp"
#include "tools/commands/commands.hpp"
#include "tools/networks/networks.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/number_options.hpp"
#include "tools/terminal/text.hpp"
#include "tools/training/checkpoint.hpp"

namespace unmetal {
namespace {

struct ExportCommandOptions {
  std::filesystem::path checkpoint;
  std::filesystem::path onnx;
  bool scores = false;
};

/// The network of a checkpoint, on the CPU: nothing is computed.
train::Network networkOf(const CheckpointFile& file, const NetworkOptions& options) {
  const auto device = openDevice({});
  train::Network network = defineNetwork(device, options);
  Network built;
  built.options = options;
  built.layers = network.trainableLayers();
  file.restoreWeights(built);
  return network;
}

void exportCheckpoint(const ExportCommandOptions& options) {
  const CheckpointFile file = CheckpointFile::read(options.checkpoint);
  const NetworkOptions network = file.networkOptions();
  onnx::exportNetwork(
      networkOf(file, network), options.onnx,
      {.softmax = !options.scores, .classNames = network.classNames, .normalization = network.normalization});
  std::printf("wrote %s: %s for pictures of %zux%zux%zu, %zu classes\n",
              printable(options.onnx.string()).c_str(), printable(network.name).c_str(), network.height,
              network.width, network.channels, network.classNames.size());
}

}  // namespace

void addExportCommand(CLI::App& program) {
  auto* command = program.add_subcommand("export", "Write the network of a checkpoint as an ONNX file");
  auto options = std::make_shared<ExportCommandOptions>();
  command->add_option("--checkpoint,checkpoint", options->checkpoint, "File that train wrote")
      ->check(nameOf("a file"))
      ->required();
  command->add_option("--onnx,onnx", options->onnx, "File to write, for ONNX Runtime, OpenVINO and others")
      ->check(nameOf("a file"))
      ->required();
  command->add_flag("--scores", options->scores,
                    "Leave out the softmax: the result is scores, not probabilities");
  command->callback([options] { exportCheckpoint(*options); });
}

}  // namespace unmetal
