#include "tools/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace unmetal {
namespace {

bool areAllFinite(const mps::SafetensorsTensor& tensor) {
  if (tensor.type != mps::DataType::Float32) return true;
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

std::uint64_t elementsOf(std::span<const std::uint64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

/// PyTorch's order of a shape is another, the number of elements is not. @throws mps::Error for another one
void checkElements(const mps::SafetensorsHeader& file, const std::string& name,
                   std::span<const std::uint64_t> shape) {
  const std::uint64_t found = elementsOf(file.tensor(name).shape);
  if (found != elementsOf(shape))
    throw file.error("tensor \"" + name + "\" has " + std::to_string(found) + " elements, expected " +
                     std::to_string(elementsOf(shape)));
}

/// Before anything of its data is read: whether a file is one of these layers.
void checkNames(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                const mps::SafetensorsHeader& file) {
  std::set<std::string> known;
  for (const auto& layer : layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false)) {
      checkElements(file, tensor.name, tensor.shape);
      known.insert(tensor.name);
    }
  for (const mps::SafetensorsTensor& tensor : file.tensors()) {
    const bool isCount = tensor.name.ends_with(".num_batches_tracked") && elementsOf(tensor.shape) <= 1;
    if (!known.contains(tensor.name) && !isCount)
      throw file.error("no layer of the network takes its tensor \"" + tensor.name + "\"");
  }
}

}  // namespace

InitialWeights::InitialWeights(const std::filesystem::path& path)
    : header_(mps::SafetensorsHeader::read(path)) {
  // Its shapes could be taken for PyTorch's where the sides of a tensor are alike.
  if (header_.metadata().contains("setting.net"))
    throw header_.error(
        "it is a checkpoint of this program, not weights of PyTorch; --resume goes on from one");
}

std::function<void(const std::string&, std::span<const std::uint64_t>)> InitialWeights::tensorCheck() const {
  return [file = header_](const std::string& tensor, std::span<const std::uint64_t> shape) {
    checkElements(file, tensor, shape);
  };
}

void InitialWeights::read(std::span<const std::shared_ptr<mps::TrainableLayer>> layers) const {
  checkNames(layers, header_);
  const auto file = mps::SafetensorsFile::read(header_);
  for (const auto& layer : layers) {
    layer->readFromPyTorch(file);
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false))
      if (!areAllFinite(tensor)) throw file.error("the tensor \"" + tensor.name + "\" is not finite");
  }
}

void readInitialWeights(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                        const std::filesystem::path& path) {
  InitialWeights(path).read(layers);
}

}  // namespace unmetal
