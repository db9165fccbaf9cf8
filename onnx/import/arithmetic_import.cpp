#include <utility>

#include "onnx/import/node_import.hpp"
#include "onnx/import/weight_orders.hpp"

/// Arithmetic of pictures with one another and with constants.
namespace unmetal::onnx::detail {
namespace {

using Function = ImportedValue::Function;
using train::ArithmeticOperation;

/// picture `type` constant, or the other way round, where the constant is one number. Waits for the next operator.
ImportedValue withNumber(const NodeImport& node, ImportedValue value, float number, bool numberFirst) {
  const std::string_view type = node.type();
  const auto scale = [&](float factor) {
    value.scale *= factor;
    value.shift *= factor;
  };
  if (type == "Add") {
    value.shift += number;
  } else if (type == "Sub") {
    if (numberFirst) scale(-1);
    value.shift += numberFirst ? number : -number;
  } else if (type == "Mul") {
    scale(number);
  } else {
    if (number == 0) throw node.refusal("it divides by 0");
    scale(1 / number);
  }
  return value;
}

/// Of pictures with a number for each channel: a convolution of each channel for itself.
void importChannels(NodeImport& node, std::size_t pictureAt,
                    const std::shared_ptr<const Constant>& constant) {
  const train::Features source = node.pixels(pictureAt);
  const bool isFlat = node.input(pictureAt).isFlat;
  const std::size_t channels = source.channels();
  const std::string_view type = node.type();
  const bool isFirst = pictureAt == 1;
  if (!isPerChannel(*constant, channels, isFlat))
    throw node.refusal("shape of the constant \"" + node.inputName(1 - pictureAt) + "\"",
                       describeShape(constant->shape()),
                       "one number, or one for each of " + std::to_string(channels) + " channels");
  if (type == "Div" && isFirst) throw node.refusal("it divides numbers of channels by pictures");
  const bool isProduct = type == "Mul" || type == "Div";
  const auto summand = isProduct ? node.takeNext("Add", channels, isFlat) : constant;
  const bool hasBiases = summand != nullptr;
  std::vector<LazyNumbers> numbers;
  if (isProduct)
    numbers.push_back([=] {
      std::vector<float> factors = spreadOver(*constant, channels);
      if (type == "Div")
        for (float& factor : factors) factor = 1 / factor;
      return factors;
    });
  else
    numbers.push_back([=] { return std::vector<float>(channels, type == "Sub" && isFirst ? -1.0F : 1.0F); });
  const float sign = type == "Sub" && !isFirst ? -1.0F : 1.0F;
  if (hasBiases) numbers.push_back([=] { return spreadOver(*summand, channels, sign); });
  const train::ConvolutionLayer layer{channels, 1, {.groups = channels, .biases = hasBiases}};
  node.setResult(node.add(layer, source, 1 - pictureAt, std::move(numbers)), isFlat);
}

/// x (1 + erf(x sqrt(0.5))) of both its factors. Nothing for other products.
std::optional<ImportedValue> productOfErf(const ImportedValue& first, const ImportedValue& second) {
  const bool isProduct = first.function == Function::Itself && first.shift == 0 &&
                         second.function == Function::Erf && second.shift == second.scale &&
                         *first.picture == *second.picture;
  if (!isProduct) return std::nullopt;
  ImportedValue product = first;
  product.function = Function::TimesErf;
  product.scale = first.scale * second.scale;
  return product;
}

void importPictures(NodeImport& node) {
  if (node.type() == "Mul") {
    const ImportedValue& first = node.input(0);
    const ImportedValue& second = node.input(1);
    auto product = productOfErf(first, second);
    if (!product) product = productOfErf(second, first);
    if (product) return node.setResult(*product);
  }
  const bool isFlat = node.input(0).isFlat;
  const train::Features first = node.picture(0);
  const train::Features second = node.picture(1);
  const bool areAlike = isFlat == node.input(1).isFlat && first.shape() == second.shape();
  if (!areAlike) {
    static_cast<void>(node.pixels(0));
    static_cast<void>(node.pixels(1));
    if (isFlat != node.input(1).isFlat)
      throw node.refusal("one of its inputs is a matrix, the other one is not");
  }
  if (node.type() == "Add") return node.setResult(node.add(train::AddLayer{}, {first, second}), isFlat);
  const auto operation = node.type() == "Sub"   ? ArithmeticOperation::Subtract
                         : node.type() == "Mul" ? ArithmeticOperation::Multiply
                                                : ArithmeticOperation::Divide;
  node.setResult(node.add(train::ArithmeticLayer{operation}, {first, second}), isFlat);
}

}  // namespace

void importArithmetic(NodeImport& node) {
  if (node.type() == "Neg") {
    ImportedValue value = node.input(0);
    if (value.constant) throw node.refusal("its input is a constant");
    value.scale = -value.scale;
    value.shift = -value.shift;
    return node.setResult(std::move(value));
  }
  const bool isFirstConstant = node.isConstant(0);
  if (!isFirstConstant && !node.isConstant(1)) return importPictures(node);
  const std::size_t pictureAt = isFirstConstant ? 1 : 0;
  const auto constant = node.constant(1 - pictureAt);
  const bool isReciprocal = node.type() == "Div" && isFirstConstant;
  if (constant->count() == 1 && isReciprocal) {
    const train::Features made =
        node.add(train::ActivationLayer{mps::CNNNeuronType::Power, 1, 0, -1}, {node.picture(pictureAt)});
    return node.setResult(
        {.picture = made, .isFlat = node.input(pictureAt).isFlat, .scale = constant->number(0)});
  }
  if (constant->count() == 1)
    return node.setResult(withNumber(node, node.input(pictureAt), constant->number(0), isFirstConstant));
  importChannels(node, pictureAt, constant);
}

void importSum(NodeImport& node) {
  train::Features sum = node.picture(0);
  const bool isFlat = node.input(0).isFlat;
  for (std::size_t i = 1; i < node.inputCount(); ++i) {
    const train::Features other = node.picture(i);
    if (node.input(i).isFlat != isFlat)
      throw node.refusal("one of its inputs is a matrix, another one is not");
    sum = node.add(train::AddLayer{}, {sum, other});
  }
  node.setResult(sum, isFlat);
}

void importConcatenation(NodeImport& node) {
  const std::int64_t axis = node.integer("axis", 1);
  std::vector<train::Features> parts;
  const bool isFlat = node.input(0).isFlat;
  const std::int64_t rank = isFlat ? 2 : 4;
  if (axis != 1 && axis != 1 - rank)
    throw node.refusal("attribute axis", std::to_string(axis), "1, the channels");
  for (std::size_t i = 0; i < node.inputCount(); ++i) {
    parts.push_back(node.pixels(i));
    if (node.input(i).isFlat != isFlat)
      throw node.refusal("one of its inputs is a matrix, another one is not");
  }
  node.setResult(parts.size() == 1 ? parts[0] : node.add(train::ConcatenationLayer{}, parts), isFlat);
}

}  // namespace unmetal::onnx::detail
