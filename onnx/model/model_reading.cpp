#include "onnx/model/model_reading.hpp"

#include "mps/core/types/error.hpp"
#include "onnx/model/wire_reader.hpp"

/// The numbers of fields are those of onnx.proto; fields that no import needs are passed over.
namespace unmetal::onnx::detail {
namespace {

template <class Read>
void forFields(std::string_view message, const Read& read) {
  WireReader reader(message);
  while (const auto field = reader.next()) read(*field);
}

/// Of a list of texts with names.
std::pair<std::string_view, std::string_view> readEntry(std::string_view message) {
  std::pair<std::string_view, std::string_view> entry;
  forFields(message, [&](const WireField& field) {
    if (field.number == 1) entry.first = bytesOf(field);
    if (field.number == 2) entry.second = bytesOf(field);
  });
  return entry;
}

TensorMessage readTensor(std::string_view message) {
  TensorMessage tensor;
  forFields(message, [&](const WireField& field) {
    switch (field.number) {
      case 1:
        return appendIntegers(field, tensor.shape);
      case 2:
        tensor.type = integerOf(field);
        return;
      case 4:
        return appendFloats(field, tensor.floats);
      case 5:
      case 7:
        return appendIntegers(field, tensor.integers);
      case 8:
        tensor.name = bytesOf(field);
        return;
      case 9:
        tensor.raw = bytesOf(field);
        return;
      case 10:
        return appendDoubles(field, tensor.doubles);
      case 13:
        tensor.isExternal = true;
        tensor.external.insert(readEntry(bytesOf(field)));
        return;
      case 14:
        tensor.isExternal = tensor.isExternal || integerOf(field) != 0;
        return;
      default:
        return;
    }
  });
  return tensor;
}

AttributeMessage readAttribute(std::string_view message) {
  AttributeMessage attribute;
  forFields(message, [&](const WireField& field) {
    switch (field.number) {
      case 1:
        attribute.name = bytesOf(field);
        return;
      case 2:
        attribute.number = floatOf(field);
        return;
      case 3:
        attribute.integer = integerOf(field);
        return;
      case 4:
        attribute.text = bytesOf(field);
        return;
      case 5:
        attribute.tensor = readTensor(bytesOf(field));
        return;
      case 7:
        return appendFloats(field, attribute.numbers);
      case 8:
        return appendIntegers(field, attribute.integers);
      default:
        return;
    }
  });
  return attribute;
}

NodeMessage readNode(std::string_view message) {
  NodeMessage node;
  forFields(message, [&](const WireField& field) {
    switch (field.number) {
      case 1:
        node.inputs.push_back(bytesOf(field));
        return;
      case 2:
        node.outputs.push_back(bytesOf(field));
        return;
      case 3:
        node.name = bytesOf(field);
        return;
      case 4:
        node.type = bytesOf(field);
        return;
      case 5:
        node.attributes.push_back(readAttribute(bytesOf(field)));
        return;
      case 7:
        node.domain = bytesOf(field);
        return;
      default:
        return;
    }
  });
  if (node.type.empty()) throw mps::Error("a node has no operator");
  if (node.outputs.empty()) throw mps::Error("a node has no result");
  return node;
}

std::int64_t readExtent(std::string_view message) {
  std::int64_t extent = ValueMessage::any;
  forFields(message, [&](const WireField& field) {
    if (field.number == 1) extent = integerOf(field);
  });
  return extent;
}

void readTensorType(std::string_view message, ValueMessage& value) {
  forFields(message, [&](const WireField& field) {
    if (field.number == 1) value.type = integerOf(field);
    if (field.number == 2)
      forFields(bytesOf(field), [&](const WireField& extent) {
        if (extent.number == 1) value.shape.push_back(readExtent(bytesOf(extent)));
      });
  });
}

ValueMessage readValue(std::string_view message) {
  ValueMessage value;
  forFields(message, [&](const WireField& field) {
    if (field.number == 1) value.name = bytesOf(field);
    if (field.number == 2)
      forFields(bytesOf(field), [&](const WireField& type) {
        if (type.number == 1) readTensorType(bytesOf(type), value);
      });
  });
  return value;
}

GraphMessage readGraph(std::string_view message) {
  GraphMessage graph;
  forFields(message, [&](const WireField& field) {
    switch (field.number) {
      case 1:
        graph.nodes.push_back(readNode(bytesOf(field)));
        return;
      case 5:
        graph.constants.push_back(readTensor(bytesOf(field)));
        return;
      case 11:
        graph.inputs.push_back(readValue(bytesOf(field)));
        return;
      case 12:
        graph.outputs.push_back(readValue(bytesOf(field)));
        return;
      case 15:
        throw mps::Error("it has sparse constants, which are not taken");
      default:
        return;
    }
  });
  return graph;
}

void readOperatorSet(std::string_view message, ModelMessage& model) {
  std::string_view domain;
  std::int64_t version = 0;
  forFields(message, [&](const WireField& field) {
    if (field.number == 1) domain = bytesOf(field);
    if (field.number == 2) version = integerOf(field);
  });
  model.operatorSets[domain] = version;
}

}  // namespace

ModelMessage readModel(std::string_view bytes) {
  ModelMessage model;
  bool hasGraph = false;
  forFields(bytes, [&](const WireField& field) {
    switch (field.number) {
      case 7:
        if (hasGraph) throw mps::Error("it has two graphs");
        model.graph = readGraph(bytesOf(field));
        hasGraph = true;
        return;
      case 8:
        return readOperatorSet(bytesOf(field), model);
      case 14: {
        const auto [key, value] = readEntry(bytesOf(field));
        model.metadata[std::string(key)] = value;
        return;
      }
      default:
        return;
    }
  });
  if (!hasGraph) throw mps::Error("it has no graph");
  return model;
}

}  // namespace unmetal::onnx::detail
