#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mps/matrix/matrix_sum.hpp"

namespace mps::detail {

/// Kernels over matrices.
using MatrixClasses = KernelClasses<MatrixSum, MatrixCopy, MatrixFullyConnected, MatrixFullyConnectedGradient,
                                    MatrixMultiplication, MatrixVectorMultiplication, ImageCopyToMatrix,
                                    MatrixCopyToImage, MatrixRandomPhilox, MatrixRandomMTGP32>;

}  // namespace mps::detail
