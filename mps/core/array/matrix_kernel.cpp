#include "mps/core/array/matrix_kernel.hpp"

#include "mps/core/coding/coder.hpp"

namespace mps {

void MatrixKernel::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.code("batchStart", batchStart_);
  coder.code("batchSize", batchSize_);
}

void MatrixSampleLimits::codeLimits(Coder& coder) {
  coder.code("sourceNumberOfFeatureVectors", sourceNumberOfFeatureVectors_);
  coder.code("sourceInputFeatureChannels", sourceInputFeatureChannels_);
}

void MatrixUnaryKernel::codeProperties(Coder& coder) {
  MatrixKernel::codeProperties(coder);
  coder.code("sourceMatrixOrigin", sourceMatrixOrigin_);
  coder.code("resultMatrixOrigin", resultMatrixOrigin_);
}

void MatrixBinaryKernel::codeProperties(Coder& coder) {
  MatrixKernel::codeProperties(coder);
  coder.code("primarySourceMatrixOrigin", primarySourceMatrixOrigin_);
  coder.code("secondarySourceMatrixOrigin", secondarySourceMatrixOrigin_);
  coder.code("resultMatrixOrigin", resultMatrixOrigin_);
}

}  // namespace mps
