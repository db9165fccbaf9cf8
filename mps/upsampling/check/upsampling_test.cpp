#include "mps/upsampling/upsampling.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "mps/core/image/state.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/upsampling/upsampling_node.hpp"

/// The public classes, against examples computed by hand. The
/// kernels' arithmetic over all shapes is tested with their plans.
namespace mps::upsampling_test {
namespace {

using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;

class Upsampling : public DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<Image> row(const Values& values) const {
    return image(sizeOf(values.size(), 1, 1), values);
  }
  [[nodiscard]] std::shared_ptr<CNNUpsamplingNearest> nearest(std::size_t x, std::size_t y) const {
    return permanent(CNNUpsamplingNearest::create(device_, x, y));
  }
  [[nodiscard]] std::shared_ptr<CNNUpsamplingBilinear> bilinear(std::size_t x, std::size_t y,
                                                                bool alignCorners = false) const {
    return permanent(CNNUpsamplingBilinear::create(device_, x, y, alignCorners));
  }
  [[nodiscard]] std::shared_ptr<CNNUpsamplingNearestGradient> nearestGradient(std::size_t x,
                                                                              std::size_t y) const {
    return permanent(CNNUpsamplingNearestGradient::create(device_, x, y));
  }
  [[nodiscard]] std::shared_ptr<CNNUpsamplingBilinearGradient> bilinearGradient(std::size_t x,
                                                                                std::size_t y) const {
    return permanent(CNNUpsamplingBilinearGradient::create(device_, x, y));
  }

  /// Result and gradient of the encodes that return images.
  struct Pass {
    Values result;
    Values gradient;
  };
  Pass pass(CNNUpsampling& forward, CNNUpsamplingGradient& gradient, const std::shared_ptr<Image>& source,
            const std::shared_ptr<Image>& sourceGradient) {
    const auto commandBuffer = commands();
    std::shared_ptr<State> state;
    const auto result = forward.encode(commandBuffer, source, state, false);
    const auto destination = gradient.encode(commandBuffer, sourceGradient, source, state);
    run(commandBuffer);
    EXPECT_EQ(destination->width(), source->width());
    EXPECT_EQ(destination->height(), source->height());
    return {valuesOf(*result), valuesOf(*destination)};
  }
};

// Worked examples
// -----------------------------------------------------------------------------------------------

TEST_F(Upsampling, ExampleNearest) {
  const Pass both = pass(*nearest(3, 1), *nearestGradient(3, 1), row({1, 2}), row({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(both.result, (Values{1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(both.gradient, (Values{6, 15}));
}

TEST_F(Upsampling, ExampleNearestOnTwoAxes) {
  const auto source = image(sizeOf(2, 2, 1), {1, 2, 3, 4});
  const Pass both =
      pass(*nearest(2, 2), *nearestGradient(2, 2), source, image(sizeOf(4, 4, 1), testing::counted(16)));
  EXPECT_EQ(both.result, (Values{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
  EXPECT_EQ(both.gradient, (Values{14, 22, 46, 54}));
}

/// The gradient knows from the state how the forward kernel aligned its samples.
TEST_F(Upsampling, ExampleBilinear) {
  const auto source = row({0, 12});
  const auto g = row({1, 10, 100, 1000});
  const Pass topLeft = pass(*bilinear(2, 1), *bilinearGradient(2, 1), source, g);
  EXPECT_EQ(topLeft.result, (Values{0, 6, 12, 12}));
  EXPECT_EQ(topLeft.gradient, (Values{6, 1105}));
  const auto forward = bilinear(2, 1);
  forward->setHalfPixelCenters(true);
  const Pass halfPixel = pass(*forward, *bilinearGradient(2, 1), source, g);
  EXPECT_EQ(halfPixel.result, (Values{0, 3, 9, 12}));
  EXPECT_EQ(halfPixel.gradient, (Values{33.5F, 1077.5F}));
  const Pass aligned =
      pass(*bilinear(3, 1, true), *bilinearGradient(3, 1), row({0, 8, 16}), row(Values(9, 4)));
  EXPECT_EQ(aligned.result, (Values{0, 2, 4, 6, 8, 10, 12, 14, 16}));
  EXPECT_EQ(aligned.gradient, (Values{10, 16, 10}));
}

// Properties
// ----------------------------------------------------------------------------------------------------

TEST_F(Upsampling, DefaultsAreThoseOfTheTables) {
  const auto near = CNNUpsamplingNearest::create(device_, 2, 3);
  EXPECT_EQ(near->scaleFactorX(), 2.0);
  EXPECT_EQ(near->scaleFactorY(), 3.0);
  EXPECT_FALSE(near->alignCorners());
  EXPECT_EQ(near->edgeMode(), ImageEdgeMode::Zero);
  EXPECT_EQ(near->offset(), Offset{});
  const auto linear = CNNUpsamplingBilinear::create(device_, 4, 5);
  EXPECT_EQ(linear->scaleFactorY(), 5.0);
  EXPECT_FALSE(linear->alignCorners());
  EXPECT_FALSE(linear->halfPixelCenters());
  EXPECT_TRUE(CNNUpsamplingBilinear::create(device_, 4, 5, true)->alignCorners());
  EXPECT_EQ(CNNUpsamplingNearestGradient::create(device_, 2, 3)->scaleFactorX(), 2.0);
  EXPECT_EQ(CNNUpsamplingBilinearGradient::create(device_, 2, 3)->scaleFactorY(), 3.0);
}

TEST_F(Upsampling, CopiesKeepTheirProperties) {
  const auto linear = CNNUpsamplingBilinear::create(device_, 2, 3);
  linear->setHalfPixelCenters(true);
  const auto copy = linear->copy(mtl::newCPUDevice(1));
  linear->setHalfPixelCenters(false);
  EXPECT_TRUE(copy->halfPixelCenters());
  EXPECT_EQ(copy->scaleFactorY(), 3.0);
  EXPECT_NE(copy->device(), device_);
  EXPECT_TRUE(CNNUpsamplingBilinear::create(device_, 2, 3, true)->copy()->alignCorners());
  EXPECT_EQ(CNNUpsamplingNearest::create(device_, 2, 3)->copy()->scaleFactorX(), 2.0);
  EXPECT_EQ(CNNUpsamplingNearestGradient::create(device_, 2, 3)->copy()->scaleFactorX(), 2.0);
  EXPECT_EQ(CNNUpsamplingBilinearGradient::create(device_, 2, 3)->copy()->scaleFactorY(), 3.0);
}

TEST_F(Upsampling, FactorsOutOfRangeAreRefused) {
  constexpr std::size_t tooLarge = (std::size_t{1} << 24U) + 1;
  for (const std::size_t wrong : {std::size_t{0}, tooLarge}) {
    const auto expectRefusal = [&](const std::string& kernel, auto create) {
      const std::string found = " is " + std::to_string(wrong) + ", expected 1 to 16777216";
      EXPECT_TRUE(names(errorOf([&] { create(wrong, 2); }), {kernel + ": integerScaleFactorX" + found}));
      EXPECT_TRUE(names(errorOf([&] { create(2, wrong); }), {kernel + ": integerScaleFactorY" + found}));
    };
    using Factor = std::size_t;
    expectRefusal("CNNUpsamplingNearest",
                  [&](Factor x, Factor y) { CNNUpsamplingNearest::create(device_, x, y); });
    expectRefusal("CNNUpsamplingBilinear",
                  [&](Factor x, Factor y) { CNNUpsamplingBilinear::create(device_, x, y); });
    expectRefusal("CNNUpsamplingNearestGradient",
                  [&](Factor x, Factor y) { CNNUpsamplingNearestGradient::create(device_, x, y); });
    expectRefusal("CNNUpsamplingBilinearGradient",
                  [&](Factor x, Factor y) { CNNUpsamplingBilinearGradient::create(device_, x, y); });
  }
  EXPECT_TRUE(names(errorOf([&] { CNNUpsamplingNearest::create(nullptr, 1, 1); }), {"device"}));
}

TEST_F(Upsampling, HalfPixelCentersAndAlignedCornersExcludeEachOther) {
  const auto aligned = bilinear(2, 2, true);
  EXPECT_TRUE(names(errorOf([&] { aligned->setHalfPixelCenters(true); }),
                    {"CNNUpsamplingBilinear", "halfPixelCenters is true", "alignCorners"}));
  aligned->setHalfPixelCenters(false);
}

TEST_F(Upsampling, ResultsThatNoMemoryHoldsAreRefused) {
  const auto huge = nearest(std::size_t{1} << 24U, std::size_t{1} << 24U);
  const auto source = Image::create(device_, sizeOf(1U << 8U, 1U << 8U, 1));
  EXPECT_TRUE(names(errorOf([&] { huge->encode(commands(), source); }), {"what memory can hold"}));
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(nearest(32, 1)->sizeDestination(sizeOf(most / 16, 1, 1)).width(), most);
}

TEST_F(Upsampling, OtherEdgeModesAreRefused) {
  const auto source = row({1, 2});
  const auto g = row({0, 0, 0, 0});
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  nearest(2, 1)->encode(commandBuffer, source, state, false);
  for (const ImageEdgeMode edgeMode :
       {ImageEdgeMode::Mirror, ImageEdgeMode::MirrorWithEdge, ImageEdgeMode::Constant}) {
    const auto forward = nearest(2, 1);
    forward->setEdgeMode(edgeMode);
    EXPECT_TRUE(names(errorOf([&] { forward->encode(commandBuffer, source); }),
                      {"CNNUpsamplingNearest", "edgeMode", "Zero or Clamp"}));
    const auto gradient = nearestGradient(2, 1);
    gradient->setSecondaryEdgeMode(edgeMode);
    EXPECT_TRUE(names(errorOf([&] {
                        gradient->encode(commandBuffer, g, source, state, row({0, 0}));
                      }),
                      {"CNNUpsamplingNearestGradient", "secondaryEdgeMode", "Zero or Clamp"}));
  }
}

/// unorm formats are sources only (docs/decisions.md, D16).
TEST_F(Upsampling, Formats) {
  const auto bytes = Image::create(device_, ImageDescriptor(Unorm8, 2, 1, 1));
  const std::array<std::uint8_t, 2> codes{0, 255};
  bytes->writeBytes(std::span<const std::uint8_t>(codes), testing::pixelsFirst);
  const auto result = poisoned(ImageDescriptor(Float16, 4, 1, 1));
  const auto forward = bilinear(2, 1);
  const auto commandBuffer = commands();
  forward->encode(commandBuffer, bytes, result);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{0, 0.5F, 1, 1}));
  EXPECT_NE(errorOf([&] { forward->encode(commands(), result, bytes); }), "");
}

// Sizes, offsets and clip rectangles
// ----------------------------------------------------------------------------

TEST_F(Upsampling, TheResultIsTheEnlargedSourceForEveryPolicy) {
  using enum NNPaddingMethod;
  for (const NNPaddingMethod method :
       {SizeSame, SizeValidOnly, SizeFull, SizeFull | AlignTopLeft, SizeSame | AddRemainderToBottomRight}) {
    const auto forward = bilinear(3, 2);
    forward->setPadding(NNDefaultPadding::padding(method));
    forward->setOffset({7, 7, 0});
    const ImageDescriptor result = forward->sizeDestination(sizeOf(5, 4, 3));
    EXPECT_EQ(result.width(), 15U);
    EXPECT_EQ(result.height(), 8U);
    EXPECT_EQ(result.featureChannels(), 3U);
    EXPECT_EQ(forward->offset(), Offset{});
  }
}

/// An offset moves the samples, and a clip rectangle leaves all outside it as it is.
TEST_F(Upsampling, OffsetsMoveTheSamplesAndClipRectanglesLeaveTheRest) {
  const auto source = row({2, 4, 8});
  const auto encoded = [&](const std::shared_ptr<CNNUpsampling>& forward, ImageEdgeMode edgeMode) {
    const auto result = poisoned(sizeOf(6, 1, 1));
    forward->setOffset({1, 0, 0});
    forward->setClipRect({{1, 0, 0}, {4, 1, 1}});
    forward->setEdgeMode(edgeMode);
    const auto commandBuffer = commands();
    forward->encode(commandBuffer, source, result);
    run(commandBuffer);
    return valuesOf(*result);
  };
  EXPECT_EQ(encoded(nearest(2, 1), ImageEdgeMode::Zero), (Values{poison, 4, 4, 8, 8, poison}));
  EXPECT_EQ(encoded(bilinear(2, 1), ImageEdgeMode::Zero), (Values{poison, 4, 6, 8, 4, poison}));
  EXPECT_EQ(encoded(bilinear(2, 1), ImageEdgeMode::Clamp), (Values{poison, 4, 6, 8, 8, poison}));
}

/// Of a clipped call only the clip rectangle's pixels count, whichever part of the result the gradient has.
TEST_F(Upsampling, GradientOfAClippedCall) {
  const auto source = row({1, 2, 3});
  const auto result = poisoned(sizeOf(6, 1, 1));
  const auto forward = nearest(2, 1);
  forward->setOffset({1, 0, 0});
  forward->setClipRect({{1, 0, 0}, {3, 1, 1}});
  const auto state = forward->resultState(source);
  const auto commandBuffer = commands();
  forward->encode(commandBuffer, source, state, result);
  const auto ofWhole =
      nearestGradient(2, 1)->encode(commandBuffer, row({1000, 1, 10, 100, 1000, 1000}), source, state);
  const auto ofClip = nearestGradient(2, 1)->encode(commandBuffer, row({1, 10, 100}), source, state);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 2, 2, 3, poison, poison}));
  EXPECT_EQ(valuesOf(*ofWhole), (Values{0, 11, 100}));
  EXPECT_EQ(valuesOf(*ofClip), (Values{0, 11, 100}));
}

/// Destination and source coordinates agree, with and without a state.
TEST_F(Upsampling, EncodesWithoutAStateUseTheProperties) {
  const auto g = row({1, 10, 100, 1000, 1, 1});
  const auto source = row({0, 0, 0});
  const auto encoded = [&](const std::shared_ptr<CNNUpsamplingGradient>& gradient) {
    const auto destination = poisoned(sizeOf(3, 1, 1));
    const auto commandBuffer = commands();
    gradient->encode(commandBuffer, g, source, destination);
    run(commandBuffer);
    return valuesOf(*destination);
  };
  EXPECT_EQ(encoded(nearestGradient(2, 1)), (Values{11, 1100, 2}));
  EXPECT_EQ(encoded(bilinearGradient(2, 1)), (Values{6, 605, 502}));
  const auto clipped = nearestGradient(2, 1);
  clipped->setClipRect({{1, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(encoded(clipped), (Values{poison, 1100, poison}));
  const auto moved = nearestGradient(2, 1);
  moved->setPrimaryOffset({1, 0, 0});
  moved->setSecondaryOffset({1, 0, 0});
  EXPECT_EQ(encoded(moved), (Values{0, 110, 1001}));
  moved->setSecondaryEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(encoded(moved), (Values{0, 110, 1002}));
}

// Decisions
// -----------------------------------------------------------------------------------------------------

TEST_F(Upsampling, D7GeometryThatIsNotSetComesFromTheState) {
  const auto source = row({1, 2, 3});
  const auto forward = nearest(2, 1);
  forward->setOffset({1, 0, 0});
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  const auto result = poisoned(sizeOf(6, 1, 1));
  const auto state = forward->resultState(source);
  const auto commandBuffer = commands();
  forward->encode(commandBuffer, source, state, result);
  const auto encoded = [&](auto set) {
    const auto gradient = nearestGradient(2, 1);
    auto destination = poisoned(sizeOf(3, 1, 1));
    set(*gradient);
    gradient->encode(commandBuffer, row({1, 2, 4, 8, 16, 32}), source, state, destination);
    return destination;
  };
  const auto taken = encoded([](auto&) {});
  const auto offset = encoded([](auto& gradient) { gradient.setSecondaryOffset({0, 0, 0}); });
  const auto edgeMode = encoded([](auto& gradient) { gradient.setSecondaryEdgeMode(ImageEdgeMode::Zero); });
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*taken), (Values{0, 3, 60}));
  EXPECT_EQ(valuesOf(*offset), (Values{3, 12, 48})) << "0 is the default, but it was set";
  EXPECT_EQ(valuesOf(*edgeMode), (Values{0, 3, 12}));
}

TEST_F(Upsampling, D8KernelOffsetMovesTheGradient) {
  const auto source = row({0, 0, 0});
  const auto encoded = [&](std::int64_t kernelOffset, std::int64_t primaryOffset) {
    const auto gradient = nearestGradient(2, 1);
    gradient->setKernelOffsetX(kernelOffset);
    gradient->setPrimaryOffset({primaryOffset, 0, 0});
    const auto destination = poisoned(sizeOf(3, 1, 1));
    const auto commandBuffer = commands();
    std::shared_ptr<State> state;
    nearest(2, 1)->encode(commandBuffer, source, state, false);
    gradient->encode(commandBuffer, row({1, 2, 4, 8, 16, 32}), source, state, destination);
    run(commandBuffer);
    return valuesOf(*destination);
  };
  EXPECT_EQ(encoded(0, 0), (Values{3, 12, 48}));
  EXPECT_EQ(encoded(1, 0), (Values{6, 24, 32}));
  EXPECT_EQ(encoded(-1, 0), (Values{1, 6, 24}));
  EXPECT_EQ(encoded(-1, 1), (Values{3, 12, 48}));
  EXPECT_EQ(encoded(9, 0), (Values{0, 0, 0}));
  EXPECT_EQ(encoded(-9, 0), (Values{0, 0, 0}));
  const auto vertical = nearestGradient(1, 2);
  vertical->setKernelOffsetY(1);
  const auto destination = poisoned(sizeOf(1, 2, 1));
  const auto commandBuffer = commands();
  vertical->encode(commandBuffer, image(sizeOf(1, 4, 1), {1, 2, 4, 8}), image(sizeOf(1, 2, 1)), destination);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{6, 8}));
}

TEST_F(Upsampling, D9TheStateKeepsWhatTheForwardKernelHad) {
  const auto source = row({0, 12});
  const auto commandBuffer = commands();
  const auto forward = bilinear(2, 1);
  std::shared_ptr<State> state;
  forward->encode(commandBuffer, source, state, false);
  forward->setHalfPixelCenters(true);
  forward->setOffset({1, 0, 0});
  const auto destination =
      bilinearGradient(2, 1)->encode(commandBuffer, row({1, 10, 100, 1000}), source, state);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{6, 1105}));
}

TEST_F(Upsampling, D9TheCombinedEncodeIsTheSeparateSteps) {
  const auto source = row({1, 2, 4});
  const auto g = row({1, 2, 4, 8, 16, 32});
  const auto commandBuffer = commands();
  std::shared_ptr<State> combinedState;
  const auto combined = bilinear(2, 1)->encode(commandBuffer, source, combinedState, false);
  const auto combinedGradient = bilinearGradient(2, 1)->encode(commandBuffer, g, source, combinedState);

  const auto forward = CNNUpsamplingBilinear::create(device_, 2, 1);
  const auto gradient = CNNUpsamplingBilinearGradient::create(device_, 2, 1);
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

/// As for averages (docs/decisions.md, D10): only the size of sourceImage counts.
TEST_F(Upsampling, TheSourceImageIsNotRead) {
  const auto commandBuffer = commands();
  std::shared_ptr<State> state;
  nearest(2, 1)->encode(commandBuffer, row({1, 2}), state, false);
  const auto unwritten = TemporaryImage::create(commandBuffer, sizeOf(2, 1, 1));
  const auto gradient = nearestGradient(2, 1);
  const auto g = row({1, 2, 4, 8});
  const auto destination = gradient->encode(commandBuffer, g, unwritten, state);
  EXPECT_EQ(unwritten->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(commandBuffer, g, row({1, 2, 3}), state);
                    }),
                    {"CNNUpsamplingNearestGradient", "sourceImage", "3x1", "2x1"}));
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(commandBuffer, row({1, 2, 3}), row({1, 2}), state);
                    }),
                    {"CNNUpsamplingNearestGradient", "sourceGradient", "3x1", "4x1"}));
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{3, 12}));
  const detail::DerivativeTraits traits =
      static_cast<const detail::ImageKernel&>(*gradient).derivativeTraits();
  EXPECT_FALSE(traits.readsBesideSavedFields);
  EXPECT_FALSE(traits.readsWithoutSavedFields);
}

TEST_F(Upsampling, EncodesTakeOneReadOffTemporaryImages) {
  const auto commandBuffer = commands();
  const auto source = row({1, 2});
  const auto forward = CNNUpsamplingNearest::create(device_, 2, 1);
  std::shared_ptr<State> state;
  const auto result = forward->encode(commandBuffer, source, state, true);
  const auto* temporary = dynamic_cast<const TemporaryImage*>(result.get());
  ASSERT_NE(temporary, nullptr);
  EXPECT_EQ(temporary->readCount(), 1U);
  EXPECT_FALSE(state->isTemporary());
  const auto destination = permanent(CNNUpsamplingNearestGradient::create(device_, 2, 1))
                               ->encode(commandBuffer, result, source, state);
  EXPECT_EQ(temporary->readCount(), 0U);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*destination), (Values{2, 4}));
}

TEST_F(Upsampling, BatchesAndChannelRanges) {
  const auto sources = batch(sizeOf(2, 1, 5), 3, testing::counted(30));
  const auto forward = nearest(2, 1);
  forward->setSourceFeatureChannelOffset(4);
  const auto commandBuffer = commands();
  StateBatch states;
  const ImageBatch results = forward->encodeBatch(commandBuffer, sources, states, true);
  ASSERT_EQ(states.count(), 3U);
  const auto gradients = batch(sizeOf(4, 1, 1), 3, testing::counted(12));
  const auto whole = nearestGradient(2, 1)->encodeBatch(commandBuffer, gradients, sources, states);
  const auto last = nearestGradient(2, 1)->encode(commandBuffer, gradients[2], sources[2], states[2]);
  run(commandBuffer);
  Values values(12);
  results.readBytes(std::span(values), testing::pixelsFirst);
  EXPECT_EQ(values, (Values{5, 5, 10, 10, 15, 15, 20, 20, 25, 25, 30, 30}));
  Values gradientValues(30);
  whole.readBytes(std::span(gradientValues), testing::pixelsFirst);
  const Values ofLast = {0, 0, 0, 0, 19, 0, 0, 0, 0, 23};
  Values expected = {0, 0, 0, 0, 3, 0, 0, 0, 0, 7, 0, 0, 0, 0, 11, 0, 0, 0, 0, 15};
  expected.insert(expected.end(), ofLast.begin(), ofLast.end());
  EXPECT_EQ(gradientValues, expected);
  EXPECT_EQ(valuesOf(*last), ofLast);
}

TEST_F(Upsampling, GradientsAccumulate) {
  const auto sources = batch(sizeOf(2, 1, 1), 2, {1, 2, 3, 4});
  const auto commandBuffer = commands();
  StateBatch states;
  nearest(2, 1)->encodeBatch(commandBuffer, sources, states, false);
  const auto destinations = batch(sizeOf(2, 1, 1), 2, {100, 200, 300, 400});
  const auto gradient = nearestGradient(2, 1);
  EXPECT_TRUE(static_cast<const detail::ImageKernel&>(*gradient).derivativeTraits().canAccumulate);
  gradient->encodeBatchAccumulating(commandBuffer, batch(sizeOf(4, 1, 1), 2, testing::counted(8)), sources,
                                    states, destinations);
  run(commandBuffer);
  Values values(4);
  destinations.readBytes(std::span(values), testing::pixelsFirst);
  EXPECT_EQ(values, (Values{103, 207, 311, 415}));
}

TEST_F(Upsampling, StatesOfOtherKernelsAreRefused) {
  const auto commandBuffer = commands();
  const auto source = row({1, 2});
  const auto g = row({1, 2, 3, 4});
  std::shared_ptr<State> ofNearest, ofBilinear;
  const auto result = nearest(2, 1)->encode(commandBuffer, source, ofNearest, false);
  bilinear(2, 1)->encode(commandBuffer, source, ofBilinear, false);
  const auto expectRefusal = [&](const std::shared_ptr<CNNUpsamplingGradient>& gradient,
                                 const std::shared_ptr<State>& state, const std::vector<std::string>& words) {
    EXPECT_TRUE(names(errorOf([&] { gradient->encode(commandBuffer, g, source, state); }), words));
  };
  expectRefusal(nearestGradient(2, 1), ofBilinear,
                {"CNNUpsamplingNearestGradient", "gradientState", "CNNUpsamplingBilinear"});
  expectRefusal(bilinearGradient(2, 1), ofNearest,
                {"CNNUpsamplingBilinearGradient", "gradientState", "CNNUpsamplingNearest"});
  expectRefusal(nearestGradient(2, 1), nullptr, {"CNNUpsamplingNearestGradient", "gradientState", "null"});
  expectRefusal(nearestGradient(4, 1), ofNearest, {"scaleFactorX is 4", "2 as in the forward kernel"});
  expectRefusal(nearestGradient(2, 2), ofNearest, {"scaleFactorY is 2", "1 as in the forward kernel"});
  // A copy has the size of its result, so that it can be told apart only by its memory (docs/decisions.md, D11).
  std::shared_ptr<State> ofCopy;
  const auto copied = nearest(1, 1)->encode(commandBuffer, source, ofCopy, false);
  const auto ofItsSize = row({3, 4});
  EXPECT_TRUE(names(errorOf([&] { nearestGradient(1, 1)->encode(commandBuffer, ofItsSize, copied, ofCopy); }),
                    {"CNNUpsamplingNearestGradient", "sourceImage", "the forward result"}));
}

// Nodes
// ---------------------------------------------------------------------------------------------------------

template <class Kernel>
std::shared_ptr<Kernel> kernelOf(const NNFilterNode& node, const std::shared_ptr<mtl::Device>& device) {
  return std::dynamic_pointer_cast<Kernel>(node.makeKernel(device));
}

TEST_F(Upsampling, NodesMakeTheirKernels) {
  const auto source = NNImageNode::create();
  const auto near = CNNUpsamplingNearestNode::create(source, 2, 3);
  EXPECT_EQ(near->scaleFactorX(), 2.0);
  EXPECT_EQ(near->scaleFactorY(), 3.0);
  const auto nearKernel = kernelOf<CNNUpsamplingNearest>(*near, device_);
  ASSERT_TRUE(nearKernel);
  EXPECT_EQ(nearKernel->scaleFactorX(), 2.0);
  EXPECT_EQ(nearKernel->scaleFactorY(), 3.0);
  const auto nearGradient = near->gradientFilter(NNImageNode::create());
  EXPECT_EQ(nearGradient->className(), "CNNUpsamplingNearestGradientNode");
  EXPECT_EQ(nearGradient->sourceImage(), source);
  EXPECT_EQ(nearGradient->gradientState(), near->resultState());
  const auto nearGradientKernel = kernelOf<CNNUpsamplingNearestGradient>(*nearGradient, device_);
  ASSERT_TRUE(nearGradientKernel);
  EXPECT_EQ(nearGradientKernel->scaleFactorY(), 3.0);

  EXPECT_FALSE(CNNUpsamplingBilinearNode::create(source, 2, 3)->alignCorners());
  const auto linear = CNNUpsamplingBilinearNode::create(source, 4, 5, true);
  EXPECT_TRUE(linear->alignCorners());
  const auto linearKernel = kernelOf<CNNUpsamplingBilinear>(*linear, device_);
  ASSERT_TRUE(linearKernel);
  EXPECT_TRUE(linearKernel->alignCorners());
  EXPECT_EQ(linearKernel->scaleFactorX(), 4.0);
  const auto linearGradient = std::dynamic_pointer_cast<CNNUpsamplingBilinearGradientNode>(
      linear->gradientFilter(NNImageNode::create()));
  ASSERT_TRUE(linearGradient);
  EXPECT_EQ(linearGradient->scaleFactorX(), 4.0);
  EXPECT_EQ(linearGradient->scaleFactorY(), 5.0);
  EXPECT_TRUE(kernelOf<CNNUpsamplingBilinearGradient>(*linearGradient, device_));
  const auto halfPixel = CNNUpsamplingBilinearNode::create(source, 2, 2);
  EXPECT_FALSE(halfPixel->halfPixelCenters());
  halfPixel->setHalfPixelCenters(true);
  EXPECT_TRUE(kernelOf<CNNUpsamplingBilinear>(*halfPixel, device_)->halfPixelCenters());
}

TEST_F(Upsampling, GradientNodesRefuseFactorsThatAreNotWhole) {
  const auto image = NNImageNode::create();
  const auto state = CNNUpsamplingNearestNode::create(image, 2, 2);
  for (const double wrong :
       {0.0, -2.0, 1.5, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const auto inX = CNNUpsamplingNearestGradientNode::create(image, image, state->resultState(), wrong, 2);
    EXPECT_TRUE(names(errorOf([&] { static_cast<void>(inX->makeKernel(device_)); }),
                      {"CNNUpsamplingNearestGradientNode", "scaleFactorX", "a whole number"}));
    const auto inY = CNNUpsamplingBilinearGradientNode::create(image, image, state->resultState(), 2, wrong);
    EXPECT_TRUE(names(errorOf([&] { static_cast<void>(inY->makeKernel(device_)); }),
                      {"CNNUpsamplingBilinearGradientNode", "scaleFactorY", "a whole number"}));
  }
}

TEST_F(Upsampling, GradientsOfOtherNumbersOfChannelsAreRefused) {
  const auto buffer = commands();
  const auto source = image(sizeOf(1, 1, 8), Values(8, 1)),
             destination = image(sizeOf(1, 1, 8), Values(8, 0));
  const auto narrow = image(sizeOf(2, 1, 4), Values(8, 1));
  EXPECT_TRUE(names(errorOf([&] { nearestGradient(2, 1)->encode(buffer, narrow, source, destination); }),
                    {"CNNUpsamplingNearestGradient", "4, 8 and 8 feature channels"}));
  EXPECT_TRUE(names(errorOf([&] { bilinearGradient(2, 1)->encode(buffer, narrow, source, destination); }),
                    {"CNNUpsamplingBilinearGradient", "4, 8 and 8 feature channels"}));
}

TEST_F(Upsampling, KernelOffsetsBeyond32BitsAreRefused) {
  const auto gradient = nearestGradient(2, 1);
  gradient->setKernelOffsetX(std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(commands(), row({1, 2}), row({1}), row({0}));
                    }),
                    {"CNNUpsamplingNearestGradient", "kernelOffsetX"}));
}

}  // namespace
}  // namespace mps::upsampling_test
