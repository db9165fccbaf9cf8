#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "mps/core/error.hpp"
#include "mps/weights/safetensors.hpp"
#include "mtl/device.hpp"
#include "train/network.hpp"
#include "train/network_state.hpp"
#include "train/weight_values.hpp"

/// Networks as text, in the metadata of their files.
namespace unmetal::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* networkKey = "unmetal.network";
constexpr std::size_t mostLayers = 100'000;

template <class Enumerator>
struct Word {
  Enumerator value;
  const char* word;
};
constexpr std::array paddings{Word<Padding>{Padding::Same, "same"}, Word<Padding>{Padding::Valid, "valid"}};
constexpr std::array modes{Word<UpsamplingMode>{UpsamplingMode::Nearest, "nearest"},
                           Word<UpsamplingMode>{UpsamplingMode::Bilinear, "bilinear"}};
using Initialization = mps::WeightInitialization;
constexpr std::array initializations{Word<Initialization>{Initialization::He, "he"},
                                     Word<Initialization>{Initialization::Glorot, "glorot"},
                                     Word<Initialization>{Initialization::Constant, "constant"}};
using Neuron = mps::CNNNeuronType;
constexpr std::array neurons{
    Word<Neuron>{Neuron::ReLU, "relu"},         Word<Neuron>{Neuron::Sigmoid, "sigmoid"},
    Word<Neuron>{Neuron::TanH, "tanh"},         Word<Neuron>{Neuron::HardSigmoid, "hardSigmoid"},
    Word<Neuron>{Neuron::SoftPlus, "softplus"}, Word<Neuron>{Neuron::SoftSign, "softsign"},
    Word<Neuron>{Neuron::ELU, "elu"},           Word<Neuron>{Neuron::ReLUN, "relu6"},
    Word<Neuron>{Neuron::GeLU, "gelu"}};

const auto& wordsOf(Padding /*value*/) {
  return paddings;
}
const auto& wordsOf(UpsamplingMode /*value*/) {
  return modes;
}
const auto& wordsOf(Initialization /*value*/) {
  return initializations;
}
const auto& wordsOf(Neuron /*value*/) {
  return neurons;
}

/// The fields of each kind, for reading and for writing: visit(name, value).
/// @{
template <class Visit>
void visitFields(InputLayer& /*kind*/, const Visit& /*visit*/) {}
template <class Visit>
void visitFields(ConvolutionLayer& kind, const Visit& visit) {
  visit("channels", kind.channels);
  visit("kernelSize", kind.kernelSize);
  visit("stride", kind.options.stride);
  visit("padding", kind.options.padding);
  visit("dilation", kind.options.dilation);
  visit("groups", kind.options.groups);
  visit("biases", kind.options.biases);
  visit("initialization", kind.options.initialization);
}
template <class Visit>
void visitFields(TransposedConvolutionLayer& kind, const Visit& visit) {
  visit("channels", kind.channels);
  visit("kernelSize", kind.kernelSize);
  visit("stride", kind.options.stride);
  visit("biases", kind.options.biases);
  visit("initialization", kind.options.initialization);
}
template <class Visit>
void visitFields(DenseLayer& kind, const Visit& visit) {
  visit("channels", kind.channels);
  visit("biases", kind.options.biases);
  visit("initialization", kind.options.initialization);
}
template <class Visit>
void visitFields(BatchNormalizationLayer& kind, const Visit& visit) {
  visit("momentum", kind.options.momentum);
  visit("epsilon", kind.options.epsilon);
}
template <class Visit>
void visitFields(InstanceNormalizationLayer& kind, const Visit& visit) {
  visit("epsilon", kind.epsilon);
}
template <class Visit>
void visitFields(GroupNormalizationLayer& kind, const Visit& visit) {
  visit("groups", kind.groups);
  visit("epsilon", kind.epsilon);
}
template <class Visit>
void visitFields(CrossChannelNormalizationLayer& kind, const Visit& visit) {
  visit("size", kind.options.size);
  visit("alpha", kind.options.alpha);
  visit("beta", kind.options.beta);
  visit("delta", kind.options.delta);
}
template <class Visit>
void visitFields(ActivationLayer& kind, const Visit& visit) {
  visit("function", kind.type);
  visit("a", kind.a);
  visit("b", kind.b);
}
template <class Visit>
void visitFields(MaxPoolLayer& kind, const Visit& visit) {
  visit("kernelSize", kind.kernelSize);
  visit("stride", kind.options.stride);
  visit("padding", kind.options.padding);
}
template <class Visit>
void visitFields(AveragePoolLayer& kind, const Visit& visit) {
  visit("kernelSize", kind.kernelSize);
  visit("stride", kind.options.stride);
  visit("padding", kind.options.padding);
}
template <class Visit>
void visitFields(GlobalAveragePoolLayer& /*kind*/, const Visit& /*visit*/) {}
template <class Visit>
void visitFields(DropoutLayer& kind, const Visit& visit) {
  visit("rate", kind.rate);
}
template <class Visit>
void visitFields(UpsamplingLayer& kind, const Visit& visit) {
  visit("factor", kind.factor);
  visit("mode", kind.mode);
}
template <class Visit>
void visitFields(SoftmaxLayer& /*kind*/, const Visit& /*visit*/) {}
template <class Visit>
void visitFields(AddLayer& /*kind*/, const Visit& /*visit*/) {}
template <class Visit>
void visitFields(ConcatenationLayer& /*kind*/, const Visit& /*visit*/) {}
/// @}

/// The kind's name in files: one for all activations.
std::string kindOf(const LayerKind& kind) {
  return std::holds_alternative<ActivationLayer>(kind) ? "activation" : nameOf(kind);
}

struct Writer {
  Json& json;
  template <class Value>
  void operator()(const char* name, const Value& value) const {
    if constexpr (std::is_enum_v<Value>) {
      for (const auto& word : wordsOf(value))
        if (word.value == value) json[name] = word.word;
    } else {
      json[name] = value;
    }
  }
};

/// Reads the fields of an object that may hold anything.
class Reader {
 public:
  Reader(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) throw mps::Error(place_ + " is not an object");
  }

  [[nodiscard]] mps::Error wrong(const std::string& name, const char* expected) const {
    const auto found = json_.find(name);
    return mps::Error(place_ + ": \"" + name + "\" is " +
                      (found == json_.end() ? "missing" : found->dump(-1, ' ', true).substr(0, 40)) +
                      ", expected " + expected);
  }
  [[nodiscard]] const Json& field(const std::string& name, const char* expected) const {
    const auto found = json_.find(name);
    if (found == json_.end()) throw wrong(name, expected);
    return *found;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    const Json& found = field(name, "a text");
    if (!found.is_string()) throw wrong(name, "a text");
    return found.get<std::string>();
  }

  template <class Value>
  void operator()(const char* name, Value& value) const {
    if constexpr (std::is_enum_v<Value>) {
      const std::string text = this->text(name);
      for (const auto& word : wordsOf(value))
        if (text == word.word) {
          value = word.value;
          return;
        }
      throw wrong(name, "a word that is known");
    } else if constexpr (std::same_as<Value, bool>) {
      if (!field(name, "true or false").is_boolean()) throw wrong(name, "true or false");
      value = json_[name].template get<bool>();
    } else if constexpr (std::same_as<Value, float>) {
      if (!field(name, "a number").is_number()) throw wrong(name, "a number");
      value = json_[name].template get<float>();
    } else {
      if (!field(name, "a whole number").is_number_unsigned()) throw wrong(name, "a whole number");
      value = json_[name].template get<std::size_t>();
    }
  }

 private:
  const Json& json_;
  std::string place_;
};

Json toJson(const std::vector<Layer>& layers) {
  Json json;
  const Shape& pictures = layers[0].shape;
  json["version"] = 1;
  json["pictures"] = {
      {"height", pictures.height}, {"width", pictures.width}, {"channels", pictures.channels}};
  json["layers"] = Json::array();
  for (std::size_t i = 1; i < layers.size(); ++i) {
    Json layer;
    LayerKind kind = layers[i].kind;
    layer["label"] = layers[i].label;
    layer["kind"] = kindOf(kind);
    layer["inputs"] = Json::array();
    for (const std::size_t input : layers[i].inputs) layer["inputs"].push_back(layers[input].label);
    std::visit([&](auto& alternative) { visitFields(alternative, Writer{layer}); }, kind);
    json["layers"].push_back(std::move(layer));
  }
  return json;
}

/// The layer of that name, with the fields of an object.
template <std::size_t index = 0>
LayerKind kindNamed(const std::string& name, const Reader& reader) {
  if constexpr (index == std::variant_size_v<LayerKind>) {
    throw reader.wrong("kind", "one that is known");
  } else {
    LayerKind kind{std::in_place_index<index>};
    if (index == 0 || kindOf(kind) != name) return kindNamed<index + 1>(name, reader);
    visitFields(std::get<index>(kind), reader);
    return kind;
  }
}

std::vector<float> numbersOf(const Reader& reader, const std::string& name) {
  const Json& list = reader.field(name, "a list of numbers");
  const auto isNumber = [](const Json& number) { return number.is_number(); };
  if (!list.is_array() || !std::ranges::all_of(list, isNumber)) throw reader.wrong(name, "a list of numbers");
  return list.get<std::vector<float>>();
}

/// Of a file without one there is none.
std::optional<Normalization> normalizationOf(const Json& json, const Shape& pictures) {
  const auto found = json.find("normalization");
  if (found == json.end()) return std::nullopt;
  const Reader reader(*found, "network: \"normalization\"");
  Normalization normalization{numbersOf(reader, "mean"), numbersOf(reader, "deviation")};
  checkNormalization(normalization, pictures);
  return normalization;
}

Network fromJson(const Json& json, const NetworkOptions& options) {
  const Reader reader(json, "network");
  std::size_t version = 0;
  reader("version", version);
  if (version != 1) throw reader.wrong("version", "1");
  Shape shape;
  const Reader pictures(reader.field("pictures", "an object"), "network: \"pictures\"");
  pictures("height", shape.height);
  pictures("width", shape.width);
  pictures("channels", shape.channels);
  Network network(shape, options);
  std::map<std::string, Features> features{{"input", network.input()}};
  const Json& layers = reader.field("layers", "a list");
  if (!layers.is_array() || layers.size() > mostLayers)
    throw mps::Error("network: \"layers\" is no list of at most " + std::to_string(mostLayers) + " layers");
  for (const Json& layer : layers) {
    const std::string place = "network: layer " + std::to_string(features.size());
    const Reader fields(layer, place);
    const std::string label = fields.text("label");
    if (label.empty()) throw fields.wrong("label", "a text that is not empty");
    const LayerKind kind = kindNamed(fields.text("kind"), fields);
    const Json& names = fields.field("inputs", "a list");
    if (!names.is_array()) throw fields.wrong("inputs", "a list");
    std::vector<Features> inputs;
    for (const Json& name : names) {
      const auto input = name.is_string() ? features.find(name.get<std::string>()) : features.end();
      if (input == features.end()) throw fields.wrong("inputs", "labels of layers before it");
      inputs.push_back(input->second);
    }
    features.emplace(label, network.add(kind, inputs, label));
  }
  network.setNormalization(normalizationOf(json, shape));
  return network;
}

Json parsed(const mps::SafetensorsHeader& header) {
  const auto text = header.metadata().find(networkKey);
  if (text == header.metadata().end())
    throw header.error("it holds weights, but no network; make the network and use loadWeights()");
  Json json = Json::parse(text->second, nullptr, false);
  if (json.is_discarded()) throw header.error("its network is not JSON");
  return json;
}

/// Takes all values after all tensors were looked at.
void readAll(const Network& network, const mps::SafetensorsHeader& header) {
  for (const Layer& layer : network.layers())
    for (const Parameter& parameter : layer.parameters)
      header.tensor(layer.label + "." + parameter.name, mps::DataType::Float32, parameter.shape);
  const auto file = mps::SafetensorsFile::read(header);
  for (const Layer& layer : network.layers())
    for (const Parameter& parameter : layer.parameters) {
      const std::string name = layer.label + "." + parameter.name;
      for (const float value : file.floats(name, parameter.shape))
        if (!std::isfinite(value)) throw file.error("the tensor \"" + name + "\" is not finite");
    }
  for (const auto& layer : network.trainableLayers()) layer->read(file, false);
}

}  // namespace

void Network::save(const std::filesystem::path& path) const {
  detail::synchronize(trainableLayers(), device());
  std::vector<mps::SafetensorsTensor> tensors;
  for (const auto& layer : trainableLayers())
    for (auto& tensor : layer->tensors(false)) tensors.push_back(std::move(tensor));
  Json json;
  try {
    json = toJson(layers());
    if (const auto& numbers = normalization())
      json["normalization"] = {{"mean", numbers->mean}, {"deviation", numbers->deviation}};
    mps::writeSafetensors(path, std::move(tensors), {{networkKey, json.dump()}});
  } catch (const Json::exception&) {
    throw mps::Error("Network: a label is not UTF-8, which a file needs");
  }
}

Network Network::load(const std::filesystem::path& path, const NetworkOptions& options) {
  const auto header = mps::SafetensorsHeader::read(path);
  const Json json = parsed(header);
  const auto made = [&] {
    try {
      Network network = fromJson(json, options);
      network.state_->checkUse();
      return network;
    } catch (const mps::Error& error) {
      throw header.error(error.what());
    }
  };
  Network network = made();
  // Before memory is taken for a layer: the file has its tensors.
  network.setTensorCheck([&](const std::string& tensor, std::span<const std::uint64_t> shape) {
    header.tensor(tensor, mps::DataType::Float32, shape);
  });
  static_cast<void>(network.trainableLayers());
  network.setTensorCheck(nullptr);
  readAll(network, header);
  return network;
}

void Network::loadWeights(const std::filesystem::path& path) {
  static_cast<void>(trainableLayers());
  const auto header = mps::SafetensorsHeader::read(path);
  std::optional<Normalization> found;
  const bool saysIt = header.metadata().contains(networkKey);
  if (saysIt) {
    const Json json = parsed(header);
    try {
      found = json.is_object() ? normalizationOf(json, inputShape()) : std::nullopt;
    } catch (const mps::Error& error) {
      throw header.error(error.what());
    }
  }
  readAll(*this, header);
  if (saysIt) setNormalization(found);
}

}  // namespace unmetal::train
