#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/reduction/reduce_binary.hpp"
#include "mps/reduction/reduction.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using ReductionClasses =
    KernelClasses<NNReduceRowMin, NNReduceRowSum, NNReduceRowMean, NNReduceColumnMin, NNReduceColumnMax,
                  NNReduceColumnSum, NNReduceColumnMean, NNReduceFeatureChannelsMin,
                  NNReduceFeatureChannelsMax, NNReduceFeatureChannelsMean, NNReduceFeatureChannelsArgumentMin,
                  NNReduceFeatureChannelsArgumentMax, NNReduceFeatureChannelsSum, NNReduceSpatialMean,
                  NNReduceRowMax, NNReduceUnaryGradient, NNReduceFeatureChannelsAndWeightsMean,
                  NNReduceFeatureChannelsAndWeightsSum>;

}  // namespace mps::detail
