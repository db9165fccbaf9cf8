#include "onnx/import/node_import.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace unmetal::onnx::detail {
namespace {

std::string shownNode(const NodeMessage& node) {
  const std::string_view name = node.name.empty() ? node.outputs[0] : node.name;
  return std::string(node.type) + " \"" + std::string(name) + "\"";
}

/// What a layer is called after whose weights have that name. Nothing for a name that is none of weights.
std::string stemOf(const std::string& weights) {
  for (const std::string ending : {".weight", ".gamma", "_w_0", "_w", "_scale_0", "_s_0"})
    if (weights.size() > ending.size() && weights.ends_with(ending))
      return weights.substr(0, weights.size() - ending.size());
  return {};
}

}  // namespace

mps::Error NodeImport::refusal(const std::string& reason) const {
  return mps::Error(shownNode(node_) + ": " + reason);
}

mps::Error NodeImport::refusal(const std::string& argument, const std::string& found,
                               const std::string& expected) const {
  return refusal(argument + " is " + found + ", expected " + expected);
}

bool NodeImport::hasInput(std::size_t index) const {
  return index < node_.inputs.size() && !node_.inputs[index].empty();
}

ImportedValue& NodeImport::input(std::size_t index) const {
  if (!hasInput(index)) throw refusal("its input " + std::to_string(index + 1) + " is missing");
  ImportedValue* const value = graph_.find(node_.inputs[index]);
  if (value == nullptr) throw refusal("nothing before it makes its input \"" + inputName(index) + "\"");
  return *value;
}

std::shared_ptr<const Constant> NodeImport::constant(std::size_t index) const {
  const ImportedValue& value = input(index);
  if (!value.constant)
    throw refusal("input \"" + inputName(index) + "\"", "computed of pictures", "a constant");
  return value.constant;
}

train::Features NodeImport::picture(std::size_t index) const {
  const ImportedValue& value = input(index);
  const bool isLast = value.isChannelsLast;
  if (isLast || !value.shape.empty())
    throw refusal("input \"" + inputName(index) + "\"",
                  "reshaped to " + describeShape(shapeInModel(value)) + (isLast ? ", channels last," : "") +
                      " for each picture",
                  "channels x height x width, or a row of these numbers");
  return pictureInAnyShape(index);
}

train::Features NodeImport::pictureInAnyShape(std::size_t index) const {
  using enum ImportedValue::Function;
  ImportedValue& value = input(index);
  if (!value.picture) throw refusal("input \"" + inputName(index) + "\"", "a constant", "made of pictures");
  if (value.function == Erf)
    throw refusal("input \"" + inputName(index) + "\"", "an error function (Erf)",
                  "one in x (1 + erf(x sqrt(0.5))) alone");
  if (value.function == TimesErf) {
    value.picture = add(train::ActivationLayer{mps::CNNNeuronType::GeLU}, {*value.picture});
    value.scale *= 2;
    value.function = Itself;
  }
  if (value.scale != 1 || value.shift != 0)
    value.picture =
        add(train::ActivationLayer{mps::CNNNeuronType::Linear, value.scale, value.shift}, {*value.picture});
  value.scale = 1;
  value.shift = 0;
  return *value.picture;
}

train::Features NodeImport::pixels(std::size_t index) const {
  train::Features found = picture(index);
  if (input(index).isFlat && (found.height() != 1 || found.width() != 1))
    throw refusal("input \"" + inputName(index) + "\"", "a flattened picture",
                  "batch x channels x height x width");
  return found;
}

const AttributeMessage* NodeImport::find(std::string_view name) const {
  known_.insert(name);
  const auto found = std::ranges::find(node_.attributes, name, &AttributeMessage::name);
  return found == node_.attributes.end() ? nullptr : &*found;
}

std::int64_t NodeImport::integer(std::string_view name, std::int64_t missing) const {
  const AttributeMessage* found = find(name);
  if (found == nullptr) return missing;
  if (!found->integer) throw refusal("attribute " + std::string(name) + " is no whole number");
  return *found->integer;
}

float NodeImport::number(std::string_view name, float missing) const {
  const AttributeMessage* found = find(name);
  if (found == nullptr) return missing;
  if (!found->number || !std::isfinite(*found->number))
    throw refusal("attribute " + std::string(name) + " is no finite number");
  return *found->number;
}

std::string NodeImport::text(std::string_view name, std::string missing) const {
  const AttributeMessage* found = find(name);
  if (found == nullptr) return missing;
  if (!found->text) throw refusal("attribute " + std::string(name) + " is no text");
  return std::string(*found->text);
}

std::vector<std::int64_t> NodeImport::integers(std::string_view name) const {
  const AttributeMessage* found = find(name);
  return found == nullptr ? std::vector<std::int64_t>() : found->integers;
}

void NodeImport::expect(std::string_view name, std::int64_t value) const {
  const std::int64_t found = integer(name, value);
  if (found != value)
    throw refusal("attribute " + std::string(name), std::to_string(found), std::to_string(value));
}

void NodeImport::refuseOtherAttributes() const {
  for (const AttributeMessage& attribute : node_.attributes)
    if (!known_.contains(attribute.name))
      throw refusal("its attribute " + std::string(attribute.name) + " is not known");
}

train::Features NodeImport::add(const train::LayerKind& kind,
                                const std::vector<train::Features>& inputs) const {
  return graph_.network().add(kind, inputs);
}

train::Features NodeImport::add(const train::LayerKind& kind, const train::Features& input, std::size_t named,
                                std::vector<LazyNumbers> weights) const {
  return graph_.addLayer(kind, {&input, 1}, labelFor(named), std::move(weights));
}

/// Nodes are often called "conv1/Conv", after their layer and their operator.
std::string NodeImport::labelFor(std::size_t named) const {
  if (hasInput(named))
    if (std::string stem = stemOf(inputName(named)); !stem.empty()) return stem;
  const std::string name(node_.name);
  const std::string ending = "/" + std::string(node_.type);
  const bool hasEnding = name.size() > ending.size() && name.ends_with(ending);
  return hasEnding ? name.substr(0, name.size() - ending.size()) : name;
}

void NodeImport::setResult(Constant constant) {
  graph_.take(constant.stored());
  setResult({.constant = std::make_shared<const Constant>(std::move(constant))});
}

const NodeMessage* NodeImport::takeNext(std::string_view type) {
  const NodeMessage* const next = graph_.onlyUser(result_);
  if (next == nullptr || next->type != type || next->outputs.size() != 1) return nullptr;
  graph_.finish(*next);
  result_ = next->outputs[0];
  return next;
}

std::shared_ptr<const Constant> NodeImport::takeNext(std::string_view type, std::size_t channels,
                                                     bool isFlat) {
  const NodeMessage* const next = graph_.onlyUser(result_);
  if (next == nullptr || next->type != type || next->inputs.size() != 2 || !next->attributes.empty())
    return nullptr;
  const std::string_view other = next->inputs[next->inputs[0] == result_ ? 1 : 0];
  const ImportedValue* const value = graph_.find(other);
  if (value == nullptr || !value->constant) return nullptr;
  std::shared_ptr<const Constant> found = value->constant;
  if (!isPerChannel(*found, channels, isFlat)) return nullptr;
  return takeNext(type) == nullptr ? nullptr : found;
}

Constant partOfShape(const NodeImport& node, const std::vector<std::int64_t>& shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](const char* name, std::int64_t missing) {
    const std::int64_t given = node.integer(name, missing);
    return std::clamp<std::int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  const std::int64_t start = place("start", 0);
  const std::int64_t end = std::max(place("end", rank), start);
  std::vector<std::int64_t> part(shape.begin() + start, shape.begin() + end);
  return {{end - start}, std::move(part)};
}

bool isPerChannel(const Constant& constant, std::size_t channels, bool isFlat) {
  if (constant.count() == 1) return true;
  if (constant.count() != channels) return false;
  std::size_t trailing = 0;  // extents of 1 behind the channels
  const auto& shape = constant.shape();
  while (trailing < shape.size() && shape[shape.size() - 1 - trailing] == 1) ++trailing;
  return trailing == (isFlat ? 0U : 2U) && shape.size() <= (isFlat ? 2U : 4U);
}

}  // namespace unmetal::onnx::detail
