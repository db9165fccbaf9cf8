#include "onnx/model/model.hpp"

#include <bit>
#include <cstring>

#include "mps/core/types/error.hpp"

namespace unmetal::onnx::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data of a TensorProto is little endian");

constexpr std::int64_t integerElements = 7;  // TensorProto.DataType

template <class Number>
std::string rawBytes(const std::vector<Number>& values) {
  std::string bytes(values.size() * sizeof(Number), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

Message tensorProto(Tensor tensor) {
  Message message;
  for (const std::int64_t extent : tensor.shape) message.addInteger(1, extent);
  const auto* floats = std::get_if<std::vector<float>>(&tensor.values);
  message.addInteger(2, floats != nullptr ? floatElements : integerElements);
  message.addText(8, std::move(tensor.name));
  message.addText(9, std::visit([](const auto& values) { return rawBytes(values); }, tensor.values));
  return message;
}

/// Adds the value of an AttributeProto and its type.
struct AttributeWriter {
  Message& message;

  void operator()(std::int64_t value) const {
    message.addInteger(3, value);
    message.addInteger(20, 2);
  }
  void operator()(float value) const {
    message.addFloat(2, value);
    message.addInteger(20, 1);
  }
  void operator()(const std::string& value) const {
    message.addText(4, value);
    message.addInteger(20, 3);
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    for (const std::int64_t value : values) message.addInteger(8, value);
    message.addInteger(20, 7);
  }
  void operator()(const std::vector<float>& values) const {
    for (const float value : values) message.addFloat(7, value);
    message.addInteger(20, 6);
  }
};

Message attributeProto(const Attribute& attribute) {
  Message message;
  message.addText(1, attribute.name);
  std::visit(AttributeWriter{message}, attribute.value);
  return message;
}

Message nodeProto(const Node& node) {
  Message message;
  for (const std::string& input : node.inputs) message.addText(1, input);
  for (const std::string& output : node.outputs) message.addText(2, output);
  message.addText(3, node.name);
  message.addText(4, node.type);
  for (const Attribute& attribute : node.attributes) message.addMessage(5, attributeProto(attribute));
  return message;
}

Message fixedExtent(std::size_t extent) {
  Message message;
  message.addInteger(1, static_cast<std::int64_t>(extent));
  return message;
}

Message batchExtent() {
  Message message;
  message.addText(2, "batch");
  return message;
}

Message valueInfoProto(const Pictures& pictures) {
  Message shape;
  shape.addMessage(1, batchExtent());
  for (const std::size_t extent : {pictures.shape.channels, pictures.shape.height, pictures.shape.width})
    shape.addMessage(1, fixedExtent(extent));
  Message tensorType;
  tensorType.addInteger(1, floatElements);
  tensorType.addMessage(2, std::move(shape));
  Message type;
  type.addMessage(1, std::move(tensorType));
  Message message;
  message.addText(1, pictures.name);
  message.addMessage(2, std::move(type));
  return message;
}

Message graphProto(Model& model) {
  Message message;
  for (const Node& node : model.nodes) message.addMessage(1, nodeProto(node));
  message.addText(2, "unmetal");
  for (Tensor& constant : model.constants) message.addMessage(5, tensorProto(std::move(constant)));
  for (const Pictures& input : model.inputs) message.addMessage(11, valueInfoProto(input));
  for (const Pictures& output : model.outputs) message.addMessage(12, valueInfoProto(output));
  return message;
}

Message operatorSetIdProto() {
  Message message;
  message.addText(1, "");
  message.addInteger(2, operatorSetVersion);
  return message;
}

Message entryProto(const std::string& key, const std::string& value) {
  Message message;
  message.addText(1, key);
  message.addText(2, value);
  return message;
}

}  // namespace

void checkLength(std::uint64_t bytes) {
  constexpr std::uint64_t most = (std::uint64_t{1} << 31U) - 1;
  if (bytes > most)
    throw mps::Error("cannot export to ONNX: the model has " + std::to_string(bytes) +
                     " bytes, and readers of the format take at most " + std::to_string(most));
}

Message encode(Model model) {
  Message message;
  message.addInteger(1, fileVersion);
  message.addText(2, "unmetal");
  message.addMessage(7, graphProto(model));
  message.addMessage(8, operatorSetIdProto());
  for (const auto& [key, value] : model.metadata) message.addMessage(14, entryProto(key, value));
  checkLength(message.size());
  return message;
}

}  // namespace unmetal::onnx::detail
