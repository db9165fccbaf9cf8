#include <algorithm>
#include <numeric>
#include <utility>

#include "onnx/import/node_import.hpp"
#include "onnx/import/weight_orders.hpp"

/// What gives pictures another shape, and what takes axes away. Their numbers stay where they are in memory.
namespace unmetal::onnx::detail {
namespace {

using Extents = std::vector<std::int64_t>;

/// The shape that a Reshape asks for, without the batch, every extent known.
Extents targetOf(const NodeImport& node, const Extents& source) {
  const bool keepsZeros = node.integer("allowzero", 0) != 0;
  Extents target = node.constant(1)->integers();
  const auto refusal = [&] {
    return node.refusal(
        "shape", describeShape(node.constant(1)->integers()),
        "one of the same batch and as many numbers for each picture as " + describeShape(source));
  };
  constexpr std::int64_t largest = std::int64_t{1} << 31;
  const auto isExtent = [](std::int64_t extent) { return extent >= -1 && extent < largest; };
  if (target.size() < 2 || target.size() > 6 || !std::ranges::all_of(target, isExtent)) throw refusal();
  for (std::size_t i = 0; i < target.size(); ++i)
    if (target[i] == 0) {
      if (keepsZeros || i > source.size()) throw refusal();
      if (i == 0) continue;
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
void importGroups(NodeImport& node, const train::Features& source, const Extents& target) {
  const std::int64_t groups = target[0];
  const std::size_t channels = source.channels();
  if (groups < 1 || channels % static_cast<std::size_t>(groups) != 0)
    throw node.refusal("number of rows", std::to_string(groups),
                       "one that divides " + std::to_string(channels) + ", the channels");
  const NodeImport inner(node.graph(), *node.takeNext("InstanceNormalization"));
  if (!areAll(*inner.constant(1), 1) || !areAll(*inner.constant(2), 0))
    throw inner.refusal("it scales or moves groups of channels, expected that of channels alone, behind it");
  const float epsilon = inner.number("epsilon", 1e-5F);
  const NodeMessage* const back = node.takeNext("Reshape");
  if (back == nullptr || back->inputs.size() != 2)
    throw inner.refusal("no Reshape follows it as one comes before it");
  node.graph().importShapeEarly(back->inputs[1]);
  const Extents former = shapeInModel(node.input(0));
  if (targetOf(NodeImport(node.graph(), *back), target) != former)
    throw inner.refusal("the Reshape behind it does not bring back " + describeShape(former));
  const auto gamma = node.takeNext("Mul", channels);
  const auto beta = node.takeNext("Add", channels);
  const auto numbers = [channels](const std::shared_ptr<const Constant>& constant,
                                  float missing) -> LazyNumbers {
    if (!constant) return [=] { return std::vector<float>(channels, missing); };
    return [=] { return spreadOver(*constant, channels); };
  };
  node.setResult(node.add(train::GroupNormalizationLayer{static_cast<std::size_t>(groups), epsilon}, source,
                          node.inputCount(), {numbers(gamma, 1), numbers(beta, 0)}));
}

ImportedValue reshapable(const NodeImport& node) {
  const ImportedValue& value = node.input(0);
  if (!value.picture) throw node.refusal("its input is a constant and its other inputs are not");
  return value;
}

/// Of axes of the model, the batch among them, those behind the batch. @param rank without the batch
Extents axesBehindBatch(const NodeImport& node, Extents axes, std::size_t rank) {
  const auto end = static_cast<std::int64_t>(rank);
  for (std::int64_t& axis : axes) {
    const std::int64_t place = (axis < 0 ? axis + end + 1 : axis) - 1;
    if (place < 0 || place >= end)
      throw node.refusal("an axis", std::to_string(axis),
                         "1 to " + std::to_string(end) + ", behind the batch");
    axis = place;
  }
  std::ranges::sort(axes);
  if (std::ranges::adjacent_find(axes) != axes.end()) throw node.refusal("it names an axis twice");
  return axes;
}

Extents axesIn(const NodeImport& node) {
  return node.hasInput(1) ? node.constant(1)->integers() : node.integers("axes");
}

/// Without these axes, each of one element.
Extents without(const NodeImport& node, const Extents& shape, const Extents& axes) {
  Extents left;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool isTaken = std::ranges::binary_search(axes, static_cast<std::int64_t>(i));
    if (isTaken && shape[i] != 1)
      throw node.refusal("extent of axis " + std::to_string(i + 1), std::to_string(shape[i]), "1");
    if (!isTaken) left.push_back(shape[i]);
  }
  return left;
}

std::int64_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

/// Whether a reduction over these axes leaves the channels alone.
bool areChannels(const Extents& shape, const Extents& axes, const ImportedValue& value) {
  Extents kept;
  std::size_t changes = 0;
  bool wasReduced = value.isChannelsLast;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool isReduced = std::ranges::binary_search(axes, static_cast<std::int64_t>(i));
    if (!isReduced) kept.push_back(shape[i]);
    changes += isReduced != wasReduced ? 1 : 0;
    wasReduced = isReduced;
  }
  return changes <= 1 && product(kept) == static_cast<std::int64_t>(value.picture->channels());
}

/// Of windows over a picture: means, maxima or sums, which are means times the number of pixels.
ImportedValue reduced(const NodeImport& node, const train::Features& source, const train::Sides& window) {
  if (node.type() == "ReduceMax") return {.picture = node.add(train::MaxPoolLayer{window}, {source})};
  const bool isWhole = window == train::Sides{source.height(), source.width()};
  const train::LayerKind layer = isWhole ? train::LayerKind(train::GlobalAveragePoolLayer{})
                                         : train::LayerKind(train::AveragePoolLayer{window});
  const auto count = static_cast<float>(window.height * window.width);
  return {.picture = node.add(layer, {source}), .scale = node.type() == "ReduceSum" ? count : 1};
}

}  // namespace

void importReshape(NodeImport& node) {
  const ImportedValue value = reshapable(node);
  const Extents target = targetOf(node, shapeInModel(value));
  const NodeMessage* const next = node.graph().onlyUser(node.resultName());
  const bool areGroups = target.size() == 2 && next != nullptr && next->type == "InstanceNormalization" &&
                         next->inputs.size() == 3;
  if (areGroups) return importGroups(node, node.pixels(0), target);
  node.setResult(withShape(value, target));
}

void importFlatten(NodeImport& node) {
  const ImportedValue value = reshapable(node);
  node.expect("axis", 1);
  node.setResult(withShape(value, {product(shapeInModel(value))}));
}

void importSqueeze(NodeImport& node) {
  const ImportedValue value = reshapable(node);
  const Extents shape = shapeInModel(value);
  const Extents axes = axesIn(node);
  if (axes.empty()) throw node.refusal("it names no axes, and the batch may have one element as well");
  Extents left = without(node, shape, axesBehindBatch(node, axes, shape.size()));
  if (left.empty()) throw node.refusal("it leaves no axis but the batch");
  node.setResult(withShape(value, std::move(left)));
}

void importUnsqueeze(NodeImport& node) {
  constexpr std::size_t mostAxes = 8;
  const ImportedValue value = reshapable(node);
  Extents shape = shapeInModel(value);
  const Extents given = axesIn(node);
  if (shape.size() + given.size() > mostAxes) throw node.refusal("its result has more than eight axes");
  const Extents axes = axesBehindBatch(node, given, shape.size() + given.size());
  for (const std::int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
  node.setResult(withShape(value, std::move(shape)));
}

/// One of one: an axis is left out.
void importGather(NodeImport& node) {
  const ImportedValue value = reshapable(node);
  const Extents shape = shapeInModel(value);
  const auto index = node.constant(1);
  const std::int64_t axis = node.integer("axis", 0);
  if (!index->shape().empty() || (index->integer(0) != 0 && index->integer(0) != -1))
    throw node.refusal(
        "its indices are not 0 alone, as in x[:, :, 0, 0], and a network has no other gathers");
  Extents left = without(node, shape, axesBehindBatch(node, {axis}, shape.size()));
  if (left.empty()) throw node.refusal("it leaves no axis but the batch");
  node.setResult(withShape(value, std::move(left)));
}

/// Channels go behind height and width, or come before them: the order of the numbers, which no layer changes.
void importTranspose(NodeImport& node) {
  ImportedValue value = reshapable(node);
  const Extents shape = shapeInModel(value);
  Extents order = node.integers("perm");
  Extents sorted = order;
  std::ranges::sort(sorted);
  Extents all(shape.size() + 1);
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all || order[0] != 0)
    throw node.refusal("its attribute perm is no order of all axes that begins with the batch");
  Extents target;
  Extents places;  // of axes that have more than one element
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto place = static_cast<std::size_t>(order[i] - 1);
    target.push_back(shape[place]);
    if (shape[place] != 1) places.push_back(order[i]);
  }
  if (std::ranges::is_sorted(places)) return node.setResult(withShape(std::move(value), target));
  const auto first = std::ranges::is_sorted_until(places);
  std::int64_t moved = 1;  // numbers in the axes that have come to the front
  for (auto place = places.begin(); place != first; ++place)
    moved *= shape[static_cast<std::size_t>(*place - 1)];
  std::rotate(places.begin(), first, places.end());
  const auto channels = static_cast<std::int64_t>(value.picture->channels());
  const std::int64_t expected = value.isChannelsLast ? channels : product(shape) / channels;
  if (!std::ranges::is_sorted(places) || moved != expected)
    throw node.refusal("it gives the numbers of " + describeShape(shape) +
                       " another order, expected channels behind height and width, or before them");
  value.isChannelsLast = !value.isChannelsLast;
  node.setResult(withShape(std::move(value), target));
}

void importReduction(NodeImport& node) {
  const ImportedValue value = reshapable(node);
  const Extents shape = shapeInModel(value);
  static_cast<void>(node.integer("noop_with_empty_axes", 0));
  const Extents given = axesIn(node);
  if (given.empty()) throw node.refusal("it names no axes, expected those of height and width");
  const Extents axes = axesBehindBatch(node, given, shape.size());
  const train::Features source = node.pictureInAnyShape(0);
  const bool isPicture = !value.isChannelsLast && !value.isFlat && value.shape.empty();
  train::Sides window{source.height(), source.width()};
  if (isPicture && axes == Extents{1})
    window.width = 1;
  else if (isPicture && axes == Extents{2})
    window.height = 1;
  else if (!areChannels(shape, axes, value))
    throw node.refusal("its axes are not 2 and 3, height and width");
  Extents left = shape;
  for (const std::int64_t axis : axes) left[static_cast<std::size_t>(axis)] = 1;
  if (node.integer("keepdims", 1) == 0) left = without(node, left, axes);
  if (left.empty()) throw node.refusal("it leaves no axis but the batch");
  node.setResult(withShape(reduced(node, source, window), std::move(left)));
}

void importShape(NodeImport& node) {
  const ImportedValue& value = node.input(0);
  if (!value.picture) throw node.refusal("its input is a constant and its other inputs are not");
  Extents shape = shapeInModel(value);
  shape.insert(shape.begin(), node.graph().batch());
  node.setResult(partOfShape(node, shape));
}

}  // namespace unmetal::onnx::detail
