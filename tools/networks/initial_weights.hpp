#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "mps/trainable/trainable_layer.hpp"
#include "mps/weights/safetensors.hpp"
#include "tools/networks/networks.hpp"

namespace unmetal {

/// A safetensors file of weights that PyTorch wrote, or this program, or train::Network::save(). Its header was read; its data is when layers of its sizes are there.
class InitialWeights {
 public:
  /// @throws mps::Error for a file that is none
  explicit InitialWeights(const std::filesystem::path& path);
  /// For NetworkOptions::expectTensor: throws mps::Error unless the file has that tensor, of PyTorch's in whatever order of its
  /// sides. The last layer that it is asked for may be missing or another one.
  [[nodiscard]] std::function<void(const std::string&, std::span<const std::uint64_t>)> tensorCheck() const;
  /// As readInitialWeights() does.
  std::optional<std::string> read(std::span<const std::shared_ptr<mps::TrainableLayer>> layers) const;

 private:
  mps::SafetensorsHeader header_;
  bool isPyTorchs_;
};

/// Of a file as below, or of an ONNX file with the network's layers (onnx::loadWeights()).
std::optional<std::string> readInitialWeights(Network& network, const std::filesystem::path& path);

/// Gives layers the weights of a safetensors file that PyTorch wrote: a state_dict whose names are those of the
/// layers, as torchvision's are for resnet18 and resnet50, with PyTorch's shapes (TrainableLayer::readFromPyTorch).
/// Tensors "*.num_batches_tracked" are passed over. Or of a checkpoint or a network of ours, whatever else it has. The last
/// convolution or dense layer keeps its own values where the file has other numbers of elements for it, or none.
/// @return the label of that layer in case it does
/// @throws mps::Error in one sentence that names the file and the tensor which is missing, too many, of another
/// shape or not finite
std::optional<std::string> readInitialWeights(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                                              const std::filesystem::path& path);

}  // namespace unmetal
