#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/memory.hpp"

/// What unary kernels read and write.
namespace mps::kernel_geometry_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using testing::WindowSum;

class KernelGeometry : public testing::ScaleTest {};

TEST_F(KernelGeometry, ClipRectanglesLeaveTheRestAlone) {
  const auto source = image(sizeOf(4, 3, 1), counted(12));
  const auto check = [&](const mtl::Region& clip, const Values& expected) {
    const auto result = poisoned(sizeOf(4, 3, 1));
    const auto buffer = commands();
    scale_->setClipRect(clip);
    scale_->encode(buffer, source, result);
    run(buffer);
    EXPECT_EQ(valuesOf(*result), expected);
  };
  constexpr float p = poison;
  // The clip rectangle's origin reads at offset: moving it does not shift what is read.
  check({{1, 1, 0}, {2, 1, 1}}, {p, p, p, p, p, 2, 4, p, p, p, p, p});
  check({{3, 2, 0}, {100, 100, 1}}, {p, p, p, p, p, p, p, p, p, p, p, 2});
  check({{2, 0, 0}, {std::numeric_limits<std::size_t>::max(), 1, 1}}, {p, p, 2, 4, p, p, p, p, p, p, p, p});
  check({{4, 0, 0}, {1, 1, 1}}, Values(12, p));
  check({{0, 3, 0}, {1, 1, 1}}, Values(12, p));
  check({{0, 0, 0}, {0, 3, 1}}, Values(12, p));
  check({{1, 1, 0}, {2, 2, 0}}, Values(12, p));
  check({{std::numeric_limits<std::size_t>::max(), 0, 0}, {5, 5, 1}}, Values(12, p));
}

TEST_F(KernelGeometry, WindowlessKernelsReadTheEdgeModeBeyondTheSource) {
  const auto source = image(sizeOf(2, 2, 1), {1, 2, 3, 4});
  const auto at = [&](const Offset& offset, ImageEdgeMode edgeMode) {
    const auto result = poisoned(sizeOf(3, 3, 1));
    const auto buffer = commands();
    scale_->setOffset(offset);
    scale_->setEdgeMode(edgeMode);
    scale_->encode(buffer, source, result);
    run(buffer);
    return valuesOf(*result);
  };
  EXPECT_EQ(at({-1, -1, 0}, ImageEdgeMode::Zero), (Values{0, 0, 0, 0, 2, 4, 0, 6, 8}));
  EXPECT_EQ(at({-1, -1, 0}, ImageEdgeMode::Clamp), (Values{2, 2, 4, 2, 2, 4, 6, 6, 8}));
  EXPECT_EQ(at({1, 0, 0}, ImageEdgeMode::Zero), (Values{4, 0, 0, 8, 0, 0, 0, 0, 0}));
  EXPECT_EQ(at({1, 0, 0}, ImageEdgeMode::Clamp), (Values{4, 4, 4, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(at({-9, 0, 0}, ImageEdgeMode::Zero), Values(9, 0));
  EXPECT_EQ(at({9, 9, 0}, ImageEdgeMode::Clamp), Values(9, 8));
}

TEST_F(KernelGeometry, WindowsReadAsTheCoordinateModelSays) {
  const auto source = image(sizeOf(5, 1, 1), {1, 10, 100, 1000, 10000});
  const auto at = [&](std::size_t size, std::size_t stride, std::size_t dilation, std::int64_t offset,
                      ImageEdgeMode edgeMode, std::size_t width) {
    const auto kernel = WindowSum::create(device_, size, stride, dilation);
    // The first row of taps is the image's only row.
    kernel->setOffset({offset, static_cast<std::int64_t>(((size - 1) * dilation + 1) / 2), 0});
    kernel->setEdgeMode(edgeMode);
    const auto result = poisoned(sizeOf(width, 1, 1));
    const auto buffer = commands();
    kernel->encode(buffer, source, result);
    run(buffer);
    return valuesOf(*result);
  };
  constexpr auto zero = ImageEdgeMode::Zero;
  EXPECT_EQ(at(2, 1, 1, 0, zero, 3), (Values{1, 11, 110})) << "even windows reach to the left";
  EXPECT_EQ(at(3, 2, 1, 1, zero, 2), (Values{111, 11100}));
  EXPECT_EQ(at(2, 1, 3, 2, zero, 2), (Values{1001, 10010})) << "taps at -2 and +1";
  EXPECT_EQ(at(3, 1, 1, -1, zero, 2), (Values{1, 11}));
  EXPECT_EQ(at(3, 1, 1, -1, ImageEdgeMode::Clamp, 2), (Values{9, 3 * 12}));
}

TEST_F(KernelGeometry, ChannelRangesOfSourceAndDestination) {
  const auto source = image(sizeOf(2, 1, 9), counted(18, 0));
  const auto result = poisoned(sizeOf(2, 1, 12));
  scale_->setSourceFeatureChannelOffset(4);
  scale_->setSourceFeatureChannelMaxCount(3);
  scale_->setDestinationFeatureChannelOffset(8);
  const auto buffer = commands();
  scale_->encode(buffer, source, result);
  run(buffer);
  Values expected(24, poison);
  for (std::size_t c = 0; c < 3; ++c) {
    expected[8 + c] = 2 * static_cast<float>(4 + c);
    expected[20 + c] = 2 * static_cast<float>(13 + c);
  }
  EXPECT_EQ(valuesOf(*result), expected) << "exactly the produced channels are written";
  scale_->setSourceFeatureChannelOffset(8);
  scale_->setSourceFeatureChannelMaxCount(100);
  EXPECT_EQ(scale_->encode(commands(), source)->featureChannels(), 9U) << "one channel behind offset 8";
}

TEST_F(KernelGeometry, ConcatenationWithoutACopy) {
  const auto result = poisoned(sizeOf(1, 1, 8));
  const auto buffer = commands();
  scale_->encode(buffer, image(sizeOf(1, 1, 4), {1, 2, 3, 4}), result);
  scale_->setDestinationFeatureChannelOffset(4);
  scale_->encode(buffer, image(sizeOf(1, 1, 4), {5, 6, 7, 8}), result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), scaled(counted(8)));
}

TEST_F(KernelGeometry, D16StacksAreAddressedByOffsetZAndClipOriginZ) {
  // The example of section 10.2: 5 sources, 4 destinations, images 2 and 3 go to 1 and 2.
  const auto source = image(sizeOf(1, 1, 1, 5), counted(5));
  const auto result = poisoned(sizeOf(1, 1, 1, 4));
  scale_->setOffset({0, 0, 2});
  mtl::Region clip = RectNoClip;
  clip.origin.z = 1;
  clip.size.depth = 2;
  scale_->setClipRect(clip);
  auto buffer = commands();
  scale_->encode(buffer, source, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 6, 8, poison}));
  clip.size.depth = RectNoClip.size.depth;
  scale_->setClipRect(clip);
  buffer = commands();
  scale_->encode(buffer, source, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 6, 8, 10})) << "without a depth as many as both have";
  const auto refused = [&](std::int64_t offset, std::size_t origin, std::size_t depth) {
    scale_->setOffset({0, 0, offset});
    scale_->setClipRect({{0, 0, origin}, {1, 1, depth}});
    return errorOf([&] { scale_->encode(commands(), source, result); });
  };
  EXPECT_TRUE(names(refused(-1, 0, 1), {"offset.z", "-1"}));
  EXPECT_TRUE(names(refused(5, 0, 1), {"offset.z", "5"}));
  EXPECT_TRUE(names(refused(0, 4, 1), {"clipRect.origin.z", "4"}));
  EXPECT_TRUE(names(refused(0, 0, 5), {"clipRect.size.depth", "5"}));
  EXPECT_TRUE(names(refused(3, 0, 3), {"clipRect.size.depth", "3"}));
  EXPECT_TRUE(names(refused(0, 2, 3), {"clipRect.size.depth", "3"}));
}

TEST_F(KernelGeometry, ChannelOffsetsApplyToEveryImageOfAStack) {
  const auto source = image(sizeOf(1, 1, 8, 2), counted(16));
  const auto result = poisoned(sizeOf(1, 1, 8, 2));
  scale_->setSourceFeatureChannelOffset(4);
  scale_->setSourceFeatureChannelMaxCount(2);
  const auto buffer = commands();
  scale_->encode(buffer, source, result);
  run(buffer);
  constexpr float p = poison;
  EXPECT_EQ(valuesOf(*result), (Values{10, 12, p, p, p, p, p, p, 26, 28, p, p, p, p, p, p}));
}

TEST_F(KernelGeometry, D16FormatsAreConverted) {
  const auto half = Image::create(device_, {ImageFeatureChannelFormat::Float16, 2, 1, 1});
  testing::fill(*half, {3, 4});
  const auto unorm = Image::create(device_, {ImageFeatureChannelFormat::Unorm8, 2, 1, 1});
  const std::uint8_t bytes[] = {0, 255};
  unorm->writeBytes(std::span(bytes), testing::pixelsFirst);
  const auto fromHalf = poisoned(sizeOf(2, 1, 1));
  const auto fromUnorm = Image::create(device_, {ImageFeatureChannelFormat::Float16, 2, 1, 1});
  const auto buffer = commands();
  scale_->encode(buffer, half, fromHalf);
  scale_->encode(buffer, unorm, fromUnorm);
  EXPECT_EQ(scale_->encode(buffer, half)->featureChannelFormat(), ImageFeatureChannelFormat::Float16);
  EXPECT_EQ(scale_->encode(buffer, unorm)->featureChannelFormat(), ImageFeatureChannelFormat::Float32);
  run(buffer);
  EXPECT_EQ(valuesOf(*fromHalf), (Values{6, 8}));
  EXPECT_EQ(valuesOf(*fromUnorm), (Values{0, 2}));
}

}  // namespace
}  // namespace mps::kernel_geometry_test
