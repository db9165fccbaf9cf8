#include "mps/conform/kernel_bench.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mtl/buffer.hpp"

namespace mps::detail {
namespace {

constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

std::shared_ptr<Matrix> matrixOf(Bench& bench, std::size_t rows, std::size_t columns, DataType type,
                                 float value = 0) {
  auto matrix = Matrix::create(
      bench.device(), MatrixDescriptor::matrixDescriptor(rows, columns, columns * sizeInBytes(type), type));
  if (type == DataType::Float32)
    for (float& element : matrix->data()->contentsAs<float>()) element = value;
  matrix->data()->didModifyRange(0, matrix->data()->length());
  return matrix;
}

/// Words are computed, not moved: the rows say how far from the speed of memory that is.
template <class Random>
void benchRandom(Bench& bench) {
  constexpr std::size_t kLength = std::size_t{1} << 24U;
  using Descriptor = MatrixRandomDistributionDescriptor;
  const auto add = [&](const char* what, DataType type, const Descriptor& distribution) {
    const auto random = Random::create(bench.device(), type, 1, distribution);
    const BenchKey key{random->className(), Direction::Forward, kFloat32,
                       std::to_string(kLength) + " " + what, 1};
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
  for (const auto format : {kFloat32, ImageFeatureChannelFormat::Float16})
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
        const auto matrix = matrixOf(bench, batch, side * side * static_cast<std::size_t>(channels),
                                     format == kFloat32 ? DataType::Float32 : DataType::Float16);
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
    const BenchKey key{"MatrixMultiplication", Direction::Forward, kFloat32,
                       std::string("1024x1024x1024") + (transposes ? " both transposed" : ""), 1};
    if (!bench.isSelected(key.describe())) continue;
    const auto left = matrixOf(bench, kSize, kSize, DataType::Float32, 0.5F);
    const auto right = matrixOf(bench, kSize, kSize, DataType::Float32, 0.25F);
    const auto result = matrixOf(bench, kSize, kSize, DataType::Float32);
    const auto product =
        MatrixMultiplication::create(bench.device(), transposes, transposes, kSize, kSize, kSize, 1, 0);
    bench.kernel(key, {.bytes = 3.0 * kSize * kSize * sizeof(float), .flops = 2.0 * kSize * kSize * kSize},
                 [&](const auto& commandBuffer) { product->encode(commandBuffer, left, right, result); });
  }
  constexpr std::size_t kRows = 4096;
  const auto keyOf = [](bool transposes) {
    return BenchKey{"MatrixVectorMultiplication", Direction::Forward, kFloat32,
                    std::string("4096x4096") + (transposes ? " transposed" : ""), 1};
  };
  if (!bench.isSelected(keyOf(false).describe()) && !bench.isSelected(keyOf(true).describe())) return;
  const auto matrix = matrixOf(bench, kRows, kRows, DataType::Float32, 0.5F);
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

}  // namespace

void benchMatrix(Bench& bench) {
  benchRandom<MatrixRandomMTGP32>(bench);
  benchRandom<MatrixRandomPhilox>(bench);
  benchCopies(bench);
  benchProducts(bench);
}

}  // namespace mps::detail
