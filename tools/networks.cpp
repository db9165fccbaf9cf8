#include "tools/networks.hpp"

#include <algorithm>
#include <charconv>

#include "mps/core/error.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/softmax/softmax.hpp"
#include "tools/networks/network_builder.hpp"
#include "tools/suggestion.hpp"

namespace unmetal {
namespace {

using Image = std::shared_ptr<mps::NNImageNode>;

struct NamedNetwork {
  const char* name;
  Features (*build)(NetworkBuilder&, const Features& pictures);
  /// Of its first layer; 0: it has no narrow forms.
  std::size_t firstChannels;
};
constexpr std::size_t usualChannels = 64;
constexpr std::size_t unetChannels = 16;
constexpr std::size_t styleChannels = 32;
constexpr NamedNetwork networks[] = {{"lenet", lenet, 0},
                                     {"mnist-cnn", mnistCnn, 0},
                                     {"resnet18", resnet18, usualChannels},
                                     {"resnet50", resnet50, usualChannels},
                                     {"alexnet-lrn", alexnetLrn, usualChannels},
                                     {"unet-small", unetSmall, unetChannels},
                                     {"style", style, styleChannels}};

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

std::shared_ptr<mps::NNGraph> trainingGraph(const std::shared_ptr<mtl::Device>& device, const Image& logits,
                                            std::size_t batchSize,
                                            const std::shared_ptr<mps::LossScale>& lossScale) {
  auto descriptor = mps::CNNLossDescriptor::cnnLossDescriptor(mps::CNNLossType::SoftMaxCrossEntropy,
                                                              mps::CNNReductionType::Sum);
  descriptor.setWeight(1.0F / static_cast<float>(batchSize));
  descriptor.setLossScale(lossScale);
  const auto loss = mps::CNNLossNode::create(logits, descriptor);
  std::vector<Image> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  return mps::NNGraph::create(device, results, std::vector<bool>(results.size(), false));
}

}  // namespace

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
  findNetwork(name);
}

void Network::setLearningRate(double rate) {
  for (const auto& layer : layers)
    if (layer->optimizer()) layer->optimizer()->setLearningRate(static_cast<float>(rate));
}

Network buildNetwork(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options) {
  const NamedNetwork named = findNetwork(options.name);
  Network network;
  network.options = options;
  NetworkBuilder builder(device, network.options, named.firstChannels);
  // First, because it makes the layers and counts their work.
  const Image trainingLogits = named.build(builder, builder.begin(true)).image;
  network.trainingFlopsPerPicture = builder.trainingFlops();
  if (options.optimizer) {
    if (options.format == mps::ImageFeatureChannelFormat::Float16)
      network.lossScale = mps::LossScale::create(device);
    network.training = trainingGraph(device, trainingLogits, options.batchSize, network.lossScale);
    for (const auto& layer : builder.layers()) layer->optimizer()->setLossScale(network.lossScale);
  }
  const Image logits = named.build(builder, builder.begin(false)).image;
  const Image probabilities = mps::CNNSoftMaxNode::create(logits)->resultImage();
  probabilities->setFormat(mps::ImageFeatureChannelFormat::Float32);
  network.inference = mps::NNGraph::create(device, probabilities);
  for (const auto& graph : {network.training, network.inference}) {
    if (!graph) continue;
    graph->setFormat(options.format);
    if (options.allowReducedPrecision)
      graph->setOptions(graph->options() | mps::KernelOptions::AllowReducedPrecision);
  }
  network.layers = builder.layers();
  network.options.expectTensor = nullptr;  // it may refer to a file that is gone
  network.parameterCount = builder.parameterCount();
  return network;
}

}  // namespace unmetal
