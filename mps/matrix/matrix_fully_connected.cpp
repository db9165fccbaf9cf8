#include "mps/matrix/matrix_fully_connected.hpp"

#include <optional>

#include "mps/core/array/matrix_encoding.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/row_sum.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/matrix/matrix_product.hpp"

namespace mps {

using detail::BatchOperand;
using detail::MatrixArgument;
using detail::MatrixEncoding;
using detail::MatrixMultiplicationProblem;
using detail::MatrixPart;
using detail::MatrixTermProblem;
using detail::TensorShape;

namespace {

/// Float32 without gaps, of the same size.
TensorShape denseOf(const MatrixPart& part) {
  const TensorShape& shape = part.region.shape;
  return TensorShape::dense(shape.images, shape.height, 1, shape.channels);
}

/// The elements where they are, if they are Float32 (and without gaps, where asked), else a copy that is so.
BatchOperand asFloat32(const MatrixEncoding& encoding, const MatrixPart& part, bool withoutGaps) {
  const TensorShape dense = denseOf(part);
  const bool isDense = part.region.shape.rowStride == dense.rowStride;
  if (part.argument.dataType == DataType::Float32 && (isDense || !withoutGaps)) return part.operand();
  BatchOperand copy = encoding.scratch(dense);
  encoding.copy(part.operand(), copy);
  return copy;
}

MatrixMultiplicationProblem productOf(double alpha) {
  MatrixMultiplicationProblem problem;
  problem.alpha = static_cast<float>(alpha);
  return problem;
}

/// Records result = f(product + bias) for one matrix. @param product float32, may be the result
void recordOutput(const MatrixEncoding& encoding, const NNNeuronDescriptor& neuron,
                  const BatchOperand& product, const std::optional<MatrixPart>& bias, std::size_t matrix,
                  const MatrixPart& result) {
  BatchOperand source = product;
  source.selectImages(static_cast<std::int64_t>(matrix), 1);
  const BatchOperand destination = result.matrix(matrix).operand();
  MatrixTermProblem problem;
  problem.neuron = neuron;
  problem.hasBias = bias.has_value();
  problem.source = source.shape();
  problem.destination = destination.shape();
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*encoding.kernel().device(), detail::matrixTermBackEnds, problem);
  if (bias) prepared.parameters[2] = MatrixEncoding::parameter(bias->matrix(matrix).operand());
  detail::CallOperands operands;
  operands.source = &source;
  operands.destination = &destination;
  detail::recordCall(encoding.commandBuffer(), encoding.kernel(), prepared, operands);
}

/// Records the sums of the columns of one matrix.
void recordColumnSums(const MatrixEncoding& encoding, const MatrixPart& part, const MatrixPart& sums) {
  const detail::PreparedCall::Parameter rows =
      MatrixEncoding::parameter(asFloat32(encoding, part, /*withoutGaps=*/true));
  const BatchOperand target = encoding.float32Target(sums);
  const detail::PreparedCall::Parameter result = MatrixEncoding::parameter(target, true);
  const TensorShape& shape = part.region.shape;
  detail::recordRowSum(encoding.commandBuffer(), encoding.kernel().describe(), {shape.height, shape.channels},
                       rows.memory, rows.byteOffset, result.memory, result.byteOffset);
  encoding.storeFloat32(target, sums);
}

}  // namespace

void detail::MatrixFullyConnectedProperties::setAlpha(double alpha) {
  checkedFinite("MatrixFullyConnected", "alpha", static_cast<float>(alpha));
  alpha_ = alpha;
}

void detail::MatrixFullyConnectedProperties::codeLayerProperties(Coder& coder) {
  codeLimits(coder);
  coder.code("sourceOutputFeatureChannels", sourceOutputFeatureChannels_);
  coder.code("alpha", alpha_);
  setAlpha(alpha_);
}

std::shared_ptr<MatrixFullyConnected> MatrixFullyConnected::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixFullyConnected>(new MatrixFullyConnected(device));
}

void MatrixFullyConnected::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const std::shared_ptr<Matrix>& inputMatrix,
                                  const std::shared_ptr<Matrix>& weightMatrix,
                                  const std::shared_ptr<Vector>& biasVector,
                                  const std::shared_ptr<Matrix>& resultMatrix) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument input = encoding.reads("inputMatrix", inputMatrix);
  const MatrixArgument weights = encoding.reads("weightMatrix", weightMatrix);
  const auto biasArgument = encoding.readsOptional("biasVector", biasVector);
  const MatrixArgument result = encoding.writes("resultMatrix", resultMatrix);
  encoding.checkTypes(result);
  const mtl::Origin& inputOrigin = primarySourceMatrixOrigin();
  const mtl::Origin& weightOrigin = secondarySourceMatrixOrigin();
  const std::size_t rows = input.rowsFrom(inputOrigin, sourceNumberOfFeatureVectors());
  const std::size_t inputs =
      weights.rowsFrom(weightOrigin, input.columnsFrom(inputOrigin, sourceInputFeatureChannels()));
  const std::size_t outputs = weights.columnsFrom(weightOrigin, sourceOutputFeatureChannels());
  const MatrixPart x = encoding.part(input, inputOrigin, rows, inputs);
  const MatrixPart w = encoding.part(weights, weightOrigin, inputs, outputs);
  const MatrixPart y = encoding.part(result, resultMatrixOrigin(), rows, outputs);
  const auto bias = encoding.partOf(biasArgument, outputs);
  encoding.checkApart({&y}, {&x, &w, MatrixPart::of(bias)});
  const bool hasOutput = bias || neuronType() != CNNNeuronType::None;
  if (y.isEmpty()) return encoding.finish();
  if (!hasOutput) {
    detail::recordProduct(encoding, productOf(alpha()), x.operand(), w.operand(), y.operand());
  } else {
    // Nothing is rounded to float16 before the neuron.
    const BatchOperand product =
        y.argument.dataType == DataType::Float32 ? y.operand() : encoding.scratch(denseOf(y));
    detail::recordProduct(encoding, productOf(alpha()), asFloat32(encoding, x, false),
                          asFloat32(encoding, w, false), product);
    for (std::size_t k = 0; k < encoding.count(); ++k) recordOutput(encoding, neuron(), product, bias, k, y);
  }
  encoding.finish();
}

std::shared_ptr<MatrixFullyConnectedGradient> MatrixFullyConnectedGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixFullyConnectedGradient>(new MatrixFullyConnectedGradient(device));
}

void MatrixFullyConnectedGradient::encodeGradientForData(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Matrix>& gradientMatrix,
    const std::shared_ptr<Matrix>& weightMatrix, const std::shared_ptr<Matrix>& resultGradientForDataMatrix) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument gradient = encoding.reads("gradientMatrix", gradientMatrix);
  const MatrixArgument weights = encoding.reads("weightMatrix", weightMatrix);
  const MatrixArgument result = encoding.writes("resultGradientForDataMatrix", resultGradientForDataMatrix);
  encoding.checkTypes(result);
  const mtl::Origin& gradientOrigin = primarySourceMatrixOrigin();
  const mtl::Origin& weightOrigin = secondarySourceMatrixOrigin();
  const std::size_t rows = gradient.rowsFrom(gradientOrigin, sourceNumberOfFeatureVectors());
  const std::size_t inputs = weights.rowsFrom(weightOrigin, sourceInputFeatureChannels());
  const std::size_t outputs =
      weights.columnsFrom(weightOrigin, gradient.columnsFrom(gradientOrigin, sourceOutputFeatureChannels()));
  const MatrixPart dy = encoding.part(gradient, gradientOrigin, rows, outputs);
  const MatrixPart w = encoding.part(weights, weightOrigin, inputs, outputs);
  const MatrixPart dx = encoding.part(result, resultMatrixOrigin(), rows, inputs);
  encoding.checkApart({&dx}, {&dy, &w});
  MatrixMultiplicationProblem product = productOf(alpha());
  product.transposeRight = true;
  if (!dx.isEmpty()) detail::recordProduct(encoding, product, dy.operand(), w.operand(), dx.operand());
  encoding.finish();
}

void MatrixFullyConnectedGradient::encodeGradientForWeightsAndBias(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Matrix>& gradientMatrix,
    const std::shared_ptr<Matrix>& inputMatrix, const std::shared_ptr<Matrix>& resultGradientForWeightMatrix,
    const std::shared_ptr<Vector>& resultGradientForBiasVector) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument gradient = encoding.reads("gradientMatrix", gradientMatrix);
  const MatrixArgument input = encoding.reads("inputMatrix", inputMatrix);
  const MatrixArgument result =
      encoding.writes("resultGradientForWeightMatrix", resultGradientForWeightMatrix);
  const auto biasArgument =
      encoding.writesOptional("resultGradientForBiasVector", resultGradientForBiasVector);
  encoding.checkTypes(result);
  const mtl::Origin& gradientOrigin = primarySourceMatrixOrigin();
  const mtl::Origin& inputOrigin = secondarySourceMatrixOrigin();
  const std::size_t rows =
      input.rowsFrom(inputOrigin, gradient.rowsFrom(gradientOrigin, sourceNumberOfFeatureVectors()));
  const std::size_t inputs = input.columnsFrom(inputOrigin, sourceInputFeatureChannels());
  const std::size_t outputs = gradient.columnsFrom(gradientOrigin, sourceOutputFeatureChannels());
  const MatrixPart dy = encoding.part(gradient, gradientOrigin, rows, outputs);
  const MatrixPart x = encoding.part(input, inputOrigin, rows, inputs);
  const MatrixPart dw = encoding.part(result, resultMatrixOrigin(), inputs, outputs);
  const auto dBias = encoding.partOf(biasArgument, outputs);
  encoding.checkApart({&dw, MatrixPart::of(dBias)}, {&dy, &x});
  MatrixMultiplicationProblem product = productOf(alpha());
  product.transposeLeft = true;
  if (!dw.isEmpty()) detail::recordProduct(encoding, product, x.operand(), dy.operand(), dw.operand());
  if (dBias && rows == 0 && !dBias->isEmpty())
    encoding.fill(dBias->operand(), 0);  // sums over no rows
  else if (dBias && !dBias->isEmpty())
    for (std::size_t k = 0; k < encoding.count(); ++k)
      recordColumnSums(encoding, dy.matrix(k), dBias->matrix(k));
  encoding.finish();
}

void MatrixFullyConnected::codeProperties(Coder& coder) {
  MatrixBinaryKernel::codeProperties(coder);
  codeNeuron(coder);
  codeLayerProperties(coder);
}

void MatrixFullyConnectedGradient::codeProperties(Coder& coder) {
  MatrixBinaryKernel::codeProperties(coder);
  codeLayerProperties(coder);
}

}  // namespace mps
