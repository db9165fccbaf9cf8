#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "unmetal.hpp"

/// What the examples in headers take for granted (header_examples.py).
class HeaderExamples : public ::testing::Test {
 protected:
  static constexpr std::size_t side = 28, channels = 4, count = 2;

  [[nodiscard]] std::shared_ptr<mps::Image> image() { return imageOf({format, side, side, channels}); }
  [[nodiscard]] mps::ImageBatch batch() { return mps::ImageBatch({image(), image()}); }
  [[nodiscard]] std::shared_ptr<mps::Image> gradientOf(const std::shared_ptr<mps::Image>& result) {
    return imageOf({format, result->width(), result->height(), result->featureChannels()});
  }
  [[nodiscard]] mps::ImageBatch gradientOf(const mps::ImageBatch& results) {
    std::vector<std::shared_ptr<mps::Image>> gradients;
    for (std::size_t i = 0; i < results.count(); ++i) gradients.push_back(gradientOf(results[i]));
    return gradients;
  }
  [[nodiscard]] std::shared_ptr<mps::Matrix> matrix(bool isSource) {
    return matrixOf(side, channels, isSource);
  }
  [[nodiscard]] std::shared_ptr<mps::Matrix> square(bool isSource) {
    return matrixOf(channels, channels, isSource);
  }
  [[nodiscard]] std::shared_ptr<mps::Vector> vector(bool isSource) {
    auto vector =
        mps::Vector::create(device, mps::VectorDescriptor::create(channels, mps::DataType::Float32));
    if (isSource) draw(*vector->data());
    return vector;
  }
  [[nodiscard]] std::shared_ptr<mps::NDArray> array(bool isSource) {
    auto array = mps::NDArray::create(
        device, mps::NDArrayDescriptor::create(mps::DataType::Float32, {channels, side}));
    if (isSource) draw(*array->data());
    return array;
  }
  /// Of as many rows as there are, from the last one on.
  [[nodiscard]] std::shared_ptr<mps::NDArray> indexArray(bool /*isSource*/) const {
    auto array = mps::NDArray::create(device, mps::NDArrayDescriptor::create(mps::DataType::UInt32, {side}));
    std::vector<std::uint32_t> rows(side);
    for (std::size_t i = 0; i < side; ++i) rows[i] = static_cast<std::uint32_t>(side - 1 - i);
    array->writeBytes(std::span(rows));
    return array;
  }
  /// The data source of a layer of that class.
  template <class Forward>
  [[nodiscard]] auto dataSourceFor() const {
    const auto adam = mps::NNOptimizerAdam::create(device, 1e-3F);
    if constexpr (std::is_same_v<Forward, mps::CNNBatchNormalization>)
      return mps::TrainableBatchNormalization::create(device, channels, "layer", adam);
    else if constexpr (std::is_same_v<Forward, mps::CNNInstanceNormalization>)
      return mps::TrainableInstanceNormalization::create(device, channels, "layer", adam);
    else if constexpr (std::is_same_v<Forward, mps::CNNGroupNormalization>)
      return mps::TrainableGroupNormalization::create(device, channels, 2, "layer", adam);
    else
      return convolutionSource(std::is_same_v<Forward, mps::CNNFullyConnected> ? side : 3, adam);
  }
  [[nodiscard]] static mps::CNNLossDescriptor lossDescriptor() {
    return mps::CNNLossDescriptor::create(mps::CNNLossType::MeanSquaredError, mps::CNNReductionType::Mean);
  }
  /// A permanent copy: the kernels of the examples return temporary images.
  [[nodiscard]] std::shared_ptr<mps::Image> kept(const std::shared_ptr<mps::Image>& image) {
    const auto copy = mps::CNNNeuron::create(device, {});
    copy->setDestinationImageAllocator(mps::Image::defaultAllocator());
    return copy->encode(commandBuffer, image);
  }
  [[nodiscard]] mps::ImageBatch kept(const mps::ImageBatch& images) {
    std::vector<std::shared_ptr<mps::Image>> copies;
    for (std::size_t i = 0; i < images.count(); ++i) copies.push_back(kept(images[i]));
    return copies;
  }
  [[nodiscard]] static std::shared_ptr<mtl::Buffer> kept(const std::shared_ptr<mtl::Buffer>& buffer) {
    return buffer;
  }
  void run() const {
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }

  /// As large as the sources, finite and not 0.
  static void expectGradient(const std::shared_ptr<mps::Image>& gradient) {
    ASSERT_TRUE(gradient);
    ASSERT_EQ(gradient->width() * gradient->height() * gradient->featureChannels(), side * side * channels);
    std::vector<float> values(side * side * channels);
    gradient->readBytes(std::span(values), mps::DataLayout::HeightxWidthxFeatureChannels);
    expectNumbers(values);
  }
  static void expectGradient(const mps::ImageBatch& gradients) {
    ASSERT_EQ(gradients.count(), count);
    for (std::size_t i = 0; i < count; ++i) expectGradient(gradients[i]);
  }
  static void expectGradient(const std::shared_ptr<mtl::Buffer>& gradient) {
    const auto values = gradient->contentsAs<const float>();
    ASSERT_EQ(values.size(), channels);
    expectNumbers({values.begin(), values.end()});
  }

  static void expectGradient(const std::shared_ptr<mps::Matrix>& gradient) {
    const auto values = gradient->data()->contentsAs<const float>();
    expectNumbers({values.begin(), values.end()});
  }
  static void expectGradient(const std::shared_ptr<mps::NDArray>& gradient) {
    const auto values = gradient->data()->contentsAs<const float>();
    expectNumbers({values.begin(), values.end()});
  }
  static void expectGradient(const std::shared_ptr<mps::Vector>& gradient) {
    expectGradient(gradient->data());
  }

  std::shared_ptr<mtl::Device> device = mtl::createSystemDefaultDevice();
  std::shared_ptr<mtl::CommandBuffer> commandBuffer = device->newCommandQueue()->commandBuffer();

 private:
  [[nodiscard]] float nextValue() { return 1.5F + std::sin(static_cast<float>(++drawn_)); }
  void draw(mtl::Buffer& buffer) {
    for (float& value : buffer.contentsAs<float>()) value = nextValue();
    buffer.didModifyRange(0, buffer.length());
  }
  [[nodiscard]] std::shared_ptr<mps::Matrix> matrixOf(std::size_t rows, std::size_t columns, bool isSource) {
    auto matrix = mps::Matrix::create(
        device,
        mps::MatrixDescriptor::create(rows, columns, columns * sizeof(float), mps::DataType::Float32));
    if (isSource) draw(*matrix->data());
    return matrix;
  }
  static constexpr auto format = mps::ImageFeatureChannelFormat::Float32;

  std::shared_ptr<mps::Image> imageOf(const mps::ImageDescriptor& size) {
    auto image = mps::Image::create(device, size);
    std::vector<float> values(size.width() * size.height() * size.featureChannels());
    for (float& value : values) value = nextValue();
    image->writeBytes(std::span<const float>(values), mps::DataLayout::HeightxWidthxFeatureChannels);
    return image;
  }
  [[nodiscard]] std::shared_ptr<mps::TrainableConvolution> convolutionSource(
      std::size_t kernel, const std::shared_ptr<mps::NNOptimizer>& optimizer) const {
    return mps::TrainableConvolution::create(
        device, mps::CNNConvolutionDescriptor::create(kernel, kernel, channels, channels), "layer", 1,
        optimizer);
  }
  static void expectNumbers(const std::vector<float>& values) {
    bool anything = false;
    for (const float value : values) {
      EXPECT_TRUE(std::isfinite(value));
      anything = anything || value != 0;
    }
    EXPECT_TRUE(anything);
  }

  int drawn_ = 0;
};
