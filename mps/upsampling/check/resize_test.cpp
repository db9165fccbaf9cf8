#include "mps/upsampling/resize.hpp"

#include <gtest/gtest.h>

#include "mps/core/image/state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/upsampling/scale_node.hpp"

/// The public classes and nodes. The arithmetic over all shapes is tested with
/// the plans of upsampling.
namespace mps::resize_test {
namespace {

using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class Resize : public DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<NNResizeBilinear> kernel(std::size_t width, std::size_t height,
                                                         bool alignCorners = false) const {
    auto made = NNResizeBilinear::create(device_, width, height, alignCorners);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  [[nodiscard]] std::shared_ptr<NNResizeBilinearGradient> gradientKernel() const {
    auto made = NNResizeBilinearGradient::create(device_);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  Values resized(const std::shared_ptr<NNResizeBilinear>& kernel) {
    const auto buffer = commands();
    const auto result = kernel->encode(buffer, row_);
    run(buffer);
    EXPECT_EQ(result->descriptor(), sizeOf(kernel->resizeWidth(), kernel->resizeHeight(), 1));
    return valuesOf(*result);
  }
  std::shared_ptr<Image> row_ = image(sizeOf(4, 1, 1), {0, 8, 16, 32});
};

TEST_F(Resize, EachWayOfAligning) {
  EXPECT_EQ(resized(kernel(8, 1)), (Values{0, 4, 8, 12, 16, 24, 32, 32}));
  EXPECT_EQ(resized(kernel(2, 1, true)), (Values{0, 32}));
  EXPECT_EQ(resized(kernel(1, 2, true)), (Values{0, 0}));
  const auto halfPixel = kernel(2, 1);
  halfPixel->setHalfPixelCenters(true);
  EXPECT_EQ(resized(halfPixel), (Values{4, 24}));
}

/// t(x) is 0 for every x where R is 1, in a destination of more pixels, too.
TEST_F(Resize, OnePixelWithAlignedCornersIsTheFirstOne) {
  const auto forward = kernel(1, 1, true);
  const auto wide = poisoned(sizeOf(3, 1, 1));
  const auto state = forward->resultState(row_);
  const auto source = image(sizeOf(4, 1, 1), {5, 8, 16, 32});
  const auto buffer = commands();
  forward->encode(buffer, source, state, wide);
  const auto dx = gradientKernel()->encode(buffer, image(sizeOf(3, 1, 1), {1, 10, 100}), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*wide), (Values{5, 5, 5}));
  EXPECT_EQ(valuesOf(*dx), (Values{111, 0, 0, 0}));
}

/// What is saved with the state counts, not what the kernel is set to later.
TEST_F(Resize, GradientIsTheAdjoint) {
  const auto forward = kernel(2, 1);
  forward->setHalfPixelCenters(true);
  const auto buffer = commands();
  std::shared_ptr<State> state;
  forward->encode(buffer, row_, state, false);
  forward->setHalfPixelCenters(false);
  const auto dx = gradientKernel()->encode(buffer, image(sizeOf(2, 1, 1), {2, 4}), row_, state);
  run(buffer);
  EXPECT_EQ(dx->descriptor(), row_->descriptor());
  EXPECT_EQ(valuesOf(*dx), (Values{1, 1, 2, 2}));
}

/// A part of the result, of a part of the channels.
TEST_F(Resize, ClipsAndRangesOfChannels) {
  const auto source = image(sizeOf(2, 1, 5), {9, 9, 9, 9, 2, 9, 9, 9, 9, 6});
  const auto forward = kernel(4, 1);
  forward->setSourceFeatureChannelOffset(4);
  forward->setClipRect({{1, 0, 0}, {3, 1, 1}});
  const auto result = poisoned(sizeOf(4, 1, 1));
  const auto buffer = commands();
  const auto state = forward->resultState(source);
  forward->encode(buffer, source, state, result);
  const auto dx = gradientKernel()->encode(buffer, image(sizeOf(4, 1, 1), {100, 1, 2, 4}), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 2, 4, 6}));
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, 0, 0, 2, 0, 0, 0, 0, 5}));
}

TEST_F(Resize, Batches) {
  const auto sources = batch(sizeOf(2, 2, 1), 2, {0, 2, 4, 6, 8, 10, 12, 14});
  const auto forward = kernel(3, 1, true);
  const auto buffer = commands();
  StateBatch states;
  const auto results = forward->encodeBatch(buffer, sources, states, false);
  const auto dx =
      gradientKernel()->encodeBatch(buffer, batch(sizeOf(3, 1, 1), 2, {1, 2, 3, 4, 6, 5}), sources, states);
  run(buffer);
  EXPECT_EQ(valuesOf(results), (Values{0, 1, 2, 8, 9, 10}));
  EXPECT_EQ(valuesOf(dx), (Values{2, 4, 0, 0, 7, 8, 0, 0}));
}

TEST_F(Resize, KeepsWhatItIsGiven) {
  const auto made = NNResizeBilinear::create(device_, 5, 6, true)->copy();
  EXPECT_EQ(made->className(), "NNResizeBilinear");
  EXPECT_EQ(made->resizeWidth(), 5U);
  EXPECT_EQ(made->resizeHeight(), 6U);
  EXPECT_TRUE(made->alignCorners());
  EXPECT_FALSE(made->halfPixelCenters());
  EXPECT_FALSE(NNResizeBilinear::create(device_, 5, 6)->alignCorners());
  EXPECT_EQ(gradientKernel()->copy()->className(), "NNResizeBilinearGradient");
}

TEST_F(Resize, WrongUseIsNamed) {
  for (const std::size_t size : {std::size_t{0}, (std::size_t{1} << 24U) + 1}) {
    EXPECT_TRUE(names(errorOf([&] { NNResizeBilinear::create(device_, size, 1); }), {"resizeWidth"}));
    EXPECT_TRUE(names(errorOf([&] { NNResizeBilinear::create(device_, 1, size); }), {"resizeHeight"}));
  }
  EXPECT_TRUE(names(errorOf([&] { kernel(2, 2, true)->setHalfPixelCenters(true); }), {"halfPixelCenters"}));
  const auto buffer = commands();
  const auto g = image(sizeOf(2, 1, 1), {1, 2});
  EXPECT_TRUE(names(errorOf([&] { gradientKernel()->encode(buffer, g, row_, poisoned(row_->descriptor())); }),
                    {"NNResizeBilinearGradient", "gradientState", "missing"}));
  std::shared_ptr<State> state;
  kernel(2, 1)->encode(buffer, row_, state, false);
  const auto gradient = gradientKernel();
  gradient->setSecondaryEdgeMode(ImageEdgeMode::Mirror);
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(buffer, g, row_, state); }), {"secondaryEdgeMode"}));
}

TEST_F(Resize, NodesMakeTheirKernels) {
  const auto node = NNBilinearScaleNode::create(NNImageNode::create(), {7, 5, 1});
  EXPECT_EQ(node->className(), "NNBilinearScaleNode");
  EXPECT_EQ(node->outputSize(), (mtl::Size{7, 5, 1}));
  const auto made = std::dynamic_pointer_cast<NNResizeBilinear>(node->makeKernel(device_));
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->resizeWidth(), 7U);
  EXPECT_EQ(made->resizeHeight(), 5U);
  EXPECT_TRUE(made->halfPixelCenters());
  const auto gradient = node->gradientFilter(NNImageNode::create());
  EXPECT_EQ(gradient->className(), "NNBilinearScaleGradientNode");
  EXPECT_NE(std::dynamic_pointer_cast<NNResizeBilinearGradient>(gradient->makeKernel(device_)), nullptr);
  EXPECT_TRUE(names(errorOf([&] {
                      NNBilinearScaleNode::create(NNImageNode::create(), {7, 5, 0});
                    }),
                    {"NNBilinearScaleNode", "outputSize", "depth 0"}));
}

}  // namespace
}  // namespace mps::resize_test
