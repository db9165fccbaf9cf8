#include "mps/reshape/pad.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "mps/core/image/state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/reshape/reshape_map.hpp"

/// The public classes, against examples computed by hand. The arithmetic over all shapes is
/// tested with the plans.
namespace mps::pad_test {
namespace {

using testing::counted;
using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;

class Pad : public DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<NNPad> pad(const ImageCoordinate& before, const ImageCoordinate& after,
                                           ImageEdgeMode edgeMode = ImageEdgeMode::Zero,
                                           std::span<const float> fill = {}) const {
    auto kernel = permanent(NNPad::create(device_, before, after, fill));
    kernel->setEdgeMode(edgeMode);
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<NNSlice> slice() const { return permanent(NNSlice::create(device_)); }
  [[nodiscard]] std::shared_ptr<Image> row(const Values& values) const {
    return image(sizeOf(values.size(), 1, 1), values);
  }
  [[nodiscard]] std::shared_ptr<Image> pixel(const Values& values) const {
    return image(sizeOf(1, 1, values.size()), values);
  }
  /// The gradient of a source after a forward encode that returns its result.
  Values gradientOf(NNPad& forward, const std::shared_ptr<Image>& source, const std::shared_ptr<Image>& g) {
    const auto buffer = commands();
    std::shared_ptr<State> state;
    forward.encode(buffer, source, state, false);
    const auto result = permanent(NNPadGradient::create(device_))->encode(buffer, g, source, state);
    run(buffer);
    return valuesOf(*result);
  }
};

TEST_F(Pad, DefaultsAreThoseOfTheTables) {
  const auto kernel = NNPad::create(device_);
  EXPECT_EQ(kernel->paddingSizeBefore(), ImageCoordinate{});
  EXPECT_EQ(kernel->paddingSizeAfter(), ImageCoordinate{});
  EXPECT_EQ(kernel->fillValue(), 0);
  EXPECT_EQ(kernel->edgeMode(), ImageEdgeMode::Zero);
  const Values fill{1, 2};
  const auto copy = NNPad::create(device_, {1, 2, 3}, {4, 5, 6}, fill)->copy(mtl::newCPUDevice(1));
  EXPECT_EQ(copy->paddingSizeBefore(), (ImageCoordinate{1, 2, 3}));
  EXPECT_EQ(copy->paddingSizeAfter(), (ImageCoordinate{4, 5, 6}));
  EXPECT_NE(NNPadGradient::create(device_)->copy(), nullptr);
  EXPECT_NE(NNSlice::create(device_)->copy(), nullptr);
}

TEST_F(Pad, ExampleRows) {
  const auto source = row({0, 1, 2, 3});
  const auto buffer = commands();
  const auto padded = [&](ImageEdgeMode edgeMode, float fillValue = 0) {
    const auto kernel = pad({2, 0, 0}, {2, 0, 0}, edgeMode);
    kernel->setFillValue(fillValue);
    auto result = kernel->encode(buffer, source);
    EXPECT_EQ(kernel->offset(), (Offset{-2, 0, 0}));
    return result;
  };
  const auto zero = padded(ImageEdgeMode::Zero, 9);
  const auto constant = padded(ImageEdgeMode::Constant, 9);
  const auto clamped = padded(ImageEdgeMode::Clamp);
  const auto mirrored = padded(ImageEdgeMode::Mirror);
  const auto twice = padded(ImageEdgeMode::MirrorWithEdge);
  run(buffer);
  EXPECT_EQ(valuesOf(*zero), (Values{0, 0, 0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(valuesOf(*constant), (Values{9, 9, 0, 1, 2, 3, 9, 9}));
  EXPECT_EQ(valuesOf(*clamped), (Values{0, 0, 0, 1, 2, 3, 3, 3}));
  EXPECT_EQ(valuesOf(*mirrored), (Values{2, 1, 0, 1, 2, 3, 2, 1}));
  EXPECT_EQ(valuesOf(*twice), (Values{1, 0, 0, 1, 2, 3, 3, 2}));
}

TEST_F(Pad, ExampleGradients) {
  const auto g = row({1, 2, 4, 8, 16, 32, 64, 128});
  EXPECT_EQ(gradientOf(*pad({2, 0, 0}, {3, 0, 0}, ImageEdgeMode::Clamp), row({0, 0, 0}), g),
            (Values{7, 8, 240}));
  EXPECT_EQ(gradientOf(*pad({4, 0, 0}, {1, 0, 0}, ImageEdgeMode::Mirror), row({0, 0, 0}), g),
            (Values{17, 170, 68}));
  EXPECT_EQ(gradientOf(*pad({4, 0, 0}, {1, 0, 0}, ImageEdgeMode::Constant), row({0, 0, 0}), g),
            (Values{16, 32, 64}));
}

/// The example of channels: 2 before, 3 after, x1 to x3 of six, from channel 4 on.
TEST_F(Pad, ExampleChannels) {
  const auto source = pixel({10, 11, 12, 13, 14, 15});
  const auto buffer = commands();
  const auto padded = [&](ImageEdgeMode edgeMode, std::shared_ptr<State>* state = nullptr) {
    const auto kernel = pad({0, 0, 2}, {0, 0, 3}, edgeMode);
    kernel->setSourceFeatureChannelOffset(1);
    kernel->setSourceFeatureChannelMaxCount(3);
    kernel->setDestinationFeatureChannelOffset(4);
    auto result = poisoned(sizeOf(1, 1, 13));
    const auto made = kernel->resultState(source);
    kernel->encode(buffer, source, made, result);
    if (state != nullptr) *state = made;
    return result;
  };
  const auto zero = padded(ImageEdgeMode::Zero);
  std::shared_ptr<State> state;
  const auto mirrored = padded(ImageEdgeMode::MirrorWithEdge, &state);
  const auto gradient =
      permanent(NNPadGradient::create(device_))->encode(buffer, pixel(counted(13, 0)), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*zero), (Values{poison, poison, poison, poison, 0, 0, 11, 12, 13, 0, 0, 0, poison}));
  EXPECT_EQ(valuesOf(*mirrored),
            (Values{poison, poison, poison, poison, 12, 11, 11, 12, 13, 13, 12, 11, poison}));
  EXPECT_EQ(valuesOf(*gradient), (Values{0, 5 + 6 + 11, 4 + 7 + 10, 8 + 9, 0, 0}));
}

/// Entry 0 of the array is for the first channel written; it takes over from fillValue.
TEST_F(Pad, FillValuesForEachChannel) {
  const auto source = pixel({1, 2});
  const Values fill{10, 20, 30, 40};
  const auto buffer = commands();
  const auto constant = pad({1, 0, 1}, {0, 0, 1}, ImageEdgeMode::Constant, fill);
  constant->setFillValue(7);
  const auto zero = pad({1, 0, 1}, {0, 0, 1}, ImageEdgeMode::Zero, fill);
  const auto ofConstant = constant->encode(buffer, source);
  const auto ofZero = zero->encode(buffer, source);
  run(buffer);
  EXPECT_EQ(valuesOf(*ofConstant), (Values{10, 20, 30, 40, 10, 1, 2, 40}));
  EXPECT_EQ(valuesOf(*ofZero), (Values{10, 0, 0, 40, 10, 1, 2, 40}));
  const auto few = pad({0, 0, 3}, {0, 0, 1}, ImageEdgeMode::Constant, fill);
  EXPECT_TRUE(names(errorOf([&] { few->encode(commands(), source); }),
                    {"NNPad", "fillValueArray", "4 values", "at least 6"}));
}

/// With a given destination offset and clipRect decide, and the gradient follows them.
TEST_F(Pad, OffsetAndClipRectOfAGivenDestination) {
  const auto source = row({1, 2, 3});
  const auto kernel = pad({100, 100, 0}, {100, 100, 0}, ImageEdgeMode::Clamp);
  kernel->setOffset({-1, 0, 0});
  kernel->setClipRect({{1, 0, 0}, {4, 1, 1}});
  const auto result = poisoned(sizeOf(6, 1, 1));
  const auto state = kernel->resultState(source);
  const auto buffer = commands();
  kernel->encode(buffer, source, state, result);
  const auto gradient = permanent(NNPadGradient::create(device_));
  const auto ofWhole = gradient->encode(buffer, row({100, 1, 2, 4, 8, 100}), source, state);
  const auto ofClip =
      permanent(NNPadGradient::create(device_))->encode(buffer, row({1, 2, 4, 8}), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 1, 1, 2, 3, poison}));
  EXPECT_EQ(valuesOf(*ofWhole), (Values{3, 4, 8}));
  EXPECT_EQ(valuesOf(*ofClip), (Values{3, 4, 8}));
}

TEST_F(Pad, FarOffsetsReadWhatTheirEdgeModeSays) {
  constexpr std::int64_t far = std::int64_t{1} << 30;
  const auto read = [&](ImageEdgeMode edgeMode, std::int64_t offset) {
    const auto kernel = slice();
    kernel->setEdgeMode(edgeMode);
    kernel->setOffset({offset, 0, 0});
    const auto destination = image(sizeOf(4, 1, 1), {-1, -1, -1, -1});
    const auto buffer = commands();
    kernel->encode(buffer, row({0, 1, 2}), destination);
    run(buffer);
    return valuesOf(*destination);
  };
  EXPECT_EQ(read(ImageEdgeMode::Clamp, far), (Values{2, 2, 2, 2}));
  EXPECT_EQ(read(ImageEdgeMode::Clamp, -far), (Values{0, 0, 0, 0}));
  EXPECT_EQ(read(ImageEdgeMode::Zero, far), (Values{0, 0, 0, 0}));
  EXPECT_EQ(read(ImageEdgeMode::Mirror, far), (Values{0, 1, 2, 1})) << "2^30 = 0 (mod 4)";
  EXPECT_EQ(read(ImageEdgeMode::MirrorWithEdge, far), (Values{1, 0, 0, 1})) << "2^30 = 4 (mod 6)";
  EXPECT_EQ(read(ImageEdgeMode::MirrorWithEdge, -far), (Values{2, 2, 1, 0})) << "-2^30 = 2 (mod 6)";
}

TEST_F(Pad, NearNumbersReadTheSameElements) {
  for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp, ImageEdgeMode::Mirror,
                                       ImageEdgeMode::MirrorWithEdge, ImageEdgeMode::Constant})
    for (const std::int64_t source : {1, 2, 3, 7})
      for (const std::int64_t result : {1, 4, 9})
        for (std::int64_t before = -40; before <= 40; ++before) {
          const std::int64_t near = detail::nearBefore(edgeMode, before, source, result);
          EXPECT_LE(std::abs(near), std::max(2 * source, result));
          for (std::int64_t position = 0; position < result; ++position)
            EXPECT_EQ(detail::mappedIndex(edgeMode, position - near, source),
                      detail::mappedIndex(edgeMode, position - before, source))
                << static_cast<int>(edgeMode) << ": " << before << " of " << source << ", " << result;
        }
}

TEST_F(Pad, WrongUseIsNamed) {
  const std::size_t tooLarge = (std::size_t{1} << 31U) + 1;
  EXPECT_TRUE(names(errorOf([&] {
                      NNPad::create(device_, {0, tooLarge, 0}, {});
                    }),
                    {"NNPad", "paddingSizeBefore", "2147483649"}));
  EXPECT_TRUE(names(errorOf([&] { NNPad::create(device_, {}, {0, 0, tooLarge}); }), {"paddingSizeAfter"}));
  const auto source = row({1, 2});
  const auto buffer = commands();
  for (const auto& kernel :
       {std::static_pointer_cast<CNNKernel>(pad({}, {})), std::static_pointer_cast<CNNKernel>(slice())}) {
    kernel->setEdgeMode(static_cast<ImageEdgeMode>(5));
    EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, source); }), {kernel->className(), "edgeMode"}));
  }
  const auto gradient = permanent(NNPadGradient::create(device_));
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(buffer, source, source, poisoned(sizeOf(2, 1, 1))); }),
                    {"NNPadGradient", "gradientState", "missing"}));
  std::shared_ptr<State> state;
  pad({1, 0, 0}, {}, ImageEdgeMode::Zero)->encode(buffer, source, state, false);
  gradient->setPrimaryOffset({1, 0, 0});
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(buffer, row({1, 2, 3}), source, state, poisoned(sizeOf(2, 1, 1)));
                    }),
                    {"primaryOffset", "x is 1", "0 to 0"}));
  const auto clipped = permanent(NNPadGradient::create(device_));
  clipped->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf([&] {
                      clipped->encode(buffer, row({1, 2, 3}), source, state, poisoned(sizeOf(2, 1, 1)));
                    }),
                    {"clipRect", "no clip"}));
}

TEST_F(Pad, SlicesKeepTheirOffset) {
  const auto source = image(sizeOf(3, 2, 3), counted(18));
  const auto kernel = slice();
  kernel->setOffset({1, 1, 0});
  kernel->setSourceFeatureChannelOffset(1);
  kernel->setSourceFeatureChannelMaxCount(1);
  const auto buffer = commands();
  const auto rest = kernel->encode(buffer, source);
  kernel->setClipRect({{0, 0, 0}, {1, 1, 1}});
  const auto one = kernel->encode(buffer, source);
  const auto placed = poisoned(sizeOf(2, 1, 2));
  kernel->setClipRect({{1, 0, 0}, {1, 1, 1}});
  kernel->encode(buffer, source, placed);
  run(buffer);
  EXPECT_EQ(kernel->offset(), (Offset{1, 1, 0}));
  EXPECT_EQ(rest->width(), 2U);
  EXPECT_EQ(rest->height(), 1U);
  EXPECT_EQ(valuesOf(*rest), (Values{14, 17}));
  EXPECT_EQ(valuesOf(*one), (Values{14}));
  EXPECT_EQ(valuesOf(*placed), (Values{poison, poison, 14, poison}));
  EXPECT_EQ(kernel->resultState(source), nullptr) << "a slice has no gradient kernel";
  kernel->setClipRect(RectNoClip);
  kernel->setOffset({3, 0, 0});
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(commands(), source); }), {"NNSlice", "offset", "3"}));
}

/// The gradient of a slice is a padding with zeros.
TEST_F(Pad, SlicesAreUndoneByPadding) {
  const auto kernel = slice();
  kernel->setOffset({1, 0, 0});
  kernel->setClipRect({{0, 0, 0}, {2, 1, 1}});
  const auto buffer = commands();
  const auto part = kernel->encode(buffer, row({1, 2, 3, 4}));
  const auto back = pad({1, 0, 0}, {1, 0, 0})->encode(buffer, part);
  kernel->setEdgeMode(ImageEdgeMode::Clamp);
  kernel->setOffset({-1, 0, 0});
  const auto outside = kernel->encode(buffer, row({5, 6}));
  run(buffer);
  EXPECT_EQ(valuesOf(*part), (Values{2, 3}));
  EXPECT_EQ(valuesOf(*back), (Values{0, 2, 3, 0}));
  EXPECT_EQ(valuesOf(*outside), (Values{5, 5}));
}

}  // namespace
}  // namespace mps::pad_test
