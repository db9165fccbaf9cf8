#include "mps/softmax/matrix_softmax.hpp"

#include "mps/core/array/matrix_encoding.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/softmax/softmax_problem.hpp"

namespace mps {

using detail::MatrixArgument;
using detail::MatrixEncoding;
using detail::MatrixPart;
using detail::SoftMaxDirection;
using detail::SoftMaxKind;
using detail::SoftMaxProblem;

namespace {

SoftMaxProblem problemOf(SoftMaxDirection direction, bool isLogarithm) {
  SoftMaxProblem problem;
  problem.kind = isLogarithm ? SoftMaxKind::LogSoftMax : SoftMaxKind::SoftMax;
  problem.direction = direction;
  return problem;
}

void recordSoftMax(const MatrixEncoding& encoding, const SoftMaxProblem& problem,
                   const detail::MatrixOperands& operands) {
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*encoding.kernel().device(), detail::softMaxBackEnds, problem);
  encoding.record(prepared, operands);
}

}  // namespace

std::shared_ptr<MatrixSoftMax> MatrixSoftMax::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixSoftMax>(new MatrixSoftMax(device));
}

void MatrixSoftMax::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const std::shared_ptr<Matrix>& inputMatrix,
                           const std::shared_ptr<Matrix>& resultMatrix) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument input = encoding.reads("inputMatrix", inputMatrix);
  const MatrixArgument result = encoding.writes("resultMatrix", resultMatrix);
  encoding.checkTypes(result);
  const std::size_t rows = input.rowsFrom(sourceMatrixOrigin(), sourceRows_);
  const std::size_t columns = input.columnsFrom(sourceMatrixOrigin(), sourceColumns_);
  const MatrixPart x = encoding.part(input, sourceMatrixOrigin(), rows, columns);
  const MatrixPart y = encoding.part(result, resultMatrixOrigin(), rows, columns);
  encoding.checkApart({&y}, {&x}, MatrixEncoding::Aliasing::SameElements);
  if (!y.isEmpty()) {
    SoftMaxProblem problem = problemOf(SoftMaxDirection::Forward, isLogarithm());
    problem.input = x.pixels();
    problem.destination = y.pixels();
    recordSoftMax(encoding, problem, {.source = &x, .destination = &y});
  }
  encoding.finish();
}

std::shared_ptr<MatrixLogSoftMax> MatrixLogSoftMax::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixLogSoftMax>(new MatrixLogSoftMax(device));
}

std::shared_ptr<MatrixSoftMaxGradient> MatrixSoftMaxGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixSoftMaxGradient>(new MatrixSoftMaxGradient(device));
}

void MatrixSoftMaxGradient::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                   const std::shared_ptr<Matrix>& gradientMatrix,
                                   const std::shared_ptr<Matrix>& forwardOutputMatrix,
                                   const std::shared_ptr<Matrix>& resultMatrix) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument gradient = encoding.reads("gradientMatrix", gradientMatrix);
  const MatrixArgument output = encoding.reads("forwardOutputMatrix", forwardOutputMatrix);
  const MatrixArgument result = encoding.writes("resultMatrix", resultMatrix);
  encoding.checkTypes(result);
  const mtl::Origin& gradientOrigin = primarySourceMatrixOrigin();
  const mtl::Origin& outputOrigin = secondarySourceMatrixOrigin();
  const std::size_t rows = output.rowsFrom(outputOrigin, gradient.rowsFrom(gradientOrigin, sourceRows_));
  const std::size_t columns =
      output.columnsFrom(outputOrigin, gradient.columnsFrom(gradientOrigin, sourceColumns_));
  const MatrixPart dy = encoding.part(gradient, gradientOrigin, rows, columns);
  const MatrixPart y = encoding.part(output, outputOrigin, rows, columns);
  const MatrixPart dx = encoding.part(result, resultMatrixOrigin(), rows, columns);
  encoding.checkApart({&dx}, {&dy, &y}, MatrixEncoding::Aliasing::SameElements);
  if (!dx.isEmpty()) {
    SoftMaxProblem problem = problemOf(SoftMaxDirection::Gradient, isLogarithm());
    problem.input = y.pixels();
    problem.gradient = dy.pixels();
    problem.destination = dx.pixels();
    recordSoftMax(encoding, problem, {.secondary = &y, .gradient = &dy, .destination = &dx});
  }
  encoding.finish();
}

std::shared_ptr<MatrixLogSoftMaxGradient> MatrixLogSoftMaxGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixLogSoftMaxGradient>(new MatrixLogSoftMaxGradient(device));
}

void MatrixSoftMax::codeProperties(Coder& coder) {
  MatrixUnaryKernel::codeProperties(coder);
  coder.code("sourceRows", sourceRows_);
  coder.code("sourceColumns", sourceColumns_);
}

void MatrixSoftMaxGradient::codeProperties(Coder& coder) {
  MatrixBinaryKernel::codeProperties(coder);
  coder.code("sourceRows", sourceRows_);
  coder.code("sourceColumns", sourceColumns_);
}

}  // namespace mps
