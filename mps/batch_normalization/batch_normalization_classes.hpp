#pragma once

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/core/kernel/kernel_class.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using BatchNormalizationClasses =
    KernelClasses<CNNBatchNormalization, CNNBatchNormalizationStatistics, CNNBatchNormalizationGradient,
                  CNNBatchNormalizationStatisticsGradient>;

/// Kernels over matrices.
using MatrixColumnClasses = KernelClasses<MatrixNeuron, MatrixNeuronGradient, MatrixBatchNormalization,
                                          MatrixBatchNormalizationGradient>;

}  // namespace mps::detail
