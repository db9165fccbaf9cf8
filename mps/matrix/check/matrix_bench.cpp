#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mps/matrix/matrix_sum.hpp"

namespace mps::detail {
namespace {

constexpr auto kFormat = ImageFeatureChannelFormat::Float32;

/// Words are computed, not moved: the rows say how far from the speed of memory that is.
template <class Random>
void benchRandom(Bench& bench) {
  constexpr std::size_t kLength = std::size_t{1} << 24U;
  using Descriptor = MatrixRandomDistributionDescriptor;
  const auto add = [&](const char* what, DataType type, const Descriptor& distribution) {
    const auto random = Random::create(bench.device(), type, 1, distribution);
    const BenchKey key{random->className(), Direction::Forward, kFormat, std::to_string(kLength) + " " + what,
                       1};
    if (!bench.isSelected(key.describe())) return;
    const auto numbers = Vector::create(bench.device(), VectorDescriptor::vectorDescriptor(kLength, type));
    bench.kernel(key, {.bytes = kLength * sizeof(float)},
                 [&](const auto& commandBuffer) { random->encode(commandBuffer, numbers); });
  };
  add("words", DataType::UInt32, Descriptor::defaultDistributionDescriptor());
  add("uniform", DataType::Float32, Descriptor::uniformDistributionDescriptor(-1, 1));
  add("normal", DataType::Float32, Descriptor::normalDistributionDescriptor(0, 1));
}

void benchCopies(Bench& bench) {
  for (const auto format : {kFormat, ImageFeatureChannelFormat::Float16})
    for (const auto layout :
         {DataLayout::FeatureChannelsxHeightxWidth, DataLayout::HeightxWidthxFeatureChannels})
      for (const auto& [size, channels] : {std::pair{14, 256}, {56, 64}}) {
        const auto side = static_cast<std::size_t>(size);
        const ImageDescriptor image(format, side, side, static_cast<std::size_t>(channels));
        const auto batch = static_cast<std::size_t>(bench.batchFor(2 * bytesOf(image)));
        const std::string shape =
            std::to_string(size) + "x" + std::to_string(size) + "x" + std::to_string(channels) +
            (layout == DataLayout::FeatureChannelsxHeightxWidth ? " channels first" : " channels last");
        const BenchKey to{"ImageCopyToMatrix", Direction::Forward, format, shape,
                          static_cast<std::int64_t>(batch)};
        const BenchKey back{"MatrixCopyToImage", Direction::Forward, format, shape,
                            static_cast<std::int64_t>(batch)};
        if (!bench.isSelected(to.describe()) && !bench.isSelected(back.describe())) continue;
        const ImageBatch images = benchImages(bench.device(), image, batch);
        const auto matrix =
            benchMatrix(bench.device(), batch, side * side * static_cast<std::size_t>(channels), format);
        const double bytes = 2.0 * static_cast<double>(batch * bytesOf(image));
        const auto copyTo = ImageCopyToMatrix::create(bench.device(), layout);
        bench.kernel(to, {.bytes = bytes},
                     [&](const auto& commandBuffer) { copyTo->encodeBatch(commandBuffer, images, matrix); });
        const auto copyBack = MatrixCopyToImage::create(bench.device(), layout);
        bench.kernel(back, {.bytes = bytes}, [&](const auto& commandBuffer) {
          copyBack->encodeBatch(commandBuffer, matrix, images);
        });
      }
}

void benchProducts(Bench& bench) {
  constexpr std::size_t kSize = 1024;
  for (const bool transposes : {false, true}) {
    const BenchKey key{"MatrixMultiplication", Direction::Forward, kFormat,
                       std::string("1024x1024x1024") + (transposes ? " both transposed" : ""), 1};
    if (!bench.isSelected(key.describe())) continue;
    const auto square = [&] { return benchMatrix(bench.device(), kSize, kSize, kFormat); };
    const auto left = square();
    const auto right = square();
    const auto result = square();
    const auto product =
        MatrixMultiplication::create(bench.device(), transposes, transposes, kSize, kSize, kSize, 1, 0);
    bench.kernel(key, {.bytes = 3.0 * kSize * kSize * sizeof(float), .flops = 2.0 * kSize * kSize * kSize},
                 [&](const auto& commandBuffer) { product->encode(commandBuffer, left, right, result); });
  }
  constexpr std::size_t kRows = 4096;
  const auto keyOf = [](bool transposes) {
    return BenchKey{"MatrixVectorMultiplication", Direction::Forward, kFormat,
                    std::string("4096x4096") + (transposes ? " transposed" : ""), 1};
  };
  if (!bench.isSelected(keyOf(false).describe()) && !bench.isSelected(keyOf(true).describe())) return;
  const auto matrix = benchMatrix(bench.device(), kRows, kRows, kFormat);
  const auto vector = [&] {
    return Vector::create(bench.device(), VectorDescriptor::vectorDescriptor(kRows, DataType::Float32));
  };
  const auto input = vector();
  const auto result = vector();
  for (const bool transposes : {false, true}) {
    const auto product = MatrixVectorMultiplication::create(bench.device(), transposes, kRows, kRows, 1, 0);
    bench.kernel(keyOf(transposes),
                 {.bytes = static_cast<double>((kRows * kRows + 2 * kRows) * sizeof(float))},
                 [&](const auto& commandBuffer) { product->encode(commandBuffer, matrix, input, result); });
  }
}

void benchSums(Bench& bench) {
  constexpr std::size_t kColumns = 1024;
  const auto& device = bench.device();
  // What is read and written does not depend on the number of rows.
  const auto rowsOf = [](const auto& matrices) { return matrices[0]->rows(); };
  benchMatrices(bench, *MatrixSum::create(device, 2, 1, kColumns, false), Direction::Forward,
                "2 of 1024 columns", kColumns, 3, [&](const auto& commandBuffer, const auto& matrices) {
                  MatrixSum::create(device, 2, rowsOf(matrices), kColumns, false)
                      ->encode(commandBuffer, matrices.first(2), matrices[2]);
                });
  for (const bool transposes : {false, true})
    benchMatrices(
        bench, *MatrixCopy::create(device, 1, kColumns, transposes, false), Direction::Forward,
        std::string("1024 columns") + (transposes ? " transposed" : ""), kColumns, 2,
        [&](const auto& commandBuffer, const auto& matrices) {
          // A transposed source gives squares, the last of which may be short.
          const std::size_t rows = transposes ? kColumns : rowsOf(matrices);
          MatrixCopyDescriptor copies(rowsOf(matrices) / rows);
          for (std::size_t k = 0; k < copies.operations().size(); ++k) {
            const auto row = static_cast<std::uint32_t>(k * rows);
            copies.setCopyOperation(k, matrices[0], matrices[1],
                                    {.sourceRowOffset = row, .destinationRowOffset = row});
          }
          MatrixCopy::create(device, rows, kColumns, transposes, false)->encode(commandBuffer, copies);
        });
  benchMatrices(bench, *MatrixCopy::create(device, kColumns, 1, true, false), Direction::Forward,
                "1024 columns to as many rows", kColumns, 2,
                [&](const auto& commandBuffer, const auto& matrices) {
                  const DataType type = matrices[1]->dataType();
                  const std::size_t rows = rowsOf(matrices);
                  const auto result = Matrix::create(
                      matrices[1]->data(),
                      MatrixDescriptor::matrixDescriptor(kColumns, rows, rows * sizeInBytes(type), type));
                  MatrixCopy::create(device, kColumns, rows, true, false)
                      ->encode(commandBuffer, MatrixCopyDescriptor::descriptor(matrices[0], result, {}));
                });
}

void benchLayers(Bench& bench) {
  constexpr std::size_t kSize = 1024;
  constexpr double kFlops = 2.0 * kSize * kSize * kSize;
  const auto& device = bench.device();
  const auto layer = MatrixFullyConnected::create(device);
  const auto gradient = MatrixFullyConnectedGradient::create(device);
  const BenchKey forwardKey{layer->className(), Direction::Forward, kFormat, "1024 to 1024", kSize};
  const BenchKey gradientKey{gradient->className(), Direction::Gradient, kFormat, "1024 to 1024", kSize};
  if (!bench.isSelected(forwardKey.describe()) && !bench.isSelected(gradientKey.describe())) return;
  const auto square = [&] { return benchMatrix(device, kSize, kSize, kFormat); };
  const auto vector = [&] {
    return Vector::create(device, VectorDescriptor::vectorDescriptor(kSize, DataType::Float32));
  };
  const auto x = square();
  const auto weights = square();
  const auto y = square();
  const auto dx = square();
  const auto dWeights = square();
  const auto bias = vector();
  constexpr double kMatrix = 1.0 * kSize * kSize * sizeof(float);
  bench.kernel(forwardKey, {.bytes = 3 * kMatrix, .flops = kFlops},
               [&](const auto& commandBuffer) { layer->encode(commandBuffer, x, weights, bias, y); });
  bench.kernel(gradientKey, {.bytes = 5 * kMatrix, .flops = 2 * kFlops}, [&](const auto& commandBuffer) {
    gradient->encodeGradientForData(commandBuffer, y, weights, dx);
    gradient->encodeGradientForWeightsAndBias(commandBuffer, y, x, dWeights, bias);
  });
}

}  // namespace

void benchMatrix(Bench& bench) {
  benchRandom<MatrixRandomMTGP32>(bench);
  benchRandom<MatrixRandomPhilox>(bench);
  benchCopies(bench);
  benchProducts(bench);
  benchSums(bench);
  benchLayers(bench);
}

}  // namespace mps::detail
