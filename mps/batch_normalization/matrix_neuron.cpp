#include "mps/batch_normalization/matrix_neuron.hpp"

#include "mps/batch_normalization/matrix_columns.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"

namespace mps {

using detail::BatchNormalizationProblem;
using detail::ColumnGradients;
using detail::ColumnNumbers;
using detail::MatrixArgument;
using detail::MatrixEncoding;
using detail::MatrixPart;

namespace {

/// alpha x + bias as batch normalisation with given statistics (matrix_columns.hpp).
class Line {
 public:
  Line(const MatrixEncoding& encoding, std::size_t columns, double alpha,
       const std::optional<MatrixPart>& bias)
      : encoding_(encoding),
        zeros_(encoding.repeated(columns, 0)),
        ones_(encoding.repeated(columns, 1)),
        alpha_(encoding.repeated(columns, static_cast<float>(alpha))),
        bias_(bias) {}
  [[nodiscard]] ColumnNumbers numbersOf(std::size_t matrix) const {
    return {alpha_, bias_ ? encoding_.asFloat32(bias_->matrix(matrix)) : zeros_, zeros_, ones_};
  }

 private:
  const MatrixEncoding& encoding_;
  detail::BatchOperand zeros_, ones_, alpha_;
  std::optional<MatrixPart> bias_;
};

BatchNormalizationProblem settingsOf(const NNNeuronDescriptor& neuron) {
  BatchNormalizationProblem settings;
  settings.neuron = neuron;
  settings.hasConstantStatistics = true;
  return settings;
}

}  // namespace

void detail::MatrixNeuronProperties::setNeuronToPReLU(std::span<const float> parametersA) {
  if (parametersA.empty()) throw Error("setNeuronToPReLU", "parametersA", "empty", "a slope for each column");
  setNeuron(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(parametersA));
}

void detail::MatrixNeuronProperties::setAlpha(double alpha) {
  checkedFinite("MatrixNeuron", "alpha", static_cast<float>(alpha));
  alpha_ = alpha;
}

void detail::MatrixNeuronProperties::codeNeuronProperties(Coder& coder) {
  codeNeuron(coder, /*takesSlopes=*/true);
  codeLimits(coder);
  coder.code("alpha", alpha_);
  setAlpha(alpha_);
}

std::shared_ptr<MatrixNeuron> MatrixNeuron::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixNeuron>(new MatrixNeuron(device));
}

void MatrixNeuron::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const std::shared_ptr<Matrix>& inputMatrix,
                          const std::shared_ptr<Vector>& biasVector,
                          const std::shared_ptr<Matrix>& resultMatrix) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument input = encoding.reads("inputMatrix", inputMatrix);
  const auto bias = encoding.readsOptional("biasVector", biasVector);
  const MatrixArgument result = encoding.writes("resultMatrix", resultMatrix);
  encoding.checkTypes(result);
  const std::size_t rows = input.rowsFrom(sourceMatrixOrigin(), sourceNumberOfFeatureVectors());
  const std::size_t columns = input.columnsFrom(sourceMatrixOrigin(), sourceInputFeatureChannels());
  detail::checkSlopes(*this, neuron(), columns);
  const MatrixPart x = encoding.part(input, sourceMatrixOrigin(), rows, columns);
  const MatrixPart y = encoding.part(result, resultMatrixOrigin(), rows, columns);
  const auto b = encoding.partOf(bias, columns);
  encoding.checkApart({&y}, {&x}, MatrixEncoding::Aliasing::SameElements);
  encoding.checkApart({&y}, {MatrixPart::of(b)});
  if (!y.isEmpty()) {
    const Line line(encoding, columns, alpha(), b);
    for (std::size_t k = 0; k < encoding.count(); ++k)
      detail::recordColumns(encoding, settingsOf(neuron()), line.numbersOf(k), x.matrix(k), y.matrix(k));
  }
  encoding.finish();
}

std::shared_ptr<MatrixNeuronGradient> MatrixNeuronGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<MatrixNeuronGradient>(new MatrixNeuronGradient(device));
}

void MatrixNeuronGradient::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const std::shared_ptr<Matrix>& gradientMatrix,
                                  const std::shared_ptr<Matrix>& inputMatrix,
                                  const std::shared_ptr<Vector>& biasVector,
                                  const std::shared_ptr<Matrix>& resultGradientForDataMatrix,
                                  const std::shared_ptr<Vector>& resultGradientForBiasVector) {
  MatrixEncoding encoding(*this, commandBuffer);
  const MatrixArgument gradient = encoding.reads("gradientMatrix", gradientMatrix);
  const MatrixArgument input = encoding.reads("inputMatrix", inputMatrix);
  const auto bias = encoding.readsOptional("biasVector", biasVector);
  const MatrixArgument data = encoding.writes("resultGradientForDataMatrix", resultGradientForDataMatrix);
  const auto biasGradient =
      encoding.writesOptional("resultGradientForBiasVector", resultGradientForBiasVector);
  encoding.checkTypes(data);
  const mtl::Origin& gradientOrigin = primarySourceMatrixOrigin();
  const mtl::Origin& inputOrigin = secondarySourceMatrixOrigin();
  const std::size_t rows =
      input.rowsFrom(inputOrigin, gradient.rowsFrom(gradientOrigin, sourceNumberOfFeatureVectors()));
  const std::size_t columns =
      input.columnsFrom(inputOrigin, gradient.columnsFrom(gradientOrigin, sourceInputFeatureChannels()));
  detail::checkSlopes(*this, neuron(), columns);
  const MatrixPart dy = encoding.part(gradient, gradientOrigin, rows, columns);
  const MatrixPart x = encoding.part(input, inputOrigin, rows, columns);
  const MatrixPart dx = encoding.part(data, resultMatrixOrigin(), rows, columns);
  const auto b = encoding.partOf(bias, columns);
  const auto dBias = encoding.partOf(biasGradient, columns);
  encoding.checkApart({&dx}, {&dy, &x}, MatrixEncoding::Aliasing::SameElements);
  encoding.checkApart({&dx, MatrixPart::of(dBias)}, {MatrixPart::of(b)});
  encoding.checkApart({MatrixPart::of(dBias)}, {&dy, &x});
  const ColumnGradients gradients{dx, std::nullopt, dBias};
  if (dx.isEmpty()) {
    detail::recordNoColumnGradients(encoding, gradients);
  } else {
    const Line line(encoding, columns, alpha(), b);
    for (std::size_t k = 0; k < encoding.count(); ++k)
      detail::recordColumnGradients(encoding, settingsOf(neuron()), line.numbersOf(k), dy.matrix(k),
                                    x.matrix(k), gradients.matrix(k));
  }
  encoding.finish();
}

void MatrixNeuron::codeProperties(Coder& coder) {
  MatrixUnaryKernel::codeProperties(coder);
  codeNeuronProperties(coder);
}

void MatrixNeuronGradient::codeProperties(Coder& coder) {
  MatrixBinaryKernel::codeProperties(coder);
  codeNeuronProperties(coder);
}

}  // namespace mps
