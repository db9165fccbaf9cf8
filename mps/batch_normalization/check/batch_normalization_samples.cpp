#include <memory>
#include <type_traits>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/conform/testing/matrix_samples.hpp"

namespace mps::test {
namespace {

/// A batch of one through the kernels of batch normalisation, up to the one that is tested.
Values ofBatchNormalization(Kernel& kernel, int seed) {
  const auto& device = kernel.device();
  const auto normalization =
      CNNBatchNormalization::create(device, detail::FixedBatchNormalization::create(channels));
  auto* statistics = dynamic_cast<CNNBatchNormalizationStatistics*>(&kernel);
  const auto ownStatistics = CNNBatchNormalizationStatistics::create(device);
  const ImageBatch x{source(kernel, seed)};
  const ImageBatch y = ImageBatch::create(device, sizeOf(side, side, channels), 1);
  const ImageBatch dy{source(kernel, seed + 1)};
  const ImageBatch dx = ImageBatch::create(device, sizeOf(side, side, channels), 1);
  const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(normalization->resultState(x[0]));
  ran(kernel, [&](const auto& buffer) {
    (statistics != nullptr ? statistics : ownStatistics.get())->encodeBatch(buffer, x, state);
    normalization->encodeBatch(buffer, x, state, y);
    if (statistics != nullptr) return 0;
    if (auto* sums = dynamic_cast<CNNBatchNormalizationStatisticsGradient*>(&kernel)) {
      sums->encodeBatch(buffer, dy, x, state);
      CNNBatchNormalizationGradient::create(device)->encodeBatch(buffer, dy, x, state, dx);
    } else {
      CNNBatchNormalizationStatisticsGradient::create(device)->encodeBatch(buffer, dy, x, state);
      dynamic_cast<CNNBatchNormalizationGradient&>(kernel).encodeBatch(buffer, dy, x, state, dx);
    }
    return 0;
  });
  return valuesOf(statistics != nullptr ? y : dx);
}

std::shared_ptr<detail::FixedBatchNormalization> batchNormalizationValues() {
  auto values = detail::FixedBatchNormalization::create(channels);
  values->gammas = {1, -2, 3, 0.5F};
  values->means = {0.5F, 1, -1, 0};
  values->variances = {1, 2, 3, 4};
  return values;
}

/// Of neurons and batch normalisation, with vectors for all numbers of the columns.
template <class KernelType>
KernelSample ofMatrixColumns(std::shared_ptr<KernelType> kernel) {
  kernel->setNeuronType(CNNNeuronType::TanH, 0.5F, 2, 0);
  kernel->setSourceNumberOfFeatureVectors(3);
  kernel->setSourceInputFeatureChannels(2);
  return matrixSample(std::move(kernel),
                      [](KernelType& one, const auto& buffer, int seed, const auto& result) {
                        const Device& device = one.device();
                        const auto input = matrix(device, seed);
                        const auto numbers = [&](int which) { return vector(device, seed + which); };
                        if constexpr (std::is_same_v<KernelType, MatrixNeuron>)
                          one.encode(buffer, input, numbers(1), result);
                        else if constexpr (std::is_same_v<KernelType, MatrixNeuronGradient>)
                          one.encode(buffer, matrix(device, seed + 1), input, numbers(1), result, nullptr);
                        else if constexpr (std::is_same_v<KernelType, MatrixBatchNormalization>)
                          one.encode(buffer, input, numbers(1), numbers(2), numbers(3), numbers(4), result);
                        else
                          one.encode(buffer, matrix(device, seed + 1), input, numbers(1), numbers(2),
                                     numbers(3), numbers(4), result, nullptr, nullptr);
                      });
}

}  // namespace

void addBatchNormalizationSamples(KernelSamples& samples) {
  const Device& device = samples.device();
  const auto prelu = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{0.5F, 2, -1, 0.25F});
  samples.add(CNNBatchNormalization::create(device, batchNormalizationValues(), prelu));
  samples.add(CNNBatchNormalizationStatistics::create(device), ofBatchNormalization);
  samples.add(CNNBatchNormalizationStatisticsGradient::create(device), ofBatchNormalization);
  samples.add(CNNBatchNormalizationGradient::create(device), ofBatchNormalization);
  const auto neuron = MatrixNeuron::create(device);
  neuron->setAlpha(0.25);
  samples.add(ofMatrixColumns(neuron));
  const auto gradient = MatrixNeuronGradient::create(device);
  gradient->setAlpha(0.25);
  samples.add(ofMatrixColumns(gradient));
  const auto normalization = MatrixBatchNormalization::create(device);
  normalization->setComputeStatistics(true);
  normalization->setEpsilon(0.5F);
  samples.add(ofMatrixColumns(normalization));
  const auto normalizationGradient = MatrixBatchNormalizationGradient::create(device);
  normalizationGradient->setEpsilon(0.5F);
  samples.add(ofMatrixColumns(normalizationGradient));
}

}  // namespace mps::test
