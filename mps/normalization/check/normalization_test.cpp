#include "mps/normalization/normalization.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/normalization/normalization_node.hpp"

/// The public classes, against examples computed by hand. Tests of plans have the arithmetic of all shapes.
namespace mps::normalization_test {
namespace {

using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;

void expectFloats(const Values& found, const Values& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], detail::printedTolerance(7)) << "element " << i;
}

class Normalization : public DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<Image> row(const Values& values) const {
    return image(sizeOf(values.size(), 1, 1), values);
  }
  [[nodiscard]] std::shared_ptr<Image> pixel(const Values& values) const {
    return image(sizeOf(1, 1, values.size()), values);
  }
  [[nodiscard]] std::shared_ptr<CNNSpatialNormalization> spatial(std::size_t width,
                                                                 std::size_t height) const {
    return permanent(CNNSpatialNormalization::create(device_, width, height));
  }
  [[nodiscard]] std::shared_ptr<CNNSpatialNormalizationGradient> spatialGradient(std::size_t width,
                                                                                 std::size_t height) const {
    return permanent(CNNSpatialNormalizationGradient::create(device_, width, height));
  }
  [[nodiscard]] std::shared_ptr<CNNLocalContrastNormalization> contrast(std::size_t width,
                                                                        std::size_t height) const {
    return permanent(CNNLocalContrastNormalization::create(device_, width, height));
  }
  [[nodiscard]] std::shared_ptr<CNNLocalContrastNormalizationGradient> contrastGradient(
      std::size_t width, std::size_t height) const {
    return permanent(CNNLocalContrastNormalizationGradient::create(device_, width, height));
  }
  [[nodiscard]] std::shared_ptr<CNNCrossChannelNormalization> channels(std::size_t kernelSize) const {
    return permanent(CNNCrossChannelNormalization::create(device_, kernelSize));
  }
  [[nodiscard]] std::shared_ptr<CNNCrossChannelNormalizationGradient> channelsGradient(
      std::size_t kernelSize) const {
    return permanent(CNNCrossChannelNormalizationGradient::create(device_, kernelSize));
  }
  /// The value times the sum of the squares of its window, itself, the one to the left and the one to the right:
  /// whole numbers stay whole.
  [[nodiscard]] std::shared_ptr<CNNSpatialNormalization> timesSquares() const {
    return set(spatial(3, 1), 3, -1, 0);
  }
  template <class Kernel>
  static std::shared_ptr<Kernel> set(std::shared_ptr<Kernel> kernel, float alpha, float beta, float delta) {
    kernel->setAlpha(alpha);
    kernel->setBeta(beta);
    kernel->setDelta(delta);
    return kernel;
  }

  /// Result and gradient of the encodes that return images.
  struct Pass {
    Values result;
    Values gradient;
  };
  Pass pass(CNNNormalization& forward, CNNNormalizationGradient& gradient,
            const std::shared_ptr<Image>& source, const std::shared_ptr<Image>& sourceGradient) {
    const auto commandBuffer = commands();
    std::shared_ptr<State> state;
    const auto result = forward.encode(commandBuffer, source, state, false);
    const auto destination = gradient.encode(commandBuffer, sourceGradient, source, state);
    run(commandBuffer);
    EXPECT_EQ(result->width(), source->width());
    EXPECT_EQ(result->height(), source->height());
    EXPECT_EQ(destination->width(), source->width());
    EXPECT_EQ(destination->featureChannels(), source->featureChannels());
    return {valuesOf(*result), valuesOf(*destination)};
  }
};

// Worked examples

/// Computed by hand.
TEST_F(Normalization, ExampleSpatial) {
  const auto forward = set(spatial(3, 3), 9, 1, 1);
  const Pass one = pass(*forward, *spatialGradient(3, 3), row({1, 2, 3}), row({1, 0, 0}));
  expectFloats(one.result, {1.0F / 6, 2.0F / 15, 3.0F / 14});
  expectFloats(one.gradient, {1.0F / 9, -1.0F / 9, 0});
  const Pass all = pass(*forward, *spatialGradient(3, 3), row({1, 2, 3}), row({1, 1, 1}));
  expectFloats(all.gradient, {7.0F / 75, -173.0F / 1225, -271.0F / 3675});
}

/// Computed by hand.
TEST_F(Normalization, ExampleCrossChannel) {
  const auto forward = set(channels(2), 2, 1, 1);
  const Pass one = pass(*forward, *channelsGradient(2), pixel({1, 2, 3}), pixel({0, 1, 0}));
  expectFloats(one.result, {1.0F / 2, 1.0F / 3, 3.0F / 14});
  expectFloats(one.gradient, {-1.0F / 9, -1.0F / 18, 0});
  const Pass all = pass(*forward, *channelsGradient(2), pixel({1, 2, 3}), pixel({1, 1, 1}));
  expectFloats(all.gradient, {-1.0F / 9, -103.0F / 882, -1.0F / 49});
}

/// Computed by hand.
TEST_F(Normalization, ExampleLocalContrast) {
  const auto forward = set(contrast(3, 3), 1, 1, 0);
  const Pass one = pass(*forward, *contrastGradient(3, 3), row({9, 18, 27}), row({1, 0, 0}));
  expectFloats(one.result, {1.0F / 6, 2.0F / 15, 11.0F / 46});
  expectFloats(one.gradient, {1.0F / 54, -1.0F / 54, 0});
  const Pass all = pass(*forward, *contrastGradient(3, 3), row({9, 18, 27}), row({1, 1, 1}));
  expectFloats(all.gradient, {11.0F / 675, -7609.0F / 357075, -3997.0F / 357075});
}

/// The defaults subtract the mean alone: alpha is 0, delta^-beta is 32.
TEST_F(Normalization, LocalContrastSubtractsTheMeanByDefault) {
  const Pass both = pass(*contrast(2, 1), *contrastGradient(2, 1), row({2, 4, 8}), row({1, 2, 4}));
  EXPECT_EQ(both.result, (Values{32, 32, 64}));
  EXPECT_EQ(both.gradient, (Values{-16, -32, 64}));
}

TEST_F(Normalization, SharesOfLocalContrast) {
  const auto forward = set(contrast(2, 1), 0, 1, 0.5F);
  forward->setP0(0.5F);
  forward->setPm(10);
  forward->setPs(4);
  const auto gradient = contrastGradient(2, 1);
  const Pass both = pass(*forward, *gradient, row({2, 4, 8}), row({1, 2, 4}));
  // 10 + 4 (X - M / 2) * 2, M = 1, 3, 6.
  EXPECT_EQ(both.result, (Values{22, 30, 50}));
  EXPECT_EQ(both.gradient, (Values{8 - 6, 16 - 12, 32 - 8}));
  EXPECT_EQ(gradient->p0(), 0.5F);
  EXPECT_EQ(gradient->pm(), 10);
  EXPECT_EQ(gradient->ps(), 4);
}

// Properties

TEST_F(Normalization, DefaultsAreThoseOfTheTables) {
  const auto expectDefaults = [](const auto& kernel, float alpha, float beta, float delta) {
    EXPECT_EQ(kernel->alpha(), alpha) << kernel->className();
    EXPECT_EQ(kernel->beta(), beta) << kernel->className();
    EXPECT_EQ(kernel->delta(), delta) << kernel->className();
  };
  const auto forward = spatial(3, 2);
  expectDefaults(forward, 1, 5, 1);
  EXPECT_EQ(forward->kernelWidth(), 3U);
  EXPECT_EQ(forward->kernelHeight(), 2U);
  EXPECT_EQ(forward->edgeMode(), ImageEdgeMode::Zero);
  EXPECT_EQ(forward->offset(), Offset{});
  const auto gradient = spatialGradient(3, 2);
  expectDefaults(gradient, 1, 5, 1);
  EXPECT_EQ(gradient->secondaryKernelWidth(), 3U);
  EXPECT_EQ(gradient->secondaryKernelHeight(), 2U);
  const auto expectShares = [](const auto& kernel) {
    EXPECT_EQ(kernel->p0(), 1);
    EXPECT_EQ(kernel->pm(), 0);
    EXPECT_EQ(kernel->ps(), 1);
  };
  expectDefaults(contrast(3, 3), 0, 0.5F, 0.0009765625F);
  expectShares(contrast(3, 3));
  expectDefaults(contrastGradient(3, 3), 0, 0.5F, 0.0009765625F);
  expectShares(contrastGradient(3, 3));
  const auto cross = CNNCrossChannelNormalization::create(device_);
  expectDefaults(cross, 1, 5, 1);
  EXPECT_EQ(cross->kernelSize(), 5U);
  EXPECT_EQ(cross->kernelWidth(), 1U);
  EXPECT_EQ(cross->kernelHeight(), 1U);
  const auto crossGradient = CNNCrossChannelNormalizationGradient::create(device_);
  expectDefaults(crossGradient, 1, 5, 1);
  EXPECT_EQ(crossGradient->kernelSize(), 5U);
}

TEST_F(Normalization, CopiesKeepTheirProperties) {
  const auto other = mtl::newCPUDevice(1);
  const auto expectCopied = [&](const auto& kernel) {
    set(kernel, 2, 3, 4);
    auto copy = kernel->copy(other);
    set(kernel, 5, 6, 7);
    EXPECT_EQ(copy->alpha(), 2);
    EXPECT_EQ(copy->beta(), 3);
    EXPECT_EQ(copy->delta(), 4);
    EXPECT_EQ(copy->device(), other);
    EXPECT_EQ(copy->className(), kernel->className());
    return copy;
  };
  EXPECT_EQ(expectCopied(spatial(3, 2))->kernelHeight(), 2U);
  EXPECT_EQ(expectCopied(spatialGradient(3, 2))->secondaryKernelWidth(), 3U);
  EXPECT_EQ(expectCopied(channels(7))->kernelSize(), 7U);
  EXPECT_EQ(expectCopied(channelsGradient(7))->kernelSize(), 7U);
  const auto expectShares = [&](const auto& kernel) {
    kernel->setP0(2);
    kernel->setPm(3);
    kernel->setPs(4);
    const auto copy = expectCopied(kernel);
    EXPECT_EQ(copy->p0(), 2);
    EXPECT_EQ(copy->pm(), 3);
    EXPECT_EQ(copy->ps(), 4);
  };
  expectShares(contrast(3, 2));
  expectShares(contrastGradient(3, 2));
}

TEST_F(Normalization, WindowsOutOfRangeAreRefused) {
  constexpr std::size_t tooLarge = (std::size_t{1} << 24U) + 1;
  for (const std::size_t wrong : {std::size_t{0}, tooLarge}) {
    const std::string found = " is " + std::to_string(wrong) + ", expected 1 to 16777216";
    const auto expectRefusal = [&](const std::string& kernel, const char* property, auto create) {
      EXPECT_TRUE(names(errorOf([&] { create(); }), {kernel + ": " + property + found}));
    };
    expectRefusal("CNNSpatialNormalization", "kernelWidth", [&] { return spatial(wrong, 1); });
    expectRefusal("CNNSpatialNormalization", "kernelHeight", [&] { return spatial(1, wrong); });
    expectRefusal("CNNSpatialNormalizationGradient", "kernelWidth",
                  [&] { return spatialGradient(wrong, 1); });
    expectRefusal("CNNSpatialNormalizationGradient", "kernelHeight",
                  [&] { return spatialGradient(1, wrong); });
    expectRefusal("CNNLocalContrastNormalization", "kernelWidth", [&] { return contrast(wrong, 1); });
    expectRefusal("CNNLocalContrastNormalizationGradient", "kernelHeight",
                  [&] { return contrastGradient(1, wrong); });
    expectRefusal("CNNCrossChannelNormalization", "kernelSize", [&] { return channels(wrong); });
    expectRefusal("CNNCrossChannelNormalizationGradient", "kernelSize",
                  [&] { return channelsGradient(wrong); });
  }
  EXPECT_TRUE(names(errorOf([] { CNNSpatialNormalization::create(nullptr, 1, 1); }), {"device"}));
}

TEST_F(Normalization, ParametersOutOfRangeAreRefused) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto expectRefusals = [&](const auto& kernel) {
    for (const float wrong : {-1.0F, nan, infinity})
      EXPECT_TRUE(
          names(errorOf([&] { kernel->setAlpha(wrong); }), {kernel->className(), "alpha", "at least 0"}));
    for (const float wrong : {nan, -infinity}) {
      EXPECT_TRUE(names(errorOf([&] { kernel->setBeta(wrong); }), {kernel->className(), "beta", "finite"}));
      EXPECT_TRUE(names(errorOf([&] { kernel->setDelta(wrong); }), {kernel->className(), "delta", "finite"}));
    }
  };
  expectRefusals(spatial(3, 3));
  expectRefusals(spatialGradient(3, 3));
  const auto expectMore = [&](const auto& kernel) {
    expectRefusals(kernel);
    EXPECT_TRUE(names(errorOf([&] { kernel->setP0(nan); }), {kernel->className(), "p0", "finite"}));
    EXPECT_TRUE(names(errorOf([&] { kernel->setPm(nan); }), {kernel->className(), "pm", "finite"}));
    EXPECT_TRUE(names(errorOf([&] { kernel->setPs(nan); }), {kernel->className(), "ps", "finite"}));
  };
  expectMore(contrast(3, 3));
  expectMore(contrastGradient(3, 3));
}

TEST_F(Normalization, OtherEdgeModesAreRefused) {
  const auto source = row({1, 2});
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  spatial(2, 1)->encode(commandBuffer, source, state, false);
  for (const ImageEdgeMode edgeMode :
       {ImageEdgeMode::Mirror, ImageEdgeMode::MirrorWithEdge, ImageEdgeMode::Constant}) {
    const auto forward = spatial(2, 1);
    forward->setEdgeMode(edgeMode);
    EXPECT_TRUE(names(errorOf([&] { forward->encode(commandBuffer, source); }),
                      {"CNNSpatialNormalization", "edgeMode", "Zero or Clamp"}));
    const auto gradient = spatialGradient(2, 1);
    gradient->setSecondaryEdgeMode(edgeMode);
    EXPECT_TRUE(names(errorOf([&] {
                        gradient->encode(commandBuffer, row({0, 0}), source, state);
                      }),
                      {"CNNSpatialNormalizationGradient", "secondaryEdgeMode", "Zero or Clamp"}));
  }
}

/// unorm formats are sources only (docs/decisions.md, D16).
TEST_F(Normalization, Formats) {
  const auto bytes = Image::create(device_, ImageDescriptor(Unorm8, 3, 1, 1));
  const std::array<std::uint8_t, 3> codes{0, 255, 255};
  bytes->writeBytes(std::span<const std::uint8_t>(codes), testing::pixelsFirst);
  const auto result = poisoned(ImageDescriptor(Float16, 3, 1, 1));
  const auto forward = timesSquares();
  const auto commandBuffer = commands();
  forward->encode(commandBuffer, bytes, result);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{0, 2, 2}));
  EXPECT_NE(errorOf([&] { forward->encode(commands(), result, bytes); }), "");
}

// Edges, offsets and clip rectangles

TEST_F(Normalization, EdgeModes) {
  const auto forward = timesSquares();
  const Pass zero = pass(*forward, *spatialGradient(3, 1), row({1, 2, 3}), row({1, 0, 0}));
  EXPECT_EQ(zero.result, (Values{5, 28, 39}));
  EXPECT_EQ(zero.gradient, (Values{7, 4, 0}));  // X0 (X0^2 + X1^2) by X0 and X1
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  const Pass clamp = pass(*forward, *spatialGradient(3, 1), row({1, 2, 3}), row({1, 0, 0}));
  EXPECT_EQ(clamp.result, (Values{6, 28, 66}));
  EXPECT_EQ(clamp.gradient, (Values{10, 4, 0}));  // X0 (2 X0^2 + X1^2)
}

/// Whatever the remainder bits, windows of size "same" are centred on their pixel; other sizes take the
/// pixels that the policy says.
TEST_F(Normalization, ThePolicySetsTheOffset) {
  using enum NNPaddingMethod;
  for (const NNPaddingMethod remainder :
       {SizeSame, SizeSame | AddRemainderToTopRight, SizeSame | AddRemainderToBottomLeft,
        SizeSame | AddRemainderToBottomRight})
    for (const std::size_t size : {std::size_t{3}, std::size_t{4}}) {
      const auto forward = spatial(size, size);
      forward->setPadding(NNDefaultPadding::padding(remainder));
      forward->setOffset({7, 7, 0});
      const ImageDescriptor result = forward->sizeDestination(sizeOf(9, 8, 3));
      EXPECT_EQ(result.width(), 9U);
      EXPECT_EQ(result.height(), 8U);
      EXPECT_EQ(forward->offset(), Offset{});
    }
  const auto valid = spatial(4, 3);
  valid->setPadding(NNDefaultPadding::padding(SizeValidOnly));
  const ImageDescriptor smaller = valid->sizeDestination(sizeOf(9, 8, 3));
  EXPECT_EQ(smaller.width(), 6U);
  EXPECT_EQ(smaller.height(), 6U);
  EXPECT_EQ(valid->offset(), (Offset{2, 1, 0}));
}

TEST_F(Normalization, OffsetsMoveTheCenterAndClipRectanglesLeaveTheRest) {
  const auto source = row({1, 2, 3});
  const auto encoded = [&](ImageEdgeMode edgeMode) {
    const auto result = poisoned(sizeOf(5, 1, 1));
    const auto forward = timesSquares();
    forward->setOffset({1, 0, 0});
    forward->setClipRect({{1, 0, 0}, {3, 1, 1}});
    forward->setEdgeMode(edgeMode);
    const auto commandBuffer = commands();
    forward->encode(commandBuffer, source, result);
    run(commandBuffer);
    return valuesOf(*result);
  };
  EXPECT_EQ(encoded(ImageEdgeMode::Zero), (Values{poison, 28, 39, 0, poison}));
  EXPECT_EQ(encoded(ImageEdgeMode::Clamp), (Values{poison, 28, 66, 81, poison}));
}

/// Of a clipped call only the clip rectangle's pixels count, whichever part of the result the gradient has.
TEST_F(Normalization, GradientOfAClippedCall) {
  const auto source = row({1, 2, 3});
  const auto result = poisoned(sizeOf(5, 1, 1));
  const auto forward = timesSquares();
  forward->setOffset({1, 0, 0});
  forward->setClipRect({{1, 0, 0}, {2, 1, 1}});
  const auto state = forward->resultState(source);
  const auto commandBuffer = commands();
  forward->encode(commandBuffer, source, state, result);
  const auto ofWhole =
      spatialGradient(3, 1)->encode(commandBuffer, row({1000, 1, 10, 1000, 1000}), source, state);
  const auto ofClip = spatialGradient(3, 1)->encode(commandBuffer, row({1, 10}), source, state);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 28, 39, poison, poison}));
  // X1 (X0^2 + X1^2 + X2^2) + 10 X2 (X1^2 + X2^2).
  const Values expected{4, 22 + 120, 12 + 310};
  EXPECT_EQ(valuesOf(*ofWhole), expected);
  EXPECT_EQ(valuesOf(*ofClip), expected);
}

/// Destination and source coordinates agree, with and without a state.
TEST_F(Normalization, EncodesWithoutAStateUseTheProperties) {
  const auto source = row({1, 2, 3});
  const auto encoded = [&](const std::shared_ptr<CNNSpatialNormalizationGradient>& gradient) {
    const auto destination = poisoned(sizeOf(3, 1, 1));
    const auto commandBuffer = commands();
    gradient->encode(commandBuffer, row({1, 0, 0}), source, destination);
    run(commandBuffer);
    return valuesOf(*destination);
  };
  const auto made = [&] { return set(spatialGradient(3, 1), 3, -1, 0); };
  EXPECT_EQ(encoded(made()), (Values{7, 4, 0}));
  const auto clipped = made();
  clipped->setClipRect({{1, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(encoded(clipped), (Values{poison, 4, poison}));
  const auto moved = made();
  moved->setSecondaryOffset({1, 0, 0});
  EXPECT_EQ(encoded(moved), (Values{4, 22, 12}));
  const auto later = made();
  later->setPrimaryOffset({-1, 0, 0});  // window 0 has no gradient, window 1 has the 1
  EXPECT_EQ(encoded(later), (Values{4, 22, 12}));
  const auto clamped = made();
  clamped->setSecondaryEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(encoded(clamped), (Values{10, 4, 0}));
  const auto channelGradient = set(channelsGradient(1), 1, -1, 0);
  const auto destination = poisoned(sizeOf(3, 1, 1));
  const auto commandBuffer = commands();
  channelGradient->encode(commandBuffer, row({1, 0, 2}), source, destination);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{3, 0, 54})) << "3 X^2";
}

// Decisions

/// Parameters that were set win over the state's, also where they are the default.
TEST_F(Normalization, D7WhatIsNotSetComesFromTheState) {
  const auto source = row({1, 2, 3});
  const auto forward = timesSquares();
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  forward->encode(commandBuffer, source, state, false);
  const auto encoded = [&](auto change) {
    const auto gradient = spatialGradient(3, 1);
    change(*gradient);
    return gradient->encode(commandBuffer, row({1, 0, 0}), source, state);
  };
  const auto taken = encoded([](auto& gradient) { EXPECT_EQ(gradient.beta(), 5); });
  const auto edgeMode = encoded([](auto& gradient) { gradient.setSecondaryEdgeMode(ImageEdgeMode::Zero); });
  const auto delta = encoded([](auto& gradient) { gradient.setDelta(1); });
  const auto alpha = encoded([](auto& gradient) { gradient.setAlpha(6); });
  const auto beta = encoded([](auto& gradient) { gradient.setBeta(0); });
  const auto read = spatialGradient(3, 1);
  const std::array<std::shared_ptr<Image>, 2> images{row({1, 0, 0}), source};
  const std::array<std::shared_ptr<State>, 1> states{state};
  read->destinationImageDescriptor(images, states);
  EXPECT_EQ(read->alpha(), 3);
  EXPECT_EQ(read->beta(), -1);
  EXPECT_EQ(read->delta(), 0);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*taken), (Values{10, 4, 0}));
  EXPECT_EQ(valuesOf(*edgeMode), (Values{7, 4, 0}));
  EXPECT_EQ(valuesOf(*delta), (Values{11, 4, 0}));
  EXPECT_EQ(valuesOf(*alpha), (Values{20, 8, 0}));
  EXPECT_EQ(valuesOf(*beta), (Values{1, 0, 0}));
}

TEST_F(Normalization, D8KernelOffsetsAreRefused) {
  const auto source = row({1, 2, 3});
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  spatial(3, 1)->encode(commandBuffer, source, state, false);
  const auto gradient = spatialGradient(3, 1);
  gradient->setKernelOffsetX(1);
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(commandBuffer, row({1, 0, 0}), source, state);
                    }),
                    {"CNNSpatialNormalizationGradient", "kernelOffset"}));
}

TEST_F(Normalization, D9TheStateKeepsWhatTheForwardKernelHad) {
  const auto source = row({1, 2, 3});
  const auto commandBuffer = commands();
  const auto forward = timesSquares();
  std::shared_ptr<State> state;
  forward->encode(commandBuffer, source, state, false);
  set(forward, 7, 2, 3);
  forward->setOffset({1, 0, 0});
  const auto destination = spatialGradient(3, 1)->encode(commandBuffer, row({1, 0, 0}), source, state);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{7, 4, 0}));
}

TEST_F(Normalization, D9TheCombinedEncodeIsTheSeparateSteps) {
  const auto source = row({1, 2, 4});
  const auto g = row({1, 2, 4});
  const auto commandBuffer = commands();
  std::shared_ptr<State> combinedState;
  const auto combined = contrast(2, 1)->encode(commandBuffer, source, combinedState, false);
  const auto combinedGradient = contrastGradient(2, 1)->encode(commandBuffer, g, source, combinedState);

  const auto forward = CNNLocalContrastNormalization::create(device_, 2, 1);
  const auto gradient = CNNLocalContrastNormalizationGradient::create(device_, 2, 1);
  const std::array<std::shared_ptr<Image>, 1> sources{source};
  const auto result = poisoned(forward->destinationImageDescriptor(sources));
  const auto state = forward->resultState(source, {}, result);
  forward->encode(commandBuffer, source, state, result);
  const std::array<std::shared_ptr<Image>, 2> images{g, source};
  const std::array<std::shared_ptr<State>, 1> states{state};
  const auto destination = poisoned(gradient->destinationImageDescriptor(images, states));
  gradient->encode(commandBuffer, g, source, state, destination);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), valuesOf(*combined));
  EXPECT_EQ(valuesOf(*destination), valuesOf(*combinedGradient));
}

TEST_F(Normalization, EncodesTakeOneReadOffTemporaryImages) {
  const auto commandBuffer = commands();
  const auto source = pixel({1, 2, 3});
  const auto forward = set(CNNCrossChannelNormalization::create(device_, 1), 1, -1, 0);
  std::shared_ptr<State> state;
  const auto result = forward->encode(commandBuffer, source, state, true);
  const auto* temporary = dynamic_cast<const TemporaryImage*>(result.get());
  ASSERT_NE(temporary, nullptr);
  EXPECT_EQ(temporary->readCount(), 1U);
  const auto destination = channelsGradient(1)->encode(commandBuffer, result, source, state);
  EXPECT_EQ(temporary->readCount(), 0U);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{3, 96, 729})) << "X^3 as the gradient of X^3";
}

/// The channels that are read are all that there are.
TEST_F(Normalization, BatchesAndChannelRanges) {
  const auto sources = batch(sizeOf(1, 1, 7), 2, testing::counted(14));
  const auto forward = set(channels(3), 3, -1, 0);
  forward->setSourceFeatureChannelOffset(4);
  forward->setSourceFeatureChannelMaxCount(2);
  const auto commandBuffer = commands();
  StateBatch states;
  const ImageBatch results = forward->encodeBatch(commandBuffer, sources, states, true);
  ASSERT_EQ(states.count(), 2U);
  const auto gradients = batch(sizeOf(1, 1, 2), 2, {1, 0, 1, 0});
  const auto whole = channelsGradient(3)->encodeBatch(commandBuffer, gradients, sources, states);
  run(commandBuffer);
  Values values(4);
  results.readBytes(std::span(values), testing::pixelsFirst);
  EXPECT_EQ(values, (Values{5 * 61, 6 * 61, 12 * 313, 13 * 313}));
  Values gradientValues(14);
  whole.readBytes(std::span(gradientValues), testing::pixelsFirst);
  EXPECT_EQ(gradientValues, (Values{0, 0, 0, 0, 61 + 50, 60, 0, 0, 0, 0, 0, 313 + 288, 312, 0}));
}

TEST_F(Normalization, GradientsAccumulate) {
  const auto sources = batch(sizeOf(3, 1, 1), 2, {1, 2, 3, 1, 2, 3});
  const auto commandBuffer = commands();
  StateBatch states;
  timesSquares()->encodeBatch(commandBuffer, sources, states, false);
  const auto destinations = batch(sizeOf(3, 1, 1), 2, {100, 200, 300, 400, 500, 600});
  const auto gradient = spatialGradient(3, 1);
  const auto traits = static_cast<const detail::ImageKernel&>(*gradient).derivativeTraits();
  EXPECT_TRUE(traits.canAccumulate && traits.readsBesideSavedFields);
  gradient->encodeBatchAccumulating(commandBuffer, batch(sizeOf(3, 1, 1), 2, {1, 0, 0, 0, 1, 0}), sources,
                                    states, destinations);
  run(commandBuffer);
  Values values(6);
  destinations.readBytes(std::span(values), testing::pixelsFirst);
  EXPECT_EQ(values, (Values{107, 204, 300, 404, 522, 612}));
}

TEST_F(Normalization, StatesOfOtherKernelsAreRefused) {
  const auto commandBuffer = commands();
  const auto source = row({1, 2});
  const auto g = row({1, 2});
  const auto stateOf = [&](const std::shared_ptr<CNNNormalization>& forward) {
    std::shared_ptr<State> state;
    forward->encode(commandBuffer, source, state, false);
    return state;
  };
  const auto ofSpatial = stateOf(spatial(2, 1));
  const auto ofContrast = stateOf(contrast(2, 1));
  const auto ofChannels = stateOf(channels(2));
  const auto expectRefusal = [&](const std::shared_ptr<CNNNormalizationGradient>& gradient,
                                 const std::shared_ptr<State>& state, const std::vector<std::string>& words) {
    EXPECT_TRUE(names(errorOf([&] { gradient->encode(commandBuffer, g, source, state); }), words));
  };
  expectRefusal(spatialGradient(2, 1), ofContrast, {"gradientState", "CNNLocalContrastNormalization"});
  expectRefusal(contrastGradient(2, 1), ofChannels, {"gradientState", "CNNCrossChannelNormalization"});
  expectRefusal(channelsGradient(2), ofSpatial, {"gradientState", "CNNSpatialNormalization"});
  expectRefusal(spatialGradient(2, 1), nullptr, {"CNNSpatialNormalizationGradient", "gradientState", "null"});
  expectRefusal(spatialGradient(3, 1), ofSpatial, {"kernelWidth is 3", "2 as in the forward kernel"});
  expectRefusal(spatialGradient(2, 2), ofSpatial, {"kernelHeight is 2", "1 as in the forward kernel"});
  expectRefusal(channelsGradient(3), ofChannels, {"kernelSize is 3", "2 as in the forward kernel"});
}

// Nodes

template <class Kernel>
std::shared_ptr<Kernel> kernelOf(const NNFilterNode& node, const std::shared_ptr<mtl::Device>& device) {
  return std::dynamic_pointer_cast<Kernel>(node.makeKernel(device));
}

template <class Node, class Kernel>
void expectSame(const Node& node, const Kernel& kernel, float alpha, float beta, float delta) {
  for (const float found : {node.alpha(), kernel.alpha()}) EXPECT_EQ(found, alpha);
  for (const float found : {node.beta(), kernel.beta()}) EXPECT_EQ(found, beta);
  for (const float found : {node.delta(), kernel.delta()}) EXPECT_EQ(found, delta);
}

template <class Node, class Kernel>
void expectShares(const Node& node, const Kernel& kernel, float p0, float pm, float ps) {
  for (const float found : {node.p0(), kernel.p0()}) EXPECT_EQ(found, p0);
  for (const float found : {node.pm(), kernel.pm()}) EXPECT_EQ(found, pm);
  for (const float found : {node.ps(), kernel.ps()}) EXPECT_EQ(found, ps);
}

TEST_F(Normalization, SpatialNodesMakeTheirKernels) {
  const auto source = NNImageNode::create();
  const auto node = CNNSpatialNormalizationNode::create(source);
  expectSame(*node, *kernelOf<CNNSpatialNormalization>(*node, device_), 1, 5, 1);
  EXPECT_EQ(kernelOf<CNNSpatialNormalization>(*node, device_)->kernelHeight(), 5U);
  EXPECT_EQ(CNNSpatialNormalizationNode::create(source, 7)->kernelWidth(), 7U);
  set(node, 2, 3, 4);
  node->setKernelWidth(2);
  node->setKernelHeight(3);
  const auto kernel = kernelOf<CNNSpatialNormalization>(*node, device_);
  expectSame(*node, *kernel, 2, 3, 4);
  EXPECT_EQ(kernel->kernelWidth(), 2U);
  EXPECT_EQ(kernel->kernelHeight(), 3U);

  const auto gradient = std::dynamic_pointer_cast<CNNSpatialNormalizationGradientNode>(
      node->gradientFilter(NNImageNode::create()));
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->sourceImage(), source);
  EXPECT_EQ(gradient->gradientState(), node->resultState());
  const auto gradientKernel = kernelOf<CNNSpatialNormalizationGradient>(*gradient, device_);
  expectSame(*gradient, *gradientKernel, 2, 3, 4);
  EXPECT_EQ(gradientKernel->secondaryKernelWidth(), 2U);
  EXPECT_EQ(gradientKernel->secondaryKernelHeight(), 3U);
  const auto byHand =
      CNNSpatialNormalizationGradientNode::create(NNImageNode::create(), source, node->resultState(), 3);
  expectSame(*byHand, *kernelOf<CNNSpatialNormalizationGradient>(*byHand, device_), 1, 5, 1);
  byHand->setKernelWidth(4);
  EXPECT_EQ(byHand->kernelWidth(), 4U);
  EXPECT_EQ(byHand->kernelHeight(), 3U);
}

/// Alpha is copied; 0 is for nodes that are made by hand.
TEST_F(Normalization, LocalContrastNodesMakeTheirKernels) {
  const auto source = NNImageNode::create();
  const auto node = CNNLocalContrastNormalizationNode::create(source);
  const auto plain = kernelOf<CNNLocalContrastNormalization>(*node, device_);
  expectSame(*node, *plain, 1, 0.5F, 0.0009765625F);
  expectShares(*node, *plain, 1, 0, 1);
  EXPECT_EQ(plain->kernelWidth(), 5U);
  set(node, 2, 3, 4);
  node->setP0(5);
  node->setPm(6);
  node->setPs(7);
  node->setKernelWidth(2);
  node->setKernelHeight(3);
  const auto kernel = kernelOf<CNNLocalContrastNormalization>(*node, device_);
  expectSame(*node, *kernel, 2, 3, 4);
  expectShares(*node, *kernel, 5, 6, 7);
  EXPECT_EQ(kernel->kernelHeight(), node->kernelHeight());

  const auto gradient = std::dynamic_pointer_cast<CNNLocalContrastNormalizationGradientNode>(
      node->gradientFilter(NNImageNode::create()));
  ASSERT_TRUE(gradient);
  const auto gradientKernel = kernelOf<CNNLocalContrastNormalizationGradient>(*gradient, device_);
  expectSame(*gradient, *gradientKernel, 2, 3, 4);
  expectShares(*gradient, *gradientKernel, 5, 6, 7);
  EXPECT_EQ(gradient->kernelWidth(), 2U);
  EXPECT_EQ(gradientKernel->secondaryKernelHeight(), 3U);
  const auto byHand = CNNLocalContrastNormalizationGradientNode::create(NNImageNode::create(), source,
                                                                        node->resultState(), 3, 4);
  const auto byHandKernel = kernelOf<CNNLocalContrastNormalizationGradient>(*byHand, device_);
  expectSame(*byHand, *byHandKernel, 0, 0.5F, 0.0009765625F);
  expectShares(*byHand, *byHandKernel, 1, 0, 1);
  EXPECT_EQ(byHand->kernelHeight(), 4U);
}

TEST_F(Normalization, CrossChannelNodesMakeTheirKernels) {
  const auto source = NNImageNode::create();
  const auto node = CNNCrossChannelNormalizationNode::create(source);
  expectSame(*node, *kernelOf<CNNCrossChannelNormalization>(*node, device_), 1, 5, 1);
  EXPECT_EQ(node->kernelSizeInFeatureChannels(), 5U);
  set(node, 2, 3, 4);
  node->setKernelSizeInFeatureChannels(7);
  const auto kernel = kernelOf<CNNCrossChannelNormalization>(*node, device_);
  expectSame(*node, *kernel, 2, 3, 4);
  EXPECT_EQ(kernel->kernelSize(), 7U);
  const auto gradient = std::dynamic_pointer_cast<CNNCrossChannelNormalizationGradientNode>(
      node->gradientFilter(NNImageNode::create()));
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->kernelSizeInFeatureChannels(), 7U);
  EXPECT_EQ(kernelOf<CNNCrossChannelNormalizationGradient>(*gradient, device_)->kernelSize(), 7U);
}

/// Windows read a repeated edge and their gradient adds it up; channels of a pixel have no such gradient.
TEST_F(Normalization, GradientsOfOtherChannelsOrARepeatedEdgeAreRefused) {
  const auto refuses = [&](CNNNormalizationGradient& gradient) {
    const auto g = pixel(Values(4, 1)), x = pixel(Values(8, 1));
    EXPECT_TRUE(names(errorOf([&] { gradient.encode(commands(), g, x, pixel(Values(8, 0))); }),
                      {gradient.className(), "4, 8 and 8 feature channels"}));
  };
  refuses(*spatialGradient(3, 3));
  refuses(*contrastGradient(3, 3));
  refuses(*channelsGradient(3));
  const auto forward = channels(3);
  forward->setOffset({0, 1, 0});
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  const auto x = pixel({1, 2, 3}), y = pixel(Values(3, 0));
  const auto state = forward->resultState(x);
  forward->encode(commands(), x, state, y);
  EXPECT_TRUE(names(errorOf([&] { channelsGradient(3)->encode(commands(), y, x, state); }),
                    {"CNNCrossChannelNormalizationGradient", "gradientState", "Clamp"}));
}

}  // namespace
}  // namespace mps::normalization_test
