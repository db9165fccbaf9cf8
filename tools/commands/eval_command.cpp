#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/commands/commands.hpp"
#include "tools/evaluation/evaluation.hpp"
#include "tools/evaluation/mistakes.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/number_options.hpp"
#include "tools/ranks/ranks.hpp"
#include "tools/terminal/text.hpp"
#include "tools/training/checkpoint.hpp"

namespace unmetal {

namespace {

struct EvalOptions {
  std::filesystem::path checkpoint;
  std::string data;
  bool skipBad = false;
  bool json = false;
  std::filesystem::path out;
  DeviceOptions device;
  RankOptions ranks;
};

void runEval(const std::shared_ptr<mtl::Device>& device, const train::detail::Ranks& ranks,
             const EvalOptions& options) {
  const bool tells = !train::detail::areSeveral(ranks) || ranks->rank() == 0;
  NamedData data;
  Network network;
  train::detail::together(ranks, [&] {
    const CheckpointFile file = CheckpointFile::read(options.checkpoint);
    DataOptions pictures = file.pictureOptions();
    pictures.skipBad = options.skipBad;
    data = loadDataset(options.data.empty() ? file.setting("data") : options.data, Split::Test, pictures);
    network = buildNetwork(device, file.networkOptions());
    file.restoreWeights(network);
  });
  if (!options.json && tells)
    for (const std::string& trouble : data.leftOut) std::printf("left out: %s\n", printable(trouble).c_str());
  WorstPictures worst;
  const ConfusionMatrix matrix = evaluate(network, device->newCommandQueue(), data, &worst, ranks);
  if (!tells) return;
  if (!options.out.empty()) {
    mps::makeWritableFolder(options.out);
    drawMistakes(options.out, options.checkpoint.filename().string() + " on " + data.name, matrix, worst,
                 *data.pictures);
  }
  if (options.json) {
    std::cout << matrix.json() << "\n";
    return;
  }
  std::cout << matrix.table();
  std::printf("accuracy %.2f %% (%llu of %llu)\n", 100 * matrix.accuracy(),
              static_cast<unsigned long long>(matrix.correct()),
              static_cast<unsigned long long>(matrix.total()));
}

}  // namespace

void addEvalCommand(CLI::App& program) {
  auto* command =
      program.add_subcommand("eval", "Print the accuracy of a checkpoint and its confusion matrix");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("--checkpoint,checkpoint", options->checkpoint, "File that train wrote")
      ->check(nameOf("a file"))
      ->required();
  command
      ->add_option("--data", options->data,
                   "Data whose test pictures are classified (default: the checkpoint's)")
      ->check(nameOf("data"));
  command->add_flag("--skip-bad", options->skipBad,
                    "Of a folder: name what cannot be used and go on without it");
  command->add_flag("--json", options->json,
                    "Print one line of JSON: accuracy, loss, precision, recall and F1 of each class, what "
                    "was taken for what");
  command
      ->add_option("--out", options->out,
                   "Folder for confusion.svg and worst.svg, the pictures whose class got the least "
                   "probability")
      ->check(nameOf("a folder"));
  addDeviceOptions(*command, options->device);
  addRankOptions(*command, options->ranks);
  command->callback([options] {
    runAsRank(
        options->device, options->ranks, "",
        [&](const auto& device, const train::detail::Ranks& ranks) { runEval(device, ranks, *options); });
  });
}

}  // namespace unmetal
