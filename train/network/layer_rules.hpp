#pragma once

#include <memory>
#include <span>
#include <string>

#include "mps/core/kernel/node.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "train/network/layers.hpp"

namespace mps {
class NNOptimizer;
}

/// What each kind of layer makes of its inputs.
namespace unmetal::train::detail {

/// The beginning of labels of this kind: "conv", "bn", ...
std::string labelStem(const LayerKind& kind);

/// Sets shape, parameters and multiplyAdds of a layer. @throws mps::Error, naming the layer, for what cannot be
void applyRules(Layer& layer, std::span<const Shape> inputs);

/// With what the arrays of layers are made.
struct LayerSetting {
  std::shared_ptr<mtl::Device> device;
  std::shared_ptr<mps::NNOptimizer> optimizer;
  mps::AdamForm adamForm = mps::AdamForm::Adam;
  std::uint64_t seed = 0;
};
/// Null for a layer without parameters.
std::shared_ptr<mps::TrainableLayer> makeTrainable(const Layer& layer, const Shape& input,
                                                   const LayerSetting& setting);

/// What is not in the layer's record.
struct NodeSetting {
  std::uint64_t dropoutSeed = 0;
  bool isFrozen = false;  ///< a batch normalisation uses its running statistics
};
/// The node of one layer. @param trainable of makeTrainable
std::shared_ptr<mps::NNImageNode> makeNode(const Layer& layer, std::span<const Shape> inputs,
                                           const std::vector<std::shared_ptr<mps::NNImageNode>>& sources,
                                           const std::shared_ptr<mps::TrainableLayer>& trainable,
                                           const NodeSetting& setting);

}  // namespace unmetal::train::detail
