#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "onnx/import/node_import.hpp"
#include "onnx/import/weight_orders.hpp"

/// Functions of each value.
namespace unmetal::onnx::detail {
namespace {

using Neuron = mps::CNNNeuronType;
using train::ActivationLayer;

ActivationLayer gelu(const NodeImport& node) {
  if (node.text("approximate", "none") != "none")
    throw node.refusal("attribute approximate", "\"" + node.text("approximate", "") + "\"", "\"none\"");
  return {Neuron::GeLU};
}

ActivationLayer activationFor(const NodeImport& node) {
  using Make = ActivationLayer (*)(const NodeImport&);
  constexpr auto hardSigmoid = [](const NodeImport& given) {
    return ActivationLayer{Neuron::HardSigmoid, given.number("alpha", 0.2F), given.number("beta", 0.5F)};
  };
  static const std::map<std::string_view, Make> functions{
      {"Abs", [](const NodeImport&) { return ActivationLayer{Neuron::Absolute}; }},
      {"Celu",
       [](const NodeImport&) {
         return ActivationLayer{Neuron::ELU, 1};
       }},
      {"Elu",
       [](const NodeImport& given) {
         return ActivationLayer{Neuron::ELU, given.number("alpha", 1)};
       }},
      {"Gelu", gelu},
      {"HardSigmoid", hardSigmoid},
      {"LeakyRelu",
       [](const NodeImport& given) {
         return ActivationLayer{Neuron::ReLU, given.number("alpha", 0.01F)};
       }},
      {"Relu", [](const NodeImport&) { return ActivationLayer{Neuron::ReLU}; }},
      {"Selu",
       [](const NodeImport& given) {
         return ActivationLayer{Neuron::ELU, given.number("alpha", 1.67326319F)};
       }},
      {"Sigmoid", [](const NodeImport&) { return ActivationLayer{Neuron::Sigmoid}; }},
      {"Softplus",
       [](const NodeImport&) {
         return ActivationLayer{Neuron::SoftPlus, 1, 1};
       }},
      {"Softsign", [](const NodeImport&) { return ActivationLayer{Neuron::SoftSign}; }},
      {"Tanh", [](const NodeImport&) {
         return ActivationLayer{Neuron::TanH, 1, 1};
       }}};
  return functions.at(node.type())(node);
}

/// Of a Clip: an attribute, or since version 11 an input.
float limitOf(const NodeImport& node, const char* name, std::size_t input, float missing) {
  if (node.hasAttribute(name)) return node.number(name, missing);
  if (!node.hasInput(input)) return missing;
  const auto limit = node.constant(input);
  if (limit->count() != 1)
    throw node.refusal("input \"" + node.inputName(input) + "\"", describeShape(limit->shape()),
                       "one number");
  return limit->number(0);
}

/// Linear functions wait for the next operator: see ImportedValue.
ImportedValue moved(const train::Features& picture, bool isFlat, float shift) {
  return {.picture = picture, .isFlat = isFlat, .shift = shift};
}

/// What the neuron of a power, an exponential or a logarithm takes as well: scale and shift of its source.
struct LinearSource {
  train::Features picture;
  float scale;
  float shift;
};
LinearSource linearSource(const NodeImport& node, std::size_t index) {
  ImportedValue& value = node.input(index);
  const bool isAsUsual = !value.isChannelsLast && value.shape.empty();
  if (!value.picture || !isAsUsual || value.function != ImportedValue::Function::Itself)
    return {node.picture(index), 1, 0};
  return {*value.picture, value.scale, value.shift};
}

ActivationLayer powerFor(const NodeImport& node, const LinearSource& source) {
  if (node.type() == "Exp") return {Neuron::Exponential, source.scale, source.shift, -1};
  if (node.type() == "Log") return {Neuron::Logarithm, source.scale, source.shift, -1};
  if (node.type() == "Sqrt") return {Neuron::Power, source.scale, source.shift, 0.5F};
  if (node.type() == "Reciprocal") return {Neuron::Power, source.scale, source.shift, -1};
  const auto exponent = node.constant(1);
  if (exponent->count() != 1)
    throw node.refusal("shape of the exponent", describeShape(exponent->shape()), "one number");
  return {Neuron::Power, source.scale, source.shift, exponent->number(0)};
}

}  // namespace

void importActivation(NodeImport& node) {
  train::Features source = node.picture(0);
  float scale = node.type() == "Selu" ? node.number("gamma", 1.05070102F) : 1;
  if (node.type() == "Celu") {
    scale = node.number("alpha", 1);
    if (!(scale > 0)) throw node.refusal("attribute alpha", std::to_string(scale), "a number above 0");
    if (scale != 1) source = node.add(ActivationLayer{Neuron::Linear, 1 / scale, 0}, {source});
  }
  const train::Features made = node.add(activationFor(node), {source});
  node.setResult({.picture = made, .isFlat = node.input(0).isFlat, .scale = scale});
}

void importClip(NodeImport& node) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float largest = std::numeric_limits<float>::max();
  const train::Features source = node.picture(0);
  const bool isFlat = node.input(0).isFlat;
  float low = limitOf(node, "min", 1, -infinity);
  float high = limitOf(node, "max", 2, infinity);
  if (low <= -largest) low = -infinity;
  if (high >= largest) high = infinity;
  if (!(low <= high))
    throw node.refusal("max", std::to_string(high), "min, " + std::to_string(low) + ", or more");
  if (low == -infinity && high == infinity) return node.setResult(source, isFlat);
  if (low == -infinity)
    return node.setResult(node.add(ActivationLayer{Neuron::ReLUN, 1, high}, {source}), isFlat);
  const train::Features from =
      low == 0 ? source : node.add(ActivationLayer{Neuron::Linear, 1, -low}, {source});
  const ActivationLayer cut =
      high == infinity ? ActivationLayer{Neuron::ReLU} : ActivationLayer{Neuron::ReLUN, 0, high - low};
  node.setResult(moved(node.add(cut, {from}), isFlat, low));
}

/// x >= 0 ? x : s x is relu(x) - s relu(-x): a product with a number for each channel is a convolution of each for itself, whose
/// weights are trained.
void importPRelu(NodeImport& node) {
  const train::Features source = node.picture(0);
  const bool isFlat = node.input(0).isFlat;
  const auto slope = node.constant(1);
  const std::size_t channels = source.channels();
  if (slope->count() == 1)
    return node.setResult(node.add(ActivationLayer{Neuron::ReLU, slope->number(0)}, {source}), isFlat);
  if (!isPerChannel(*slope, channels, isFlat) || (isFlat && source.height() * source.width() != 1))
    throw node.refusal("shape of the slopes \"" + node.inputName(1) + "\"", describeShape(slope->shape()),
                       "one number for each of " + std::to_string(channels) + " channels");
  const train::Features positive = node.add(ActivationLayer{Neuron::ReLU}, {source});
  const train::Features turned = node.add(ActivationLayer{Neuron::Linear, -1, 0}, {source});
  const train::Features negative = node.add(ActivationLayer{Neuron::ReLU}, {turned});
  const train::ConvolutionLayer layer{channels, 1, {.groups = channels, .biases = false}};
  const train::Features scaled =
      node.add(layer, negative, 1, {[=] { return spreadOver(*slope, channels, -1); }});
  node.setResult(node.add(train::AddLayer{}, {positive, scaled}), isFlat);
}

void importErf(NodeImport& node) {
  constexpr float tolerance = 1e-4F;
  ImportedValue& value = node.input(0);
  const bool fits = value.picture && value.function == ImportedValue::Function::Itself && value.shift == 0 &&
                    std::abs(value.scale - std::sqrt(0.5F)) < tolerance;
  if (!fits)
    throw node.refusal(
        "its source is not x sqrt(0.5), as in a GeLU, and a network has no other error function");
  ImportedValue result = value;
  result.scale = 1;
  result.function = ImportedValue::Function::Erf;
  node.setResult(std::move(result));
}

void importPower(NodeImport& node) {
  const LinearSource source = linearSource(node, 0);
  node.setResult(node.add(powerFor(node, source), {source.picture}), node.input(0).isFlat);
}

/// x times a function of x: HardSwish and Mish.
void importProductWithItself(NodeImport& node) {
  const train::Features source = node.picture(0);
  train::Features factor = source;
  if (node.type() == "HardSwish") {
    factor = node.add(ActivationLayer{Neuron::HardSigmoid, 1.0F / 6, 0.5F}, {source});
  } else {
    factor = node.add(ActivationLayer{Neuron::SoftPlus, 1, 1}, {source});
    factor = node.add(ActivationLayer{Neuron::TanH, 1, 1}, {factor});
  }
  node.setResult(node.add(train::ArithmeticLayer{train::ArithmeticOperation::Multiply}, {source, factor}),
                 node.input(0).isFlat);
}

}  // namespace unmetal::onnx::detail
