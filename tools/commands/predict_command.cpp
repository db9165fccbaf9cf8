#include <algorithm>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/commands/commands.hpp"
#include "tools/evaluation/evaluation.hpp"
#include "tools/options/device_options.hpp"
#include "tools/options/number_options.hpp"
#include "tools/terminal/text.hpp"
#include "tools/training/checkpoint.hpp"
#include "train/pictures/picture.hpp"
#include "train/pictures/picture_folder.hpp"

namespace unmetal {
namespace {

struct PredictOptions {
  std::filesystem::path checkpoint;
  std::vector<std::filesystem::path> pictures;
  std::size_t top = 3;
  bool json = false;
  DeviceOptions device;
};

/// Pictures by their names; of a folder all that lie in it, see picturesIn().
std::vector<std::filesystem::path> picturesOf(const std::vector<std::filesystem::path>& names) {
  std::vector<std::filesystem::path> pictures;
  for (const auto& name : names) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(name, ignored)) {
      pictures.push_back(name);
      continue;
    }
    const std::vector<std::filesystem::path> inside = train::picturesIn(name);
    pictures.insert(pictures.end(), inside.begin(), inside.end());
  }
  return pictures;
}

/// The classes with the largest probabilities, the most probable first.
std::vector<std::size_t> topClasses(std::span<const float> probabilities, std::size_t top) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return probabilities[i]; });
  order.resize(std::min(top, order.size()));
  return order;
}

/// One line: {"picture": "a.png", "classes": [{"name": "cat", "probability": 0.98}, ...]}
void printJson(const std::filesystem::path& picture, std::span<const float> probabilities,
               const std::vector<std::string>& classNames, std::size_t top) {
  nlohmann::ordered_json line;
  line["picture"] = picture.string();
  line["classes"] = nlohmann::ordered_json::array();
  for (const std::size_t i : topClasses(probabilities, top))
    line["classes"].push_back({{"name", classNames[i]}, {"probability", probabilities[i]}});
  // Names of files need not be UTF-8.
  std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

void printClasses(const std::filesystem::path& picture, std::span<const float> probabilities,
                  const std::vector<std::string>& classNames, std::size_t top) {
  const std::vector<std::size_t> order = topClasses(probabilities, top);
  std::printf("%s:", printable(picture.string()).c_str());
  for (std::size_t i = 0; i < order.size(); ++i)
    std::printf("%s %s %.1f %%", i == 0 ? "" : ",", printable(classNames[order[i]]).c_str(),
                100 * static_cast<double>(probabilities[order[i]]));
  std::printf("\n");
}

mps::ImageBatch imagesOf(std::span<const std::filesystem::path> pictures, const NetworkOptions& network,
                         const std::shared_ptr<mtl::Device>& device) {
  std::vector<float> values;
  values.reserve(pictures.size() * network.height * network.width * network.channels);
  for (const auto& path : pictures) {
    const train::Picture picture = train::readPicture(path, network.height, network.width, network.channels);
    for (const std::uint8_t pixel : picture.pixels) values.push_back(static_cast<float>(pixel) / 255.0F);
  }
  if (network.normalization) train::normalize(values, *network.normalization);
  auto images = mps::ImageBatch::create(
      device, {mps::ImageFeatureChannelFormat::Float32, network.width, network.height, network.channels},
      pictures.size());
  images.writeBytes(std::span<const float>(values), mps::DataLayout::HeightxWidthxFeatureChannels);
  return images;
}

void predict(const PredictOptions& options) {
  const std::vector<std::filesystem::path> pictures = picturesOf(options.pictures);
  const CheckpointFile file = CheckpointFile::read(options.checkpoint);
  const auto device = openDevice(options.device);
  const NetworkOptions network = file.networkOptions();
  Network built = buildNetwork(device, network);
  file.restoreWeights(built);

  // Nothing is printed before all pictures are known to be some.
  std::vector<float> probabilities;
  const auto queue = device->newCommandQueue();
  const std::size_t count = picturesAtOnce(network);
  for (std::span rest(pictures); !rest.empty();) {
    const auto piece = rest.first(std::min(count, rest.size()));
    rest = rest.subspan(piece.size());
    std::ranges::copy(classify(built, queue, imagesOf(piece, network, device)),
                      std::back_inserter(probabilities));
  }
  const std::size_t classes = network.classNames.size();
  const auto print = options.json ? printJson : printClasses;
  for (std::size_t i = 0; i < pictures.size(); ++i)
    print(pictures[i], std::span(probabilities).subspan(i * classes, classes), network.classNames,
          options.top);
}

/// Of files without --checkpoint the first one is that.
void takeCheckpoint(PredictOptions& options) {
  if (options.pictures.empty())
    throw mps::Error(
        "predict: the checkpoint is missing, as in unmetal predict CHECKPOINT PICTURE, or --checkpoint FILE");
  options.checkpoint = options.pictures.front();
  options.pictures.erase(options.pictures.begin());
}

}  // namespace

void addPredictCommand(CLI::App& program) {
  auto* command = program.add_subcommand("predict", "Classify pictures with a checkpoint");
  auto options = std::make_shared<PredictOptions>();
  auto* checkpoint = command->add_option("--checkpoint", options->checkpoint, "File that train wrote")
                         ->check(nameOf("a file"));
  command->add_option("files", options->pictures,
                      "The checkpoint, unless --checkpoint names it, and pictures: PNG or JPEG files or "
                      "folders of them, like the "
                      "training pictures; of Fashion-MNIST light on dark");
  command->add_option("--top", options->top, "Classes to print for each")
      ->type_name("N")
      ->check(wholeNumber(1))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print a line of JSON for each picture");
  addDeviceOptions(*command, options->device);
  command->callback([options, checkpoint] {
    if (checkpoint->count() == 0) takeCheckpoint(*options);
    if (options->pictures.empty())
      throw mps::Error("predict: the pictures are missing, as in unmetal predict CHECKPOINT PICTURE");
    predict(*options);
  });
}

}  // namespace unmetal
