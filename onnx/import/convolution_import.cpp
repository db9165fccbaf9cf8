#include <limits>

#include "onnx/import/weight_orders.hpp"
#include "onnx/import/window_attributes.hpp"

/// Convolutions and fully connected layers.
namespace unmetal::onnx::detail {
namespace {

using Shared = std::shared_ptr<const Constant>;

std::size_t extentAt(const Constant& constant, std::size_t index) {
  return static_cast<std::size_t>(constant.shape()[index]);
}

void checkPixels(const NodeImport& node) {
  if (node.input(0).isFlat)
    throw node.refusal("its input is batch x numbers, expected batch x channels x height x width");
}

Shared weightsIn(const NodeImport& node) {
  Shared weights = node.constant(1);
  if (weights->shape().size() != 4)
    throw node.refusal("shape of the weights \"" + node.inputName(1) + "\"", describeShape(weights->shape()),
                       "four extents");
  if (weights->count() == 0)
    throw node.refusal("shape of the weights \"" + node.inputName(1) + "\"", describeShape(weights->shape()),
                       "extents from 1 on");
  return weights;
}

/// Of the node, or of an addition behind it; null without.
Shared biasesFor(NodeImport& node, std::size_t outputs) {
  if (!node.hasInput(2)) return node.takeNext("Add", outputs);
  Shared biases = node.constant(2);
  if (biases->count() != outputs)
    throw node.refusal("shape of the biases \"" + node.inputName(2) + "\"", describeShape(biases->shape()),
                       std::to_string(outputs));
  return biases;
}

std::vector<LazyNumbers> withBiases(LazyNumbers weights, const Shared& biases, std::size_t outputs,
                                    float factor = 1) {
  std::vector<LazyNumbers> numbers{std::move(weights)};
  if (biases) numbers.push_back([biases, outputs, factor] { return spreadOver(*biases, outputs, factor); });
  return numbers;
}

std::size_t groupsOf(const NodeImport& node) {
  const std::int64_t groups = node.integer("group", 1);
  if (groups < 1 || groups > std::numeric_limits<std::int32_t>::max())
    throw node.refusal("attribute group", std::to_string(groups), "a number from 1 on");
  return static_cast<std::size_t>(groups);
}

/// A fully connected layer of a source of that shape. @param outputsFirst whether the matrix is outputs x inputs
void importDense(NodeImport& node, const train::Features& source, const Shared& matrix, bool outputsFirst,
                 float factor, const std::function<Shared(std::size_t outputs)>& biasesOf, float biasFactor) {
  if (matrix->shape().size() != 2)
    throw node.refusal("shape of the weights \"" + node.inputName(1) + "\"", describeShape(matrix->shape()),
                       "two extents");
  const std::size_t outputs = extentAt(*matrix, outputsFirst ? 0 : 1);
  const std::size_t inputs = extentAt(*matrix, outputsFirst ? 1 : 0);
  const train::Shape shape = source.shape();
  if (inputs != shape.count())
    throw node.refusal("number of inputs of the weights \"" + node.inputName(1) + "\"",
                       std::to_string(inputs),
                       std::to_string(shape.count()) + ", of a picture of " + describe(shape));
  const Shared biases = biasesOf(outputs);
  // Rows that lie pixel by pixel have the order of the layer's weights already.
  const train::Shape order =
      node.input(0).isChannelsLast ? train::Shape{1, 1, shape.count()} : train::Shape(shape);
  LazyNumbers weights = [=] { return denseWeights(*matrix, order, outputsFirst, factor); };
  node.setResult(node.add(train::DenseLayer{outputs, {.biases = biases != nullptr}}, source, 1,
                          withBiases(std::move(weights), biases, outputs, biasFactor)),
                 true);
}

}  // namespace

void importConvolution(NodeImport& node) {
  const train::Features source = node.pixels(0);
  checkPixels(node);
  const Shared weights = weightsIn(node);
  const train::Shape shape = source.shape();
  const std::size_t outputs = extentAt(*weights, 0);
  const std::size_t groups = groupsOf(node);
  const WindowAttributes windows =
      windowsOf(node, shape, train::Sides{extentAt(*weights, 2), extentAt(*weights, 3)});
  if (extentAt(*weights, 1) * groups != shape.channels)
    throw node.refusal(
        "shape of the weights \"" + node.inputName(1) + "\"", describeShape(weights->shape()),
        std::to_string(shape.channels) + " input channels in " + std::to_string(groups) + " groups");
  const Shared biases = biasesFor(node, outputs);
  std::vector<LazyNumbers> numbers =
      withBiases([weights] { return channelsLast(*weights); }, biases, outputs);
  const bool coversAll = windows.kernel == train::Sides{shape.height, shape.width} && groups == 1 &&
                         windows.margins == train::Margins{} && windows.dilation == train::Sides{1};
  if (coversAll)
    return node.setResult(
        node.add(train::DenseLayer{outputs, {.biases = biases != nullptr}}, source, 1, std::move(numbers)));
  const train::ConvolutionLayer layer{outputs,
                                      windows.kernel,
                                      {.stride = windows.stride,
                                       .padding = windows.paddingFor(shape),
                                       .dilation = windows.dilation,
                                       .groups = groups,
                                       .biases = biases != nullptr,
                                       .margins = windows.marginsFor(shape)}};
  node.setResult(node.add(layer, source, 1, std::move(numbers)));
}

void importTransposedConvolution(NodeImport& node) {
  const train::Features source = node.pixels(0);
  checkPixels(node);
  const Shared weights = weightsIn(node);
  node.expect("group", 1);
  for (const std::int64_t extra : node.integers("output_padding"))
    if (extra < 0) throw node.refusal("attribute output_padding", std::to_string(extra), "numbers from 0 on");
  if (node.hasAttribute("output_shape"))
    throw node.refusal("its attribute output_shape is not taken, pads say the same");
  if (node.text("auto_pad", "NOTSET") != "NOTSET" && node.text("auto_pad", "NOTSET") != "VALID")
    throw node.refusal("attribute auto_pad", "\"" + node.text("auto_pad", "") + "\"", "NOTSET or VALID");
  WindowAttributes windows =
      windowsOf(node, source.shape(), train::Sides{extentAt(*weights, 2), extentAt(*weights, 3)});
  if (windows.dilation != train::Sides{1})
    throw node.refusal("attribute dilations", describe(windows.dilation), "1x1");
  if (extentAt(*weights, 0) != source.channels())
    throw node.refusal("shape of the weights \"" + node.inputName(1) + "\"", describeShape(weights->shape()),
                       std::to_string(source.channels()) + " input channels");
  const std::vector<std::int64_t> extra = node.integers("output_padding");
  const auto lessen = [&](std::size_t& margin, std::size_t index) {
    if (index >= extra.size()) return;
    const auto count = static_cast<std::size_t>(extra[index]);
    if (count > margin)
      throw node.refusal("attribute output_padding", std::to_string(count), "at most the pads behind");
    margin -= count;
  };
  lessen(windows.margins.bottom, 0);
  lessen(windows.margins.right, 1);
  const std::size_t outputs = extentAt(*weights, 1);
  const Shared biases = biasesFor(node, outputs);
  const train::TransposedConvolutionLayer layer{
      outputs,
      windows.kernel,
      {.stride = windows.stride, .biases = biases != nullptr, .margins = windows.margins}};
  node.setResult(node.add(layer, source, 1,
                          withBiases([weights] { return turnedChannelsLast(*weights); }, biases, outputs)));
}

void importGemm(NodeImport& node) {
  node.expect("transA", 0);
  const bool isTransposed = node.integer("transB", 0) != 0;
  const float alpha = node.number("alpha", 1);
  const float beta = node.number("beta", 1);
  const train::Features source = node.pictureInAnyShape(0);
  if (!node.input(0).isFlat) throw node.refusal("its input is no matrix, batch x numbers");
  const auto biases = [&](std::size_t outputs) -> Shared {
    if (!node.hasInput(2)) return node.takeNext("Add", outputs, true);
    Shared found = node.constant(2);
    if (!isPerChannel(*found, outputs, true))
      throw node.refusal("shape of the biases \"" + node.inputName(2) + "\"", describeShape(found->shape()),
                         std::to_string(outputs));
    return found;
  };
  importDense(node, source, node.constant(1), isTransposed, alpha, biases, node.hasInput(2) ? beta : 1);
}

void importMatMul(NodeImport& node) {
  const train::Features source = node.pictureInAnyShape(0);
  if (!node.input(0).isFlat) throw node.refusal("its input is no matrix, batch x numbers");
  importDense(
      node, source, node.constant(1), false, 1,
      [&](std::size_t outputs) { return node.takeNext("Add", outputs, true); }, 1);
}

}  // namespace unmetal::onnx::detail
