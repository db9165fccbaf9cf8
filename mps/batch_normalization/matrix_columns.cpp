#include "mps/batch_normalization/matrix_columns.hpp"

#include <string>

#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

void setNumbers(PreparedCall& prepared, const ColumnNumbers& numbers) {
  prepared.parameters[0] = MatrixEncoding::parameter(numbers.gamma);
  prepared.parameters[1] = MatrixEncoding::parameter(numbers.beta);
  prepared.parameters[2] = MatrixEncoding::parameter(numbers.mean);
  prepared.parameters[3] = MatrixEncoding::parameter(numbers.variance);
}

PreparedCall prepare(const MatrixEncoding& encoding, const BatchNormalizationProblem& problem) {
  PreparedCall prepared;
  prepared.plan = planFor(*encoding.kernel().device(), batchNormalizationBackEnds, problem);
  return prepared;
}

/// Memory of two float64 sums, or four float32 numbers, for each column.
BatchOperand sumsOf(const MatrixEncoding& encoding, const MatrixPart& x) {
  return encoding.scratch(TensorShape::dense(1, 1, 4, x.region.shape.channels));
}

}  // namespace

ColumnGradients ColumnGradients::matrix(std::size_t index) const {
  const auto one = [&](const std::optional<MatrixPart>& part) {
    return part ? std::optional(part->matrix(index)) : std::nullopt;
  };
  return {data.matrix(index), one(gamma), one(beta)};
}

void recordColumnStatistics(const MatrixEncoding& encoding, const MatrixPart& x,
                            const ColumnNumbers& numbers) {
  BatchNormalizationProblem problem;
  problem.operation = BatchNormalizationOperation::Statistics;
  problem.source = x.pixels();
  PreparedCall prepared = prepare(encoding, problem);
  prepared.writesDestination = false;
  const BatchOperand sums = sumsOf(encoding, x);
  prepared.parameters[2] = MatrixEncoding::parameter(numbers.mean, true);
  prepared.parameters[3] = MatrixEncoding::parameter(numbers.variance, true);
  prepared.parameters[4] = MatrixEncoding::parameter(sums, true);
  encoding.record(prepared, {.source = &x});
}

void recordColumns(const MatrixEncoding& encoding, const BatchNormalizationProblem& settings,
                   const ColumnNumbers& numbers, const MatrixPart& x, const MatrixPart& y) {
  BatchNormalizationProblem problem = settings;
  problem.operation = BatchNormalizationOperation::Forward;
  problem.source = x.pixels();
  problem.destination = y.pixels();
  PreparedCall prepared = prepare(encoding, problem);
  setNumbers(prepared, numbers);
  encoding.record(prepared, {.source = &x, .destination = &y});
}

void recordColumnGradients(const MatrixEncoding& encoding, const BatchNormalizationProblem& settings,
                           const ColumnNumbers& numbers, const MatrixPart& dy, const MatrixPart& x,
                           const ColumnGradients& gradients) {
  BatchNormalizationProblem problem = settings;
  problem.source = x.pixels();
  problem.gradient = dy.pixels();
  BatchOperand sums;
  // The sum and the rest at once: the latter does not depend on the sum.
  const bool storesBoth = settings.hasConstantStatistics && gradients.beta;
  if (storesBoth || !settings.hasConstantStatistics) {
    problem.operation = BatchNormalizationOperation::StatisticsGradient;
    if (storesBoth) problem.destination = gradients.data.pixels();
    PreparedCall prepared = prepare(encoding, problem);
    prepared.writesDestination = storesBoth;
    setNumbers(prepared, numbers);
    sums = sumsOf(encoding, x);
    // What nobody asks for is written, too.
    const BatchOperand unused = sumsOf(encoding, x);
    const auto target = [&](const std::optional<MatrixPart>& gradient) {
      return gradient ? encoding.float32Target(*gradient) : unused;
    };
    const BatchOperand gamma = target(gradients.gamma);
    const BatchOperand beta = target(gradients.beta);
    const BatchOperand statistics = sumsOf(encoding, x);
    prepared.parameters[4] = MatrixEncoding::parameter(sums, true);
    prepared.parameters[5] = MatrixEncoding::parameter(gamma, true);
    prepared.parameters[6] = MatrixEncoding::parameter(beta, true);
    prepared.parameters[7] = MatrixEncoding::parameter(statistics, true);
    encoding.record(prepared,
                    {.source = &x, .gradient = &dy, .destination = storesBoth ? &gradients.data : nullptr});
    if (gradients.gamma) encoding.storeFloat32(gamma, *gradients.gamma);
    if (gradients.beta) encoding.storeFloat32(beta, *gradients.beta);
    if (storesBoth) return;
  }
  problem.operation = BatchNormalizationOperation::Gradient;
  problem.destination = gradients.data.pixels();
  PreparedCall prepared = prepare(encoding, problem);
  setNumbers(prepared, numbers);
  prepared.readsSource = problem.readsSource();
  if (!settings.hasConstantStatistics) {
    prepared.parameters[4] = MatrixEncoding::parameter(sums);
    prepared.scalars[0] = static_cast<double>(x.region.shape.height);
  }
  encoding.record(prepared, {.source = &x, .gradient = &dy, .destination = &gradients.data});
}

void recordNoColumnGradients(const MatrixEncoding& encoding, const ColumnGradients& gradients) {
  for (const auto* sums : {&gradients.gamma, &gradients.beta})
    if (*sums && !(*sums)->isEmpty()) encoding.fill((*sums)->operand(), 0);
}

void checkSlopes(const Kernel& kernel, const NNNeuronDescriptor& neuron, std::size_t columns) {
  if (neuron.neuronType() == CNNNeuronType::PReLU && neuron.data().size() < columns)
    throw Error(kernel.describe(), "parametersA", std::to_string(neuron.data().size()) + " slopes",
                "at least " + std::to_string(columns) + ", one for each column");
}

}  // namespace mps::detail
