#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "mps/core/testing/test_images.hpp"
#include "mps/pooling/pooling.hpp"

/// Decisions about pooling that no kernel before the gradient shows, what a graph asks of it, and what lies
/// outside of images and of 32 bits.
namespace mps::pooling_decisions_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class PoolingDecisions : public testing::DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<Image> row(const Values& values) const {
    return image(sizeOf(values.size(), 1, 1), values);
  }
};

/// Windows of three around each of {3, 4}: repeated edges would give sqrt(34) and sqrt(41) and a gradient of
/// their own.
TEST_F(PoolingDecisions, D2L2NormWithClampAddsNothingFromOutside) {
  const auto source = image(sizeOf(2, 1, 1), {3, 4});
  const auto g = image(sizeOf(2, 1, 1), {5, 10});
  for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Clamp, ImageEdgeMode::Zero}) {
    const auto norm = permanent(CNNPoolingL2Norm::create(device_, 3, 1));
    norm->setEdgeMode(edgeMode);
    const auto gradient = permanent(CNNPoolingL2NormGradient::create(device_, 3, 1, 1, 1));
    const auto buffer = commands();
    std::shared_ptr<State> state;
    const auto result = norm->encode(buffer, source, state, false);
    const auto dx = gradient->encode(buffer, g, source, state);
    run(buffer);
    EXPECT_EQ(valuesOf(*result), (Values{5, 5}));
    EXPECT_EQ(valuesOf(*dx), (Values{3 * (5 + 10) / 5.0F, 4 * (5 + 10) / 5.0F}));
  }
}

TEST_F(PoolingDecisions, D16TheGradientTakesStacksAndOffsetZ) {
  // Four pairs; of the incoming gradients images 1 and 2 belong to the sources 2 and 3.
  const auto source = image(sizeOf(2, 1, 1, 4), {1, 2, 4, 3, 5, 6, 8, 7});
  const auto g = image(sizeOf(1, 1, 1, 3), {10, 20, 30});
  const auto dx = poisoned(sizeOf(2, 1, 1, 4));
  const auto gradient = CNNPoolingMaxGradient::create(device_, 2, 1, 2, 1);
  gradient->setPrimaryOffset({0, 0, 1});
  gradient->setSecondaryOffset({1, 0, 2});
  gradient->setClipRect({{0, 0, 1}, {2, 1, 2}});
  const auto buffer = commands();
  gradient->encode(buffer, g, source, dx);
  run(buffer);
  EXPECT_EQ(valuesOf(*dx), (Values{poison, poison, 0, 20, 30, 0, poison, poison}));
}

/// Windows of two: in the first the ReLU let something through, in the second nothing; in the others a zero of
/// one that was 0 meets one that was cut off, and the earlier is the maximum.
TEST_F(PoolingDecisions, AfterAReLUTheGradientIncludesItsDerivative) {
  const Values y{-0.0F, 3, -0.0F, -0.0F, -0.0F, 0, 0, -0.0F};
  const auto source = image(sizeOf(8, 1, 1), y);
  const auto sameValues = image(sizeOf(8, 1, 1), y);
  const auto g = image(sizeOf(4, 1, 1), {1, 2, 3, 4});
  for (const bool afterReLU : {false, true}) {
    const auto maximum = permanent(CNNPoolingMax::create(device_, 2, 1, 2, 1));
    maximum->setOffset({1, 0, 0});
    static_cast<detail::ReLUGradientFusion&>(*maximum).setAfterReLU(afterReLU);
    const auto gradient = permanent(CNNPoolingMaxGradient::create(device_, 2, 1, 2, 1));
    const auto buffer = commands();
    std::shared_ptr<State> state;
    const auto result = maximum->encode(buffer, source, state, false);
    const auto fromPlaces = gradient->encode(buffer, g, source, state);
    const auto fromSource = gradient->encode(buffer, g, sameValues, state);
    run(buffer);
    const Values expected = afterReLU ? Values{0, 1, 0, 0, 0, 0, 4, 0} : Values{0, 1, 2, 0, 3, 0, 4, 0};
    EXPECT_EQ(valuesOf(*result), (Values{3, 0, 0, 0}));
    EXPECT_EQ(valuesOf(*fromPlaces), expected);
    EXPECT_EQ(valuesOf(*fromSource), expected);
  }
}

TEST_F(PoolingDecisions, GradientsOfOtherNumbersOfChannelsAreRefused) {
  const auto source = image(sizeOf(1, 1, 8), Values(8, 1)),
             destination = image(sizeOf(1, 1, 8), Values(8, 0));
  const auto narrow = image(sizeOf(1, 1, 4), Values(4, 1));
  const auto refuses = [&](CNNPoolingGradient& gradient) {
    EXPECT_TRUE(names(errorOf([&] { gradient.encode(commands(), narrow, source, destination); }),
                      {gradient.className(), "4, 8 and 8 feature channels"}));
  };
  refuses(*CNNPoolingMaxGradient::create(device_, 1, 1));
  refuses(*CNNPoolingAverageGradient::create(device_, 1, 1));
  refuses(*CNNPoolingL2NormGradient::create(device_, 1, 1));
  refuses(*CNNDilatedPoolingMaxGradient::create(device_, 1, 1, 1, 1, 1, 1));
}

/// Window x has gradient pixel primaryOffset + x, and there is none before pixel 0.
TEST_F(PoolingDecisions, NoGradientLiesBeforeTheGradientImage) {
  const auto gradient = CNNPoolingAverageGradient::create(device_, 2, 1, 2, 1);
  gradient->setPrimaryOffset({-1, 0, 0});
  gradient->setSecondaryOffset({1, 0, 0});
  const auto destination = poisoned(sizeOf(6, 1, 1));
  const auto commandBuffer = commands();
  gradient->encode(commandBuffer, row({2, 20, 200}), row(Values(6, 1)), destination);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{0, 0, 1, 1, 10, 10}));
  gradient->setSourceSize({1, 1, 1});
  const auto none = poisoned(sizeOf(6, 1, 1));
  const auto again = commands();
  gradient->encode(again, row({2, 20, 200}), row(Values(6, 1)), none);
  run(again);
  EXPECT_EQ(valuesOf(*none), Values(6, 0)) << "the only window that counts has no gradient";
}

TEST_F(PoolingDecisions, SizesBeyond31BitsAreRefused) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_TRUE(names(errorOf([&] { CNNPoolingMax::create(device_, most, 1); }),
                    {"CNNPoolingMax: kernelWidth is", "at most 2147483647"}));
  EXPECT_TRUE(names(errorOf([&] { CNNPoolingAverageGradient::create(device_, 1, 1, 1, most); }),
                    {"CNNPoolingAverageGradient: strideInPixelsY is"}));
  EXPECT_TRUE(names(errorOf([&] { CNNDilatedPoolingMax::create(device_, 1, 1, most, 1, 1, 1); }),
                    {"CNNDilatedPoolingMax: dilationRateX is"}));
  const auto average = CNNPoolingAverage::create(device_, 1, 1);
  average->setZeroPadSizeX(most);
  EXPECT_TRUE(names(errorOf([&] { average->encode(commands(), row({1}), row({0})); }),
                    {"CNNPoolingAverage: zeroPadSizeX is"}));
  const auto gradient = CNNPoolingAverageGradient::create(device_, 1, 1);
  gradient->setZeroPadSizeY(most);
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(commands(), row({1}), row({1}), row({0})); }),
                    {"CNNPoolingAverageGradient: zeroPadSizeY is"}));
}

}  // namespace
}  // namespace mps::pooling_decisions_test
