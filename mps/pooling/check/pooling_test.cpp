#include "mps/pooling/pooling.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "mps/core/image/state.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/pooling/pooling_node.hpp"

/// The public classes, against worked examples and docs/decisions.md. The
/// kernels' arithmetic over all shapes is tested with their plans.
namespace mps::pooling_test {
namespace {

using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;

class Pooling : public DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<Image> row(const Values& values) const {
    return image(sizeOf(values.size(), 1, 1), values);
  }

  /// Result of a forward kernel and of its gradient, all pixels of both.
  struct Pass {
    Values result;
    Values gradient;
  };
  Pass pass(CNNPooling& forward, CNNPoolingGradient& gradient, const std::shared_ptr<Image>& source,
            const std::shared_ptr<Image>& sourceGradient) {
    const auto result = poisoned(sizeOf(sourceGradient->width(), sourceGradient->height(), 1));
    gradient.setDestinationImageAllocator(Image::defaultAllocator());
    const auto state = forward.resultState(source);
    const auto commandBuffer = commands();
    forward.encode(commandBuffer, source, state, result);
    const auto destination = gradient.encode(commandBuffer, sourceGradient, source, state);
    run(commandBuffer);
    return {valuesOf(*result), valuesOf(*destination)};
  }
};

// Worked examples
// -----------------------------------------------------------------------------------------------

/// P0: average, windows {1,2} and {3,4} of five pixels.
class PoolingClassesExampleP0 : public Pooling {
 protected:
  std::shared_ptr<Image> source_ = row({1, 2, 3, 4, 5});
  std::shared_ptr<Image> g_ = row({2, 20});
  std::shared_ptr<CNNPoolingAverageGradient> gradient_ =
      CNNPoolingAverageGradient::create(device_, 2, 1, 2, 1);

  Values explicitly(std::size_t clipOrigin, std::size_t clipSize) {
    const auto destination = poisoned(sizeOf(5, 1, 1));
    gradient_->setSecondaryOffset({2, 0, 0});
    gradient_->setClipRect({{clipOrigin, 0, 0}, {clipSize, 1, 1}});
    const auto commandBuffer = commands();
    gradient_->encode(commandBuffer, g_, source_, destination);
    run(commandBuffer);
    return valuesOf(*destination);
  }
};

TEST_F(PoolingClassesExampleP0, ExplicitCallsStartAtTheFirstWindow) {
  EXPECT_EQ(explicitly(0, 5), (Values{1, 1, 10, 10, 0}));
  EXPECT_EQ(explicitly(1, 4), (Values{poison, 1, 1, 10, 10}));
}

TEST_F(PoolingClassesExampleP0, StateDrivenCallsKeepSourceCoordinates) {
  const auto forward = CNNPoolingAverage::create(device_, 2, 1, 2, 1);
  forward->setOffset({2, 0, 0});
  const Pass both = pass(*forward, *gradient_, source_, g_);
  EXPECT_EQ(both.result, (Values{2.5F, 4.5F}));
  EXPECT_EQ(both.gradient, (Values{0, 1, 1, 10, 10}));
}

TEST_F(Pooling, ExampleP1Maximum) {
  const auto source = image(sizeOf(4, 3, 1), {-1, -2, -3, -4, -5, -6, -7, -8, 9, 10, 11, 12});
  const auto g = image(sizeOf(2, 2, 1), {1, 10, 100, 1000});
  const auto forward = CNNPoolingMax::create(device_, 3, 3, 2, 2);
  forward->setOffset({1, 0, 0});
  const Pass zero = pass(*forward, *CNNPoolingMaxGradient::create(device_, 3, 3, 2, 2), source, g);
  EXPECT_EQ(zero.result, (Values{0, 0, 11, 12}));
  EXPECT_EQ(zero.gradient, (Values{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 1000}));
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  const Pass clamp = pass(*forward, *CNNPoolingMaxGradient::create(device_, 3, 3, 2, 2), source, g);
  EXPECT_EQ(clamp.result, (Values{-1, -3, 11, 12}));
  EXPECT_EQ(clamp.gradient, (Values{1, 0, 10, 0, 0, 0, 0, 0, 0, 0, 100, 1000}));
}

TEST_F(Pooling, ThePolicysBitExcludeEdgesLeavesTheDivisorToEdgeModeAndZeroPadSize) {
  const auto kernel = CNNPoolingAverage::create(device_, 3, 1);
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const auto result = [&](NNPaddingMethod method) {
    kernel->setPadding(NNDefaultPadding::padding(method));
    const auto commandBuffer = commands();
    const auto y = kernel->encode(commandBuffer, row({6, 12, 18}));
    run(commandBuffer);
    return valuesOf(*y);
  };
  using enum NNPaddingMethod;
  EXPECT_EQ(result(SizeSame), (Values{6, 12, 10}));
  EXPECT_EQ(result(SizeSame | ExcludeEdges), (Values{6, 12, 10}));
  kernel->setEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(result(SizeSame | ExcludeEdges), (Values{9, 12, 15})) << "nothing beyond the image counts";
  kernel->setZeroPadSizeX(1);
  EXPECT_EQ(result(SizeSame | ExcludeEdges), (Values{6, 12, 10})) << "a padding of one pixel does";
}

TEST_F(Pooling, ExampleP1TieGoesToTheFirstTap) {
  const auto forward = CNNPoolingMax::create(device_, 3, 1);
  forward->setOffset({1, 0, 0});
  const Pass both = pass(*forward, *CNNPoolingMaxGradient::create(device_, 3, 1), row({2, 2, 1}), row({5}));
  EXPECT_EQ(both.result, (Values{2}));
  EXPECT_EQ(both.gradient, (Values{5, 0, 0}));
}

TEST_F(Pooling, ExampleP2Average) {
  const auto source = image(sizeOf(4, 3, 1), testing::counted(12));
  struct Mode {
    ImageEdgeMode edgeMode;
    std::size_t zeroPadX, zeroPadY;
    Values divisors;
  };
  const std::vector<Mode> modes = {{ImageEdgeMode::Clamp, 0, 0, {6, 4, 6, 4}},
                                   {ImageEdgeMode::Zero, 0, 0, {9, 9, 9, 9}},
                                   {ImageEdgeMode::Zero, 1, 1, {9, 9, 9, 9}},
                                   {ImageEdgeMode::Clamp, 1, 1, {9, 9, 9, 9}},
                                   {ImageEdgeMode::Clamp, 1, 0, {6, 6, 6, 6}}};
  constexpr std::array<float, 4> sums{24, 22, 48, 38};
  constexpr std::array<float, 4> quotients{1, 10, 100, 1000};
  for (const Mode& mode : modes) {
    SCOPED_TRACE(std::to_string(mode.zeroPadX) + ", " + std::to_string(mode.zeroPadY));
    const auto forward = CNNPoolingAverage::create(device_, 3, 3, 2, 2);
    forward->setOffset({1, 0, 0});
    forward->setEdgeMode(mode.edgeMode);
    forward->setZeroPadSizeX(mode.zeroPadX);
    forward->setZeroPadSizeY(mode.zeroPadY);
    Values expected, g;
    for (std::size_t i = 0; i < 4; ++i) {
      expected.push_back(sums[i] / mode.divisors[i]);
      g.push_back(quotients[i] * mode.divisors[i]);
    }
    const Pass both = pass(*forward, *CNNPoolingAverageGradient::create(device_, 3, 3, 2, 2), source,
                           image(sizeOf(2, 2, 1), g));
    EXPECT_EQ(both.result, expected);
    EXPECT_EQ(both.gradient, (Values{1, 1, 11, 10, 101, 101, 1111, 1010, 100, 100, 1100, 1000}));
  }
}

/// Both edge modes give the same (docs/decisions.md, D2).
TEST_F(Pooling, ExampleP3L2Norm) {
  const auto source = image(sizeOf(4, 2, 1), {3, 1, -5, 6, 4, 1, 3, 8});
  for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp}) {
    const auto forward = CNNPoolingL2Norm::create(device_, 2, 2, 2, 2);
    forward->setOffset({0, 1, 0});
    forward->setEdgeMode(edgeMode);
    const Pass both =
        pass(*forward, *CNNPoolingL2NormGradient::create(device_, 2, 2, 2, 2), source, row({5, 60, 1000}));
    EXPECT_EQ(both.result, (Values{5, 6, 10}));
    EXPECT_EQ(both.gradient, (Values{3, 10, -50, 600, 4, 10, 30, 800}));
  }
}

TEST_F(Pooling, ExampleP3AWindowOfZerosGivesNoGradient) {
  const auto forward = CNNPoolingL2Norm::create(device_, 2, 1);
  forward->setOffset({1, 0, 0});
  const Pass both = pass(*forward, *CNNPoolingL2NormGradient::create(device_, 2, 1), row({0, 0}), row({7}));
  EXPECT_EQ(both.result, (Values{0}));
  EXPECT_EQ(both.gradient, (Values{0, 0}));
}

TEST_F(Pooling, ExampleP4DilatedMaximum) {
  const auto source = row({4, 1, 7, -3, 9, -2});
  const auto g = row({1, 10, 100});
  const auto forward = CNNDilatedPoolingMax::create(device_, 2, 1, 3, 1, 2, 1);
  forward->setOffset({1, 0, 0});
  const auto gradient = [&] { return CNNDilatedPoolingMaxGradient::create(device_, 2, 1, 3, 1, 2, 1); };
  const Pass zero = pass(*forward, *gradient(), source, g);
  EXPECT_EQ(zero.result, (Values{7, 9, 0}));
  EXPECT_EQ(zero.gradient, (Values{0, 0, 1, 0, 10, 0}));
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  const Pass clamp = pass(*forward, *gradient(), source, g);
  EXPECT_EQ(clamp.result, (Values{7, 9, -2}));
  EXPECT_EQ(clamp.gradient, (Values{0, 0, 1, 0, 10, 100}));
}

// Properties
// ----------------------------------------------------------------------------------------------------

TEST_F(Pooling, DefaultsAreThoseOfTheTables) {
  const auto average = CNNPoolingAverage::create(device_, 3, 2);
  EXPECT_EQ(average->kernelWidth(), 3U);
  EXPECT_EQ(average->kernelHeight(), 2U);
  EXPECT_EQ(average->strideInPixelsX(), 1U);
  EXPECT_EQ(average->strideInPixelsY(), 1U);
  EXPECT_EQ(average->dilationRateX(), 1U);
  EXPECT_EQ(average->edgeMode(), ImageEdgeMode::Zero);
  EXPECT_EQ(average->zeroPadSizeX(), 0U);
  EXPECT_EQ(average->zeroPadSizeY(), 0U);
  const auto dilated = CNNDilatedPoolingMax::create(device_, 2, 3, 4, 5, 6, 7);
  EXPECT_EQ(dilated->dilationRateX(), 4U);
  EXPECT_EQ(dilated->dilationRateY(), 5U);
  EXPECT_EQ(dilated->strideInPixelsX(), 6U);
  EXPECT_EQ(dilated->strideInPixelsY(), 7U);
  const auto gradient = CNNDilatedPoolingMaxGradient::create(device_, 2, 3, 4, 5, 6, 7);
  EXPECT_EQ(gradient->secondaryKernelWidth(), 2U);
  EXPECT_EQ(gradient->secondaryDilationRateX(), 4U);
  EXPECT_EQ(gradient->secondaryDilationRateY(), 5U);
  EXPECT_EQ(gradient->secondaryStrideInPixelsY(), 7U);
  EXPECT_EQ(gradient->secondaryEdgeMode(), ImageEdgeMode::Zero);
  constexpr auto all = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(gradient->sourceSize().width, all);
  EXPECT_EQ(gradient->sourceSize().depth, all);
  const auto averageGradient = CNNPoolingAverageGradient::create(device_, 3, 2);
  EXPECT_EQ(averageGradient->zeroPadSizeX(), 0U);
  EXPECT_EQ(averageGradient->primaryStrideInPixelsX(), 1U);
}

/// Copies are objects of their own (docs/decisions.md, D13).
TEST_F(Pooling, CopiesKeepTheirProperties) {
  const auto average = CNNPoolingAverage::create(device_, 3, 2, 4, 5);
  average->setZeroPadSizeX(6);
  average->setZeroPadSizeY(7);
  const auto copy = average->copy();
  average->setZeroPadSizeX(0);
  EXPECT_EQ(copy->zeroPadSizeX(), 6U);
  EXPECT_EQ(copy->zeroPadSizeY(), 7U);
  EXPECT_EQ(copy->strideInPixelsY(), 5U);
  const auto gradient = CNNPoolingAverageGradient::create(device_, 3, 2, 4, 5);
  gradient->setZeroPadSizeY(8);
  gradient->setSourceSize({1, 2, 3});
  EXPECT_EQ(gradient->copy()->zeroPadSizeY(), 8U);
  EXPECT_EQ(gradient->copy()->sourceSize().height, 2U);
  const auto dilated = CNNDilatedPoolingMax::create(device_, 2, 3, 4, 5, 6, 7)->copy(mtl::newCPUDevice(1));
  EXPECT_EQ(dilated->dilationRateY(), 5U);
  EXPECT_NE(dilated->device(), device_);
  EXPECT_EQ(CNNDilatedPoolingMaxGradient::create(device_, 2, 3, 4, 5, 6, 7)->copy()->secondaryDilationRateX(),
            4U);
  EXPECT_EQ(CNNPoolingMax::create(device_, 2, 3)->copy()->kernelHeight(), 3U);
  EXPECT_EQ(CNNPoolingL2Norm::create(device_, 2, 3)->copy()->kernelHeight(), 3U);
  EXPECT_EQ(CNNPoolingMaxGradient::create(device_, 2, 3)->copy()->secondaryKernelHeight(), 3U);
  EXPECT_EQ(CNNPoolingL2NormGradient::create(device_, 2, 3)->copy()->secondaryKernelHeight(), 3U);
}

TEST_F(Pooling, SizesStridesAndRatesOfZeroAreRefused) {
  using Sizes = std::array<std::size_t, 4>;
  const std::array<std::string, 4> properties{"kernelWidth", "kernelHeight", "strideInPixelsX",
                                              "strideInPixelsY"};
  for (std::size_t i = 0; i < properties.size(); ++i) {
    Sizes s{2, 2, 2, 2};
    s[i] = 0;
    const auto expectRefusal = [&](const std::string& kernel, auto create) {
      EXPECT_TRUE(names(errorOf(create), {kernel + ": " + properties[i] + " is 0, expected at least 1"}));
    };
    expectRefusal("CNNPoolingMax", [&] { CNNPoolingMax::create(device_, s[0], s[1], s[2], s[3]); });
    expectRefusal("CNNPoolingAverage", [&] { CNNPoolingAverage::create(device_, s[0], s[1], s[2], s[3]); });
    expectRefusal("CNNPoolingL2Norm", [&] { CNNPoolingL2Norm::create(device_, s[0], s[1], s[2], s[3]); });
    expectRefusal("CNNDilatedPoolingMax",
                  [&] { CNNDilatedPoolingMax::create(device_, s[0], s[1], 1, 1, s[2], s[3]); });
    expectRefusal("CNNPoolingMaxGradient",
                  [&] { CNNPoolingMaxGradient::create(device_, s[0], s[1], s[2], s[3]); });
    expectRefusal("CNNPoolingAverageGradient",
                  [&] { CNNPoolingAverageGradient::create(device_, s[0], s[1], s[2], s[3]); });
    expectRefusal("CNNPoolingL2NormGradient",
                  [&] { CNNPoolingL2NormGradient::create(device_, s[0], s[1], s[2], s[3]); });
    expectRefusal("CNNDilatedPoolingMaxGradient",
                  [&] { CNNDilatedPoolingMaxGradient::create(device_, s[0], s[1], 1, 1, s[2], s[3]); });
  }
  EXPECT_TRUE(names(errorOf([&] { CNNDilatedPoolingMax::create(device_, 1, 1, 0, 1, 1, 1); }),
                    {"CNNDilatedPoolingMax: dilationRateX is 0"}));
  EXPECT_TRUE(names(errorOf([&] { CNNDilatedPoolingMaxGradient::create(device_, 1, 1, 1, 0, 1, 1); }),
                    {"CNNDilatedPoolingMaxGradient: dilationRateY is 0"}));
  EXPECT_TRUE(names(errorOf([&] { CNNPoolingMax::create(nullptr, 1, 1); }), {"device"}));
}

TEST_F(Pooling, OtherEdgeModesAreRefused) {
  const auto forward = CNNPoolingMax::create(device_, 3, 1);
  const auto source = row({1, 2, 3});
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  forward->encode(commandBuffer, source, state, false);
  for (const ImageEdgeMode edgeMode :
       {ImageEdgeMode::Mirror, ImageEdgeMode::MirrorWithEdge, ImageEdgeMode::Constant}) {
    forward->setEdgeMode(edgeMode);
    EXPECT_TRUE(names(errorOf([&] { forward->encode(commandBuffer, source); }),
                      {"CNNPoolingMax", "edgeMode", "Zero or Clamp"}));
    const auto gradient = CNNPoolingMaxGradient::create(device_, 3, 1);
    gradient->setSecondaryEdgeMode(edgeMode);
    EXPECT_TRUE(names(errorOf([&] {
                        gradient->encode(commandBuffer, source, source, state, row({0, 0, 0}));
                      }),
                      {"CNNPoolingMaxGradient", "secondaryEdgeMode", "Zero or Clamp"}));
  }
}

/// unorm formats are sources only (docs/decisions.md, D16).
TEST_F(Pooling, Formats) {
  const auto bytes = Image::create(device_, ImageDescriptor(Unorm8, 2, 1, 1));
  const std::array<std::uint8_t, 2> codes{51, 255};
  bytes->writeBytes(std::span<const std::uint8_t>(codes), testing::pixelsFirst);
  const auto maximum = CNNPoolingMax::create(device_, 2, 1, 2, 1);
  maximum->setOffset({1, 0, 0});
  const auto result = poisoned(ImageDescriptor(Float16, 1, 1, 1));
  const auto commandBuffer = commands();
  maximum->encode(commandBuffer, bytes, result);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{1}));
  EXPECT_NE(errorOf([&] { maximum->encode(commands(), result, bytes); }), "");
}

// Padding policies and offsets
// ----------------------------------------------------------------------------------

TEST_F(Pooling, PaddingPoliciesSizeTheDestinationAndSetTheOffset) {
  // source, kernel, stride, policy -> size, offset
  struct Row {
    std::size_t size, kernel, stride;
    NNPaddingMethod method;
    std::size_t expectedSize;
    std::int64_t expectedOffset;
  };
  using enum NNPaddingMethod;
  const std::vector<Row> rows = {{4, 2, 2, SizeSame, 2, 1},
                                 {5, 2, 2, SizeSame, 3, 0},
                                 {5, 2, 2, SizeSame | AddRemainderToBottomRight, 3, 1},
                                 {8, 3, 2, SizeSame, 4, 0},
                                 {8, 3, 2, SizeSame | AddRemainderToBottomRight, 4, 1},
                                 {6, 4, 1, SizeSame | AddRemainderToBottomRight, 6, 1},
                                 {28, 5, 1, SizeValidOnly, 24, 2},
                                 {8, 3, 3, SizeValidOnly | AddRemainderToBottomRight, 2, 2},
                                 {5, 3, 1, SizeFull, 7, -1}};
  for (const Row& expected : rows) {
    const auto maximum = CNNPoolingMax::create(device_, expected.kernel, 1, expected.stride, 1);
    maximum->setPadding(NNDefaultPadding::padding(expected.method));
    const ImageDescriptor result = maximum->sizeDestination(sizeOf(expected.size, 1, 1));
    SCOPED_TRACE(std::to_string(expected.size) + ", " + std::to_string(expected.kernel));
    EXPECT_EQ(result.width(), expected.expectedSize);
    EXPECT_EQ(maximum->offset().x, expected.expectedOffset);
  }
}

TEST_F(Pooling, TensorflowPoliciesAverageOverPixelsInsideOnly) {
  const auto source = row({1, 2, 3, 4, 6});
  const auto same = permanent(CNNPoolingAverage::create(device_, 2, 1, 2, 1));
  same->setPadding(NNDefaultPadding::paddingForTensorflowAveragePooling());
  const auto valid = permanent(CNNPoolingAverage::create(device_, 2, 1, 2, 1));
  valid->setPadding(NNDefaultPadding::paddingForTensorflowAveragePoolingValidOnly());
  const auto commandBuffer = commands();
  const auto ofSame = same->encode(commandBuffer, source);
  const auto ofValid = valid->encode(commandBuffer, source);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*ofSame), (Values{1.5F, 3.5F, 6}));
  EXPECT_EQ(valuesOf(*ofValid), (Values{1.5F, 3.5F}));
  EXPECT_EQ(same->edgeMode(), ImageEdgeMode::Clamp);
}

TEST_F(Pooling, OffsetsMoveTheWindowsAndClipRectanglesLeaveTheRest) {
  const auto source = row({1, 2, 3, 4, 5});
  const auto result = poisoned(sizeOf(4, 1, 1));
  const auto maximum = CNNPoolingMax::create(device_, 2, 1, 2, 1);
  maximum->setOffset({-1, 0, 0});
  maximum->setClipRect({{1, 0, 0}, {2, 1, 1}});
  const auto commandBuffer = commands();
  maximum->encode(commandBuffer, source, result);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 0, 2, poison}));
}

/// The gradient of a clipped call takes gradient pixels from the clip rectangle on.
TEST_F(Pooling, GradientOfAClippedCall) {
  const auto source = row({1, 2, 3, 4, 5, 6});
  const auto result = poisoned(sizeOf(4, 1, 1));
  const auto maximum = CNNPoolingMax::create(device_, 2, 1, 2, 1);
  maximum->setOffset({1, 0, 0});
  maximum->setClipRect({{1, 0, 0}, {2, 1, 1}});
  const auto gradient = permanent(CNNPoolingMaxGradient::create(device_, 2, 1, 2, 1));
  const auto state = maximum->resultState(source);
  const auto commandBuffer = commands();
  maximum->encode(commandBuffer, source, state, result);
  const auto ofWhole = gradient->copy()->encode(commandBuffer, row({7, 1, 10, 7}), source, state);
  const auto ofClip = gradient->copy()->encode(commandBuffer, row({1, 10}), source, state);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 2, 4, poison}));
  EXPECT_EQ(valuesOf(*ofWhole), (Values{0, 1, 0, 10, 0, 0}));
  EXPECT_EQ(valuesOf(*ofClip), (Values{0, 1, 0, 10, 0, 0}));
}

TEST_F(Pooling, SourceSizeLimitsTheGradientPixelsThatCount) {
  const auto gradient = CNNPoolingAverageGradient::create(device_, 1, 1, 2, 1);
  gradient->setSourceSize({2, 1, 1});
  gradient->setPrimaryOffset({1, 0, 0});
  const auto destination = poisoned(sizeOf(5, 1, 1));
  const auto commandBuffer = commands();
  gradient->encode(commandBuffer, row({1, 10, 100, 1000}), row({0, 0, 0, 0, 0}), destination);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{10, 0, 100, 0, 0}));
}

// Decisions
// -----------------------------------------------------------------------------------------------------

/// Windows of three pixels, two apart; in one image the pooled batch of the decisions below.
class PoolingDecision : public Pooling {
 protected:
  std::shared_ptr<Image> source_ = row({5, 1, 4, 2, 3});
  std::shared_ptr<Image> g_ = row({1, 10});
  std::shared_ptr<CNNPoolingMax> maximum_ = permanent(CNNPoolingMax::create(device_, 3, 1, 2, 1));
  std::shared_ptr<CNNPoolingMaxGradient> gradient_ =
      permanent(CNNPoolingMaxGradient::create(device_, 3, 1, 2, 1));

  void SetUp() override { maximum_->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly)); }
};

TEST_F(PoolingDecision, D7GeometryThatIsNotSetComesFromTheState) {
  const auto average = CNNPoolingAverage::create(device_, 3, 1, 2, 1);
  average->setEdgeMode(ImageEdgeMode::Clamp);
  average->setOffset({0, 0, 0});
  average->setZeroPadSizeX(1);
  const auto result = poisoned(sizeOf(3, 1, 1));
  const auto state = average->resultState(source_);
  const auto g = row({6, 60, 600});
  const auto commandBuffer = commands();
  average->encode(commandBuffer, source_, state, result);
  const auto encoded = [&](auto set) {
    const auto gradient = CNNPoolingAverageGradient::create(device_, 3, 1, 2, 1);
    auto destination = poisoned(sizeOf(5, 1, 1));
    set(*gradient);
    gradient->encode(commandBuffer, g, source_, state, destination);
    return destination;
  };
  const auto taken = encoded([](auto&) {});
  const auto zeroPad = encoded([](auto& gradient) { gradient.setZeroPadSizeX(0); });
  const auto offset = encoded([](auto& gradient) { gradient.setSecondaryOffset({1, 0, 0}); });
  const auto edgeMode = encoded([](auto& gradient) { gradient.setSecondaryEdgeMode(ImageEdgeMode::Zero); });
  const auto counted = encoded([](auto& gradient) { gradient.setSourceSize({1, 1, 1}); });
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*taken), (Values{2, 22, 20, 220, 200}));
  EXPECT_EQ(valuesOf(*zeroPad), (Values{3, 23, 20, 320, 300})) << "0 is the default, but it was set";
  EXPECT_EQ(valuesOf(*offset), (Values{2, 2, 22, 20, 320})) << "the last window has two taps in the band";
  EXPECT_EQ(valuesOf(*edgeMode), (Values{2, 22, 20, 220, 200}));
  EXPECT_EQ(valuesOf(*counted), (Values{2, 2, 0, 0, 0}));
}

TEST_F(PoolingDecision, D8KernelOffsetMovesTheWindows) {
  // The gradient with zeros between its pixels is 1 0 10 0 100.
  const auto source = row({1, 1, 1, 1, 1});
  const auto encoded = [&](std::int64_t kernelOffset, std::int64_t primaryOffset) {
    const auto gradient = CNNPoolingMaxGradient::create(device_, 1, 1, 2, 1);
    gradient->setKernelOffsetX(kernelOffset);
    gradient->setPrimaryOffset({primaryOffset, 0, 0});
    const auto destination = poisoned(sizeOf(5, 1, 1));
    const auto commandBuffer = commands();
    std::shared_ptr<State> state;
    CNNPoolingMax::create(device_, 1, 1, 2, 1)->encode(commandBuffer, source, state, false);
    gradient->encode(commandBuffer, row({1, 10, 100}), source, state, destination);
    run(commandBuffer);
    return valuesOf(*destination);
  };
  EXPECT_EQ(encoded(0, 0), (Values{1, 0, 10, 0, 100}));
  EXPECT_EQ(encoded(1, 0), (Values{0, 10, 0, 100, 0}));
  EXPECT_EQ(encoded(-1, 0), (Values{0, 1, 0, 10, 0}));
  EXPECT_EQ(encoded(-1, 1), (Values{0, 10, 0, 100, 0}));
}

TEST_F(PoolingDecision, D9TheStateKeepsWhatTheForwardKernelHad) {
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  const auto result = maximum_->encode(commandBuffer, source_, state, false);
  maximum_->setOffset({0, 0, 0});
  maximum_->setEdgeMode(ImageEdgeMode::Clamp);
  const auto destination = gradient_->encode(commandBuffer, g_, source_, state);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{5, 4}));
  EXPECT_EQ(valuesOf(*destination), (Values{1, 0, 10, 0, 0}));
}

TEST_F(PoolingDecision, D9TheCombinedEncodeIsTheSeparateSteps) {
  const auto commandBuffer = commands();
  std::shared_ptr<State> combinedState;
  const auto combined = maximum_->encode(commandBuffer, source_, combinedState, false);
  const auto combinedGradient = gradient_->encode(commandBuffer, g_, source_, combinedState);

  const auto forward = CNNPoolingMax::create(device_, 3, 1, 2, 1);
  forward->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  const auto gradient = CNNPoolingMaxGradient::create(device_, 3, 1, 2, 1);
  const std::array<std::shared_ptr<Image>, 1> sources{source_};
  const auto result = poisoned(forward->destinationImageDescriptor(sources));
  const auto state = forward->resultState(source_, {}, result);
  forward->encode(commandBuffer, source_, state, result);
  const std::array<std::shared_ptr<Image>, 2> images{g_, source_};
  const std::array<std::shared_ptr<State>, 1> states{state};
  const auto destination = poisoned(gradient->destinationImageDescriptor(images, states));
  EXPECT_EQ(gradient->secondaryOffset(), (Offset{1, 0, 0}));
  EXPECT_EQ(gradient->sourceSize().width, 2U);
  gradient->encode(commandBuffer, g_, source_, state, destination);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), valuesOf(*combined));
  EXPECT_EQ(valuesOf(*destination), valuesOf(*combinedGradient));
}

TEST_F(PoolingDecision, D10OnlyTheSizeOfTheAveragedImageCounts) {
  const auto average = CNNPoolingAverage::create(device_, 3, 1, 2, 1);
  average->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  const auto gradient = permanent(CNNPoolingAverageGradient::create(device_, 3, 1, 2, 1));
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  average->encode(commandBuffer, source_, state, false);
  const auto g = row({3, 30});
  const auto unwritten = TemporaryImage::create(commandBuffer, sizeOf(5, 1, 1));
  const auto destination = gradient->encode(commandBuffer, g, unwritten, state);
  EXPECT_EQ(unwritten->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(commandBuffer, g, row({1, 2, 3, 4}), state);
                    }),
                    {"CNNPoolingAverageGradient", "sourceImage", "4x1", "5x1"}));
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{1, 1, 11, 10, 10}));
  const auto traitsOf = [](const detail::ImageKernel& kernel) { return kernel.derivativeTraits(); };
  EXPECT_FALSE(traitsOf(*gradient).readsWithoutSavedFields);
  EXPECT_TRUE(traitsOf(*CNNPoolingL2NormGradient::create(device_, 3, 1)).readsBesideSavedFields);
  EXPECT_FALSE(traitsOf(*gradient_).readsBesideSavedFields);
  EXPECT_TRUE(traitsOf(*gradient_).readsWithoutSavedFields);
}

TEST_F(PoolingDecision, D11AnotherImageIsComputedWithAndTheResultIsRefused) {
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  maximum_->encode(commandBuffer, source_, state, false);
  const auto other = row({0, 2, 0, 0, 3});
  const auto ofOwn = gradient_->encode(commandBuffer, g_, source_, state);
  const auto ofOther = gradient_->encode(commandBuffer, g_, other, state);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*ofOwn), (Values{1, 0, 10, 0, 0}));
  EXPECT_EQ(valuesOf(*ofOther), (Values{0, 1, 0, 0, 10}));

  const auto same = permanent(CNNPoolingMax::create(device_, 3, 1));
  const auto second = commands();
  const auto result = same->encode(second, source_, state, false);
  EXPECT_TRUE(names(
      errorOf([&] { CNNPoolingMaxGradient::create(device_, 3, 1)->encode(second, other, result, state); }),
      {"CNNPoolingMaxGradient", "sourceImage", "the forward result"}));
}

/// Indices of maxima are no resources of the state; they serve each part of the batch that they were made
/// from.
TEST_F(PoolingDecision, D14SavedPlacesAreNoResources) {
  const auto commandBuffer = commands();
  const auto sources = batch(sizeOf(5, 1, 1), 3, {5, 1, 4, 2, 3, 1, 5, 2, 3, 4, 2, 1, 5, 4, 3});
  StateBatch states;
  const ImageBatch results = maximum_->encodeBatch(commandBuffer, sources, states, true);
  ASSERT_EQ(states.count(), 3U);
  for (const auto& state : {states[0], states[1], states[2]}) {
    EXPECT_EQ(state->resourceCount(), 0U);
    EXPECT_FALSE(state->isTemporary());
    EXPECT_EQ(state->readCount(), 0U);
  }
  const auto gradients = batch(sizeOf(2, 1, 1), 3, {1, 10, 2, 20, 3, 30});
  const auto whole = gradient_->encodeBatch(commandBuffer, gradients, sources, states);
  const auto last = gradient_->encode(commandBuffer, gradients[2], sources[2], states[2]);
  run(commandBuffer);
  Values values(15);
  whole.readBytes(std::span(values), testing::pixelsFirst);
  EXPECT_EQ(values, (Values{1, 0, 10, 0, 0, 0, 2, 0, 0, 20, 0, 0, 33, 0, 0}));
  EXPECT_EQ(valuesOf(*last), (Values{0, 0, 33, 0, 0}));
}

TEST_F(PoolingDecision, StatesOfOtherKernelsAreRefused) {
  const auto commandBuffer = commands();
  std::shared_ptr<State> ofMaximum, ofAverage, ofDilated;
  maximum_->encode(commandBuffer, source_, ofMaximum, false);
  CNNPoolingAverage::create(device_, 3, 1, 2, 1)->encode(commandBuffer, source_, ofAverage, false);
  const auto dilated = CNNDilatedPoolingMax::create(device_, 3, 1, 1, 1, 2, 1);
  dilated->setPadding(maximum_->padding());
  dilated->encode(commandBuffer, source_, ofDilated, false);
  const auto expectRefusal = [&](const std::shared_ptr<CNNPoolingGradient>& gradient,
                                 const std::shared_ptr<State>& state, const std::vector<std::string>& words) {
    EXPECT_TRUE(names(errorOf([&] { gradient->encode(commandBuffer, g_, source_, state); }), words));
  };
  expectRefusal(gradient_, ofAverage, {"CNNPoolingMaxGradient", "gradientState", "CNNPoolingAverage"});
  expectRefusal(gradient_, ofDilated, {"CNNPoolingMaxGradient", "gradientState", "CNNDilatedPoolingMax"});
  expectRefusal(CNNPoolingAverageGradient::create(device_, 3, 1, 2, 1), ofMaximum,
                {"CNNPoolingAverageGradient", "gradientState", "CNNPoolingMax"});
  expectRefusal(CNNPoolingL2NormGradient::create(device_, 3, 1, 2, 1), ofMaximum,
                {"CNNPoolingL2NormGradient", "gradientState", "CNNPoolingMax"});
  expectRefusal(CNNDilatedPoolingMaxGradient::create(device_, 3, 1, 1, 1, 2, 1), ofMaximum,
                {"CNNDilatedPoolingMaxGradient", "gradientState", "CNNPoolingMax"});
  expectRefusal(gradient_, nullptr, {"CNNPoolingMaxGradient", "gradientState", "null"});
  expectRefusal(CNNPoolingMaxGradient::create(device_, 2, 1, 2, 1), ofMaximum, {"kernelWidth is 2", "3"});
  expectRefusal(CNNPoolingMaxGradient::create(device_, 3, 2, 2, 1), ofMaximum, {"kernelHeight is 2", "1"});
  expectRefusal(CNNPoolingMaxGradient::create(device_, 3, 1, 3, 1), ofMaximum, {"strideInPixelsX is 3", "2"});
  expectRefusal(CNNPoolingMaxGradient::create(device_, 3, 1, 2, 2), ofMaximum, {"strideInPixelsY is 2", "1"});
  expectRefusal(CNNDilatedPoolingMaxGradient::create(device_, 3, 1, 2, 1, 2, 1), ofDilated,
                {"dilationRateX is 2", "1"});
  expectRefusal(CNNDilatedPoolingMaxGradient::create(device_, 3, 1, 1, 2, 2, 1), ofDilated,
                {"dilationRateY is 2", "1"});
}

// Nodes
// ---------------------------------------------------------------------------------------------------------

template <class Kernel>
std::shared_ptr<Kernel> kernelOf(const NNFilterNode& node, const std::shared_ptr<mtl::Device>& device) {
  return std::dynamic_pointer_cast<Kernel>(node.makeKernel(device));
}

/// Nodes clamp, kernels do not.
TEST_F(Pooling, NodesMakeClampedKernels) {
  const auto source = NNImageNode::create();
  const auto expectKernel = [&](const std::shared_ptr<CNNPoolingNode>& node, const std::string& kernelClass,
                                const std::array<std::size_t, 6>& sizes) {
    const auto kernel = kernelOf<CNNPooling>(*node, device_);
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->className(), kernelClass);
    EXPECT_EQ(kernel->edgeMode(), ImageEdgeMode::Clamp);
    EXPECT_EQ((std::array{kernel->kernelWidth(), kernel->kernelHeight(), kernel->strideInPixelsX(),
                          kernel->strideInPixelsY(), kernel->dilationRateX(), kernel->dilationRateY()}),
              sizes);
    const auto gradients = node->gradientFilters(NNImageNode::create());
    ASSERT_EQ(gradients.size(), 1U);
    const auto gradient = kernelOf<CNNPoolingGradient>(*gradients[0], device_);
    ASSERT_TRUE(gradient);
    EXPECT_EQ(gradient->className(), kernelClass + "Gradient");
    EXPECT_EQ((std::array{gradient->secondaryKernelWidth(), gradient->secondaryKernelHeight(),
                          gradient->secondaryStrideInPixelsX(), gradient->secondaryStrideInPixelsY(),
                          gradient->secondaryDilationRateX(), gradient->secondaryDilationRateY()}),
              sizes);
  };
  expectKernel(CNNPoolingMaxNode::create(source, 3), "CNNPoolingMax", {3, 3, 3, 3, 1, 1});
  expectKernel(CNNPoolingMaxNode::create(source, 3, 2), "CNNPoolingMax", {3, 3, 2, 2, 1, 1});
  expectKernel(CNNPoolingMaxNode::create(source, 2, 3, 4, 5), "CNNPoolingMax", {2, 3, 4, 5, 1, 1});
  expectKernel(CNNPoolingAverageNode::create(source, 3), "CNNPoolingAverage", {3, 3, 3, 3, 1, 1});
  expectKernel(CNNPoolingAverageNode::create(source, 2, 3, 4, 5), "CNNPoolingAverage", {2, 3, 4, 5, 1, 1});
  expectKernel(CNNPoolingL2NormNode::create(source, 3, 2), "CNNPoolingL2Norm", {3, 3, 2, 2, 1, 1});
  expectKernel(CNNPoolingL2NormNode::create(source, 2, 3, 4, 5), "CNNPoolingL2Norm", {2, 3, 4, 5, 1, 1});
  expectKernel(CNNDilatedPoolingMaxNode::create(source, 3), "CNNDilatedPoolingMax", {3, 3, 3, 3, 3, 3});
  expectKernel(CNNDilatedPoolingMaxNode::create(source, 3, 2, 4), "CNNDilatedPoolingMax", {3, 3, 2, 2, 4, 4});
  expectKernel(CNNDilatedPoolingMaxNode::create(source, 2, 3, 4, 5, 6, 7), "CNNDilatedPoolingMax",
               {2, 3, 4, 5, 6, 7});
}

/// A gradient node has the sizes that it is made with, and so has its kernel.
template <class Node>
void expectGradientNode(const std::string& name, const std::shared_ptr<mtl::Device>& device) {
  const auto gradient = NNImageNode::create(), source = NNImageNode::create();
  const auto forward = CNNPoolingMaxNode::create(source, 2);
  const auto policy = NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly);
  const std::shared_ptr<CNNPoolingGradientNode> node =
      Node::create(gradient, source, forward->resultState(), 2, 3, 4, 5, policy);
  EXPECT_EQ(node->className(), name);
  EXPECT_EQ(node->sourceGradient(), gradient);
  EXPECT_EQ(node->sourceImage(), source);
  EXPECT_EQ(node->gradientState(), forward->resultState());
  EXPECT_EQ(node->paddingPolicy(), policy);
  EXPECT_EQ((std::array{node->kernelWidth(), node->kernelHeight(), node->strideInPixelsX(),
                        node->strideInPixelsY()}),
            (std::array<std::size_t, 4>{2, 3, 4, 5}));
  const auto kernel = kernelOf<CNNPoolingGradient>(*node, device);
  ASSERT_TRUE(kernel) << name;
  EXPECT_EQ(kernel->className() + "Node", name);
  EXPECT_EQ((std::array{kernel->secondaryKernelWidth(), kernel->secondaryKernelHeight(),
                        kernel->secondaryStrideInPixelsX(), kernel->secondaryStrideInPixelsY()}),
            (std::array<std::size_t, 4>{2, 3, 4, 5}));
}

TEST_F(Pooling, GradientNodesByHand) {
  expectGradientNode<CNNPoolingMaxGradientNode>("CNNPoolingMaxGradientNode", device_);
  expectGradientNode<CNNPoolingAverageGradientNode>("CNNPoolingAverageGradientNode", device_);
  expectGradientNode<CNNPoolingL2NormGradientNode>("CNNPoolingL2NormGradientNode", device_);
}

}  // namespace
}  // namespace mps::pooling_test
