#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "mps/trainable/trainable_layer.hpp"

namespace unmetal {

/// Gives layers the weights of a safetensors file that PyTorch wrote: a state_dict whose names are those of the
/// layers, as torchvision's are for resnet18 and resnet50, with PyTorch's shapes (TrainableLayer::readFromPyTorch).
/// Tensors "*.num_batches_tracked" are passed over.
/// @throws mps::Error in one sentence that names the file and the tensor which is missing, too many, of another
/// shape or not finite
void readInitialWeights(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                        const std::filesystem::path& path);

}  // namespace unmetal
