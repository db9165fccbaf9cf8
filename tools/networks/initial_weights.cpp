#include "tools/networks/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/types/error.hpp"
#include "onnx/import.hpp"

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

/// Whether a file has all tensors of a layer, with as many elements.
bool fits(const mps::SafetensorsHeader& file, const mps::TrainableLayer& layer) {
  return std::ranges::all_of(layer.tensors(false), [&](const mps::SafetensorsTensor& tensor) {
    return file.contains(tensor.name) &&
           elementsOf(file.tensor(tensor.name).shape) == elementsOf(tensor.shape);
  });
}

using Layers = std::span<const std::shared_ptr<mps::TrainableLayer>>;

/// The last layer that makes scores. Null without any.
const mps::CNNConvolutionDataSource* headOf(Layers layers) {
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
    if (const auto* convolution = dynamic_cast<const mps::CNNConvolutionDataSource*>(layer->get()))
      return convolution;
  return nullptr;
}

/// Before anything of its data is read: whether a file is one of these layers. @param kept of them needs nothing of it
void checkNames(Layers layers, const mps::SafetensorsHeader& file, const mps::TrainableLayer* kept,
                bool mayHaveMore) {
  std::set<std::string> known;
  for (const auto& layer : layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false)) {
      if (layer.get() != kept) checkElements(file, tensor.name, tensor.shape);
      known.insert(tensor.name);
    }
  if (mayHaveMore) return;
  for (const mps::SafetensorsTensor& tensor : file.tensors()) {
    const bool isCount = tensor.name.ends_with(".num_batches_tracked") && elementsOf(tensor.shape) <= 1;
    if (!known.contains(tensor.name) && !isCount)
      throw file.error("no layer of the network takes its tensor \"" + tensor.name + "\"");
  }
}

}  // namespace

// The shapes of our files could be taken for PyTorch's where the sides of a tensor are alike.
InitialWeights::InitialWeights(const std::filesystem::path& path)
    : header_(mps::SafetensorsHeader::read(path)),
      isPyTorchs_(!header_.metadata().contains("setting.net") &&
                  !header_.metadata().contains("unmetal.network")) {}

std::function<void(const std::string&, std::span<const std::uint64_t>)> InitialWeights::tensorCheck() const {
  struct Trouble {
    std::string layer;
    std::optional<mps::Error> error;
  };
  return [file = header_, trouble = std::make_shared<Trouble>()](const std::string& tensor,
                                                                 std::span<const std::uint64_t> shape) {
    const std::string layer = tensor.substr(0, tensor.rfind('.'));
    // It was not the last one.
    if (trouble->error && trouble->layer != layer) throw mps::Error(*trouble->error);
    try {
      checkElements(file, tensor, shape);
    } catch (const mps::Error& error) {
      if (!trouble->error) *trouble = {layer, error};
    }
  };
}

std::optional<std::string> InitialWeights::read(Layers layers) const {
  const mps::CNNConvolutionDataSource* head = headOf(layers);
  const auto* const last = dynamic_cast<const mps::TrainableLayer*>(head);
  const auto* const kept = last != nullptr && !fits(header_, *last) ? last : nullptr;
  checkNames(layers, header_, kept, !isPyTorchs_);
  const auto file = mps::SafetensorsFile::read(header_);
  for (const auto& layer : layers) {
    if (layer.get() == kept) continue;
    if (isPyTorchs_)
      layer->readFromPyTorch(file);
    else
      layer->read(file, false);
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false))
      if (!areAllFinite(tensor)) throw file.error("the tensor \"" + tensor.name + "\" is not finite");
  }
  return kept != nullptr ? std::optional(head->label()) : std::nullopt;
}

std::optional<std::string> readInitialWeights(Network& network, const std::filesystem::path& path) {
  if (!isModelFile(path.string())) return readInitialWeights(network.layers, path);
  const auto newHead = onnx::loadWeights(*network.definition, path, train::Head::Own);
  // The caller has chosen how pictures are normalised.
  network.definition->setNormalization(network.options.normalization);
  return newHead;
}

std::optional<std::string> readInitialWeights(Layers layers, const std::filesystem::path& path) {
  return InitialWeights(path).read(layers);
}

}  // namespace unmetal
