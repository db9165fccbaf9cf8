#include <algorithm>
#include <string>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/conform/timing/kernel_bench.hpp"

namespace mps::detail {
namespace {

using State = CNNBatchNormalizationState;

/// The four kernels on one batch.
void benchStep(Bench& bench, ImageFeatureChannelFormat format, std::size_t side, std::size_t channels,
               const NNNeuronDescriptor& neuron, const std::string& words) {
  const ImageDescriptor size(format, side, side, channels);
  const std::int64_t batch = bench.batchFor(2 * bytesOf(size));
  const auto count = static_cast<std::size_t>(batch);
  const double bytes = static_cast<double>(count) * static_cast<double>(bytesOf(size));
  const std::string shape =
      std::to_string(side) + "x" + std::to_string(side) + "x" + std::to_string(channels) + words;
  const auto keyOf = [&](const Kernel& kernel, Direction direction) {
    return BenchKey{kernel.className(), direction, format, shape, batch};
  };
  const auto forward =
      CNNBatchNormalization::create(bench.device(), FixedBatchNormalization::create(channels), neuron);
  const auto statistics = CNNBatchNormalizationStatistics::create(bench.device());
  const auto sums = CNNBatchNormalizationStatisticsGradient::create(bench.device(), neuron);
  const auto gradient = CNNBatchNormalizationGradient::create(bench.device(), neuron);
  const BenchKey keys[] = {keyOf(*statistics, Direction::Forward), keyOf(*forward, Direction::Forward),
                           keyOf(*sums, Direction::Gradient), keyOf(*gradient, Direction::Gradient)};
  if (std::ranges::none_of(keys, [&](const BenchKey& key) { return bench.isSelected(key.describe()); }))
    return;

  const ImageBatch x = benchImages(bench.device(), size, count);
  const ImageBatch dy = benchImages(bench.device(), size, count);
  const ImageBatch result = ImageBatch::create(bench.device(), size, count);
  const auto state = std::static_pointer_cast<State>(forward->resultState(x[0]));
  const auto commandBuffer = bench.device()->newCommandQueue()->commandBuffer();
  statistics->encodeBatch(commandBuffer, x, state);
  forward->encodeBatch(commandBuffer, x, state, result);
  sums->encodeBatch(commandBuffer, dy, x, state);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();

  const auto fresh = std::static_pointer_cast<State>(forward->resultState(x[0]));
  bench.kernel(keys[0], {.bytes = bytes}, [&](const auto& buffer) {
    fresh->reset();
    statistics->encodeBatch(buffer, x, fresh);
  });
  bench.kernel(keys[1], {.bytes = 2 * bytes},
               [&](const auto& buffer) { forward->encodeBatch(buffer, x, state, result); });
  bench.kernel(keys[2], {.bytes = 2 * bytes}, [&](const auto& buffer) {
    state->didEncodeGradient();  // the sums begin anew
    sums->encodeBatch(buffer, dy, x, state);
  });
  bench.kernel(keys[3], {.bytes = 3 * bytes},
               [&](const auto& buffer) { gradient->encodeBatch(buffer, dy, x, state, result); });
}

/// Rows are samples.
void benchMatrixRows(Bench& bench) {
  constexpr std::size_t kColumns = 1024;
  const std::string shape = "1024 columns";
  const auto& device = bench.device();
  const auto vectorFor = [&](const std::shared_ptr<Matrix>& matrix) {
    return Vector::create(device, VectorDescriptor::vectorDescriptor(kColumns, matrix->dataType()));
  };
  const auto neuron = MatrixNeuron::create(device);
  neuron->setNeuronType(CNNNeuronType::TanH, 1, 1, 0);
  const auto neuronGradient = MatrixNeuronGradient::create(device);
  neuronGradient->setNeuronType(CNNNeuronType::TanH, 1, 1, 0);
  benchMatrices(bench, *neuron, Direction::Forward, shape + " TanH", kColumns, 2,
                [&](const auto& commandBuffer, const auto& matrices) {
                  neuron->encode(commandBuffer, matrices[0], vectorFor(matrices[0]), matrices[1]);
                });
  benchMatrices(bench, *neuronGradient, Direction::Gradient, shape + " TanH", kColumns, 3,
                [&](const auto& commandBuffer, const auto& matrices) {
                  neuronGradient->encode(commandBuffer, matrices[0], matrices[1], vectorFor(matrices[0]),
                                         matrices[2], vectorFor(matrices[0]));
                });
  const auto normalization = MatrixBatchNormalization::create(device);
  const auto normalizationGradient = MatrixBatchNormalizationGradient::create(device);
  // Their epsilon keeps the result finite where the variance is 0.
  normalization->setEpsilon(1e-3F);
  normalizationGradient->setEpsilon(1e-3F);
  benchMatrices(bench, *normalization, Direction::Forward, shape, kColumns, 2,
                [&](const auto& commandBuffer, const auto& matrices) {
                  const auto zeros = vectorFor(matrices[0]);
                  normalization->encode(commandBuffer, matrices[0], zeros, zeros, nullptr, nullptr,
                                        matrices[1]);
                });
  benchMatrices(
      bench, *normalizationGradient, Direction::Gradient, shape, kColumns, 3,
      [&](const auto& commandBuffer, const auto& matrices) {
        const auto zeros = vectorFor(matrices[0]);
        normalizationGradient->encode(commandBuffer, matrices[0], matrices[1], zeros, zeros, nullptr, nullptr,
                                      matrices[2], vectorFor(matrices[0]), vectorFor(matrices[0]));
      },
      2);
}

}  // namespace

void benchBatchNormalization(Bench& bench) {
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU);
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    benchStep(bench, format, 56, 64, {}, "");
    benchStep(bench, format, 56, 64, relu, " ReLU");
    benchStep(bench, format, 14, 256, {}, "");
    benchStep(bench, format, 112, 3, {}, "");
  }
  benchMatrixRows(bench);
}

}  // namespace mps::detail
