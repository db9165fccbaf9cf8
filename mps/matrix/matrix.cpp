#include "mps/matrix/matrix.hpp"

#include <algorithm>

#include "mps/core/array_storage.hpp"
#include "mps/core/coder.hpp"
#include "mps/core/error.hpp"
#include "mps/matrix/matrix_call.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::MatrixMultiplicationProblem;
using detail::MatrixRegion;

namespace {

void checkType(const Kernel& kernel, const char* argument, DataType type, DataType expected) {
  if (type != DataType::Float32 && type != DataType::Float16)
    throw Error(kernel.describe(), argument, name(type), "Float32 or Float16");
  if (type != expected)
    throw Error(kernel.describe(), argument, name(type), std::string(name(expected)) + ", as the result");
}

struct Factor {
  detail::ArrayStorage* storage;
  MatrixRegion region;
  const char* argument;
};

/// Records a product; the problem's shapes are still to be set.
void recordProduct(const Kernel& kernel, mtl::CommandBuffer& commandBuffer,
                   MatrixMultiplicationProblem problem, const Factor& left, const Factor& right,
                   const Factor& result) {
  if (result.region.shape.elements() == 0) return;
  for (const Factor* factor : {&left, &right})
    if (detail::overlap(*factor->storage, factor->region, *result.storage, result.region))
      throw Error(kernel.describe(), result.argument,
                  std::string("sharing elements with ") + factor->argument, "elements of its own");
  problem.left = left.region.shape;
  problem.right = right.region.shape;
  problem.result = result.region.shape;
  problem.threadCount = kernel.device()->threadCount();
  problem.deviceName = kernel.device()->name();
  mtl::RecordingGuard guard(commandBuffer);
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*kernel.device(), detail::matrixMultiplicationBackEnds, problem);
  const detail::BatchOperand source = detail::operandOf(*left.storage, left.region);
  const detail::BatchOperand secondary = detail::operandOf(*right.storage, right.region);
  const detail::BatchOperand destination = detail::operandOf(*result.storage, result.region);
  detail::CallOperands operands;
  operands.source = &source;
  operands.secondary = &secondary;
  operands.gradient = problem.beta != 0 ? &destination : nullptr;  // the old result is an input too
  operands.destination = &destination;
  detail::recordCall(commandBuffer, kernel, prepared, operands);
  guard.keep();
}

}  // namespace

MatrixMultiplication::MatrixMultiplication(std::shared_ptr<mtl::Device> device, bool transposeLeft,
                                           bool transposeRight, std::size_t resultRows,
                                           std::size_t resultColumns, std::size_t interiorColumns,
                                           double alpha, double beta)
    : MatrixKernel(std::move(device)),
      transposeLeft_(transposeLeft),
      transposeRight_(transposeRight),
      resultRows_(resultRows),
      resultColumns_(resultColumns),
      interiorColumns_(interiorColumns),
      alpha_(alpha),
      beta_(beta) {}

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

std::shared_ptr<Kernel> MatrixMultiplication::clone() const {
  return std::shared_ptr<Kernel>(new MatrixMultiplication(*this));
}

void MatrixMultiplication::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const std::shared_ptr<Matrix>& leftMatrix,
                                  const std::shared_ptr<Matrix>& rightMatrix,
                                  const std::shared_ptr<Matrix>& resultMatrix) {
  detail::checkCommandBuffer(*this, commandBuffer);
  MatrixMultiplicationProblem problem;
  problem.transposeLeft = transposeLeft_;
  problem.transposeRight = transposeRight_;
  problem.alpha = static_cast<float>(alpha_);
  problem.beta = static_cast<float>(beta_);
  const auto left = detail::tensorOf(*this, "leftMatrix", *commandBuffer, leftMatrix, true);
  const auto right = detail::tensorOf(*this, "rightMatrix", *commandBuffer, rightMatrix, true);
  const auto result =
      detail::tensorOf(*this, "resultMatrix", *commandBuffer, resultMatrix, problem.beta != 0);
  checkType(*this, "resultMatrix", resultMatrix->dataType(), resultMatrix->dataType());
  checkType(*this, "leftMatrix", leftMatrix->dataType(), resultMatrix->dataType());
  checkType(*this, "rightMatrix", rightMatrix->dataType(), resultMatrix->dataType());
  const std::size_t count =
      detail::batchCount(*this, batchStart(), batchSize(),
                         static_cast<std::size_t>(std::min({left.images, right.images, result.images})));
  const auto region = [&](const char* argument, const detail::TensorShape& whole, const mtl::Origin& origin,
                          std::size_t rows, std::size_t columns, bool isTransposed) {
    return detail::regionOf(*this, argument, whole, origin, batchStart(), count,
                            isTransposed ? columns : rows, isTransposed ? rows : columns);
  };
  recordProduct(
      *this, *commandBuffer, problem,
      {&leftMatrix->storage(),
       region("leftMatrix", left, leftMatrixOrigin_, resultRows_, interiorColumns_, transposeLeft_),
       "leftMatrix"},
      {&rightMatrix->storage(),
       region("rightMatrix", right, rightMatrixOrigin_, interiorColumns_, resultColumns_, transposeRight_),
       "rightMatrix"},
      {&resultMatrix->storage(),
       region("resultMatrix", result, resultMatrixOrigin_, resultRows_, resultColumns_, false),
       "resultMatrix"});
  detail::consumeRead({&leftMatrix->storage(), &rightMatrix->storage()});
}

MatrixVectorMultiplication::MatrixVectorMultiplication(std::shared_ptr<mtl::Device> device, bool transpose,
                                                       std::size_t rows, std::size_t columns, double alpha,
                                                       double beta)
    : MatrixBinaryKernel(std::move(device)),
      transpose_(transpose),
      rows_(rows),
      columns_(columns),
      alpha_(alpha),
      beta_(beta) {}

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

std::shared_ptr<Kernel> MatrixVectorMultiplication::clone() const {
  return std::shared_ptr<Kernel>(new MatrixVectorMultiplication(*this));
}

void MatrixVectorMultiplication::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                        const std::shared_ptr<Matrix>& inputMatrix,
                                        const std::shared_ptr<Vector>& inputVector,
                                        const std::shared_ptr<Vector>& resultVector) {
  detail::checkCommandBuffer(*this, commandBuffer);
  // So that oneDNN need not transpose: y = A x with columns, or y^T = x^T A with rows.
  const bool areRows = transpose_;
  MatrixMultiplicationProblem problem;
  problem.alpha = static_cast<float>(alpha_);
  problem.beta = static_cast<float>(beta_);
  const auto matrix = detail::tensorOf(*this, "inputMatrix", *commandBuffer, inputMatrix, true);
  const auto vector = detail::tensorOf(*this, "inputVector", *commandBuffer, inputVector, true);
  const auto result =
      detail::tensorOf(*this, "resultVector", *commandBuffer, resultVector, problem.beta != 0);
  checkType(*this, "resultVector", resultVector->dataType(), resultVector->dataType());
  checkType(*this, "inputMatrix", inputMatrix->dataType(), resultVector->dataType());
  checkType(*this, "inputVector", inputVector->dataType(), resultVector->dataType());
  const std::size_t count =
      detail::batchCount(*this, batchStart(), batchSize(),
                         static_cast<std::size_t>(std::min({matrix.images, vector.images, result.images})));
  const auto vectorRegion = [&](const char* argument, detail::TensorShape whole, const mtl::Origin& origin,
                                std::size_t length) {
    if (origin.y != 0)
      throw Error(describe(), std::string("origin of ") + argument, "y " + std::to_string(origin.y), "y 0");
    if (areRows)
      return detail::regionOf(*this, argument, whole, {0, origin.x, origin.z}, batchStart(), count, 1,
                              length);
    whole.height = whole.channels;
    whole.channels = whole.rowStride = whole.pixelStride = 1;
    return detail::regionOf(*this, argument, whole, origin, batchStart(), count, length, 1);
  };
  const Factor matrixFactor{
      &inputMatrix->storage(),
      detail::regionOf(*this, "inputMatrix", matrix, primarySourceMatrixOrigin(), batchStart(), count,
                       transpose_ ? columns_ : rows_, transpose_ ? rows_ : columns_),
      "inputMatrix"};
  const Factor vectorFactor{&inputVector->storage(),
                            vectorRegion("inputVector", vector, secondarySourceMatrixOrigin(), columns_),
                            "inputVector"};
  const Factor resultFactor{&resultVector->storage(),
                            vectorRegion("resultVector", result, resultMatrixOrigin(), rows_),
                            "resultVector"};
  recordProduct(*this, *commandBuffer, problem, areRows ? vectorFactor : matrixFactor,
                areRows ? matrixFactor : vectorFactor, resultFactor);
  detail::consumeRead({&inputMatrix->storage(), &inputVector->storage()});
}

void MatrixKernel::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.code("batchStart", batchStart_);
  coder.code("batchSize", batchSize_);
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

void MatrixMultiplication::codeProperties(Coder& coder) {
  MatrixKernel::codeProperties(coder);
  coder.code("transposeLeft", transposeLeft_);
  coder.code("transposeRight", transposeRight_);
  coder.code("resultRows", resultRows_);
  coder.code("resultColumns", resultColumns_);
  coder.code("interiorColumns", interiorColumns_);
  coder.code("alpha", alpha_);
  coder.code("beta", beta_);
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
}

}  // namespace mps
