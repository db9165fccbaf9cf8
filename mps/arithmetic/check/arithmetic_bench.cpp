#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/conform/timing/kernel_bench.hpp"

namespace mps::detail {
namespace {

/// A forward kernel and its gradient kernels on images of 56x56x64; y may be repeated over all pixels.
struct ArithmeticBench {
  std::shared_ptr<CNNArithmetic> forward;
  std::shared_ptr<CNNArithmeticGradient> gradientOfX;
  std::shared_ptr<CNNArithmeticGradient> gradientOfY;
  bool isVector = false;
  bool readsSourceImage = false;  ///< the gradients
};

void benchFormat(Bench& bench, const ArithmeticBench& kernels, ImageFeatureChannelFormat format) {
  const ImageDescriptor image(format, 56, 56, 64);
  const ImageDescriptor other = kernels.isVector ? ImageDescriptor(format, 1, 1, 64) : image;
  const auto imageBytes = static_cast<double>(bytesOf(image));
  const auto otherBytes = static_cast<double>(bytesOf(other));
  const std::int64_t batch = bench.batchFor(2 * bytesOf(image) + bytesOf(other));
  const auto images = static_cast<double>(batch);
  const auto count = static_cast<std::size_t>(batch);
  const std::string shape = kernels.isVector ? "56x56x64, y 1x1x64" : "56x56x64";
  BenchKey key{kernels.forward->className(), Direction::Forward, format, shape, batch};
  BenchKey keyOfX{kernels.gradientOfX->className(), Direction::Gradient, format, shape + " of x", batch};
  BenchKey keyOfY{kernels.gradientOfY->className(), Direction::Gradient, format, shape + " of y", batch};
  if (!bench.isSelected(key.describe()) && !bench.isSelected(keyOfX.describe()) &&
      !bench.isSelected(keyOfY.describe()))
    return;

  const ImageBatch x = benchImages(bench.device(), image, count);
  const ImageBatch y = benchImages(bench.device(), other, count);
  const ImageBatch results = ImageBatch::create(bench.device(), image, count);
  const StateBatch states = kernels.forward->resultStateBatch(x, y);
  const auto commandBuffer = bench.device()->newCommandQueue()->commandBuffer();
  kernels.forward->encodeBatch(commandBuffer, x, y, states, results);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  bench.kernel(key, {.bytes = images * (2 * imageBytes + otherBytes)},
               [&](const auto& buffer) { kernels.forward->encodeBatch(buffer, x, y, results); });

  const bool multiplies = kernels.forward->className() == "CNNMultiply";
  const ImageBatch& gradients = results;
  const ImageBatch ofX = ImageBatch::create(bench.device(), image, count);
  const ImageBatch ofY = ImageBatch::create(bench.device(), other, count);
  const ImageBatch& forX = kernels.readsSourceImage ? y : x;
  bench.kernel(
      keyOfX, {.bytes = images * (2 * imageBytes + (kernels.readsSourceImage ? otherBytes : 0))},
      [&](const auto& buffer) { kernels.gradientOfX->encodeBatch(buffer, gradients, forX, states, ofX); });
  const ImageBatch& forY = multiplies ? x : y;
  const double keptBytes = imageBytes + otherBytes;  // of x, which is kept, and of y
  const double forYBytes = !kernels.readsSourceImage ? 0 : multiplies ? imageBytes : keptBytes;
  bench.kernel(keyOfY, {.bytes = images * (imageBytes + otherBytes + forYBytes)}, [&](const auto& buffer) {
    kernels.gradientOfY->encodeBatch(buffer, gradients, forY, states, ofY);
  });
}

template <class Forward, class Gradient>
void benchOperation(Bench& bench, bool readsSourceImage) {
  for (const bool isVector : {false, true}) {
    const ArithmeticBench kernels{Forward::create(bench.device()), Gradient::create(bench.device(), false),
                                  Gradient::create(bench.device(), true), isVector, readsSourceImage};
    if (isVector) {
      kernels.forward->setSecondaryStrideInPixelsX(0);
      kernels.forward->setSecondaryStrideInPixelsY(0);
    }
    for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
      benchFormat(bench, kernels, format);
  }
}

void benchComparison(Bench& bench) {
  const auto kernel = NNCompare::create(bench.device());
  kernel->setComparisonType(NNComparisonType::Greater);
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    const ImageDescriptor image(format, 56, 56, 64);
    const std::int64_t batch = bench.batchFor(3 * bytesOf(image));
    const BenchKey key{kernel->className(), Direction::Forward, format, "56x56x64", batch};
    if (!bench.isSelected(key.describe())) continue;
    const auto count = static_cast<std::size_t>(batch);
    const ImageBatch x = benchImages(bench.device(), image, count);
    const ImageBatch y = benchImages(bench.device(), image, count);
    const ImageBatch results = ImageBatch::create(bench.device(), image, count);
    bench.kernel(key, {.bytes = 3 * static_cast<double>(batch) * static_cast<double>(bytesOf(image))},
                 [&](const auto& buffer) { kernel->encodeBatch(buffer, x, y, results); });
  }
}

}  // namespace

void benchArithmetic(Bench& bench) {
  benchOperation<CNNAdd, CNNAddGradient>(bench, false);
  benchOperation<CNNMultiply, CNNMultiplyGradient>(bench, true);
  benchOperation<CNNDivide, CNNDivideGradient>(bench, true);
  benchComparison(bench);
}

}  // namespace mps::detail
