#include "mps/convolution/sub_pixel_convolution.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "mps/conform/conform_report.hpp"
#include "mps/convolution/check/test_source.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
void conformSubPixelConvolution(Conform& conform);
}  // namespace mps::detail

namespace mps::sub_pixel_convolution_test {

/// Convolutions whose result is spread over more pixels.
namespace {

using testing::ArraySource;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

CNNSubPixelConvolutionDescriptor subPixels(std::size_t kernel, std::size_t inputs, std::size_t outputs,
                                           std::size_t factor) {
  auto descriptor =
      CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, inputs, outputs);
  descriptor.setSubPixelScaleFactor(factor);
  return descriptor;
}

/// Weights of a window of one pixel that copies its only channel to each output, times 1, 2, ...
std::shared_ptr<ArraySource> multiples(std::size_t outputs, std::size_t factor) {
  return ArraySource::create(subPixels(1, 1, outputs, factor), counted(outputs));
}

class SubPixelConvolution : public testing::DeviceTest {
 protected:
  std::shared_ptr<CNNConvolution> kernelOf(const std::shared_ptr<CNNConvolutionDataSource>& source) {
    auto kernel = CNNConvolution::create(device_, source);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  static std::shared_ptr<Image> encoded(const std::shared_ptr<mtl::CommandBuffer>& buffer,
                                        CNNConvolution& kernel, const std::shared_ptr<Image>& source) {
    auto result = kernel.encode(buffer, source);
    run(buffer);
    return result;
  }
};

/// The worked example of the section: (a, b, c, d) becomes the rows a b and c d.
TEST_F(SubPixelConvolution, FourChannelsBecomeTwoRowsOfTwo) {
  const auto kernel = kernelOf(multiples(4, 2));
  EXPECT_EQ(kernel->subPixelScaleFactor(), 2U);
  EXPECT_EQ(kernel->outputFeatureChannels(), 4U);
  const auto result = encoded(commands(), *kernel, image(sizeOf(1, 1, 1), {1}));
  EXPECT_EQ(result->width(), 2U);
  EXPECT_EQ(result->height(), 2U);
  EXPECT_EQ(result->featureChannels(), 1U);
  EXPECT_EQ(valuesOf(*result), (Values{1, 2, 3, 4}));
}

TEST_F(SubPixelConvolution, TheBlockComesFirstInTheOrderOfChannels) {
  const auto kernel = kernelOf(multiples(8, 2));
  const auto result = encoded(commands(), *kernel, image(sizeOf(2, 1, 1), {1, 10}));
  // rows of pixels (channel 0, channel 1)
  EXPECT_EQ(valuesOf(*result), (Values{1, 2, 3, 4, 10, 20, 30, 40,  //
                                       5, 6, 7, 8, 50, 60, 70, 80}));
}

TEST_F(SubPixelConvolution, BiasAndNeuronComeBeforeTheSpreading) {
  auto descriptor = subPixels(1, 1, 4, 2);
  descriptor.setFusedNeuronDescriptor(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{1, 2, 3, 4}));
  const auto kernel = kernelOf(ArraySource::create(descriptor, {1, 1, 1, 1}, {-2, -3, -4, 5}));
  const auto result = encoded(commands(), *kernel, image(sizeOf(1, 1, 1), {1}));
  EXPECT_EQ(valuesOf(*result), (Values{-1, -4, -9, 6}));
}

TEST_F(SubPixelConvolution, ThePaddingPolicySizesTheConvolution) {
  auto descriptor = subPixels(3, 1, 9, 3);
  descriptor.setStrideInPixelsX(2);
  const auto kernel = kernelOf(ArraySource::create(descriptor, Values(81, 1)));
  const std::shared_ptr<Image> sources[] = {image(sizeOf(7, 5, 1))};
  const ImageDescriptor same = kernel->destinationImageDescriptor(sources);
  EXPECT_EQ(same.width(), 12U);
  EXPECT_EQ(same.height(), 15U);
  EXPECT_EQ(same.featureChannels(), 1U);
  kernel->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  const ImageDescriptor valid = kernel->destinationImageDescriptor(sources);
  EXPECT_EQ(valid.width(), 9U);
  EXPECT_EQ(valid.height(), 9U);
  EXPECT_EQ(kernel->offset(), (Offset{1, 1, 0}));
}

/// dest[clip.x + x][clip.y + y] = Io[floor(x / r)][floor(y / r)]: blocks begin at the clip rectangle's origin, the last
/// ones are cut off, and Io begins at `offset`.
TEST_F(SubPixelConvolution, BlocksBeginAtTheClipRectangle) {
  const auto kernel = kernelOf(multiples(4, 2));
  kernel->setOffset({1, 0, 0});
  kernel->setClipRect({{1, 1, 0}, {3, 1, 1}});
  const auto result = poisoned(sizeOf(5, 3, 1));
  const auto buffer = commands();
  kernel->encode(buffer, image(sizeOf(3, 1, 1), {1, 10, 100}), result);
  run(buffer);
  constexpr float p = poison;
  EXPECT_EQ(valuesOf(*result), (Values{p, p, p, p, p, p, 10, 20, 100, p, p, p, p, p, p}));
}

TEST_F(SubPixelConvolution, WritesAtTheFeatureChannelOffset) {
  const auto kernel = kernelOf(multiples(4, 2));
  kernel->setDestinationFeatureChannelOffset(4);
  const auto result = poisoned(sizeOf(2, 2, 6));
  const auto buffer = commands();
  kernel->encode(buffer, image(sizeOf(1, 1, 1), {1}), result);
  run(buffer);
  Values expected(24, poison);
  for (std::size_t pixel = 0; pixel < 4; ++pixel) expected[6 * pixel + 4] = static_cast<float>(pixel + 1);
  EXPECT_EQ(valuesOf(*result), expected);
  const auto tooFew = poisoned(sizeOf(2, 2, 4));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(commands(), image(sizeOf(1, 1, 1), {1}), tooFew); }),
                    {"destinationImage", "4 feature channels", "at least 5"}));
}

TEST_F(SubPixelConvolution, TheSquareOfTheFactorDividesTheOutputs) {
  EXPECT_TRUE(names(errorOf([&] { kernelOf(multiples(6, 2)); }), {"subPixelScaleFactor", "2", "6 output"}));
  EXPECT_TRUE(names(errorOf([] { subPixels(1, 1, 4, 0); }), {"subPixelScaleFactor", "0"}));
}

TEST_F(SubPixelConvolution, OtherKernelsRefuseIt) {
  const auto source = multiples(4, 2);
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionGradient::create(device_, source); }),
                    {"CNNConvolutionGradient", "sub-pixel", "back-propagation", "not supported"}));
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionTransposeGradient::create(device_, source); }),
                    {"CNNConvolutionTransposeGradient", "sub-pixel"}));
  EXPECT_TRUE(names(errorOf([&] { CNNFullyConnected::create(device_, source); }),
                    {"CNNFullyConnected", "subPixelScaleFactor"}));
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionTranspose::create(device_, source); }),
                    {"CNNConvolutionTranspose", "subPixelScaleFactor"}));
}

TEST_F(SubPixelConvolution, AnotherGradientRefusesItsState) {
  const auto kernel = kernelOf(multiples(4, 2));
  const auto source = image(sizeOf(1, 1, 1), {1});
  const auto buffer = commands();
  std::shared_ptr<State> state;
  const auto result = kernel->encode(buffer, source, state, false);
  const auto gradient = CNNConvolutionGradient::create(
      device_, ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1), {1}));
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(buffer, result, source, state); }),
                    {"gradientState", "sub-pixel", "not supported"}));
}

TEST_F(SubPixelConvolution, IsCoded) {
  const auto source = image(sizeOf(2, 1, 1), {1, 10});
  KeyedArchiver archiver;
  const auto kernel = kernelOf(multiples(8, 2));
  kernel->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const auto decoded = CNNConvolution::decode(unarchiver, device_);
  EXPECT_EQ(decoded->subPixelScaleFactor(), 2U);
  EXPECT_EQ(valuesOf(*encoded(commands(), *decoded, source)),
            valuesOf(*encoded(commands(), *kernel, source)));
}

TEST_F(SubPixelConvolution, CodedFactorsAreChecked) {
  for (const std::size_t factor : {std::size_t{0}, std::size_t{3}}) {
    KeyedArchiver archiver;
    archiver.codeClass("CNNConvolutionDescriptor");
    for (const char* key : {"kernelWidth", "kernelHeight", "inputFeatureChannels", "strideInPixelsX",
                            "strideInPixelsY", "groups", "dilationRateX", "dilationRateY"})
      archiver.encode(key, std::size_t{1});
    archiver.encode("outputFeatureChannels", std::size_t{4});
    archiver.encode("isDepthWise", false);
    archiver.encode("folds", false);
    archiver.encode("subPixelScaleFactor", factor);
    archiver.encode("fusedNeuronDescriptor", NNNeuronDescriptor());
    KeyedUnarchiver unarchiver(archiver.encodedData(), device_);
    EXPECT_TRUE(
        names(errorOf([&] { CNNConvolutionDescriptor::decode(unarchiver); }), {"subPixelScaleFactor"}));
  }
}

TEST(SubPixelConvolutionPlan, AgreesWithTheReferenceOnEveryDevice) {
  for (const auto& device : mtl::copyAllDevices()) {
    detail::ConformOptions options;
    options.device = device;
    options.casesPerRow = 1;  // each once
    options.elementsPerRow = 1;
    detail::Conform conform(options);
    detail::conformSubPixelConvolution(conform);
    EXPECT_EQ(conform.failedCount(), 0) << conformSummary(conform.rows());
    EXPECT_EQ(conform.passedCount(), 8) << conformSummary(conform.rows());
  }
}

TEST(SubPixelConvolutionPlan, HashAndEqualitySeeAllParts) {
  detail::SubPixelConvolutionProblem problem;
  problem.destination = detail::TensorShape::dense(1, 2, 2, 4);
  const auto expectOther = [&](auto change) {
    detail::SubPixelConvolutionProblem other = problem;
    change(other);
    EXPECT_NE(other, problem);
    EXPECT_NE(other.hash(), problem.hash());
  };
  expectOther([](auto& other) { other.destination.width = 3; });
  expectOther([](auto& other) { other.scaleFactor = 3; });
  expectOther([](auto& other) { other.convolution.outputFeatureChannels = 7; });
}

}  // namespace
}  // namespace mps::sub_pixel_convolution_test
