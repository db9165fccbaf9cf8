#include "onnx/import.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/weights/input_file.hpp"
#include "mtl/buffer.hpp"
#include "onnx/import/graph_import.hpp"
#include "onnx/model/external_data.hpp"
#include "train/network/weight_values.hpp"

namespace unmetal::onnx {
namespace {

using detail::ImportedNetwork;
using detail::LazyNumbers;
using train::Layer;
using train::Network;

/// A file's bytes, and the messages that view them.
class ModelFile {
 public:
  explicit ModelFile(const std::filesystem::path& path)
      : path_(path), bytes_(mps::readFile(path, largestFile)) {
    guarded([&] {
      model_ = detail::readModel(viewOf(bytes_));
      detail::attachExternalData(model_, [&](const std::string& name) { return dataOf(name); });
    });
  }

  [[nodiscard]] const detail::ModelMessage& model() const { return model_; }
  /// With the files that its constants are in.
  [[nodiscard]] std::size_t size() const {
    std::size_t size = bytes_.size();
    for (const auto& [name, bytes] : data_) size += bytes.size();
    return size;
  }
  /// Calls use(). @throws mps::Error of it behind the file's name
  template <class Use>
  auto guarded(const Use& use) const -> decltype(use()) {
    try {
      return use();
    } catch (const mps::Error& error) {
      throw mps::Error("cannot import " + path_.string() + ": " + error.what());
    }
  }

 private:
  static constexpr std::uint64_t largestFile = (std::uint64_t{1} << 31U) - 1;

  static std::string_view viewOf(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Read once, however many constants are in it.
  std::string_view dataOf(const std::string& name) {
    const auto found = data_.find(name);
    if (found != data_.end()) return viewOf(found->second);
    return viewOf(data_[name] = mps::readFile(path_.parent_path() / name, largestFile));
  }

  std::filesystem::path path_;
  std::vector<std::byte> bytes_;
  std::map<std::string, std::vector<std::byte>> data_;
  detail::ModelMessage model_;
};

template <class Value>
std::vector<Value> listOf(const detail::ModelMessage& model, const std::string& key) {
  const auto found = model.metadata.find(key);
  if (found == model.metadata.end()) return {};
  const auto json = nlohmann::json::parse(found->second, nullptr, false);
  const auto isValue = [](const nlohmann::json& item) {
    return std::is_same_v<Value, std::string> ? item.is_string() : item.is_number();
  };
  if (!json.is_array() || !std::ranges::all_of(json, isValue))
    throw mps::Error("its metadata \"" + key + "\" is no list of " +
                     (std::is_same_v<Value, std::string> ? "texts" : "numbers"));
  return json.get<std::vector<Value>>();
}

std::optional<train::Normalization> normalizationIn(const detail::ModelMessage& model) {
  train::Normalization found{listOf<float>(model, "normalization.mean"),
                             listOf<float>(model, "normalization.deviation")};
  if (found.mean.empty() && found.deviation.empty()) return std::nullopt;
  return found;
}

/// The last layer that makes scores; null without any.
const Layer* headOf(const Network& network) {
  const auto isHead = [](const Layer& layer) {
    return std::holds_alternative<train::DenseLayer>(layer.kind) ||
           std::holds_alternative<train::ConvolutionLayer>(layer.kind);
  };
  const auto& layers = network.layers();
  const auto found = std::find_if(layers.rbegin(), layers.rend(), isHead);
  return found == layers.rend() ? nullptr : &*found;
}

train::LayerKind withChannels(train::LayerKind kind, std::size_t channels) {
  if (auto* dense = std::get_if<train::DenseLayer>(&kind)) dense->channels = channels;
  if (auto* convolution = std::get_if<train::ConvolutionLayer>(&kind)) convolution->channels = channels;
  return kind;
}

/// The same layers with another head, whose weights are the seed's.
void replaceHead(ImportedNetwork& imported, std::size_t classes) {
  const Layer* head = headOf(imported.network);
  if (head == nullptr)
    throw mps::Error("it has no convolution or fully connected layer that could have " +
                     std::to_string(classes) + " classes");
  if (imported.network.outputShape().channels == classes) return;
  const Network former = imported.network;
  Network network(former.inputShape(), former.options());
  std::vector<train::Features> features{network.input()};
  for (std::size_t i = 1; i < former.layers().size(); ++i) {
    const Layer& layer = former.layers()[i];
    std::vector<train::Features> inputs;
    for (const std::size_t input : layer.inputs) inputs.push_back(features[input]);
    const train::LayerKind kind = &layer == head ? withChannels(layer.kind, classes) : layer.kind;
    features.push_back(network.add(kind, inputs, layer.hasGivenLabel ? layer.label : ""));
  }
  if (network.outputShape().channels != classes)
    throw mps::Error("its result does not follow its last layer with weights, \"" + head->label +
                     "\", so it cannot have " + std::to_string(classes) + " classes");
  imported.weights.erase(head->label);
  imported.network = network;
}

/// Of all parameters those that the file's length does not account for come from operators that fill.
void checkSize(const Network& network, std::size_t fileSize) {
  constexpr std::uint64_t bytesOfFloat16 = 2;
  constexpr std::uint64_t mostFilled = std::uint64_t{1} << 28U;
  std::uint64_t numbers = 0;
  for (const Layer& layer : network.layers())
    for (const train::Parameter& parameter : layer.parameters) numbers += parameter.count();
  if (numbers > fileSize / bytesOfFloat16 + mostFilled)
    throw mps::Error("its layers have " + std::to_string(numbers) + " numbers, which a file of " +
                     std::to_string(fileSize) + " bytes does not account for");
}

std::vector<float> finite(const LazyNumbers& numbers, const std::string& label) {
  std::vector<float> values = numbers();
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    throw mps::Error("a weight of the layer \"" + label + "\" is not finite");
  return values;
}

/// Checked before the first one is written, made again for each layer: they lie in memory once.
void fill(const Network& network, const std::map<std::string, std::vector<LazyNumbers>>& weights) {
  for (const auto& [label, parameters] : weights)
    for (const LazyNumbers& numbers : parameters) static_cast<void>(finite(numbers, label));
  for (const auto& [label, parameters] : weights) {
    const auto buffers = train::detail::buffersOf(*network.trainableLayer(label), network.device());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<float> values = parameters[i]();
      std::memcpy(buffers.at(i)->contents(), values.data(), values.size() * sizeof(float));
      buffers[i]->didModifyRange(0, values.size() * sizeof(float));
    }
  }
}

ImportedNetwork importFrom(const ModelFile& file, const train::NetworkOptions& options,
                           const train::LoadOptions& loading) {
  const detail::ImportSettings settings{options, loading.pictures};
  ImportedNetwork imported = detail::GraphImport(file.model(), settings).run();
  checkSize(imported.network, file.size());
  if (loading.classes != 0) replaceHead(imported, loading.classes);
  imported.network.setNormalization(normalizationIn(file.model()));
  return imported;
}

/// Whether a layer of that label has these parameters there.
bool fits(const Layer& layer, const Network& other) {
  const auto found = std::ranges::find(other.layers(), layer.label, &Layer::label);
  if (found == other.layers().end()) return false;
  return std::ranges::equal(layer.parameters, found->parameters, {}, &train::Parameter::shape,
                            &train::Parameter::shape);
}

}  // namespace

Network load(const std::filesystem::path& path, const train::NetworkOptions& options,
             const train::LoadOptions& loading) {
  const ModelFile file(path);
  return file.guarded([&] {
    const ImportedNetwork imported = importFrom(file, options, loading);
    fill(imported.network, imported.weights);
    return imported.network;
  });
}

Network loadLayers(const std::filesystem::path& path, const train::NetworkOptions& options,
                   const train::LoadOptions& loading) {
  const ModelFile file(path);
  return file.guarded([&] { return importFrom(file, options, loading).network; });
}

std::optional<std::string> loadWeights(Network& network, const std::filesystem::path& path,
                                       train::Head head) {
  static_cast<void>(network.trainableLayers());
  const ModelFile file(path);
  return file.guarded([&] {
    train::NetworkOptions options;
    options.device = network.device();
    train::LoadOptions loading;
    loading.pictures = network.inputShape();
    const ImportedNetwork imported = importFrom(file, options, loading);
    const Layer* const own = head == train::Head::Own ? headOf(network) : nullptr;
    std::optional<std::string> kept;
    std::map<std::string, std::vector<LazyNumbers>> weights;
    for (const Layer& layer : network.layers()) {
      if (layer.parameters.empty()) continue;
      if (fits(layer, imported.network))
        weights[layer.label] = imported.weights.at(layer.label);
      else if (&layer == own)
        kept = layer.label;
      else
        throw mps::Error("it has no layer \"" + layer.label + "\" with as many weights");
    }
    fill(network, weights);
    network.setNormalization(imported.network.normalization());
    return kept;
  });
}

std::vector<std::string> classNames(const std::filesystem::path& path) {
  const ModelFile file(path);
  return file.guarded([&] { return listOf<std::string>(file.model(), "classes"); });
}

}  // namespace unmetal::onnx
