#include <memory>
#include <vector>

#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/conform/testing/matrix_samples.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mps/matrix/matrix_sum.hpp"

namespace mps::test {
namespace {

Values ofMatrixVectorProduct(Kernel& kernel, int seed) {
  const auto result = vector(kernel.device(), seed);
  ran(kernel, [&](const auto& buffer) {
    dynamic_cast<MatrixVectorMultiplication&>(kernel).encode(buffer, matrix(kernel.device(), seed),
                                                             vector(kernel.device(), seed + 1), result);
    return 0;
  });
  return valuesOf(result->data());
}

Values ofImageFromMatrix(Kernel& kernel, int seed) {
  const auto result = Image::create(kernel.device(), sizeOf(2, 2, 1));
  ran(kernel, [&](const auto& buffer) {
    dynamic_cast<MatrixCopyToImage&>(kernel).encode(buffer, matrix(kernel.device(), seed), result);
    return 0;
  });
  return valuesOf(*result);
}

/// A thousand numbers.
Values ofRandomVector(Kernel& kernel, int /*seed*/) {
  const auto result = vector(kernel.device(), 0, 1000);
  ran(kernel, [&](const auto& buffer) {
    dynamic_cast<MatrixRandom&>(kernel).encode(buffer, result);
    return 0;
  });
  return valuesOf(result->data());
}

}  // namespace

void addMatrixSamples(KernelSamples& samples) {
  const Device& device = samples.device();
  const auto sum = MatrixSum::create(device, 2, 2, 3, true);
  sum->setNeuronType(CNNNeuronType::TanH, 0.5F, 2, 0);
  sum->setResultMatrixOrigin({1, 1, 0});
  samples.add(matrixSample(sum, [](auto& one, const auto& buffer, int seed, const auto& result) {
    const std::vector<std::shared_ptr<Matrix>> sources{matrix(one.device(), seed),
                                                       matrix(one.device(), seed + 1)};
    one.encode(buffer, sources, result, vector(one.device(), seed));
  }));
  samples.add(matrixSample(MatrixCopy::create(device, 2, 3, false, true), [](auto& one, const auto& buffer,
                                                                             int seed, const auto& result) {
    one.encode(buffer, MatrixCopyDescriptor::descriptor(matrix(one.device(), seed), result, {1, 1, 1, 1}));
  }));
  const auto configured = [](auto kernel) {
    kernel->setAlpha(0.25);
    kernel->setSourceNumberOfFeatureVectors(3);
    kernel->setSourceInputFeatureChannels(3);
    kernel->setSourceOutputFeatureChannels(2);
    return kernel;
  };
  const auto layer = configured(MatrixFullyConnected::create(device));
  layer->setNeuronType(CNNNeuronType::TanH, 0.5F, 2, 0);
  samples.add(matrixSample(layer, [](auto& one, const auto& buffer, int seed, const auto& result) {
    one.encode(buffer, matrix(one.device(), seed), matrix(one.device(), seed + 1), vector(one.device(), seed),
               result);
  }));
  samples.add(matrixSample(configured(MatrixFullyConnectedGradient::create(device)),
                           [](auto& one, const auto& buffer, int seed, const auto& result) {
                             one.encodeGradientForData(buffer, matrix(one.device(), seed),
                                                       matrix(one.device(), seed + 1), result);
                           }));
  samples.add(ofTwoMatrices(MatrixMultiplication::create(device, true, false, 2, 3, side, 0.5, 2)));
  samples.add(MatrixVectorMultiplication::create(device, true, side, side, 0.5, 2), ofMatrixVectorProduct);
  samples.add(matrixSample(ImageCopyToMatrix::create(device, DataLayout::HeightxWidthxFeatureChannels),
                           [](auto& copy, const auto& buffer, int seed, const auto& result) {
                             copy.encode(buffer, image(copy.device(), sizeOf(2, 2, 1), seed), result);
                           }));
  samples.add(MatrixCopyToImage::create(device, DataLayout::HeightxWidthxFeatureChannels), ofImageFromMatrix);
  const auto uniform = MatrixRandomDistributionDescriptor::uniformDistributionDescriptor(-3, 4);
  samples.add(MatrixRandomPhilox::create(device, DataType::Float32, 9, uniform), ofRandomVector);
  samples.add(MatrixRandomMTGP32::create(device, DataType::Float32, 9, uniform), ofRandomVector);
}

}  // namespace mps::test
