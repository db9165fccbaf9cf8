#include "mps/matrix/matrix.hpp"

#include <string>

#include "mps/core/array/matrix_encoding.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mps/matrix/matrix_product.hpp"

namespace mps {

using detail::checkedFinite;
using detail::MatrixArgument;
using detail::MatrixEncoding;
using detail::MatrixMultiplicationProblem;
using detail::MatrixPart;

namespace {

/// Checks that the result is apart from its factors, and records the product.
void finishProduct(MatrixEncoding& encoding, const MatrixMultiplicationProblem& problem,
                   const MatrixPart& left, const MatrixPart& right, const MatrixPart& result) {
  if (!result.isEmpty()) {
    encoding.checkApart({&result}, {&left, &right});
    detail::recordProduct(encoding, problem, left.operand(), right.operand(), result.operand());
  }
  encoding.finish();
}

/// As a float32, which kernels compute with.
double checkedFactor(const std::string& kernel, const char* property, double factor) {
  checkedFinite(kernel, property, static_cast<float>(factor));
  return factor;
}

}  // namespace

MatrixMultiplication::MatrixMultiplication(std::shared_ptr<mtl::Device> device, bool transposeLeft,
                                           bool transposeRight, std::size_t resultRows,
                                           std::size_t resultColumns, std::size_t interiorColumns,
                                           double alpha, double beta)
    : KernelClass(std::move(device)),
      transposeLeft_(transposeLeft),
      transposeRight_(transposeRight),
      resultRows_(resultRows),
      resultColumns_(resultColumns),
      interiorColumns_(interiorColumns),
      alpha_(checkedFactor("MatrixMultiplication", "alpha", alpha)),
      beta_(checkedFactor("MatrixMultiplication", "beta", beta)) {}

std::shared_ptr<MatrixMultiplication> MatrixMultiplication::create(const std::shared_ptr<mtl::Device>& device,
                                                                   bool transposeLeft, bool transposeRight,
                                                                   std::size_t resultRows,
                                                                   std::size_t resultColumns,
                                                                   std::size_t interiorColumns, double alpha,
                                                                   double beta) {
  return std::shared_ptr<MatrixMultiplication>(new MatrixMultiplication(
      device, transposeLeft, transposeRight, resultRows, resultColumns, interiorColumns, alpha, beta));
}

std::shared_ptr<MatrixMultiplication> MatrixMultiplication::create(const std::shared_ptr<mtl::Device>& device,
                                                                   std::size_t resultRows,
                                                                   std::size_t resultColumns,
                                                                   std::size_t interiorColumns) {
  return create(device, false, false, resultRows, resultColumns, interiorColumns, 1, 0);
}

void MatrixMultiplication::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const std::shared_ptr<Matrix>& leftMatrix,
                                  const std::shared_ptr<Matrix>& rightMatrix,
                                  const std::shared_ptr<Matrix>& resultMatrix) {
  MatrixEncoding encoding(*this, commandBuffer);
  MatrixMultiplicationProblem problem;
  problem.transposeLeft = transposeLeft_;
  problem.transposeRight = transposeRight_;
  problem.alpha = static_cast<float>(alpha_);
  problem.beta = static_cast<float>(beta_);
  const MatrixArgument left = encoding.reads("leftMatrix", leftMatrix);
  const MatrixArgument right = encoding.reads("rightMatrix", rightMatrix);
  const MatrixArgument result = encoding.writes("resultMatrix", resultMatrix, problem.beta != 0);
  encoding.checkTypes(result);
  const auto part = [&](const MatrixArgument& argument, const mtl::Origin& origin, std::size_t rows,
                        std::size_t columns, bool isTransposed) {
    return encoding.part(argument, origin, isTransposed ? columns : rows, isTransposed ? rows : columns);
  };
  finishProduct(encoding, problem,
                part(left, leftMatrixOrigin_, resultRows_, interiorColumns_, transposeLeft_),
                part(right, rightMatrixOrigin_, interiorColumns_, resultColumns_, transposeRight_),
                part(result, resultMatrixOrigin_, resultRows_, resultColumns_, false));
}

MatrixVectorMultiplication::MatrixVectorMultiplication(std::shared_ptr<mtl::Device> device, bool transpose,
                                                       std::size_t rows, std::size_t columns, double alpha,
                                                       double beta)
    : KernelClass(std::move(device)),
      transpose_(transpose),
      rows_(rows),
      columns_(columns),
      alpha_(checkedFactor("MatrixVectorMultiplication", "alpha", alpha)),
      beta_(checkedFactor("MatrixVectorMultiplication", "beta", beta)) {}

std::shared_ptr<MatrixVectorMultiplication> MatrixVectorMultiplication::create(
    const std::shared_ptr<mtl::Device>& device, bool transpose, std::size_t rows, std::size_t columns,
    double alpha, double beta) {
  return std::shared_ptr<MatrixVectorMultiplication>(
      new MatrixVectorMultiplication(device, transpose, rows, columns, alpha, beta));
}

std::shared_ptr<MatrixVectorMultiplication> MatrixVectorMultiplication::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t rows, std::size_t columns) {
  return create(device, false, rows, columns, 1, 0);
}

void MatrixVectorMultiplication::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                        const std::shared_ptr<Matrix>& inputMatrix,
                                        const std::shared_ptr<Vector>& inputVector,
                                        const std::shared_ptr<Vector>& resultVector) {
  MatrixEncoding encoding(*this, commandBuffer);
  // So that oneDNN need not transpose: y = A x with columns, or y^T = x^T A with rows.
  const bool areRows = transpose_;
  MatrixMultiplicationProblem problem;
  problem.alpha = static_cast<float>(alpha_);
  problem.beta = static_cast<float>(beta_);
  const MatrixArgument matrix = encoding.reads("inputMatrix", inputMatrix);
  const MatrixArgument vector = encoding.reads("inputVector", inputVector);
  const MatrixArgument result = encoding.writes("resultVector", resultVector, problem.beta != 0);
  encoding.checkTypes(result);
  const auto vectorPart = [&](MatrixArgument argument, const mtl::Origin& origin, std::size_t length) {
    if (origin.y != 0)
      throw Error(describe(), std::string("origin of ") + argument.name, "y " + std::to_string(origin.y),
                  "y 0");
    if (areRows) return encoding.part(argument, {0, origin.x, origin.z}, 1, length);
    argument.whole.height = argument.whole.channels;
    argument.whole.channels = argument.whole.rowStride = argument.whole.pixelStride = 1;
    return encoding.part(argument, origin, length, 1);
  };
  const MatrixPart matrixPart = encoding.part(matrix, primarySourceMatrixOrigin(),
                                              transpose_ ? columns_ : rows_, transpose_ ? rows_ : columns_);
  const MatrixPart input = vectorPart(vector, secondarySourceMatrixOrigin(), columns_);
  finishProduct(encoding, problem, areRows ? input : matrixPart, areRows ? matrixPart : input,
                vectorPart(result, resultMatrixOrigin(), rows_));
}

void MatrixMultiplication::codeProperties(Coder& coder) {
  MatrixKernel::codeProperties(coder);
  coder.code("transposeLeft", transposeLeft_);
  coder.code("transposeRight", transposeRight_);
  coder.code("resultRows", resultRows_);
  coder.code("resultColumns", resultColumns_);
  coder.code("interiorColumns", interiorColumns_);
  coder.code("alpha", alpha_);
  coder.code("beta", beta_);
  checkedFactor(describe(), "alpha", alpha_);
  checkedFactor(describe(), "beta", beta_);
  coder.code("leftMatrixOrigin", leftMatrixOrigin_);
  coder.code("rightMatrixOrigin", rightMatrixOrigin_);
  coder.code("resultMatrixOrigin", resultMatrixOrigin_);
}

void MatrixVectorMultiplication::codeProperties(Coder& coder) {
  MatrixBinaryKernel::codeProperties(coder);
  coder.code("transpose", transpose_);
  coder.code("rows", rows_);
  coder.code("columns", columns_);
  coder.code("alpha", alpha_);
  coder.code("beta", beta_);
  checkedFactor(describe(), "alpha", alpha_);
  checkedFactor(describe(), "beta", beta_);
}

}  // namespace mps
