#include "tools/networks/networks.hpp"

#include <algorithm>
#include <charconv>

#include "mps/core/types/error.hpp"
#include "onnx/import.hpp"
#include "tools/networks/network_definitions.hpp"
#include "tools/terminal/suggestion.hpp"
#include "train/network/network_text.hpp"

namespace unmetal {
namespace {

struct NamedNetwork {
  const char* name;
  train::Features (*build)(const train::Features& pictures, const NetworkForm& form);
  /// Of its first layer; 0: it has no narrow forms.
  std::size_t firstChannels;
  /// Pictures' sides are multiples of it.
  std::size_t sides = 1;
};
constexpr std::size_t usualChannels = 64;
constexpr std::size_t smallChannels = 16;
constexpr std::size_t unetChannels = 16;
constexpr std::size_t styleChannels = 32;
constexpr NamedNetwork networks[] = {{"lenet", lenet, 0},
                                     {"mnist-cnn", mnistCnn, 0},
                                     {"small-cnn", smallCnn, smallChannels},
                                     {"resnet18", resnet18, usualChannels},
                                     {"resnet50", resnet50, usualChannels},
                                     {"alexnet-lrn", alexnetLrn, usualChannels},
                                     {"unet-small", unetSmall, unetChannels, 4},
                                     {"style", style, styleChannels, 4}};

/// The network of a name such as "resnet18" or "resnet18:16".
NamedNetwork findNetwork(const std::string& name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  std::string known;
  for (NamedNetwork network : networks) {
    known += (known.empty() ? "" : ", ") + std::string(network.name);
    if (name.compare(0, colon, network.name) != 0) continue;
    if (colon == name.size()) return network;
    constexpr std::size_t mostChannels = 1024;
    std::size_t channels = 0;
    const auto [end, error] = std::from_chars(name.data() + colon + 1, name.data() + name.size(), channels);
    if (network.firstChannels == 0 || error != std::errc{} || end != name.data() + name.size() ||
        channels == 0 || channels > mostChannels)
      throw mps::Error("network \"" + name + "\": " +
                       (network.firstChannels == 0
                            ? std::string(network.name) + " takes no number of channels"
                            : "give a number of channels from 1 to " + std::to_string(mostChannels)));
    network.firstChannels = channels;
    return network;
  }
  throw mps::Error("network \"" + name + "\" is unknown; there are " + known +
                   suggestion(name.substr(0, colon), networkNames()));
}

bool isNetworkFile(const std::string& name) {
  return name.ends_with(".json") || isModelFile(name);
}

train::Network networkOfFile(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options) {
  const train::NetworkOptions own{options.seed, device, options.allowReducedPrecision, options.format};
  const train::LoadOptions loading{options.classNames.size(),
                                   train::Shape{options.height, options.width, options.channels}};
  if (options.description.empty())
    return isModelFile(options.name) ? onnx::loadLayers(options.name, own, loading)
                                     : train::Network::fromFile(options.name, own, loading);
  train::Network network =
      train::detail::networkOfText(options.description, own, loading, train::detail::TextOf::User).network;
  network.setTensorCheck(options.expectTensor);
  return network;
}

void checkSides(const NetworkOptions& options, std::size_t factor) {
  if (options.width % factor == 0 && options.height % factor == 0) return;
  throw mps::Error("network " + options.name + ": give pictures whose sides are multiples of " +
                   std::to_string(factor) + ", not " + std::to_string(options.height) + "x" +
                   std::to_string(options.width));
}

}  // namespace

bool isModelFile(const std::string& name) {
  return name.ends_with(".onnx");
}

std::vector<std::string> networkNames() {
  std::vector<std::string> names;
  for (const NamedNetwork& network : networks) names.emplace_back(network.name);
  return names;
}

std::vector<std::string> narrowNetworkNames() {
  std::vector<std::string> names;
  for (const NamedNetwork& network : networks)
    names.push_back(network.name + std::string(network.firstChannels == 0 ? "" : ":2"));
  return names;
}

void checkNetworkName(const std::string& name) {
  if (!isNetworkFile(name)) findNetwork(name);
}

train::Network defineNetwork(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options) {
  if (isNetworkFile(options.name)) return networkOfFile(device, options);
  const NamedNetwork named = findNetwork(options.name);
  checkSides(options, named.sides);
  train::Network network({options.height, options.width, options.channels},
                         {options.seed, device, options.allowReducedPrecision, options.format});
  network.setTensorCheck(options.expectTensor);
  try {
    named.build(network.input(), {options.classNames.size(), named.firstChannels});
  } catch (const mps::Error& error) {
    throw mps::Error("network " + options.name + ": " + error.what());
  }
  return network;
}

Network buildNetwork(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options) {
  Network network;
  network.options = options;
  train::Network& definition = network.definition.emplace(defineNetwork(device, options));
  definition.setNormalization(options.normalization);
  network.trainingFlopsPerPicture = definition.trainingFlops();
  network.parameterCount = definition.parameterCount();
  if (isNetworkFile(options.name)) network.description = train::detail::networkText(definition.layers());
  for (const std::string& prefix : options.frozen) definition.freeze(prefix);
  if (options.optimizer) {
    definition.setOptimizer(options.optimizer, options.adamForm);
    network.scores = std::make_shared<train::detail::ScoreImages>();
    const train::TrainingGraph training = definition.makeTrainingGraph(options.batchSize, network.scores);
    network.training = training.graph;
    network.lossScale = training.lossScale;
  }
  network.inference = definition.makeInferenceGraph();
  network.layers = definition.trainableLayers();
  // It may refer to a file that is gone.
  network.options.expectTensor = nullptr;
  definition.setTensorCheck(nullptr);
  return network;
}

}  // namespace unmetal
