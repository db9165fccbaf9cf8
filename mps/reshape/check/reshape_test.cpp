#include "mps/reshape/reshape.hpp"

#include <gtest/gtest.h>

#include "mps/core/image/state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape_node.hpp"

/// The public classes and nodes. The arithmetic over all shapes is tested with the plans.
namespace mps::reshape_test {
namespace {

using testing::counted;
using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class Reshape : public DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  std::shared_ptr<NNReshape> reshape_ = permanent(NNReshape::create(device_));
  std::shared_ptr<NNReshapeGradient> gradient_ = permanent(NNReshapeGradient::create(device_));
};

TEST_F(Reshape, EveryEncodeThatTakesAShape) {
  const auto source = image(sizeOf(2, 3, 4), counted(24));
  const auto sources = batch(sizeOf(2, 3, 4), 2, counted(48));
  const auto buffer = commands();
  const auto one = reshape_->encode(buffer, source, 1, 2, 12);
  std::shared_ptr<State> state;
  const auto withState = reshape_->encode(buffer, source, state, false, 24, 1, 1);
  const auto all = reshape_->encodeBatch(buffer, sources, 1, 1, 24);
  StateBatch states;
  const auto allWithStates = reshape_->encodeBatch(buffer, sources, states, false, 3, 8, 1);
  const auto g = image(sizeOf(24, 1, 1), counted(24, 100));
  const auto dx = gradient_->encode(buffer, g, source, state);
  const auto given = poisoned(sizeOf(4, 6, 1));
  reshape_->encode(buffer, source, given);
  const auto plain = reshape_->encode(buffer, source);
  run(buffer);
  EXPECT_EQ(one->descriptor(), sizeOf(1, 2, 12));
  EXPECT_EQ(withState->descriptor(), sizeOf(24, 1, 1));
  EXPECT_EQ(all.descriptor(), sizeOf(1, 1, 24));
  EXPECT_EQ(allWithStates.descriptor(), sizeOf(3, 8, 1));
  EXPECT_EQ(states.count(), 2U);
  EXPECT_EQ(plain->descriptor(), sizeOf(2, 3, 4)) << "without a shape the source's";
  for (const auto& result : {one, withState, given, plain}) EXPECT_EQ(valuesOf(*result), counted(24));
  EXPECT_EQ(valuesOf(*all[1]), counted(24, 25));
  EXPECT_EQ(valuesOf(*allWithStates[1]), counted(24, 25));
  EXPECT_EQ(dx->descriptor(), source->descriptor());
  EXPECT_EQ(valuesOf(*dx), counted(24, 100));
}

/// A view of PyTorch's, whose tensors are [channel][y][x].
TEST_F(Reshape, ChannelsFirst) {
  EXPECT_FALSE(reshape_->channelsFirst());
  reshape_->setChannelsFirst(true);
  const auto values = counted(24);
  const auto source = Image::create(device_, sizeOf(2, 3, 4));
  source->writeBytes(std::span(values), DataLayout::FeatureChannelsxHeightxWidth);
  const auto g = Image::create(device_, sizeOf(4, 1, 6));
  g->writeBytes(std::span(values), DataLayout::FeatureChannelsxHeightxWidth);
  const auto read = [](const Image& image) {
    Values found(24);
    image.readBytes(std::span(found), DataLayout::FeatureChannelsxHeightxWidth);
    return found;
  };
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto result = reshape_->encode(buffer, source, state, false, 4, 1, 6);
  const auto copied = reshape_->copy()->encode(buffer, source, 24, 1, 1);
  reshape_->setChannelsFirst(false);
  const auto dx = gradient_->encode(buffer, g, source, state);
  run(buffer);
  EXPECT_EQ(read(*result), values);
  EXPECT_EQ(read(*copied), values);
  EXPECT_EQ(read(*dx), values) << "in the order of the forward encode";

  const auto node = NNReshapeNode::create(NNImageNode::create(), 1, 1, 12);
  EXPECT_FALSE(node->channelsFirst());
  node->setChannelsFirst(true);
  EXPECT_TRUE(std::dynamic_pointer_cast<NNReshape>(node->makeKernel(device_))->channelsFirst());
}

TEST_F(Reshape, RangesOfChannels) {
  const auto source = image(sizeOf(2, 1, 6), counted(12));
  reshape_->setSourceFeatureChannelOffset(4);
  reshape_->setDestinationFeatureChannelOffset(4);
  const auto result = poisoned(sizeOf(1, 2, 6));
  const auto state = reshape_->resultState(source);
  const auto buffer = commands();
  reshape_->encode(buffer, source, state, result);
  const auto dx = gradient_->encode(buffer, image(sizeOf(1, 2, 6), counted(12)), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*result),
            (Values{poison, poison, poison, poison, 5, 6, poison, poison, poison, poison, 11, 12}));
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 11, 12}));
}

TEST_F(Reshape, WrongUseIsNamed) {
  const auto source = image(sizeOf(2, 3, 4), counted(24));
  const auto buffer = commands();
  EXPECT_TRUE(names(errorOf([&] { reshape_->encode(buffer, source, 5, 5, 1); }),
                    {"NNReshape", "destinationImage", "5x5x1", "2x3x4"}));
  EXPECT_TRUE(names(errorOf([&] { reshape_->encode(buffer, source, 0, 24, 1); }), {"NNReshape", "0x24x1"}));
  EXPECT_EQ(reshape_->encode(buffer, source)->descriptor(), sizeOf(2, 3, 4))
      << "the shape of a failed encode is forgotten";
  EXPECT_NE(errorOf([&] { reshape_->encode(buffer, source, source); }), "") << "alias";
  const auto moved = permanent(NNReshape::create(device_));
  moved->setOffset({1, 0, 0});
  EXPECT_TRUE(names(errorOf([&] { moved->encode(buffer, source, poisoned(sizeOf(4, 6, 1))); }),
                    {"offset", "1, 0", "as a whole"}));
  const auto clipped = permanent(NNReshape::create(device_));
  clipped->setClipRect({{0, 0, 0}, {2, 2, 1}});
  EXPECT_TRUE(names(errorOf([&] { clipped->encode(buffer, source, poisoned(sizeOf(4, 6, 1))); }),
                    {"2x2x1 within clipRect"}));
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(buffer, source, source, poisoned(sizeOf(2, 3, 4))); }),
                    {"NNReshapeGradient", "gradientState", "missing"}));
  std::shared_ptr<State> state;
  reshape_->encode(buffer, source, state, false, 4, 6, 1);
  gradient_->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf([&] {
                      gradient_->encode(buffer, image(sizeOf(4, 6, 1), counted(24)), source, state,
                                        poisoned(sizeOf(2, 3, 4)));
                    }),
                    {"destinationGradient", "within clipRect"}));
}

TEST_F(Reshape, NodesMakeTheirKernels) {
  const auto x = NNImageNode::create();
  const auto node = NNReshapeNode::create(x, 1, 1, 12);
  node->setLabel("flat");
  const auto kernel = std::dynamic_pointer_cast<NNReshape>(node->makeKernel(device_));
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->label(), "flat");
  EXPECT_EQ(kernel->sizeDestination(sizeOf(2, 2, 3)), sizeOf(1, 1, 12));
  const auto gradient = node->gradientFilter(NNImageNode::create());
  EXPECT_NE(std::dynamic_pointer_cast<NNReshapeGradientNode>(gradient), nullptr);
  EXPECT_EQ(gradient->sourceImage(), x);
  EXPECT_NE(std::dynamic_pointer_cast<NNReshapeGradient>(gradient->makeKernel(device_)), nullptr);

  const auto padNode = NNPadNode::create(x, {1, 2, 3}, {4, 5, 6}, ImageEdgeMode::Constant);
  padNode->setFillValue(2);
  const auto pad = std::dynamic_pointer_cast<NNPad>(padNode->makeKernel(device_));
  ASSERT_NE(pad, nullptr);
  EXPECT_EQ(pad->edgeMode(), ImageEdgeMode::Constant);
  EXPECT_EQ(pad->fillValue(), 2);
  EXPECT_EQ(pad->sizeDestination(sizeOf(1, 1, 1)), sizeOf(6, 8, 10));
  const auto padGradient = padNode->gradientFilter(NNImageNode::create());
  EXPECT_NE(std::dynamic_pointer_cast<NNPadGradientNode>(padGradient), nullptr);
  EXPECT_EQ(padGradient->gradientState(), padNode->resultState());
  EXPECT_NE(std::dynamic_pointer_cast<NNPadGradient>(padGradient->makeKernel(device_)), nullptr);
  EXPECT_TRUE(
      names(errorOf([&] { static_cast<void>(NNReshapeNode::create(x, 0, 1, 1)->makeKernel(device_)); }),
            {"0x1x1"}));
}

}  // namespace
}  // namespace mps::reshape_test
