#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The messages of an ONNX file as they are read. Texts and data are views of the file's bytes, which must outlive them.
namespace unmetal::onnx::detail {

/// A constant.
struct TensorMessage {
  std::string_view name;
  std::vector<std::int64_t> shape;
  std::int64_t type = 0;  ///< TensorProto.DataType
  std::optional<std::string_view> raw;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<std::int64_t> integers;
  bool isExternal = false;                                ///< its data is in another file
  std::map<std::string_view, std::string_view> external;  ///< where: location, offset, length
};

struct AttributeMessage {
  std::string_view name;
  std::optional<std::int64_t> integer;
  std::optional<float> number;
  std::optional<std::string_view> text;
  std::optional<TensorMessage> tensor;
  std::vector<std::int64_t> integers;
  std::vector<float> numbers;
};

struct NodeMessage {
  std::string_view type;  ///< "Conv"
  std::string_view name;
  std::string_view domain;
  std::vector<std::string_view> inputs;  ///< "" stands for one that is left out
  std::vector<std::string_view> outputs;
  std::vector<AttributeMessage> attributes;
};

/// An input or a result.
struct ValueMessage {
  /// Of an extent that is a name, such as the batch's.
  static constexpr std::int64_t any = -1;

  std::string_view name;
  std::int64_t type = 0;
  std::vector<std::int64_t> shape;
};

struct GraphMessage {
  std::vector<NodeMessage> nodes;
  std::vector<TensorMessage> constants;
  std::vector<ValueMessage> inputs;
  std::vector<ValueMessage> outputs;
};

struct ModelMessage {
  GraphMessage graph;
  std::map<std::string_view, std::int64_t> operatorSets;  ///< version of each domain
  std::map<std::string, std::string> metadata;
};

/// @param bytes of a file that anybody has written @throws mps::Error for what is no model
ModelMessage readModel(std::string_view bytes);

}  // namespace unmetal::onnx::detail
