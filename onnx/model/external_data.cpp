#include "onnx/model/external_data.hpp"

#include <charconv>

#include "mps/core/types/error.hpp"

namespace unmetal::onnx::detail {
namespace {

std::string_view textOf(const TensorMessage& tensor, std::string_view key) {
  const auto found = tensor.external.find(key);
  return found == tensor.external.end() ? std::string_view() : found->second;
}

std::uint64_t numberOf(const TensorMessage& tensor, std::string_view key, std::uint64_t missing) {
  const std::string_view text = textOf(tensor, key);
  if (text.empty()) return missing;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw mps::Error("its " + std::string(key) + " in another file is no number");
  return number;
}

/// A file elsewhere is none of the model's, and may be one that nobody meant to give away.
std::string fileNameOf(const TensorMessage& tensor) {
  std::string name(textOf(tensor, "location"));
  const bool isPlain = !name.empty() && name != "." && name != ".." &&
                       name.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos;
  if (!isPlain) throw mps::Error("its data is not in a file of the model's folder");
  return name;
}

std::string_view partOf(const TensorMessage& tensor, std::string_view data) {
  const std::uint64_t offset = numberOf(tensor, "offset", 0);
  if (offset > data.size()) throw mps::Error("its data begins behind the end of its file");
  const std::uint64_t length = numberOf(tensor, "length", data.size() - offset);
  if (length > data.size() - offset) throw mps::Error("its data goes beyond the end of its file");
  return data.substr(offset, length);
}

}  // namespace

void attachExternalData(ModelMessage& model,
                        const std::function<std::string_view(const std::string& fileName)>& dataOf) {
  for (TensorMessage& tensor : model.graph.constants) {
    if (!tensor.isExternal) continue;
    try {
      tensor.raw = partOf(tensor, dataOf(fileNameOf(tensor)));
    } catch (const mps::Error& error) {
      throw mps::Error("the constant \"" + std::string(tensor.name) + "\": " + error.what());
    }
    tensor.isExternal = false;
  }
}

}  // namespace unmetal::onnx::detail
