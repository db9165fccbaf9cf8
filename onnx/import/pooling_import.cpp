#include "onnx/import/window_attributes.hpp"

/// Pooling, and what else takes whole pictures.
namespace unmetal::onnx::detail {
namespace {

train::PoolingOptions poolingOptions(const WindowAttributes& windows, const train::Shape& source) {
  return {
      .stride = windows.stride, .padding = windows.paddingFor(source), .margins = windows.marginsFor(source)};
}

train::Features addPooling(const NodeImport& node, const WindowAttributes& windows,
                           const train::Features& source) {
  const train::PoolingOptions options = poolingOptions(windows, source.shape());
  if (node.type() == "MaxPool") return node.add(train::MaxPoolLayer{windows.kernel, options}, {source});
  if (node.type() == "LpPool") return node.add(train::NormPoolLayer{windows.kernel, options}, {source});
  return node.add(train::AveragePoolLayer{windows.kernel, options}, {source});
}

void checkPlain(const NodeImport& node) {
  if (node.input(0).isFlat)
    throw node.refusal("its input is a matrix, expected batch x channels x height x width");
}

}  // namespace

void importPooling(NodeImport& node) {
  train::Features source = node.pixels(0);
  checkPlain(node);
  WindowAttributes windows = windowsOf(node, source.shape(), std::nullopt);
  if (windows.dilation != train::Sides{1})
    throw node.refusal("attribute dilations", describe(windows.dilation), "1x1");
  if (node.type() == "LpPool") node.expect("p", 2);
  static_cast<void>(node.integer("storage_order", 0));
  const bool countsMargins = node.type() == "AveragePool" && node.integer("count_include_pad", 0) != 0 &&
                             windows.margins != train::Margins{};
  const bool roundsUp = node.integer("ceil_mode", 0) != 0;
  // The operator counts the pixels that it pads, but not those that rounding up adds.
  if (countsMargins) {
    source = node.add(train::PadLayer{windows.margins}, {source});
    windows.margins = {};
  }
  if (roundsUp) roundUp(windows, source.shape());
  node.setResult(addPooling(node, windows, source));
}

void importGlobalPooling(NodeImport& node) {
  const train::Features source = node.pixels(0);
  checkPlain(node);
  const train::Sides all{source.height(), source.width()};
  if (node.type() == "GlobalLpPool") {
    node.expect("p", 2);
    return node.setResult(node.add(train::NormPoolLayer{all}, {source}));
  }
  if (node.type() == "GlobalMaxPool") return node.setResult(node.add(train::MaxPoolLayer{all}, {source}));
  node.setResult(node.add(train::GlobalAveragePoolLayer{}, {source}));
}

void importSoftmax(NodeImport& node) {
  constexpr std::int64_t singleAxisSince = 13;
  const train::Features source = node.pixels(0);
  const bool isFlat = node.input(0).isFlat;
  const bool isPixel = source.height() == 1 && source.width() == 1;
  const std::int64_t rank = isFlat ? 2 : 4;
  const bool isOld = node.operatorSet() < singleAxisSince;
  const std::int64_t axis = node.integer("axis", isOld ? 1 : -1);
  if ((axis != 1 && axis != 1 - rank) || (isOld && !isPixel))
    throw node.refusal("attribute axis", std::to_string(axis), "1, the channels of each pixel");
  if (node.type() == "Softmax") return node.setResult(node.add(train::SoftmaxLayer{}, {source}), isFlat);
  // The softmax of logarithms of probabilities are these probabilities, so scores serve as well.
  const NodeMessage* const next = node.graph().onlyUser(node.resultName());
  if (next != nullptr) throw node.refusal("operators follow it, expected the end of the network");
  node.setResult(source, isFlat);
}

void importDropout(NodeImport& node) {
  const train::Features source = node.pictureInAnyShape(0);
  if (node.hasInput(1) && node.constant(1)->count() != 1)
    throw node.refusal("shape of the ratio", describeShape(node.constant(1)->shape()), "one number");
  const float rate = node.hasInput(1) ? node.constant(1)->number(0) : node.number("ratio", 0.5F);
  static_cast<void>(node.integer("seed", 0));
  static_cast<void>(node.integer("is_test", 1));
  ImportedValue result = node.input(0);
  if (rate != 0) result.picture = node.add(train::DropoutLayer{rate}, {source});
  node.setResult(std::move(result));
}

void importIdentity(NodeImport& node) {
  if (node.type() == "Cast") {
    const std::int64_t type = node.integer("to", 1);
    if (type != 1 && type != 10 && type != 11)
      throw node.refusal("attribute to", std::to_string(type),
                         "1, 10 or 11: a type of numbers with fractions");
    static_cast<void>(node.integer("saturate", 1));
  }
  node.setResult(ImportedValue(node.input(0)));
}

}  // namespace unmetal::onnx::detail
