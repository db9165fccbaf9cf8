#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/normalization/normalization.hpp"
#include "mps/pooling/pooling.hpp"
#include "mps/reduction/reduction.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "mps/upsampling/upsampling.hpp"

/// Decisions that hold for the kernels of every family.
namespace mps::every_kernel_test {
namespace {

using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class EveryKernel : public testing::DeviceTest {
 protected:
  static constexpr std::size_t side = 4, channels = 2, count = 4;
  static constexpr std::size_t each = side * side * channels;

  /// For images of that many pixels on each side and that many channels.
  [[nodiscard]] std::vector<std::shared_ptr<CNNKernel>> unaryKernels(
      std::size_t side = EveryKernel::side, std::size_t channels = EveryKernel::channels) const {
    const auto reshape = NNReshape::create(device_);
    reshape->setReshapedSize(side * channels, 1, side);
    auto subPixels = CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, channels, 8);
    subPixels.setSubPixelScaleFactor(2);
    const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F);
    return {CNNPoolingMax::create(device_, 2, 2, 2, 2),
            CNNPoolingAverage::create(device_, 3, 3),
            CNNPoolingL2Norm::create(device_, 2, 2, 1, 1),
            CNNDilatedPoolingMax::create(device_, 2, 2, 1, 1, 2, 2),
            CNNConvolution::create(device_, test::layer(device_, 3, channels, 3, "conv")),
            CNNConvolution::create(device_,
                                   TrainableConvolution::create(device_, subPixels, "spread", 1, nullptr)),
            CNNFullyConnected::create(device_, test::layer(device_, side, channels, 3, "dense")),
            CNNNeuron::create(device_, relu),
            CNNBatchNormalization::create(device_, detail::FixedBatchNormalization::create(channels), relu),
            CNNInstanceNormalization::create(device_, detail::FixedInstanceNormalization::create(channels)),
            CNNGroupNormalization::create(device_, detail::FixedGroupNormalization::create(channels, 1)),
            CNNSpatialNormalization::create(device_, 3, 2),
            CNNLocalContrastNormalization::create(device_, 2, 3),
            CNNCrossChannelNormalization::create(device_, 2),
            reshape,
            NNPad::create(device_, {1, 2, 3}, {3, 1, 2}),
            NNSlice::create(device_),
            NNReduceRowMax::create(device_),
            NNReduceColumnMean::create(device_),
            NNReduceFeatureChannelsSum::create(device_),
            NNReduceSpatialMean::create(device_),
            NNGramMatrixCalculation::create(device_, 0.5F),
            CNNSoftMax::create(device_),
            CNNLogSoftMax::create(device_),
            CNNUpsamplingNearest::create(device_, 2, 3),
            CNNUpsamplingBilinear::create(device_, 3, 2),
            ImageBilinearScale::create(device_, 3, 7),
            ImageLanczosScale::create(device_, 7, 3)};
  }
  static Values valuesOfImage(std::size_t number) {
    Values values(each);
    for (std::size_t i = 0; i < each; ++i) values[i] = static_cast<float>((i * 7 + number * 13) % 11) - 5;
    return values;
  }
  [[nodiscard]] std::shared_ptr<Image> stack(std::size_t first = 0) const {
    Values all;
    for (std::size_t n = 0; n < count; ++n) {
      const Values values = valuesOfImage(first + n);
      all.insert(all.end(), values.begin(), values.end());
    }
    return image(sizeOf(side, side, channels, count), all);
  }
};

/// docs/decisions.md, D16: images with several images and offset.z work in every kernel.
TEST_F(EveryKernel, D16WithOneSourceTakesStacksAndOffsetZ) {
  for (const auto& kernel : unaryKernels()) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    const auto buffer = commands();
    std::vector<std::shared_ptr<Image>> sources;
    for (const std::size_t n : {2U, 3U})
      sources.push_back(image(sizeOf(side, side, channels), valuesOfImage(n)));
    const ImageBatch batch = kernel->encodeBatch(buffer, ImageBatch(sources));
    ImageDescriptor size = batch[0]->descriptor();
    size.setNumberOfImages(3);
    const auto result = poisoned(size);
    Offset offset = kernel->offset();
    offset.z = 2;
    kernel->setOffset(offset);
    kernel->setClipRect({{0, 0, 1}, {size.width(), size.height(), 2}});
    kernel->encode(buffer, stack(), result);
    run(buffer);
    Values expected(testing::elementsOf(size) / 3, poison);
    for (const auto& one : batch)
      for (const float value : valuesOf(*one)) expected.push_back(value);
    EXPECT_EQ(valuesOf(*result), expected) << kernel->describe();
  }
}

TEST_F(EveryKernel, D16WithTwoSourcesTakesStacksAndOffsetsZ) {
  const std::vector<std::shared_ptr<CNNArithmetic>> kernels{
      CNNAdd::create(device_), CNNSubtract::create(device_), CNNMultiply::create(device_),
      CNNDivide::create(device_)};
  for (const auto& kernel : kernels) {
    const auto buffer = commands();
    std::vector<std::shared_ptr<Image>> alone;
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    for (std::size_t n = 0; n < 2; ++n)
      alone.push_back(kernel->encode(buffer, image(sizeOf(side, side, channels), valuesOfImage(n + 1)),
                                     image(sizeOf(side, side, channels), valuesOfImage(n + 30))));
    const auto result = poisoned(sizeOf(side, side, channels, 3));
    kernel->setPrimaryOffset({0, 0, 1});
    kernel->setSecondaryOffset({0, 0, 0});
    kernel->setClipRect({{0, 0, 1}, {side, side, 2}});
    kernel->encode(buffer, stack(), stack(30), result);
    run(buffer);
    Values expected(each, poison);
    for (const auto& one : alone)
      for (const float value : valuesOf(*one)) expected.push_back(value);
    const Values found = valuesOf(*result);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
        << kernel->describe();
  }
}

/// Without AVX-512, products of oneDNN add up in an order that depends on the number of images.
bool productsDependOnTheBatch() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") == 0;
#else
  return true;
#endif
}

/// A batch gives what each image gives alone, to the last bit.
TEST_F(EveryKernel, ABatchHasTheBitsOfItsImagesAlone) {
  constexpr std::size_t images = 5;
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
    for (const std::size_t pixels : {5U, 7U})
      for (const std::size_t channelsOfImage : {3U, 21U})
        for (const auto& kernel : unaryKernels(pixels, channelsOfImage)) {
          if (kernel->className() == "CNNFullyConnected" && productsDependOnTheBatch()) continue;
          kernel->setDestinationImageAllocator(Image::defaultAllocator());
          const auto buffer = commands();
          const ImageBatch sources =
              ImageBatch::create(device_, {format, pixels, pixels, channelsOfImage}, images);
          Values values(pixels * pixels * channelsOfImage);
          for (std::size_t n = 0, i = 0; n < images; ++n) {
            for (float& value : values) {
              value = static_cast<float>((i * 7919 + 13) % 1009) / (i % 350 < 10 ? 10.0F : 200.0F) - 2.5F;
              ++i;
            }
            testing::fill(*sources[n], values);
          }
          const ImageBatch results = kernel->encodeBatch(buffer, sources);
          std::vector<std::shared_ptr<Image>> alone;
          for (std::size_t n = 0; n < images; ++n) alone.push_back(kernel->encode(buffer, sources[n]));
          run(buffer);
          for (std::size_t n = 0; n < images; ++n) {
            const Values together = valuesOf(*results[n]);
            const Values one = valuesOf(*alone[n]);
            ASSERT_EQ(together.size(), one.size());
            EXPECT_EQ(std::memcmp(together.data(), one.data(), one.size() * sizeof(float)), 0)
                << kernel->describe() << ", image " << n << " of " << pixels << "x" << pixels << "x"
                << channelsOfImage;
          }
        }
}

/// docs/decisions.md, D16: unorm formats are sources only.
TEST_F(EveryKernel, D16UnormIsASourceAndNoDestination) {
  for (const auto format : {ImageFeatureChannelFormat::Unorm8, ImageFeatureChannelFormat::Unorm16}) {
    for (const auto& kernel : unaryKernels()) {
      const auto buffer = commands();
      kernel->setDestinationImageAllocator(Image::defaultAllocator());
      const auto result = kernel->encode(buffer, image({format, side, side, channels}));
      EXPECT_EQ(result->featureChannelFormat(), ImageFeatureChannelFormat::Float32) << kernel->describe();
      ImageDescriptor size = result->descriptor();
      size.setChannelFormat(format);
      EXPECT_TRUE(testing::names(
          testing::errorOf([&] { kernel->encode(buffer, image(sizeOf(side, side, channels)), image(size)); }),
          {"destinationImage"}))
          << kernel->describe();
    }
  }
}

}  // namespace
}  // namespace mps::every_kernel_test
