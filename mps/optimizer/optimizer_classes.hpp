#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/optimizer/optimizer.hpp"

namespace mps::detail {

/// Optimisers.
using OptimizerClasses =
    KernelClasses<NNOptimizerStochasticGradientDescent, NNOptimizerRMSProp, NNOptimizerAdam>;

}  // namespace mps::detail
