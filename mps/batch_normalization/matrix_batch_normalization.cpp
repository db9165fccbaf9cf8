#include "mps/batch_normalization/matrix_batch_normalization.hpp"

#include "mps/batch_normalization/matrix_columns.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/normalization_parameters.hpp"

namespace mps {

using detail::BatchNormalizationProblem;
using detail::BatchOperand;
using detail::ColumnGradients;
using detail::ColumnNumbers;
using detail::MatrixArgument;
using detail::MatrixEncoding;
using detail::MatrixPart;

namespace {

/// Mean and variance as arguments.
struct Statistics {
  MatrixPart mean, variance;

  [[nodiscard]] Statistics matrix(std::size_t index) const {
    return {mean.matrix(index), variance.matrix(index)};
  }
};

/// Mean and variance that are read.
ColumnNumbers given(const MatrixEncoding& encoding, const Statistics& statistics) {
  return {.mean = encoding.asFloat32(statistics.mean), .variance = encoding.asFloat32(statistics.variance)};
}

/// Mean and variance of the columns of x, before they are rounded to what is written.
ColumnNumbers computed(const MatrixEncoding& encoding, const MatrixPart& x, const Statistics& statistics) {
  ColumnNumbers numbers{.mean = encoding.float32Target(statistics.mean),
                        .variance = encoding.float32Target(statistics.variance)};
  detail::recordColumnStatistics(encoding, x, numbers);
  encoding.storeFloat32(numbers.mean, statistics.mean);
  encoding.storeFloat32(numbers.variance, statistics.variance);
  return numbers;
}

/// gamma and beta of each matrix.
class Parameters {
 public:
  Parameters(const MatrixEncoding& encoding, std::size_t columns, const std::optional<MatrixPart>& gamma,
             const std::optional<MatrixPart>& beta)
      : encoding_(encoding), gamma_(gamma), beta_(beta) {
    if (!gamma_) ones_ = encoding.repeated(columns, 1);
    if (!beta_) zeros_ = encoding.repeated(columns, 0);
  }
  /// Those of one matrix, beside its statistics.
  [[nodiscard]] ColumnNumbers numbersOf(std::size_t matrix, ColumnNumbers statistics) const {
    statistics.gamma = gamma_ ? encoding_.asFloat32(gamma_->matrix(matrix)) : ones_;
    statistics.beta = beta_ ? encoding_.asFloat32(beta_->matrix(matrix)) : zeros_;
    return statistics;
  }

 private:
  const MatrixEncoding& encoding_;
  std::optional<MatrixPart> gamma_, beta_;
  BatchOperand ones_, zeros_;
};

BatchNormalizationProblem settingsOf(const NNNeuronDescriptor& neuron, float epsilon) {
  BatchNormalizationProblem settings;
  settings.neuron = neuron;
  settings.epsilon = epsilon;
  return settings;
}

}  // namespace

void detail::MatrixBatchNormalizationProperties::setEpsilon(float epsilon) {
  epsilon_ = checkedEpsilon("MatrixBatchNormalization", epsilon);
}

void detail::MatrixBatchNormalizationProperties::codeNormalizationProperties(Coder& coder) {
  codeNeuron(coder);
  codeLimits(coder);
  codeEpsilon(coder, epsilon_);
}

std::shared_ptr<MatrixBatchNormalization> MatrixBatchNormalization::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixBatchNormalization>(new MatrixBatchNormalization(device));
}

void MatrixBatchNormalization::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      const std::shared_ptr<Matrix>& inputMatrix,
                                      const std::shared_ptr<Vector>& meanVector,
                                      const std::shared_ptr<Vector>& varianceVector,
                                      const std::shared_ptr<Vector>& gammaVector,
                                      const std::shared_ptr<Vector>& betaVector,
                                      const std::shared_ptr<Matrix>& resultMatrix) {
  MatrixEncoding encoding(*this, commandBuffer);
  const auto statistic = [&](const char* name, const std::shared_ptr<Vector>& vector) {
    return computeStatistics_ ? encoding.writes(name, vector) : encoding.reads(name, vector);
  };
  const MatrixArgument input = encoding.reads("inputMatrix", inputMatrix);
  const MatrixArgument meanArgument = statistic("meanVector", meanVector);
  const MatrixArgument varianceArgument = statistic("varianceVector", varianceVector);
  const auto gammaArgument = encoding.readsOptional("gammaVector", gammaVector);
  const auto betaArgument = encoding.readsOptional("betaVector", betaVector);
  const MatrixArgument result = encoding.writes("resultMatrix", resultMatrix);
  encoding.checkTypes(result);
  const std::size_t rows = input.rowsFrom(sourceMatrixOrigin(), sourceNumberOfFeatureVectors());
  const std::size_t columns = input.columnsFrom(sourceMatrixOrigin(), sourceInputFeatureChannels());
  const MatrixPart x = encoding.part(input, sourceMatrixOrigin(), rows, columns);
  const MatrixPart y = encoding.part(result, resultMatrixOrigin(), rows, columns);
  const Statistics statistics{encoding.partOf(meanArgument, columns),
                              encoding.partOf(varianceArgument, columns)};
  const auto gamma = encoding.partOf(gammaArgument, columns);
  const auto beta = encoding.partOf(betaArgument, columns);
  encoding.checkApart({&y}, {&x}, MatrixEncoding::Aliasing::SameElements);
  encoding.checkApart({&y},
                      {&statistics.mean, &statistics.variance, MatrixPart::of(gamma), MatrixPart::of(beta)});
  if (computeStatistics_)
    encoding.checkApart({&statistics.mean, &statistics.variance},
                        {&x, MatrixPart::of(gamma), MatrixPart::of(beta)});
  if (!y.isEmpty()) {
    const Parameters parameters(encoding, columns, gamma, beta);
    for (std::size_t k = 0; k < encoding.count(); ++k) {
      const ColumnNumbers numbers =
          parameters.numbersOf(k, computeStatistics_ ? computed(encoding, x.matrix(k), statistics.matrix(k))
                                                     : given(encoding, statistics.matrix(k)));
      detail::recordColumns(encoding, settingsOf(neuron(), epsilon()), numbers, x.matrix(k), y.matrix(k));
    }
  }
  encoding.finish();
}

std::shared_ptr<MatrixBatchNormalizationGradient> MatrixBatchNormalizationGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixBatchNormalizationGradient>(new MatrixBatchNormalizationGradient(device));
}

void MatrixBatchNormalizationGradient::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Matrix>& gradientMatrix,
    const std::shared_ptr<Matrix>& inputMatrix, const std::shared_ptr<Vector>& meanVector,
    const std::shared_ptr<Vector>& varianceVector, const std::shared_ptr<Vector>& gammaVector,
    const std::shared_ptr<Vector>& betaVector, const std::shared_ptr<Matrix>& resultGradientForDataMatrix,
    const std::shared_ptr<Vector>& resultGradientForGammaVector,
    const std::shared_ptr<Vector>& resultGradientForBetaVector) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument gradient = encoding.reads("gradientMatrix", gradientMatrix);
  const MatrixArgument input = encoding.reads("inputMatrix", inputMatrix);
  const MatrixArgument meanArgument = encoding.reads("meanVector", meanVector);
  const MatrixArgument varianceArgument = encoding.reads("varianceVector", varianceVector);
  const auto gammaArgument = encoding.readsOptional("gammaVector", gammaVector);
  const auto betaArgument = encoding.readsOptional("betaVector", betaVector);
  const MatrixArgument data = encoding.writes("resultGradientForDataMatrix", resultGradientForDataMatrix);
  const auto gammaGradient =
      encoding.writesOptional("resultGradientForGammaVector", resultGradientForGammaVector);
  const auto betaGradient =
      encoding.writesOptional("resultGradientForBetaVector", resultGradientForBetaVector);
  encoding.checkTypes(data);
  const mtl::Origin& gradientOrigin = primarySourceMatrixOrigin();
  const mtl::Origin& inputOrigin = secondarySourceMatrixOrigin();
  const std::size_t rows =
      input.rowsFrom(inputOrigin, gradient.rowsFrom(gradientOrigin, sourceNumberOfFeatureVectors()));
  const std::size_t columns =
      input.columnsFrom(inputOrigin, gradient.columnsFrom(gradientOrigin, sourceInputFeatureChannels()));
  const MatrixPart dy = encoding.part(gradient, gradientOrigin, rows, columns);
  const MatrixPart x = encoding.part(input, inputOrigin, rows, columns);
  const Statistics statistics{encoding.partOf(meanArgument, columns),
                              encoding.partOf(varianceArgument, columns)};
  const auto gamma = encoding.partOf(gammaArgument, columns);
  const auto beta = encoding.partOf(betaArgument, columns);
  const ColumnGradients gradients{encoding.part(data, resultMatrixOrigin(), rows, columns),
                                  encoding.partOf(gammaGradient, columns),
                                  encoding.partOf(betaGradient, columns)};
  const MatrixPart* const dGamma = MatrixPart::of(gradients.gamma);
  const MatrixPart* const dBeta = MatrixPart::of(gradients.beta);
  encoding.checkApart({&gradients.data}, {&dy, &x}, MatrixEncoding::Aliasing::SameElements);
  encoding.checkApart({&gradients.data, dGamma, dBeta},
                      {&statistics.mean, &statistics.variance, MatrixPart::of(gamma), MatrixPart::of(beta)});
  encoding.checkApart({dGamma, dBeta}, {&dy, &x});
  if (gradients.data.isEmpty()) {
    detail::recordNoColumnGradients(encoding, gradients);
  } else {
    const Parameters parameters(encoding, columns, gamma, beta);
    for (std::size_t k = 0; k < encoding.count(); ++k)
      detail::recordColumnGradients(encoding, settingsOf(neuron(), epsilon()),
                                    parameters.numbersOf(k, given(encoding, statistics.matrix(k))),
                                    dy.matrix(k), x.matrix(k), gradients.matrix(k));
  }
  encoding.finish();
}

void MatrixBatchNormalization::codeProperties(Coder& coder) {
  MatrixUnaryKernel::codeProperties(coder);
  codeNormalizationProperties(coder);
  coder.code("computeStatistics", computeStatistics_);
}

void MatrixBatchNormalizationGradient::codeProperties(Coder& coder) {
  MatrixBinaryKernel::codeProperties(coder);
  codeNormalizationProperties(coder);
}

}  // namespace mps
