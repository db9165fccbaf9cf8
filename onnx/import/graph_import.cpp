#include "onnx/import/graph_import.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/types/error.hpp"
#include "onnx/import/node_import.hpp"
#include "train/text/utf8.hpp"

namespace unmetal::onnx::detail {
namespace {

constexpr std::int64_t oldestOperatorSet = 7;
constexpr std::int64_t newestOperatorSet = 24;
constexpr std::int64_t floatElements = 1;
constexpr std::int64_t float16Elements = 10;

std::int64_t operatorSetOf(const ModelMessage& model) {
  auto found = model.operatorSets.find("");
  if (found == model.operatorSets.end()) found = model.operatorSets.find("ai.onnx");
  if (found == model.operatorSets.end()) throw mps::Error("it does not say its version of the operator set");
  if (found->second < oldestOperatorSet || found->second > newestOperatorSet)
    throw mps::Error("its operator set is version " + std::to_string(found->second) + ", expected " +
                     std::to_string(oldestOperatorSet) + " to " + std::to_string(newestOperatorSet));
  return found->second;
}

std::string shownValue(const ValueMessage& value) {
  std::string text;
  for (const std::int64_t extent : value.shape)
    text += (text.empty() ? "" : " x ") + (extent < 0 ? std::string("any") : std::to_string(extent));
  return "\"" + std::string(value.name) + "\" is " + (text.empty() ? "of an unknown shape" : text);
}

/// The input that is no constant with a default.
const ValueMessage& picturesOf(const GraphMessage& graph) {
  std::set<std::string_view> constants;
  for (const TensorMessage& tensor : graph.constants) constants.insert(tensor.name);
  const ValueMessage* found = nullptr;
  for (const ValueMessage& input : graph.inputs) {
    if (constants.contains(input.name)) continue;
    if (found != nullptr)
      throw mps::Error("it has several inputs, \"" + std::string(found->name) + "\" and \"" +
                       std::string(input.name) + "\", and a network takes pictures alone");
    found = &input;
  }
  if (found == nullptr) throw mps::Error("it has no input");
  return *found;
}

/// Of an extent that the model leaves open the caller's.
std::size_t extentOf(const ValueMessage& input, std::size_t index, std::optional<std::size_t> given) {
  const std::int64_t extent = input.shape[index];
  if (extent <= 0 && !given)
    throw mps::Error("the input " + shownValue(input) + "; say the size of the pictures");
  if (extent > 0 && given && static_cast<std::size_t>(extent) != *given)
    throw mps::Error("the input " + shownValue(input) + ", expected " + std::to_string(*given) +
                     " at place " + std::to_string(index + 1) + ", as the pictures are");
  return extent > 0 ? static_cast<std::size_t>(extent) : *given;
}

/// Whether the model's first step is from batch x height x width x channels to the order of ONNX' operators: a model of TensorFlow.
bool areChannelsLast(const GraphMessage& graph, std::string_view pictures) {
  const std::vector<std::int64_t> toFront{0, 3, 1, 2};
  bool isUsed = false;
  for (const NodeMessage& node : graph.nodes) {
    if (std::ranges::find(node.inputs, pictures) == node.inputs.end()) continue;
    const auto isOrder = [&](const AttributeMessage& attribute) {
      return attribute.name == "perm" && attribute.integers == toFront;
    };
    if (node.type != "Transpose" || std::ranges::none_of(node.attributes, isOrder)) return false;
    isUsed = true;
  }
  return isUsed;
}

train::Shape shapeOf(const ValueMessage& input, const std::optional<train::Shape>& given,
                     bool areChannelsLast) {
  const auto part = [&](std::size_t train::Shape::*member) {
    return given ? std::optional((*given).*member) : std::nullopt;
  };
  if (input.shape.size() == 2) return {1, 1, extentOf(input, 1, part(&train::Shape::channels))};
  if (input.shape.size() != 4)
    throw mps::Error("the input " + shownValue(input) + ", expected batch x channels x height x width");
  const std::size_t firstSide = areChannelsLast ? 1 : 2;
  return {extentOf(input, firstSide, part(&train::Shape::height)),
          extentOf(input, firstSide + 1, part(&train::Shape::width)),
          extentOf(input, areChannelsLast ? 3 : 1, part(&train::Shape::channels))};
}

train::Network networkFor(const ValueMessage& input, const ImportSettings& settings, bool areChannelsLast) {
  if (input.type != floatElements && input.type != float16Elements)
    throw mps::Error("the input \"" + std::string(input.name) + "\" has elements of type " +
                     std::to_string(input.type) + " of ONNX, expected float or float16");
  return train::Network(shapeOf(input, settings.pictures, areChannelsLast), settings.network);
}

}  // namespace

std::vector<std::int64_t> shapeInModel(const ImportedValue& value) {
  if (!value.shape.empty()) return value.shape;
  const auto at = [](std::size_t extent) { return static_cast<std::int64_t>(extent); };
  const train::Features& picture = *value.picture;
  if (value.isFlat) return {at(picture.shape().count())};
  return {at(picture.channels()), at(picture.height()), at(picture.width())};
}

ImportedValue withShape(ImportedValue value, std::vector<std::int64_t> shape) {
  const train::Shape& picture = value.picture->shape();
  // One pixel and one channel have the same order either way.
  if (picture.channels == 1 || picture.height * picture.width == 1) value.isChannelsLast = false;
  value.isFlat = shape.size() == 1;
  value.shape.clear();
  if (!value.isFlat && (value.isChannelsLast || shape != shapeInModel(value))) value.shape = std::move(shape);
  return value;
}

GraphImport::GraphImport(const ModelMessage& model, const ImportSettings& settings)
    : model_(model),
      settings_(settings),
      operatorSet_(operatorSetOf(model)),
      pictures_(&picturesOf(model.graph)),
      areChannelsLast_(pictures_->shape.size() == 4 && areChannelsLast(model.graph, pictures_->name)),
      network_(networkFor(*pictures_, settings, areChannelsLast_)) {
  if (pictures_->shape[0] > 0) batch_ = pictures_->shape[0];
}

ImportedNetwork GraphImport::run() {
  if (model_.graph.outputs.empty()) throw mps::Error("it has no result");
  for (const TensorMessage& tensor : model_.graph.constants) {
    stored_[tensor.name] = &tensor;
    budget_ += tensor.raw.value_or("").size() + tensor.floats.size() + tensor.integers.size();
  }
  findNeeded();
  addPictures();
  importNodes(true);
  importNodes(false);
  finishResult();
  return {std::move(network_), std::move(weights_)};
}

/// What the first result is made of. Others, which a training does not need, are left out.
void GraphImport::findNeeded() {
  const std::vector<NodeMessage>& nodes = model_.graph.nodes;
  std::set<std::string_view> wanted{model_.graph.outputs[0].name};
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::ranges::none_of(node->outputs, [&](std::string_view name) { return wanted.contains(name); }))
      continue;
    needed_.push_back(&*node);
    wanted.insert(node->inputs.begin(), node->inputs.end());
    for (const std::string_view input : node->inputs) users_[input].push_back(&*node);
  }
  std::ranges::reverse(needed_);
  users_[model_.graph.outputs[0].name].push_back(nullptr);
}

void GraphImport::addPictures() {
  ImportedValue value{.picture = network_.input(), .isFlat = pictures_->shape.size() == 2};
  if (areChannelsLast_) {
    value.isChannelsLast = network_.inputShape().channels != 1;
    const train::Shape& shape = network_.inputShape();
    value.shape = {static_cast<std::int64_t>(shape.height), static_cast<std::int64_t>(shape.width),
                   static_cast<std::int64_t>(shape.channels)};
  }
  values_[pictures_->name] = std::move(value);
}

void GraphImport::importShapeEarly(std::string_view name) {
  const auto makes = [&](const NodeMessage* node) { return node->outputs[0] == name; };
  const auto maker = std::ranges::find_if(needed_, makes);
  if (maker == needed_.end() || (*maker)->type != "Shape" || !finished_.insert(*maker).second) return;
  importNode(**maker);
}

void GraphImport::importNodes(bool constantsAlone) {
  for (const NodeMessage* node : needed_) {
    if (finished_.contains(node) || (constantsAlone && !hasConstantInputs(*node))) continue;
    importNode(*node);
    finished_.insert(node);
  }
}

bool GraphImport::hasConstantInputs(const NodeMessage& node) {
  const bool isFirstAlone = node.type == "CastLike";  // the type of the second one does not count
  const std::span<const std::string_view> inputs(
      node.inputs.data(), isFirstAlone ? std::min<std::size_t>(node.inputs.size(), 1) : node.inputs.size());
  return foldingOf(node.type) != nullptr && std::ranges::all_of(inputs, [&](std::string_view name) {
           const ImportedValue* const value = name.empty() ? nullptr : find(name);
           return name.empty() || (value != nullptr && value->constant);
         });
}

void GraphImport::importNode(const NodeMessage& node) {
  NodeImport given(*this, node);
  if (!node.domain.empty() && node.domain != "ai.onnx")
    throw given.refusal("its operator is of the domain \"" + std::string(node.domain) +
                        "\", expected one of ONNX");
  const bool isFolded = hasConstantInputs(node);
  const OperatorImport import = isFolded ? foldingOf(node.type) : importOf(node.type);
  if (import == nullptr) throw given.refusal("a network has no layer for this operator");
  try {
    import(given);
  } catch (const mps::Error& error) {
    const std::string prefix = given.refusal("").what();
    if (std::string(error.what()).starts_with(prefix)) throw;
    throw given.refusal(error.what());
  }
  given.refuseOtherAttributes();
}

void GraphImport::finishResult() {
  const std::string_view name = model_.graph.outputs[0].name;
  NodeMessage end;
  end.type = "result";
  end.name = name;
  end.inputs = {name};
  end.outputs = {name};
  const NodeImport result(*this, end);
  const train::Features made = result.pictureInAnyShape(0);
  // The order of a row of channels is the same in all shapes.
  if (made.height() != 1 || made.width() != 1) static_cast<void>(result.pixels(0));
  if (network_.layers().size() == 1) throw mps::Error("it has no layers");
}

ImportedValue* GraphImport::find(std::string_view name) {
  const auto found = values_.find(name);
  if (found != values_.end()) return &found->second;
  const auto stored = stored_.find(name);
  if (stored == stored_.end()) return nullptr;
  auto constant = std::make_shared<const Constant>(Constant::of(*stored->second));
  return &(values_[name] = {.constant = std::move(constant)});
}

void GraphImport::set(std::string_view name, ImportedValue value) {
  if (name.empty()) return;
  values_[name] = std::move(value);
}

train::Features GraphImport::addLayer(const train::LayerKind& kind, std::span<const train::Features> inputs,
                                      const std::string& label, std::vector<LazyNumbers> weights) {
  std::string name = train::detail::isUtf8(label) ? label : "";
  for (std::size_t& number = labels_[label]; !name.empty() && !used_.insert(name).second;)
    name = label + "_" + std::to_string(++number + 1);
  train::Features made = network_.add(kind, inputs, name);
  used_.insert(network_.layers().back().label);
  weights_[network_.layers().back().label] = std::move(weights);
  return made;
}

const NodeMessage* GraphImport::onlyUser(std::string_view name) const {
  const auto found = users_.find(name);
  return found == users_.end() || found->second.size() != 1 ? nullptr : found->second.front();
}

void GraphImport::checkRoom(std::uint64_t numbers) const {
  if (numbers > budget_) throw mps::Error("operators make more constants than is in proportion to the file");
}

void GraphImport::take(std::uint64_t numbers) {
  checkRoom(numbers);
  budget_ -= numbers;
}

}  // namespace unmetal::onnx::detail
