#include "train/network/network_text.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "mps/core/types/error.hpp"

namespace unmetal::train::detail {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t mostLayers = 100'000;

template <class Enumerator>
struct Word {
  Enumerator value;
  const char* word;
};
constexpr std::array paddings{Word<Padding>{Padding::Same, "same"}, Word<Padding>{Padding::Valid, "valid"},
                              Word<Padding>{Padding::Explicit, "explicit"}};
constexpr std::array modes{Word<UpsamplingMode>{UpsamplingMode::Nearest, "nearest"},
                           Word<UpsamplingMode>{UpsamplingMode::Bilinear, "bilinear"},
                           Word<UpsamplingMode>{UpsamplingMode::BilinearAlignCorners, "bilinearAlignCorners"},
                           Word<UpsamplingMode>{UpsamplingMode::BilinearAsymmetric, "bilinearAsymmetric"}};
constexpr std::array operations{Word<ArithmeticOperation>{ArithmeticOperation::Subtract, "subtract"},
                                Word<ArithmeticOperation>{ArithmeticOperation::Multiply, "multiply"},
                                Word<ArithmeticOperation>{ArithmeticOperation::Divide, "divide"}};
constexpr std::array contents{Word<PaddingContent>{PaddingContent::Constant, "constant"},
                              Word<PaddingContent>{PaddingContent::Edge, "edge"},
                              Word<PaddingContent>{PaddingContent::Mirror, "mirror"}};
using Initialization = mps::WeightInitialization;
constexpr std::array initializations{Word<Initialization>{Initialization::He, "he"},
                                     Word<Initialization>{Initialization::Glorot, "glorot"},
                                     Word<Initialization>{Initialization::Constant, "constant"}};
using Neuron = mps::CNNNeuronType;
constexpr std::array neurons{Word<Neuron>{Neuron::ReLU, "relu"},
                             Word<Neuron>{Neuron::Sigmoid, "sigmoid"},
                             Word<Neuron>{Neuron::TanH, "tanh"},
                             Word<Neuron>{Neuron::HardSigmoid, "hardSigmoid"},
                             Word<Neuron>{Neuron::SoftPlus, "softplus"},
                             Word<Neuron>{Neuron::SoftSign, "softsign"},
                             Word<Neuron>{Neuron::ELU, "elu"},
                             Word<Neuron>{Neuron::ReLUN, "relu6"},
                             Word<Neuron>{Neuron::GeLU, "gelu"},
                             Word<Neuron>{Neuron::Linear, "linear"},
                             Word<Neuron>{Neuron::Absolute, "absolute"},
                             Word<Neuron>{Neuron::Power, "power"},
                             Word<Neuron>{Neuron::Exponential, "exponential"},
                             Word<Neuron>{Neuron::Logarithm, "logarithm"}};

const auto& wordsOf(Padding /*value*/) {
  return paddings;
}
const auto& wordsOf(UpsamplingMode /*value*/) {
  return modes;
}
const auto& wordsOf(ArithmeticOperation /*value*/) {
  return operations;
}
const auto& wordsOf(PaddingContent /*value*/) {
  return contents;
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
  visit("margins", kind.options.margins);
}
template <class Visit>
void visitFields(TransposedConvolutionLayer& kind, const Visit& visit) {
  visit("channels", kind.channels);
  visit("kernelSize", kind.kernelSize);
  visit("stride", kind.options.stride);
  visit("biases", kind.options.biases);
  visit("initialization", kind.options.initialization);
  visit("margins", kind.options.margins);
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
  visit("c", kind.c);
}
template <class Layer, class Visit>
void visitPooling(Layer& kind, const Visit& visit) {
  visit("kernelSize", kind.kernelSize);
  visit("stride", kind.options.stride);
  visit("padding", kind.options.padding);
  visit("margins", kind.options.margins);
}
template <class Visit>
void visitFields(MaxPoolLayer& kind, const Visit& visit) {
  visitPooling(kind, visit);
}
template <class Visit>
void visitFields(AveragePoolLayer& kind, const Visit& visit) {
  visitPooling(kind, visit);
}
template <class Visit>
void visitFields(NormPoolLayer& kind, const Visit& visit) {
  visitPooling(kind, visit);
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
template <class Visit>
void visitFields(ArithmeticLayer& kind, const Visit& visit) {
  visit("operation", kind.operation);
}
template <class Visit>
void visitFields(PadLayer& kind, const Visit& visit) {
  visit("margins", kind.margins);
  visit("content", kind.content);
  visit("value", kind.value);
}
/// @}

/// The kind's name in files: one for all activations, and one for all of arithmetic.
std::string kindOf(const LayerKind& kind) {
  if (std::holds_alternative<ArithmeticLayer>(kind)) return "arithmetic";
  return std::holds_alternative<ActivationLayer>(kind) ? "activation" : nameOf(kind);
}

/// One number where both are the same.
Json jsonOf(const Sides& sides) {
  if (sides.height == sides.width) return sides.height;
  return {sides.height, sides.width};
}

struct Writer {
  Json& json;
  template <class Value>
  void operator()(const char* name, const Value& value) const {
    if constexpr (std::is_enum_v<Value>) {
      for (const auto& word : wordsOf(value))
        if (word.value == value) json[name] = word.word;
    } else if constexpr (std::same_as<Value, Sides>) {
      json[name] = jsonOf(value);
    } else if constexpr (std::same_as<Value, Margins>) {
      if (value != Margins{}) json[name] = {value.top, value.left, value.bottom, value.right};
    } else {
      json[name] = value;
    }
  }
};

/// For messages, in ASCII. Nested values are not shown: the JSON library would call itself for each level.
std::string shown(const Json& value) {
  constexpr std::size_t longest = 40;
  if (value.is_object()) return "an object";
  if (std::ranges::any_of(value, [&](const Json& item) { return value.is_array() && item.is_structured(); }))
    return "a list of lists or objects";
  return value.dump(-1, ' ', true).substr(0, longest);
}

/// Reads the fields of an object that may hold anything. What is not there keeps its default.
class Reader {
 public:
  Reader(const Json& json, std::string place) : json_(json), place_(std::move(place)) {
    if (!json.is_object()) throw mps::Error(place_ + " is not an object");
  }

  [[nodiscard]] mps::Error wrong(const std::string& name, const std::string& expected) const {
    const auto found = json_.find(name);
    return mps::Error(place_ + ": \"" + name + "\" is " + (found == json_.end() ? "missing" : shown(*found)) +
                      ", expected " + expected);
  }
  /// Null where it is not there.
  [[nodiscard]] const Json* find(const std::string& name) const {
    known_.insert(name);
    const auto found = json_.find(name);
    return found == json_.end() ? nullptr : &*found;
  }
  [[nodiscard]] const Json& field(const std::string& name, const char* expected) const {
    const Json* found = find(name);
    if (found == nullptr) throw wrong(name, expected);
    return *found;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    const Json& found = field(name, "a text");
    if (!found.is_string()) throw wrong(name, "a text");
    return found.get<std::string>();
  }

  template <class Value>
  void operator()(const char* name, Value& value) const {
    const Json* found = find(name);
    if constexpr (std::is_enum_v<Value>) {
      if (found != nullptr) value = valueOf(name, wordsOf(value));
    } else if constexpr (std::same_as<Value, bool>) {
      if (found == nullptr) return;
      if (!found->is_boolean()) throw wrong(name, "true or false");
      value = found->get<bool>();
    } else if constexpr (std::same_as<Value, float>) {
      if (found == nullptr) return;
      if (!found->is_number()) throw wrong(name, "a number");
      value = found->get<float>();
    } else if constexpr (std::same_as<Value, Margins>) {
      if (found == nullptr) return;
      const std::vector<std::size_t> numbers = numbersOf(name, *found);
      if (numbers.size() != 4) throw wrong(name, "four whole numbers: top, left, bottom, right");
      value = {numbers[0], numbers[1], numbers[2], numbers[3]};
    } else if (std::same_as<Value, Sides> && found != nullptr && found->is_array()) {
      const std::vector<std::size_t> numbers = numbersOf(name, *found);
      if (numbers.size() != 2) throw wrong(name, "one whole number, or two: height, width");
      if constexpr (std::same_as<Value, Sides>) value = {numbers[0], numbers[1]};
    } else {
      // 0 is no size: these have no default. The stride of a pooling says with it that it is the kernel's size.
      if (found == nullptr && (value != 0 || std::string_view(name) == "stride")) return;
      if (found == nullptr || !found->is_number_unsigned()) throw wrong(name, "a whole number");
      value = found->get<std::size_t>();
    }
  }

  /// @throws mps::Error when there is a field that nobody has looked for
  void refuseOthers() const {
    for (const auto& [name, value] : json_.items()) {
      if (known_.contains(name)) continue;
      std::string names;
      for (const std::string& known : known_) names += (names.empty() ? "" : ", ") + known;
      throw mps::Error(place_ + ": " + shown(name) + " is no field of it; there are " + names);
    }
  }

 private:
  [[nodiscard]] std::vector<std::size_t> numbersOf(const char* name, const Json& list) const {
    std::vector<std::size_t> numbers;
    const bool isList = list.is_array();
    for (const Json& item : list) {
      if (!isList || !item.is_number_unsigned()) throw wrong(name, "a list of whole numbers");
      numbers.push_back(item.get<std::size_t>());
    }
    return numbers;
  }
  template <class Words>
  [[nodiscard]] auto valueOf(const char* name, const Words& words) const {
    const std::string text = this->text(name);
    std::string known;
    for (const auto& word : words) {
      if (text == word.word) return word.value;
      known += (known.empty() ? "" : ", ") + std::string(word.word);
    }
    throw wrong(name, "one of " + known);
  }

  const Json& json_;
  std::string place_;
  mutable std::set<std::string> known_;
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

/// A word for an activation, with the numbers that the method of Features gives it.
struct ActivationWord {
  const char* kind;
  ActivationLayer layer;
  const char* field;  ///< what `a` is called, null where it is none of the user's
};
constexpr std::array activationWords{
    ActivationWord{"relu", {Neuron::ReLU, 0, 0}, nullptr},
    ActivationWord{"leakyRelu", {Neuron::ReLU, 0.01F, 0}, "slope"},
    ActivationWord{"relu6", {Neuron::ReLUN, 0, 6}, nullptr},
    ActivationWord{"elu", {Neuron::ELU, 1, 0}, "alpha"},
    ActivationWord{"gelu", {Neuron::GeLU, 0, 0}, nullptr},
    ActivationWord{"sigmoid", {Neuron::Sigmoid, 0, 0}, nullptr},
    ActivationWord{"hardSigmoid", {Neuron::HardSigmoid, 1.0F / 6, 0.5F}, nullptr},
    ActivationWord{"tanh", {Neuron::TanH, 1, 1}, nullptr},
    ActivationWord{"softplus", {Neuron::SoftPlus, 1, 1}, nullptr},
    ActivationWord{"softsign", {Neuron::SoftSign, 0, 0}, nullptr}};

/// An activation by its own name, e.g. {"kind": "leakyRelu", "slope": 0.2}.
std::optional<LayerKind> activationNamed(const std::string& name, const Reader& reader) {
  for (const ActivationWord& word : activationWords) {
    if (name != word.kind) continue;
    ActivationLayer layer = word.layer;
    if (word.field != nullptr) reader(word.field, layer.a);
    return layer;
  }
  return std::nullopt;
}

/// As files of weights have them: all numbers are there.
LayerKind anyActivation(const Reader& reader) {
  ActivationLayer layer;
  static_cast<void>(reader.field("function", "the name of an activation"));
  visitFields(layer, reader);
  return layer;
}

template <std::size_t index = 0>
void appendKinds(std::string& names) {
  if constexpr (index < std::variant_size_v<LayerKind>) {
    const LayerKind kind{std::in_place_index<index>};
    const bool isOne = index != 0 && !std::holds_alternative<ActivationLayer>(kind);
    if (isOne) names += (names.empty() ? "" : ", ") + kindOf(kind);
    appendKinds<index + 1>(names);
  }
}
std::string allKinds() {
  std::string names;
  appendKinds(names);
  for (const ActivationWord& word : activationWords) names += ", " + std::string(word.kind);
  return names;
}

/// The layer of that name, with the fields of an object.
template <std::size_t index = 0>
LayerKind kindNamed(const std::string& name, const Reader& reader) {
  if constexpr (index == std::variant_size_v<LayerKind>) {
    if (const auto activation = activationNamed(name, reader)) return *activation;
    throw reader.wrong("kind", "one of " + allKinds());
  } else {
    LayerKind kind{std::in_place_index<index>};
    if (index == 0 || kindOf(kind) != name) return kindNamed<index + 1>(name, reader);
    if (std::holds_alternative<ActivationLayer>(kind)) return anyActivation(reader);
    visitFields(std::get<index>(kind), reader);
    return kind;
  }
}

Shape picturesOf(const Reader& reader, const std::optional<Shape>& given) {
  const char* expected = "an object with height, width and channels";
  if (given && reader.find("pictures") == nullptr) return *given;
  Shape shape{0, 0, 1};
  const Reader pictures(reader.field("pictures", expected), "\"pictures\"");
  pictures("height", shape.height);
  pictures("width", shape.width);
  pictures("channels", shape.channels);
  pictures.refuseOthers();
  if (given && shape != *given)
    throw mps::Error("\"pictures\" are " + describe(shape) + ", expected " + describe(*given) +
                     ", as the data are");
  return shape;
}

/// Makes the layers one after the other.
class LayerReader {
 public:
  explicit LayerReader(Network& network) : network_(network), features_{{"input", network.input()}} {}

  void read(const Json& json) {
    ++number_;
    std::string place = "layer " + std::to_string(number_);
    if (json.is_object() && json.contains("label") && json["label"].is_string())
      place += " " + shown(json["label"]);
    const Reader fields(json, place);
    std::string label;
    if (fields.find("label") != nullptr) {
      label = fields.text("label");
      if (label.empty()) throw fields.wrong("label", "a text that is not empty");
    }
    const std::vector<Features> inputs = inputsOf(fields);
    const LayerKind kind = kindNamed(fields.text("kind"), fields);
    fields.refuseOthers();
    add(kind, inputs, label, place);
  }

 private:
  std::vector<Features> inputsOf(const Reader& fields) const {
    const Json* names = fields.find("inputs");
    if (names == nullptr) return {features_.at(network_.layers().back().label)};
    if (!names->is_array()) throw fields.wrong("inputs", "a list");
    std::vector<Features> inputs;
    for (const Json& name : *names) {
      const auto input = name.is_string() ? features_.find(name.get<std::string>()) : features_.end();
      if (input == features_.end()) throw fields.wrong("inputs", "labels of layers before it");
      inputs.push_back(input->second);
    }
    return inputs;
  }
  void add(const LayerKind& kind, const std::vector<Features>& inputs, const std::string& label,
           const std::string& place) {
    try {
      const Features made = network_.add(kind, inputs, label);
      features_.emplace(network_.layers().back().label, made);
    } catch (const mps::Error& error) {
      throw mps::Error(place + ": " + error.what());
    }
  }

  Network& network_;
  std::size_t number_ = 0;
  std::map<std::string, Features> features_;
};

/// Puts the number of classes where a file leaves it to the data.
void fillClasses(Json& layers, std::size_t classes) {
  for (Json& layer : layers) {
    if (!layer.is_object()) continue;
    const auto channels = layer.find("channels");
    if (channels == layer.end() || *channels != "classes") continue;
    if (classes == 0)
      throw mps::Error("the channels of a layer are \"classes\", and it was not said how many these are");
    *channels = classes;
  }
}

/// The last layer with weights gets so many channels. @return its label where it had others
std::optional<std::string> replaceHead(Json& layers, std::size_t classes) {
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (!layer->is_object() || !layer->contains("channels")) continue;
    Json& channels = (*layer)["channels"];
    const bool isOther = channels != classes;
    channels = classes;
    return isOther && layer->contains("label") && (*layer)["label"].is_string()
               ? std::optional((*layer)["label"].get<std::string>())
               : std::nullopt;
  }
  return std::nullopt;
}

Json parsed(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw mps::Error("the network is not JSON");
  return json;
}

}  // namespace

std::string networkText(const std::vector<Layer>& layers) {
  try {
    return toJson(layers).dump();
  } catch (const Json::exception&) {
    throw mps::Error("Network: a label is not UTF-8, which a file needs");
  }
}

TextNetwork networkOfText(const std::string& text, const NetworkOptions& options, const LoadOptions& loading,
                          TextOf textOf) {
  Json json = parsed(text);
  const Reader reader(json, "the network");
  std::size_t version = 1;
  reader("version", version);
  if (version != 1) throw reader.wrong("version", "1");
  const Shape pictures = picturesOf(reader, loading.pictures);
  static_cast<void>(reader.field("layers", "a list"));
  reader.refuseOthers();
  Json& layers = json["layers"];
  if (!layers.is_array() || layers.size() > mostLayers)
    throw mps::Error("\"layers\" is no list of at most " + std::to_string(mostLayers) + " layers");
  TextNetwork made{Network(pictures, options), std::nullopt};
  if (textOf == TextOf::User) fillClasses(layers, loading.classes);
  if (textOf == TextOf::Weights && loading.classes != 0) made.newHead = replaceHead(layers, loading.classes);
  LayerReader layerReader(made.network);
  for (const Json& layer : layers) layerReader.read(layer);
  const Shape& result = made.network.outputShape();
  if (loading.classes != 0 && result.channels != loading.classes)
    throw mps::Error("the network's result has " + std::to_string(result.channels) + " channels, expected " +
                     std::to_string(loading.classes) + ", one for each class");
  return made;
}

}  // namespace unmetal::train::detail
