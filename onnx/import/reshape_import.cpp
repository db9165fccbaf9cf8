#include <algorithm>
#include <utility>

#include "onnx/import/node_import.hpp"
#include "onnx/import/weight_orders.hpp"

/// What gives pictures another shape without another order: between pictures and the matrices of fully connected layers.
namespace unmetal::onnx::detail {
namespace {

using Extents = std::vector<std::int64_t>;

/// In the model, without the batch.
Extents extentsOf(const train::Features& picture, bool isFlat) {
  const auto at = [](std::size_t extent) { return static_cast<std::int64_t>(extent); };
  if (isFlat) return {at(picture.shape().count())};
  return {at(picture.channels()), at(picture.height()), at(picture.width())};
}

Extents axesOf(const NodeImport& node) {
  return node.hasInput(1) ? node.constant(1)->integers() : node.integers("axes");
}

/// The shape that a Reshape asks for, without the batch, every extent known.
Extents targetOf(const NodeImport& node, const Extents& source) {
  node.expect("allowzero", 0);
  Extents target = node.constant(1)->integers();
  const auto refusal = [&] {
    return node.refusal(
        "shape", describeShape(node.constant(1)->integers()),
        "one of the same batch and as many numbers for each picture as " + describeShape(source));
  };
  constexpr std::int64_t largest = std::int64_t{1} << 31;
  const auto isExtent = [](std::int64_t extent) { return extent >= -1 && extent < largest; };
  if (target.size() < 2 || target.size() > 6 || !std::ranges::all_of(target, isExtent)) throw refusal();
  for (std::size_t i = 1; i < target.size(); ++i)
    if (target[i] == 0) {
      if (i > source.size()) throw refusal();
      target[i] = source[i - 1];
    }
  const bool isBatchOpen = target[0] == -1;
  if (!isBatchOpen && target[0] != 0 && target[0] != node.graph().batch()) throw refusal();
  target.erase(target.begin());
  const std::uint64_t count = countOf(source);
  std::uint64_t known = 1;
  std::int64_t* open = nullptr;
  for (std::int64_t& extent : target) {
    if (extent == -1 && (open != nullptr || isBatchOpen)) throw refusal();
    if (extent == -1)
      open = &extent;
    else
      known = known * static_cast<std::uint64_t>(extent) % (std::uint64_t{1} << 62U);
  }
  if (open != nullptr && known != 0 && count % known == 0) *open = static_cast<std::int64_t>(count / known);
  if (std::ranges::find(target, -1) != target.end() || countOf(target) != count) throw refusal();
  return target;
}

bool areAll(const Constant& constant, float value) {
  for (std::uint64_t i = 0; i < constant.count(); ++i)
    if (constant.number(i) != value) return false;
  return true;
}

/// Reshape to batch x groups x rest, InstanceNormalization of these, Reshape back, Mul, Add: a group normalisation.
bool importGroups(NodeImport& node, const train::Features& source, const Extents& target) {
  const std::int64_t groups = target[0];
  if (groups < 1 || source.channels() % static_cast<std::size_t>(groups) != 0) return false;
  const NodeMessage* const normalization = node.takeNext("InstanceNormalization");
  if (normalization == nullptr || normalization->inputs.size() != 3) return false;
  const NodeImport inner(node.graph(), *normalization);
  if (!areAll(*inner.constant(1), 1) || !areAll(*inner.constant(2), 0)) return false;
  const float epsilon = inner.number("epsilon", 1e-5F);
  const NodeMessage* const back = node.takeNext("Reshape");
  if (back == nullptr) return false;
  if (targetOf(NodeImport(node.graph(), *back), target) != extentsOf(source, false)) return false;
  const std::size_t channels = source.channels();
  const auto gamma = node.takeNext("Mul", channels);
  const auto beta = node.takeNext("Add", channels);
  const auto numbers = [channels](const std::shared_ptr<const Constant>& constant,
                                  float missing) -> LazyNumbers {
    if (!constant) return [=] { return std::vector<float>(channels, missing); };
    return [=] { return spreadOver(*constant, channels); };
  };
  node.setResult(node.add(train::GroupNormalizationLayer{static_cast<std::size_t>(groups), epsilon}, source,
                          node.inputCount(), {numbers(gamma, 1), numbers(beta, 0)}));
  return true;
}

void setReshaped(NodeImport& node, bool isFlat) {
  ImportedValue value = node.input(0);
  value.isFlat = isFlat;
  node.setResult(std::move(value));
}

}  // namespace

void importReshape(NodeImport& node) {
  const ImportedValue& value = node.input(0);
  if (!value.picture) throw node.refusal("its input is a constant and its other inputs are not");
  const Extents source = extentsOf(*value.picture, value.isFlat);
  const bool isPixel = value.picture->height() == 1 && value.picture->width() == 1;
  if (node.type() == "Flatten") {
    node.expect("axis", 1);
    return setReshaped(node, true);
  }
  if (node.type() != "Reshape") {
    Extents axes = axesOf(node);
    for (std::int64_t& axis : axes) axis += axis < 0 ? 4 : 0;
    std::ranges::sort(axes);
    const bool isSqueeze = node.type() == "Squeeze";
    if (axes != Extents{2, 3} || !isPixel || value.isFlat == isSqueeze)
      throw node.refusal("its axes are not 2 and 3 of pictures of one pixel");
    return setReshaped(node, isSqueeze);
  }
  const Extents target = targetOf(node, source);
  if (target.size() == 1) return setReshaped(node, true);
  if (target == extentsOf(*value.picture, false)) return setReshaped(node, false);
  if (target.size() == 2 && !value.isFlat && importGroups(node, node.pixels(0), target)) return;
  throw node.refusal("shape for each picture", describeShape(target),
                     "a row of all its numbers, or " + describeShape(extentsOf(*value.picture, false)));
}

void importShape(NodeImport& node) {
  const ImportedValue& value = node.input(0);
  Extents shape = extentsOf(*value.picture, value.isFlat);
  shape.insert(shape.begin(), node.graph().batch());
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](const char* name, std::int64_t missing) {
    const std::int64_t given = node.integer(name, missing);
    return std::clamp<std::int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  const std::int64_t start = place("start", 0);
  const std::int64_t end = std::max(place("end", rank), start);
  Extents part(shape.begin() + start, shape.begin() + end);
  const auto count = static_cast<std::int64_t>(part.size());
  node.setResult(Constant({count}, std::move(part)));
}

}  // namespace unmetal::onnx::detail
