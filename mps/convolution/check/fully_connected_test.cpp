#include "mps/convolution/fully_connected.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "mps/convolution/check/test_source.hpp"
#include "mps/core/testing/test_images.hpp"

namespace mps::fully_connected_test {
namespace {

using testing::ArraySource;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class FullyConnected : public testing::DeviceTest {
 protected:
  FullyConnected() {
    kernel_->setDestinationImageAllocator(Image::defaultAllocator());
    gradient_->setDestinationImageAllocator(Image::defaultAllocator());
  }
  static Values weightGradients(const std::shared_ptr<State>& state) {
    return valuesOf(dynamic_cast<CNNConvolutionGradientState&>(*state).gradientForWeights());
  }
  static Values biasGradients(const std::shared_ptr<State>& state) {
    return valuesOf(dynamic_cast<CNNConvolutionGradientState&>(*state).gradientForBiases());
  }

  /// Example FC1: pixels (1, 2), (3, 4), one output.
  std::shared_ptr<ArraySource> source_ = ArraySource::create(
      CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 1, 2, 1), {1, 10, 100, 1000}, {});
  std::shared_ptr<CNNFullyConnected> kernel_ = CNNFullyConnected::create(device_, source_);
  std::shared_ptr<CNNFullyConnectedGradient> gradient_ = CNNFullyConnectedGradient::create(device_, source_);
  std::shared_ptr<Image> in_ = image(sizeOf(2, 1, 2), {1, 2, 3, 4});
};

TEST_F(FullyConnected, ExampleFC1) {
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto out = kernel_->encode(buffer, in_, state, false);
  const auto dIn = gradient_->encode(buffer, image(sizeOf(1, 1, 1), {2}), in_, state);
  run(buffer);
  EXPECT_EQ(out->width(), 1U);
  EXPECT_EQ(out->height(), 1U);
  EXPECT_EQ(valuesOf(*out), Values{4321});
  EXPECT_EQ(valuesOf(*dIn), (Values{2, 20, 200, 2000}));
  EXPECT_EQ(weightGradients(state), (Values{2, 4, 6, 8}));
  EXPECT_EQ(biasGradients(state), Values{2});
}

TEST_F(FullyConnected, ExampleFC1InABatchAndGivenDestinations) {
  const auto in = batch(sizeOf(2, 1, 2), 2, {1, 2, 3, 4, 0, 0, 0, 1});
  const auto out = ImageBatch::create(device_, sizeOf(1, 1, 1), 2);
  const auto dIn = ImageBatch::create(device_, sizeOf(2, 1, 2), 2);
  const auto states = kernel_->resultStateBatch(in);
  const auto buffer = commands();
  kernel_->encodeBatch(buffer, in, states, out);
  gradient_->encodeBatch(buffer, batch(sizeOf(1, 1, 1), 2, {2, 5}), in, states, dIn);
  run(buffer);
  EXPECT_EQ(valuesOf(*out[0]), Values{4321});
  EXPECT_EQ(valuesOf(*out[1]), Values{1000});
  EXPECT_EQ(valuesOf(*dIn[0]), (Values{2, 20, 200, 2000}));
  EXPECT_EQ(valuesOf(*dIn[1]), (Values{5, 50, 500, 5000}));
  EXPECT_EQ(weightGradients(states[0]), (Values{2, 4, 6, 13}));
  EXPECT_EQ(biasGradients(states[0]), Values{7});
}

/// The source is flattened row, column, channel; rows of the matrix are outputs.
TEST_F(FullyConnected, EqualsTheMatrixProduct) {
  const std::size_t height = 3, width = 2, channels = 5, outputs = 4, inputs = height * width * channels;
  Values weights(outputs * inputs);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) - 3;
  const Values biases{1, 2, 3, 4};
  const Values x = counted(inputs);
  Values expected = biases;
  for (std::size_t k = 0; k < outputs; ++k)
    for (std::size_t i = 0; i < inputs; ++i) expected[k] += weights[k * inputs + i] * x[i];
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(width, height, channels, outputs);
  const auto result = [&](const std::shared_ptr<ArraySource>& source) {
    const auto kernel = CNNFullyConnected::create(device_, source);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    kernel->setOffset({100, -7, 0});
    const auto buffer = commands();
    const auto out = kernel->encode(buffer, image(sizeOf(width, height, channels), x));
    run(buffer);
    return valuesOf(*out);
  };
  EXPECT_EQ(result(ArraySource::create(descriptor, weights, biases)), expected);
  descriptor.setFusedNeuronDescriptor(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU));
  for (float& value : expected) value = std::max(value, 0.0F);
  EXPECT_EQ(result(ArraySource::create(descriptor, weights, biases)), expected);
}

TEST_F(FullyConnected, TheOffsetIsIgnoredAndTheClipOriginIsAnyPixel) {
  const auto out = poisoned(sizeOf(2, 2, 1));
  kernel_->setOffset({5, 5, 0});
  kernel_->setClipRect({{1, 1, 0}, {1, 1, 1}});
  const auto buffer = commands();
  kernel_->encode(buffer, in_, out);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), (Values{poison, poison, poison, 4321}));
}

TEST_F(FullyConnected, OptionsReloadAndCopies) {
  EXPECT_EQ(kernel_->padding()->paddingMethod(), NNPaddingMethod::SizeValidOnly);
  gradient_->setGradientOption(CNNConvolutionGradientOption::GradientWithWeightsAndBias);
  EXPECT_EQ(gradient_->copy()->gradientOption(), CNNConvolutionGradientOption::GradientWithWeightsAndBias);
  const auto device = mtl::newCPUDevice(1);
  const auto copy = kernel_->copy(device);
  EXPECT_EQ(copy->className(), "CNNFullyConnected");
  EXPECT_EQ(gradient_->copy(device)->className(), "CNNFullyConnectedGradient");
  const auto in = Image::create(device, sizeOf(2, 1, 2));
  testing::fill(*in, {1, 2, 3, 4});
  const auto out = Image::create(device, sizeOf(1, 1, 1));
  const auto buffer = device->newCommandQueue()->commandBuffer();
  source_->setWeights({1, 1, 1, 1});
  copy->reloadWeightsAndBiasesFromDataSource();
  copy->encode(buffer, in, out);
  buffer->commit();
  buffer->throwIfFailed();
  EXPECT_EQ(valuesOf(*out), Values{10});
}

TEST_F(FullyConnected, MistakesAreSentences) {
  const auto refused = [&](auto change) {
    auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 2);
    change(descriptor);
    return errorOf([&] { CNNFullyConnected::create(device_, ArraySource::create(descriptor, Values(4))); });
  };
  EXPECT_TRUE(names(refused([](auto& d) { d.setStrideInPixelsX(2); }),
                    {"CNNFullyConnected", "strideInPixelsX", "2", "1"}));
  EXPECT_TRUE(names(refused([](auto& d) { d.setStrideInPixelsY(2); }), {"strideInPixelsY"}));
  EXPECT_TRUE(names(refused([](auto& d) { d.setDilationRateX(2); }), {"dilationRateX"}));
  EXPECT_TRUE(names(refused([](auto& d) { d.setDilationRateY(2); }), {"dilationRateY"}));
  EXPECT_NE(refused([](auto& d) { d.setGroups(2); }), "");
  auto strided = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 2);
  strided.setStrideInPixelsX(2);
  EXPECT_TRUE(names(
      errorOf([&] { CNNFullyConnectedGradient::create(device_, ArraySource::create(strided, Values(4))); }),
      {"CNNFullyConnectedGradient", "strideInPixelsX", "2", "1"}));
  EXPECT_TRUE(names(errorOf([&] { CNNFullyConnected::create(device_, nullptr); }),
                    {"CNNFullyConnected", "weights", "null"}));
  EXPECT_TRUE(names(errorOf([&] { CNNFullyConnectedGradient::create(device_, nullptr); }),
                    {"CNNFullyConnectedGradient", "weights", "null"}));

  const auto one = image(sizeOf(1, 1, 1));
  EXPECT_TRUE(names(errorOf([&] { kernel_->encode(commands(), image(sizeOf(3, 1, 2)), one); }),
                    {"CNNFullyConnected", "sourceImage", "3x1", "2x1"}));
  EXPECT_TRUE(names(errorOf([&] { kernel_->encode(commands(), image(sizeOf(2, 2, 2))); }),
                    {"CNNFullyConnected", "sourceImage", "2x2", "2x1"}));
  EXPECT_TRUE(names(errorOf([&] { kernel_->encode(commands(), in_, image(sizeOf(2, 1, 1))); }),
                    {"CNNFullyConnected", "destinationImage", "2x1", "1x1"}));
  gradient_->setGradientOption(CNNConvolutionGradientOption::GradientWithData);
  EXPECT_TRUE(names(
      errorOf([&] { gradient_->encode(commands(), one, image(sizeOf(3, 1, 2)), image(sizeOf(3, 1, 2))); }),
      {"CNNFullyConnectedGradient", "sourceImage", "3x1", "2x1"}));
  EXPECT_TRUE(names(
      errorOf([&] { gradient_->encode(commands(), image(sizeOf(2, 1, 1)), in_, image(sizeOf(2, 1, 2))); }),
      {"CNNFullyConnectedGradient", "2x1", "1x1"}));
  std::shared_ptr<State> state;
  const auto convolution = CNNConvolution::create(device_, source_);
  convolution->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  convolution->encode(commands(), in_, state, false);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(commands(), one, in_, state); }),
                    {"CNNFullyConnectedGradient", "gradientState", "CNNConvolution"}));
  kernel_->encode(commands(), in_, state, false);
  EXPECT_TRUE(names(
      errorOf([&] { CNNConvolutionGradient::create(device_, source_)->encode(commands(), one, in_, state); }),
      {"CNNConvolutionGradient", "gradientState", "CNNFullyConnected"}));
}

}  // namespace
}  // namespace mps::fully_connected_test
