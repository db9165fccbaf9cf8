#include "tools/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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

}  // namespace

void readInitialWeights(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                        const std::filesystem::path& path) {
  const mps::SafetensorsFile file = mps::SafetensorsFile::read(path);
  // Its shapes could be taken for PyTorch's where the sides of a tensor are alike.
  if (file.metadata().contains("setting.net"))
    throw file.error("it is a checkpoint of this program, not weights of PyTorch; --resume goes on from one");
  std::set<std::string> known;
  for (const auto& layer : layers) {
    layer->readFromPyTorch(file);
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false)) {
      if (!areAllFinite(tensor)) throw file.error("the tensor \"" + tensor.name + "\" is not finite");
      known.insert(tensor.name);
    }
  }
  for (const mps::SafetensorsTensor& tensor : file.tensors())
    if (!known.contains(tensor.name) && !tensor.name.ends_with(".num_batches_tracked"))
      throw file.error("no layer of the network takes its tensor \"" + tensor.name + "\"");
}

}  // namespace unmetal
