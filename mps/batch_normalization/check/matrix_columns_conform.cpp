#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/check/batch_normalization_reference.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/test_matrices.hpp"
#include "mps/core/neuron/neuron_cases.hpp"

namespace mps::detail {
namespace {

using BatchNormalizationImplementation = Implementation<BatchNormalizationProblem>;

template <class KernelType>
void setNeuron(KernelType& kernel, const NNNeuronDescriptor& neuron) {
  kernel.setNeuronType(neuron.neuronType(), neuron.a(), neuron.b(), neuron.c());
}
template <class KernelType>
void setAnyNeuron(KernelType& kernel, const NNNeuronDescriptor& neuron) {
  if (neuron.neuronType() == CNNNeuronType::PReLU)
    kernel.setNeuronToPReLU(neuron.data());
  else
    setNeuron(kernel, neuron);
}
template <class KernelType>
void setLimits(KernelType& kernel, const MatrixSize& size) {
  kernel.setSourceNumberOfFeatureVectors(static_cast<std::size_t>(size.rows));
  kernel.setSourceInputFeatureChannels(static_cast<std::size_t>(size.columns));
  kernel.setResultMatrixOrigin(TestMatrix::origin);
}
template <class KernelType>
void setGradientOrigins(KernelType& kernel) {
  kernel.setPrimarySourceMatrixOrigin(TestMatrix::origin);
  kernel.setSecondarySourceMatrixOrigin(TestMatrix::origin);
}

std::vector<double> scaled(std::vector<double> values, double factor, double offset) {
  for (double& value : values) value = factor * value + offset;
  return values;
}

/// Matrices and vectors of one call, whatever a kernel takes of them.
struct Arrays {
  MatrixSize size;
  ConformRun& run;
  TestMatrix x, dy, y, dx;
  TestVector mean, variance, gamma, beta, dGamma, dBeta;

  /// @param centre and range of x
  Arrays(ConformRun& conformRun, const MatrixSize& matrixSize, double centre, double range)
      : size(matrixSize),
        run(conformRun),
        x(run, shape(), scaled(numbers(size.rows), range, centre)),
        dy(run, shape(), RandomKind::Uniform),
        y(run, shape(), RandomKind::Uniform),
        dx(run, shape(), RandomKind::Uniform),
        mean(vectors(1, 0)),
        variance(vectors(0.5, 1)),
        gamma(vectors(2, 0)),
        beta(vectors(1, 0)),
        dGamma(vectors(1, 0)),
        dBeta(vectors(1, 0)) {}

  [[nodiscard]] TensorShape shape() const { return size.shape(run.format()); }
  [[nodiscard]] std::vector<double> numbers(std::int64_t rows) const {
    return run.values(static_cast<std::size_t>(size.matrices * rows * size.columns), RandomKind::Uniform);
  }
  [[nodiscard]] TestVector vectors(double factor, double offset) const {
    return {run, size.columns, size.matrices, scaled(numbers(1), factor, offset)};
  }
  void check(const ReferenceTensor& expected, const TestArray& found, std::int64_t matrix) const {
    run.check(expected, found.read(matrix), run.format(), Zeros::Expected);
  }
};

void runNeuron(ConformRun& run, const NeuronCase& item, const MatrixSize& size, bool isForward) {
  constexpr double alpha = 0.75;
  const double middle = (item.lowest + item.highest) / 2;
  // The bias moves what is between -range and range to where the neuron is smooth.
  Arrays arrays(run, size, 0, item.highest - middle);
  const auto count = static_cast<std::size_t>(size.matrices * size.columns);
  const TestVector bias(run, size.columns, size.matrices, std::vector<double>(count, middle));
  const auto configure = [&](auto& kernel) {
    setAnyNeuron(kernel, item.neuron);
    setLimits(kernel, size);
    kernel.setAlpha(alpha);
  };
  BatchNormalizationProblem problem;
  problem.neuron = item.neuron;
  problem.hasConstantStatistics = true;
  const auto columns = static_cast<std::size_t>(size.columns);
  const BatchNormalizationNumbers line{std::vector<double>(columns, alpha), bias.beforeOf(0).values,
                                       std::vector<double>(columns, 0), std::vector<double>(columns, 1)};
  if (isForward) {
    const auto kernel = MatrixNeuron::create(run.device());
    configure(*kernel);
    kernel->setSourceMatrixOrigin(TestMatrix::origin);
    if (!encodeMatrices(run, {&arrays.x, &bias}, {&arrays.y}, [&](const auto& commandBuffer) {
          kernel->encode(commandBuffer, arrays.x.matrix, bias.vector, arrays.y.matrix);
        }))
      return;
    for (std::int64_t k = 0; k < size.matrices; ++k)
      arrays.check(batchNormalizationReference(problem, line, arrays.x.beforeOf(k)), arrays.y, k);
    return;
  }
  const auto kernel = MatrixNeuronGradient::create(run.device());
  configure(*kernel);
  setGradientOrigins(*kernel);
  if (!encodeMatrices(run, {&arrays.dy, &arrays.x, &bias}, {&arrays.dx, &arrays.dBeta},
                      [&](const auto& commandBuffer) {
                        kernel->encode(commandBuffer, arrays.dy.matrix, arrays.x.matrix, bias.vector,
                                       arrays.dx.matrix, arrays.dBeta.vector);
                      }))
    return;
  for (std::int64_t k = 0; k < size.matrices; ++k) {
    const ReferenceTensor x = arrays.x.beforeOf(k);
    const ReferenceTensor dy = arrays.dy.beforeOf(k);
    const BatchNormalizationSums sums =
        batchNormalizationSumsReference(problem, line, std::span(&x, 1), std::span(&dy, 1));
    arrays.check(sums.beta, arrays.dBeta, k);
    arrays.check(batchNormalizationGradientReference(problem, line, sums, 1, x, dy), arrays.dx, k);
  }
}

BatchNormalizationNumbers numbersOf(const Arrays& arrays, std::int64_t k) {
  return {arrays.gamma.beforeOf(k).values, arrays.beta.beforeOf(k).values, arrays.mean.beforeOf(k).values,
          arrays.variance.beforeOf(k).values};
}

void runNormalization(ConformRun& run, const BatchNormalizationProblem& problem, const MatrixSize& size,
                      bool computesStatistics) {
  Arrays arrays(run, size, 0.5, 2);
  const auto kernel = MatrixBatchNormalization::create(run.device());
  setNeuron(*kernel, problem.neuron);
  setLimits(*kernel, size);
  kernel->setSourceMatrixOrigin(TestMatrix::origin);
  kernel->setEpsilon(problem.epsilon);
  kernel->setComputeStatistics(computesStatistics);
  std::vector<const TestArray*> sources{&arrays.x, &arrays.gamma, &arrays.beta};
  std::vector<const TestArray*> results{&arrays.y};
  for (const TestArray* array : {&arrays.mean, &arrays.variance})
    (computesStatistics ? results : sources).push_back(array);
  if (!encodeMatrices(run, sources, results, [&](const auto& commandBuffer) {
        kernel->encode(commandBuffer, arrays.x.matrix, arrays.mean.vector, arrays.variance.vector,
                       arrays.gamma.vector, arrays.beta.vector, arrays.y.matrix);
      }))
    return;
  for (std::int64_t k = 0; k < size.matrices; ++k) {
    const ReferenceTensor x = arrays.x.beforeOf(k);
    BatchNormalizationNumbers numbers = numbersOf(arrays, k);
    if (computesStatistics) {
      const BatchStatistics statistics = batchStatisticsReference(std::span(&x, 1));
      arrays.check(statistics.mean, arrays.mean, k);
      arrays.check(statistics.variance, arrays.variance, k);
      numbers.mean = statistics.mean.values;
      numbers.variance = statistics.variance.values;
      numbers.areStored = false;
    }
    arrays.check(batchNormalizationReference(problem, numbers, x), arrays.y, k);
  }
}

void runNormalizationGradient(ConformRun& run, const BatchNormalizationProblem& problem,
                              const MatrixSize& size) {
  Arrays arrays(run, size, 0.5, 2);
  const auto kernel = MatrixBatchNormalizationGradient::create(run.device());
  setNeuron(*kernel, problem.neuron);
  setLimits(*kernel, size);
  setGradientOrigins(*kernel);
  kernel->setEpsilon(problem.epsilon);
  if (!encodeMatrices(run,
                      {&arrays.x, &arrays.dy, &arrays.mean, &arrays.variance, &arrays.gamma, &arrays.beta},
                      {&arrays.dx, &arrays.dGamma, &arrays.dBeta}, [&](const auto& commandBuffer) {
                        kernel->encode(commandBuffer, arrays.dy.matrix, arrays.x.matrix, arrays.mean.vector,
                                       arrays.variance.vector, arrays.gamma.vector, arrays.beta.vector,
                                       arrays.dx.matrix, arrays.dGamma.vector, arrays.dBeta.vector);
                      }))
    return;
  for (std::int64_t k = 0; k < size.matrices; ++k) {
    const ReferenceTensor x = arrays.x.beforeOf(k);
    const ReferenceTensor dy = arrays.dy.beforeOf(k);
    const BatchNormalizationNumbers numbers = numbersOf(arrays, k);
    const BatchNormalizationSums sums =
        batchNormalizationSumsReference(problem, numbers, std::span(&x, 1), std::span(&dy, 1));
    arrays.check(sums.gamma, arrays.dGamma, k);
    arrays.check(sums.beta, arrays.dBeta, k);
    arrays.check(
        batchNormalizationGradientReference(problem, numbers, sums, static_cast<double>(size.rows), x, dy),
        arrays.dx, k);
  }
}

/// Every neuron, and every size at least once.
std::vector<ConformCase> neuronCasesOf(bool isForward) {
  std::vector<ConformCase> cases;
  const std::vector<MatrixSize> sizes = matrixSizes();
  const std::size_t neurons = neuronCases(1).size();
  for (std::size_t i = 0; i < neurons; ++i) {
    const MatrixSize& size = sizes[i % sizes.size()];
    const NeuronCase item = neuronCases(size.columns)[i];
    cases.push_back({size.name + ": " + item.neuron.describe(),
                     [=](ConformRun& run) { runNeuron(run, item, size, isForward); }});
  }
  return cases;
}

std::vector<ConformCase> normalizationCases(bool isForward) {
  std::vector<ConformCase> cases;
  for (const MatrixSize& size : matrixSizes())
    for (const CNNNeuronType type : {CNNNeuronType::None, CNNNeuronType::ReLU, CNNNeuronType::TanH}) {
      BatchNormalizationProblem problem;
      problem.neuron = NNNeuronDescriptor::cnnNeuronDescriptor(type, 0.5F, 1, 0);
      problem.epsilon = 0.0625F;
      if (!isForward) {
        cases.push_back({size.name, [=](ConformRun& run) { runNormalizationGradient(run, problem, size); }});
        continue;
      }
      for (const bool computesStatistics : {false, true})
        cases.push_back(
            {size.name, [=](ConformRun& run) { runNormalization(run, problem, size, computesStatistics); }});
    }
  return cases;
}

}  // namespace

void conformMatrixColumns(Conform& conform) {
  for (const BatchNormalizationImplementation& implementation :
       conform.implementations(batchNormalizationBackEnds))
    for (const auto format : kGradientFormats)
      for (const bool isForward : {true, false}) {
        const std::string suffix = isForward ? "" : "Gradient";
        const auto row = [&](const std::string& name, const std::vector<ConformCase>& cases) {
          conformRow(conform,
                     {name + suffix, isForward ? Direction::Forward : Direction::Gradient, format,
                      std::string(implementation.name), Tier::Bounded},
                     cases);
        };
        row("MatrixNeuron", neuronCasesOf(isForward));
        row("MatrixBatchNormalization", normalizationCases(isForward));
      }
}

}  // namespace mps::detail
