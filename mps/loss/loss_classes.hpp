#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/yolo_loss.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using LossClasses = KernelClasses<NNForwardLoss, CNNLoss, CNNYOLOLoss, NNLossGradient, NNInitialGradient>;

}  // namespace mps::detail
