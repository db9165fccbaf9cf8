#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "onnx/model/protobuf.hpp"
#include "train/network/layers.hpp"

/// The messages of an ONNX file that an export needs, and their numbers in onnx.proto. The library's own.
namespace unmetal::onnx::detail {

/// The operators' version: the oldest one that all runtimes of the last years read and that has all we use.
inline constexpr std::int64_t operatorSetVersion = 18;
/// The file format's version that came with it.
inline constexpr std::int64_t fileVersion = 8;
/// float32 among the types of elements.
inline constexpr std::int64_t floatElements = 1;

/// A constant.
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::variant<std::vector<float>, std::vector<std::int64_t>> values;
};

using AttributeValue =
    std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>>;
struct Attribute {
  std::string name;
  AttributeValue value;
};

struct Node {
  std::string type;  ///< "Conv"
  std::string name;
  std::vector<std::string> inputs;  ///< "" stands for one that is left out
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
};

/// Pictures of that shape, as many as the caller has: "batch" x channels x height x width, float32.
struct Pictures {
  std::string name;
  train::Shape shape;
};

struct Model {
  std::vector<Node> nodes;
  std::vector<Tensor> constants;
  std::vector<Pictures> inputs;
  std::vector<Pictures> outputs;
  std::map<std::string, std::string> metadata;
};

/// The ModelProto. @throws mps::Error where it would be longer than its readers take, 2 GiB
Message encode(Model model);
/// @throws mps::Error for more bytes than that
void checkLength(std::uint64_t bytes);

}  // namespace unmetal::onnx::detail
