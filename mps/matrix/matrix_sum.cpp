#include "mps/matrix/matrix_sum.hpp"

#include <optional>
#include <vector>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/array/matrix_encoding.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mps/matrix/matrix_problem.hpp"

namespace mps {

using detail::BatchOperand;
using detail::MatrixArgument;
using detail::MatrixEncoding;
using detail::MatrixPart;
using detail::MatrixTermProblem;
using detail::PreparedCall;
using detail::TensorShape;

MatrixSum::MatrixSum(std::shared_ptr<mtl::Device> device, std::size_t count, std::size_t rows,
                     std::size_t columns, bool transpose)
    : KernelClass(std::move(device)), count_(count), rows_(rows), columns_(columns), transpose_(transpose) {
  check();
}

void MatrixSum::check() const {
  if (count_ == 0) throw Error("MatrixSum", "count", "0", "at least 1");
}

std::shared_ptr<MatrixSum> MatrixSum::create(const std::shared_ptr<mtl::Device>& device, std::size_t count,
                                             std::size_t rows, std::size_t columns, bool transpose) {
  return std::shared_ptr<MatrixSum>(new MatrixSum(device, count, rows, columns, transpose));
}

namespace {

/// The numbers of one source. @param each how many there are of each
PreparedCall::Parameter parameterOf(const MatrixPart& numbers, std::size_t source, std::size_t each) {
  PreparedCall::Parameter parameter = MatrixEncoding::parameter(numbers.operand());
  parameter.byteOffset += source * each * sizeof(std::uint32_t);
  return parameter;
}

/// What one encode adds up.
struct Sum {
  MatrixPart result;
  std::vector<MatrixPart> sources;
  std::optional<MatrixPart> scales, offsets, bias;

  void checkAliasing(const MatrixEncoding& encoding) const {
    encoding.checkApart({&result}, {MatrixPart::of(bias), MatrixPart::of(scales), MatrixPart::of(offsets)});
    for (const MatrixPart& source : sources) encoding.checkApart({&result}, {&source});
  }

  /// Term after term into scratch memory, the last one into the result; a first term that is the source itself is read
  /// where it lies. @param last transpose and neuron
  void record(const MatrixEncoding& encoding, MatrixTermProblem last) const {
    const BatchOperand target = result.operand();
    const bool isFirstItself = sources.size() > 1 && !last.transpose && !scales && !offsets;
    const std::size_t terms = sources.size() - (isFirstItself ? 1 : 0);
    std::optional<BatchOperand> scratch;
    std::optional<BatchOperand> soFar;
    if (terms > 1)
      scratch = encoding.scratch(TensorShape::dense(1, target.shape().height, 1, target.shape().channels));
    if (isFirstItself) soFar = sources[0].operand();
    MatrixTermProblem term;
    term.transpose = last.transpose;
    last.hasBias = bias.has_value();
    for (std::size_t k = sources.size() - terms; k < sources.size(); ++k) {
      const bool isLast = k + 1 == sources.size();
      recordTerm(encoding, isLast ? last : term, k, soFar ? &*soFar : nullptr, isLast ? target : *scratch);
      soFar = scratch;
    }
  }

 private:
  void recordTerm(const MatrixEncoding& encoding, MatrixTermProblem problem, std::size_t k,
                  const BatchOperand* soFar, const BatchOperand& target) const {
    const BatchOperand source = sources[k].operand();
    problem.hasScale = scales.has_value();
    problem.hasOffsets = offsets.has_value();
    problem.addsToSum = soFar != nullptr;
    problem.source = source.shape();
    if (problem.addsToSum) problem.sum = soFar->shape();
    problem.destination = target.shape();
    PreparedCall prepared;
    prepared.plan = detail::planFor(*encoding.kernel().device(), detail::matrixTermBackEnds, problem);
    if (scales) prepared.parameters[0] = parameterOf(*scales, k, 1);
    if (offsets) prepared.parameters[1] = parameterOf(*offsets, k, 2);
    if (problem.hasBias) prepared.parameters[2] = MatrixEncoding::parameter(bias->operand());
    detail::CallOperands operands;
    operands.source = &source;
    operands.secondary = soFar;
    operands.destination = &target;
    detail::recordCall(encoding.commandBuffer(), encoding.kernel(), prepared, operands);
  }
};

}  // namespace

void MatrixSum::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       std::span<const std::shared_ptr<Matrix>> sourceMatrices,
                       const std::shared_ptr<Matrix>& resultMatrix,
                       const std::shared_ptr<Vector>& scaleVector,
                       const std::shared_ptr<Vector>& offsetVector, const std::shared_ptr<Vector>& biasVector,
                       std::size_t startIndex) {
  MatrixEncoding encoding(*this, commandBuffer);
  detail::checkCount(*this, "sourceMatrices", sourceMatrices.size(), count_);
  std::vector<MatrixArgument> arguments;
  for (const auto& source : sourceMatrices) arguments.push_back(encoding.reads("sourceMatrices", source));
  const auto biasArgument = encoding.readsOptional("biasVector", biasVector);
  const MatrixArgument resultArgument = encoding.writes("resultMatrix", resultMatrix);
  encoding.checkTypes(resultArgument);
  const auto scales =
      encoding.readsNumbers("scaleVector", scaleVector, DataType::Float32, startIndex, count_);
  const auto offsets = encoding.readsNumbers("offsetVector", offsetVector, DataType::UInt32,
                                             detail::checkedProduct("MatrixSum", startIndex, 2), 2 * count_);
  const std::size_t height = transpose_ ? columns_ : rows_;
  const std::size_t width = transpose_ ? rows_ : columns_;
  Sum sum{encoding.part(resultArgument, resultMatrixOrigin_, height, width),
          {},
          scales,
          offsets,
          encoding.partOf(biasArgument, width)};
  for (const MatrixArgument& argument : arguments)
    sum.sources.push_back(
        encoding.part(argument, {}, offsets ? static_cast<std::size_t>(argument.whole.height) : rows_,
                      offsets ? static_cast<std::size_t>(argument.whole.channels) : columns_));
  sum.checkAliasing(encoding);
  MatrixTermProblem last;
  last.transpose = transpose_;
  last.neuron = neuron();
  if (!sum.result.isEmpty()) sum.record(encoding, last);
  encoding.finish();
}

void MatrixSum::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.code("count", count_);
  coder.code("rows", rows_);
  coder.code("columns", columns_);
  coder.code("transpose", transpose_);
  coder.code("resultMatrixOrigin", resultMatrixOrigin_);
  codeNeuron(coder);
  check();
}

}  // namespace mps
