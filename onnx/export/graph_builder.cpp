#include "onnx/export/graph_builder.hpp"

#include <algorithm>
#include <utility>

namespace unmetal::onnx::detail {

void GraphBuilder::beginStep(const std::string& name) {
  step_ = unused(name);
}

std::string GraphBuilder::add(const std::string& type, std::vector<std::string> inputs,
                              std::vector<Attribute> attributes) {
  std::string name = unused(step_ + "/" + type);
  model_.nodes.push_back({type, name, std::move(inputs), {name}, std::move(attributes)});
  return name;
}

std::string GraphBuilder::constant(const std::string& role, std::vector<std::int64_t> shape,
                                   std::vector<float> values) {
  std::string name = unused(step_ + "." + role);
  model_.constants.push_back({name, std::move(shape), std::move(values)});
  return name;
}

std::string GraphBuilder::constant(const std::string& role, std::vector<std::int64_t> values) {
  std::string name = unused(step_ + "." + role);
  const auto count = static_cast<std::int64_t>(values.size());
  model_.constants.push_back({name, {count}, std::move(values)});
  return name;
}

std::string GraphBuilder::addInput(const std::string& name, const train::Shape& shape) {
  std::string input = unused(name);
  model_.inputs.push_back({input, shape});
  return input;
}

std::string GraphBuilder::addOutput(const std::string& name, const std::string& value,
                                    const train::Shape& shape) {
  const auto isNamed = [&](const auto& pictures) { return pictures.name == value; };
  std::string output = unused(name);
  if (std::ranges::any_of(model_.inputs, isNamed) || std::ranges::any_of(model_.outputs, isNamed))
    model_.nodes.push_back({"Identity", output, {value}, {output}, {}});
  else
    rename(value, output);
  model_.outputs.push_back({output, shape});
  return output;
}

Model GraphBuilder::take(std::map<std::string, std::string> metadata) {
  model_.metadata = std::move(metadata);
  return std::exchange(model_, {});
}

std::string GraphBuilder::unused(const std::string& name) {
  std::string found = name;
  for (std::size_t number = 2; !names_.insert(found).second; ++number)
    found = name + "_" + std::to_string(number);
  return found;
}

void GraphBuilder::rename(const std::string& value, const std::string& name) {
  for (Node& node : model_.nodes) {
    std::ranges::replace(node.inputs, value, name);
    std::ranges::replace(node.outputs, value, name);
  }
}

}  // namespace unmetal::onnx::detail
