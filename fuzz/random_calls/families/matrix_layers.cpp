#include <algorithm>
#include <memory>

#include "fuzz/random_calls/arrays.hpp"
#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/softmax/matrix_softmax.hpp"

namespace unmetal::random_calls {
namespace {

/// Matrices whose rows are samples.
struct LayerSizes {
  mps::DataType type = mps::DataType::Float32;
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::size_t count = 1;
  mtl::Origin sourceOrigin;
  mtl::Origin resultOrigin;

  [[nodiscard]] ArraySizes source() const {
    return {type, rows + sourceOrigin.x, columns + sourceOrigin.y, count};
  }
  [[nodiscard]] ArraySizes result() const { return result(columns); }
  [[nodiscard]] ArraySizes result(std::size_t resultColumns) const {
    return {type, rows + resultOrigin.x, resultColumns + resultOrigin.y, count};
  }
  /// Of gradients, which begin at the first element.
  [[nodiscard]] ArraySizes plain() const { return {type, rows, columns, count}; }
  [[nodiscard]] ArraySizes vectors() const { return ArraySizes::vectors(type, columns, count); }
};

LayerSizes drawLayer(Call& call) {
  RandomNumbers& random = call.random;
  LayerSizes sizes;
  sizes.type = random.chance(0.5) ? mps::DataType::Float16 : mps::DataType::Float32;
  sizes.rows = call.matrixSide();
  sizes.columns = call.matrixSide();
  reduceTo(100'000, sizes.rows, sizes.columns);
  sizes.count = random.chance(0.6) ? 1 : random.size(1, 3);
  sizes.sourceOrigin = matrixOrigin(call);
  sizes.resultOrigin = matrixOrigin(call);
  call.description << " layer=" << sizes.rows << 'x' << sizes.columns;
  call.stage = "sources";
  return sizes;
}

/// Of kernels without PReLU.
template <class Kernel>
void setNeuron(Kernel& kernel, const mps::NNNeuronDescriptor& neuron) {
  kernel.setNeuronType(neuron.neuronType(), neuron.a(), neuron.b(), neuron.c());
}

template <class Kernel>
void setNeuronOrPReLU(Kernel& kernel, const mps::NNNeuronDescriptor& neuron) {
  if (neuron.neuronType() == mps::CNNNeuronType::PReLU)
    kernel.setNeuronToPReLU(neuron.data());
  else
    setNeuron(kernel, neuron);
}

template <class Kernel>
void setNeuronAndEpsilon(Kernel& kernel, const mps::NNNeuronDescriptor& neuron) {
  setNeuron(kernel, neuron);
  kernel.setEpsilon(0.01F);
}

bool isNone(const mps::NNNeuronDescriptor& neuron) {
  return neuron.neuronType() == mps::CNNNeuronType::None;
}

/// Null at times: what is not there is 1, 0 or not wanted.
std::shared_ptr<mps::Vector> orNone(Call& call, const Arrays& arrays) {
  return call.noted("vector", call.random.chance(0.7)) ? arrays.vector : nullptr;
}

/// Sums over all rows, in which one row at a jump of a neuron's derivative counts.
constexpr Tolerance kSumsOfRows{.factor = 3, .leastScale = 1, .jumps = 0.2};

}  // namespace

void callMatrixSoftMax(Call& call) {
  RandomNumbers& random = call.random;
  const LayerSizes sizes = drawLayer(call);
  const bool isLogarithm = call.noted("logarithm", random.chance(0.5));
  const auto source = makeSourceArrays(call, "source", sizes.source(), call.anyNumbers());
  const auto result = makeDestinationArrays(call, "result", sizes.result(), {});
  const std::shared_ptr<mps::MatrixSoftMax> kernel =
      isLogarithm ? mps::MatrixLogSoftMax::create(call.device) : mps::MatrixSoftMax::create(call.device);
  kernel->setSourceMatrixOrigin(sizes.sourceOrigin);
  kernel->setResultMatrixOrigin(sizes.resultOrigin);
  if (random.chance(0.2)) {
    kernel->setSourceRows(call.noted("sourceRows", random.size(0, sizes.rows + 1)));
    kernel->setSourceColumns(call.noted("sourceColumns", random.size(0, sizes.columns + 1)));
  }
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, source.matrix, result.matrix);

  // Not the kernel's own result, so none of its last places is read.
  const auto forward = makeSourceArrays(call, "forward", sizes.plain(), Numbers::Probabilities);
  const auto gradient = makeSourceArrays(call, "gradient", sizes.plain(), Numbers::Uniform);
  const auto sourceGradient =
      makeDestinationArrays(call, "sourceGradient", sizes.plain(), {.factor = 3, .leastScale = 1});
  const std::shared_ptr<mps::MatrixSoftMaxGradient> gradientKernel =
      isLogarithm ? mps::MatrixLogSoftMaxGradient::create(call.device)
                  : mps::MatrixSoftMaxGradient::create(call.device);
  call.stage = "gradient";
  gradientKernel->encode(commandBuffer, gradient.matrix, forward.matrix, sourceGradient.matrix);
  call.finish(commandBuffer);
}

void callMatrixNeuron(Call& call) {
  RandomNumbers& random = call.random;
  const LayerSizes sizes = drawLayer(call);
  const mps::NNNeuronDescriptor neuron = anyNeuron(call, sizes.columns);
  const double alpha = call.noted("alpha", random.chance(0.5) ? 1 : random.real(0.2, 1));
  const auto source = makeSourceArrays(call, "source", sizes.source(), call.anyNumbers());
  const auto biases = makeSourceArrays(call, "biases", sizes.vectors(), Numbers::Uniform);
  const auto result = makeDestinationArrays(call, "result", sizes.result(), {});
  const auto biasVector = orNone(call, biases);
  const auto kernel = mps::MatrixNeuron::create(call.device);
  setNeuronOrPReLU(*kernel, neuron);
  kernel->setAlpha(alpha);
  kernel->setSourceMatrixOrigin(sizes.sourceOrigin);
  kernel->setResultMatrixOrigin(sizes.resultOrigin);
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, source.matrix, biasVector, result.matrix);

  const auto gradient = makeSourceArrays(call, "gradient", sizes.plain(), Numbers::Uniform);
  const auto sourceGradient =
      makeDestinationArrays(call, "sourceGradient", sizes.plain(), {.factor = 3, .jumps = 0.002});
  const auto biasGradient = makeDestinationArrays(call, "biasGradient", sizes.vectors(), kSumsOfRows);
  const auto gradientKernel = mps::MatrixNeuronGradient::create(call.device);
  setNeuronOrPReLU(*gradientKernel, neuron);
  gradientKernel->setAlpha(alpha);
  gradientKernel->setSecondarySourceMatrixOrigin(sizes.sourceOrigin);
  const auto biasGradientVector = orNone(call, biasGradient);
  call.stage = "gradient";
  gradientKernel->encode(commandBuffer, gradient.matrix, source.matrix, biasVector, sourceGradient.matrix,
                         biasGradientVector);
  call.finish(commandBuffer);
}

void callMatrixBatchNormalization(Call& call) {
  RandomNumbers& random = call.random;
  const LayerSizes sizes = drawLayer(call);
  const bool computesStatistics = call.noted("computesStatistics", random.chance(0.5));
  auto neuron = random.chance(0.5) ? anyNeuron(call, sizes.columns) : mps::NNNeuronDescriptor();
  // The kernel takes no slopes.
  if (neuron.neuronType() == mps::CNNNeuronType::PReLU) neuron = mps::NNNeuronDescriptor();
  const auto source = makeSourceArrays(call, "source", sizes.source(), Numbers::Uniform);
  const auto statistics = [&](const char* name, Numbers numbers) {
    return computesStatistics ? makeDestinationArrays(call, name, sizes.vectors(), {})
                              : makeSourceArrays(call, name, sizes.vectors(), numbers);
  };
  const auto mean = statistics("mean", Numbers::Uniform);
  const auto variance = statistics("variance", Numbers::Positive);
  const auto gamma = makeSourceArrays(call, "gamma", sizes.vectors(), Numbers::AwayFromZero);
  const auto beta = makeSourceArrays(call, "beta", sizes.vectors(), Numbers::Uniform);
  const auto gammaVector = orNone(call, gamma);
  const auto betaVector = orNone(call, beta);
  // Both read statistics that were rounded to the matrix's type.
  const auto result = makeDestinationArrays(call, "result", sizes.result(), {.factor = 5, .jumps = 0.002});
  const auto kernel = mps::MatrixBatchNormalization::create(call.device);
  const auto gradientKernel = mps::MatrixBatchNormalizationGradient::create(call.device);
  setNeuronAndEpsilon(*kernel, neuron);
  setNeuronAndEpsilon(*gradientKernel, neuron);
  kernel->setComputeStatistics(computesStatistics);
  kernel->setSourceMatrixOrigin(sizes.sourceOrigin);
  kernel->setResultMatrixOrigin(sizes.resultOrigin);
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, source.matrix, mean.vector, variance.vector, gammaVector, betaVector,
                 result.matrix);

  const auto gradient = makeSourceArrays(call, "gradient", sizes.plain(), Numbers::Uniform);
  const Tolerance tolerance{.factor = 20, .leastScale = 1, .jumps = isNone(neuron) ? 0 : 0.2};
  const auto sourceGradient = makeDestinationArrays(call, "sourceGradient", sizes.plain(), tolerance);
  const auto gammaGradient = makeDestinationArrays(call, "gammaGradient", sizes.vectors(), tolerance);
  const auto betaGradient = makeDestinationArrays(call, "betaGradient", sizes.vectors(), tolerance);
  const auto gammaGradientVector = orNone(call, gammaGradient);
  const auto betaGradientVector = orNone(call, betaGradient);
  gradientKernel->setSecondarySourceMatrixOrigin(sizes.sourceOrigin);
  call.stage = "gradient";
  gradientKernel->encode(commandBuffer, gradient.matrix, source.matrix, mean.vector, variance.vector,
                         gammaVector, betaVector, sourceGradient.matrix, gammaGradientVector,
                         betaGradientVector);
  call.finish(commandBuffer);
}

void callMatrixFullyConnected(Call& call) {
  using Type = mps::CNNNeuronType;
  RandomNumbers& random = call.random;
  LayerSizes sizes = drawLayer(call);
  sizes.sourceOrigin = {};
  const std::size_t outputs = std::min<std::size_t>(call.matrixSide(), 200);
  const ArraySizes weightSizes{sizes.type, sizes.columns, outputs, sizes.count};
  const ArraySizes outputVectors = ArraySizes::vectors(sizes.type, outputs, sizes.count);
  auto neuron = random.chance(0.5) ? anyNeuron(call, outputs) : mps::NNNeuronDescriptor();
  // No slopes; and sums are not always in the domain of a power or a logarithm.
  for (const Type type : {Type::PReLU, Type::Power, Type::Logarithm})
    if (neuron.neuronType() == type) neuron = mps::NNNeuronDescriptor();
  const double alpha = call.noted("alpha", random.chance(0.5) ? 1 : random.real(0.2, 1));
  const Tolerance sums{.factor = 3, .leastScale = 1};
  Tolerance sumsBehindNeuron = sums;
  sumsBehindNeuron.jumps = 0.002;
  const auto source = makeSourceArrays(call, "source", sizes.plain(), call.anyNumbers());
  const auto weights = makeSourceArrays(call, "weights", weightSizes, Numbers::Uniform);
  const auto biases = makeSourceArrays(call, "biases", outputVectors, Numbers::Uniform);
  const auto result = makeDestinationArrays(call, "result", sizes.result(outputs), sumsBehindNeuron);
  const auto kernel = mps::MatrixFullyConnected::create(call.device);
  setNeuron(*kernel, neuron);
  kernel->setAlpha(alpha);
  kernel->setResultMatrixOrigin(sizes.resultOrigin);
  const auto biasVector = orNone(call, biases);
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, source.matrix, weights.matrix, biasVector, result.matrix);

  const auto gradient =
      makeSourceArrays(call, "gradient", {sizes.type, sizes.rows, outputs, sizes.count}, Numbers::Uniform);
  const auto sourceGradient = makeDestinationArrays(call, "sourceGradient", sizes.plain(), sums);
  const auto weightGradient = makeDestinationArrays(call, "weightGradient", weightSizes, sums);
  const auto biasGradient = makeDestinationArrays(call, "biasGradient", outputVectors, sums);
  const auto biasGradientVector = orNone(call, biasGradient);
  const auto gradientKernel = mps::MatrixFullyConnectedGradient::create(call.device);
  gradientKernel->setAlpha(alpha);
  call.stage = "gradient";
  gradientKernel->encodeGradientForData(commandBuffer, gradient.matrix, weights.matrix,
                                        sourceGradient.matrix);
  gradientKernel->encodeGradientForWeightsAndBias(commandBuffer, gradient.matrix, source.matrix,
                                                  weightGradient.matrix, biasGradientVector);
  call.finish(commandBuffer);
}

}  // namespace unmetal::random_calls
