#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/softmax/matrix_softmax.hpp"
#include "mps/softmax/softmax.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using SoftmaxClasses = KernelClasses<CNNSoftMax, CNNSoftMaxGradient, CNNLogSoftMax, CNNLogSoftMaxGradient>;

/// Kernels over matrices.
using MatrixSoftmaxClasses =
    KernelClasses<MatrixSoftMax, MatrixLogSoftMax, MatrixSoftMaxGradient, MatrixLogSoftMaxGradient>;

}  // namespace mps::detail
