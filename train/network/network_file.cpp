#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/types/error.hpp"
#include "mps/weights/input_file.hpp"
#include "mps/weights/safetensors.hpp"
#include "mtl/device.hpp"
#include "train/data/normalization_file.hpp"
#include "train/network/network.hpp"
#include "train/network/network_state.hpp"
#include "train/network/network_text.hpp"
#include "train/network/weight_values.hpp"

/// Networks and weights in files.
namespace unmetal::train {
namespace {

constexpr const char* networkKey = "unmetal.network";
constexpr std::uint64_t largestText = std::uint64_t{16} << 20;

std::string tensorOf(const Layer& layer, const Parameter& parameter) {
  return layer.label + "." + parameter.name;
}

/// Float32 or, where the file has that, Float16. @throws mps::Error when it is missing or another one
void checkTensor(const mps::SafetensorsHeader& header, const std::string& name,
                 std::span<const std::uint64_t> shape) {
  const bool isShort = header.contains(name) && header.tensor(name).type == mps::DataType::Float16;
  static_cast<void>(header.tensor(name, isShort ? mps::DataType::Float16 : mps::DataType::Float32, shape));
}

bool fits(const mps::SafetensorsHeader& header, const Layer& layer) {
  return std::ranges::all_of(layer.parameters, [&](const Parameter& parameter) {
    const std::string name = tensorOf(layer, parameter);
    return header.contains(name) && std::ranges::equal(header.tensor(name).shape, parameter.shape);
  });
}

/// The last layer that makes scores: a dense layer or a convolution. Null without any.
const Layer* headOf(const Network& network) {
  const auto isHead = [](const Layer& layer) {
    return std::holds_alternative<DenseLayer>(layer.kind) ||
           std::holds_alternative<ConvolutionLayer>(layer.kind);
  };
  const auto& layers = network.layers();
  const auto found = std::find_if(layers.rbegin(), layers.rend(), isHead);
  return found == layers.rend() ? nullptr : &*found;
}

/// Takes all values after all tensors were looked at. @param keeps label of a layer that keeps its values
void readAll(const Network& network, const mps::SafetensorsHeader& header,
             const std::optional<std::string>& keeps) {
  const auto isRead = [&](const Layer& layer) { return layer.label != keeps; };
  for (const Layer& layer : network.layers())
    if (isRead(layer))
      for (const Parameter& parameter : layer.parameters)
        checkTensor(header, tensorOf(layer, parameter), parameter.shape);
  const auto file = mps::SafetensorsFile::read(header);
  for (const Layer& layer : network.layers())
    if (isRead(layer))
      for (const Parameter& parameter : layer.parameters) {
        const std::string name = tensorOf(layer, parameter);
        for (const float value : file.floats(name, parameter.shape))
          if (!std::isfinite(value)) throw file.error("the tensor \"" + name + "\" is not finite");
      }
  for (const Layer& layer : network.layers())
    if (isRead(layer) && !layer.parameters.empty()) network.trainableLayer(layer.label)->read(file, false);
}

detail::TextNetwork networkIn(const mps::SafetensorsHeader& header, const NetworkOptions& options,
                              const LoadOptions& loading) {
  const auto text = header.metadata().find(networkKey);
  if (text == header.metadata().end())
    throw header.error("it holds weights, but no network; make the network and use loadWeights()");
  try {
    return detail::networkOfText(text->second, options, loading, detail::TextOf::Weights);
  } catch (const mps::Error& error) {
    throw header.error(error.what());
  }
}

}  // namespace

void Network::save(const std::filesystem::path& path) const {
  detail::synchronize(trainableLayers(), device());
  std::vector<mps::SafetensorsTensor> tensors;
  for (const auto& layer : trainableLayers())
    for (auto& tensor : layer->tensors(false)) tensors.push_back(std::move(tensor));
  mps::SafetensorsMetadata metadata{{networkKey, detail::networkText(layers())}};
  if (normalization()) detail::addTo(metadata, *normalization());
  mps::writeSafetensors(path, std::move(tensors), metadata);
}

Network Network::load(const std::filesystem::path& path, const NetworkOptions& options,
                      const LoadOptions& loading) {
  const auto header = mps::SafetensorsHeader::read(path);
  auto [network, newHead] = networkIn(header, options, loading);
  try {
    network.state_->checkUse();
  } catch (const mps::Error& error) {
    throw header.error(error.what());
  }
  // Before memory is taken for a layer: the file has its tensors. Who has asked for another head has said its size.
  std::set<std::string> ownTensors;
  if (newHead)
    for (const Parameter& parameter : network.layer(*newHead).parameters)
      ownTensors.insert(tensorOf(network.layer(*newHead), parameter));
  network.setTensorCheck([&](const std::string& tensor, std::span<const std::uint64_t> shape) {
    if (!ownTensors.contains(tensor)) checkTensor(header, tensor, shape);
  });
  static_cast<void>(network.trainableLayers());
  network.setTensorCheck(nullptr);
  const auto normalization = detail::normalizationIn(header, network.inputShape());
  readAll(network, header, newHead);
  network.setNormalization(normalization);
  return network;
}

Network Network::fromFile(const std::filesystem::path& path, const NetworkOptions& options,
                          const LoadOptions& loading) {
  const std::vector<std::byte> bytes = mps::readFile(path, largestText);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    Network network = detail::networkOfText(text, options, loading, detail::TextOf::User).network;
    network.state_->checkUse();
    return network;
  } catch (const mps::Error& error) {
    throw mps::Error("cannot use " + path.string() + ": " + error.what());
  }
}

std::optional<std::string> Network::loadWeights(const std::filesystem::path& path, Head head) {
  static_cast<void>(trainableLayers());
  const auto header = mps::SafetensorsHeader::read(path);
  const Layer* own = head == Head::Own ? headOf(*this) : nullptr;
  std::optional<std::string> kept;
  if (own != nullptr && !fits(header, *own)) kept = own->label;
  const bool isOfSave = header.metadata().contains(networkKey);
  const auto found = isOfSave ? detail::normalizationIn(header, inputShape()) : normalization();
  readAll(*this, header, kept);
  setNormalization(found);
  return kept;
}

}  // namespace unmetal::train
