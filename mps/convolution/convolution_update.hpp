#pragma once

#include <memory>
#include <vector>

#include "mps/convolution/kernel_with_weights.hpp"
#include "mps/core/layer/layer_update.hpp"

namespace mps::detail {

/// The update of a convolution, transposed convolution or fully connected layer.
std::shared_ptr<LayerUpdate> makeConvolutionUpdate(
    std::shared_ptr<mtl::Device> device, std::shared_ptr<ForwardKernelWithWeights> forward,
    std::vector<std::shared_ptr<GradientKernelWithWeights>> gradients, NNTrainingStyle style);

}  // namespace mps::detail
