#include "mps/gram_matrix/gram_matrix.hpp"

#include <gtest/gtest.h>

#include "mps/core/image/state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/gram_matrix/gram_matrix_node.hpp"

/// The public classes and nodes. The arithmetic over all shapes is
/// tested with the plans.
namespace mps::gram_matrix_test {
namespace {

using testing::counted;
using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class GramMatrix : public DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<NNGramMatrixCalculation> kernel(float alpha) const {
    auto made = NNGramMatrixCalculation::create(device_, alpha);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  [[nodiscard]] std::shared_ptr<NNGramMatrixCalculationGradient> gradientKernel() const {
    auto made = NNGramMatrixCalculationGradient::create(device_);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  std::shared_ptr<Image> twoPixels_ = image(sizeOf(2, 1, 2), {1, 2, 3, 4});
};

/// Section 7.2: two pixels (1,2), (3,4), alpha 0.5.
TEST_F(GramMatrix, ExampleOfTwoPixels) {
  const auto buffer = commands();
  const auto forward = kernel(0.5F);
  std::shared_ptr<State> state;
  const auto result = forward->encode(buffer, twoPixels_, state, false);
  const auto gradient = gradientKernel();
  EXPECT_EQ(gradient->alpha(), 1);
  const auto dx = gradient->encode(buffer, image(sizeOf(2, 1, 2), {1, 0, 0, 0}), twoPixels_, state);
  EXPECT_EQ(gradient->alpha(), 0.5F);
  run(buffer);
  EXPECT_EQ(result->descriptor(), sizeOf(2, 1, 2));
  EXPECT_EQ(valuesOf(*result), (Values{5, 7, 7, 10}));
  EXPECT_EQ(valuesOf(*dx), (Values{1, 0, 3, 0}));
}

TEST_F(GramMatrix, TheStateKeepsAlpha) {
  const auto buffer = commands();
  const auto forward = kernel(2);
  const auto state = forward->resultState(twoPixels_);
  const auto result = poisoned(sizeOf(2, 1, 2));
  forward->encode(buffer, twoPixels_, state, result);
  forward->setAlpha(100);
  const auto dx = poisoned(sizeOf(2, 1, 2));
  gradientKernel()->encode(buffer, image(sizeOf(2, 1, 2), {1, 0, 0, 0}), twoPixels_, state, dx);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{20, 28, 28, 40}));
  EXPECT_EQ(valuesOf(*dx), (Values{4, 0, 12, 0}));
}

TEST_F(GramMatrix, GradientWithoutAStateTakesItsOwnAlpha) {
  const auto buffer = commands();
  const auto gradient = NNGramMatrixCalculationGradient::create(device_, 3);
  EXPECT_EQ(gradient->copy()->alpha(), 3);
  const auto dx = poisoned(sizeOf(2, 1, 2));
  gradient->encode(buffer, image(sizeOf(2, 1, 2), {0, 1, 0, 0}), twoPixels_, dx);
  run(buffer);
  EXPECT_EQ(valuesOf(*dx), (Values{6, 3, 12, 9}));
}

/// Channels 4 and 5 of six; the others have no gradient.
TEST_F(GramMatrix, RangesOfChannels) {
  const auto source = image(sizeOf(2, 1, 6), {9, 9, 9, 9, 1, 2, 9, 9, 9, 9, 3, 4});
  const auto forward = kernel(1);
  forward->setSourceFeatureChannelOffset(4);
  forward->setDestinationFeatureChannelOffset(4);
  const auto buffer = commands();
  const auto state = forward->resultState(source);
  const auto result = poisoned(sizeOf(2, 1, 6));
  forward->encode(buffer, source, state, result);
  EXPECT_EQ(forward->sizeDestination(source->descriptor()), sizeOf(2, 1, 6));
  const auto dx = gradientKernel()->encode(
      buffer, image(sizeOf(2, 1, 6), {7, 7, 7, 7, 1, 0, 7, 7, 7, 7, 0, 0}), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*result),
            (Values{poison, poison, poison, poison, 10, 14, poison, poison, poison, poison, 14, 20}));
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 6, 0}));
}

TEST_F(GramMatrix, Batches) {
  const auto sources = batch(sizeOf(1, 2, 2), 3, counted(12));
  const auto buffer = commands();
  const auto forward = kernel(1);
  StateBatch states;
  const auto results = forward->encodeBatch(buffer, sources, states, false);
  const auto gradients = batch(sizeOf(2, 1, 2), 3, {1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0});
  const auto dx = gradientKernel()->encodeBatch(buffer, gradients, sources, states);
  run(buffer);
  EXPECT_EQ(valuesOf(results), (Values{10, 14, 14, 20, 74, 86, 86, 100, 202, 222, 222, 244}));
  EXPECT_EQ(valuesOf(dx), (Values{2, 0, 6, 0, 0, 12, 0, 16, 10, 9, 12, 11}));
}

TEST_F(GramMatrix, WrongUseIsNamed) {
  const auto buffer = commands();
  const auto forward = kernel(1);
  const auto refusal = [&](const std::shared_ptr<Image>& destination) {
    return errorOf([&] { forward->encode(buffer, twoPixels_, destination); });
  };
  EXPECT_TRUE(names(refusal(poisoned(sizeOf(3, 1, 2))), {"destinationImage", "3x1x2", "2x1x2"}));
  EXPECT_TRUE(names(refusal(poisoned(sizeOf(2, 2, 2))), {"destinationImage", "2x2x2"}));
  forward->setOffset({0, 1, 0});
  EXPECT_TRUE(names(refusal(poisoned(sizeOf(2, 1, 2))), {"offset", "0, 1"}));
  forward->setOffset({});
  forward->setClipRect({{1, 0, 0}, {2, 1, 1}});
  EXPECT_TRUE(names(refusal(poisoned(sizeOf(3, 1, 2))), {"clipRect", "1, 0"}));

  std::shared_ptr<State> state;
  kernel(1)->encode(buffer, twoPixels_, state, false);
  const auto g = image(sizeOf(2, 1, 2), counted(4));
  const auto refused = [&](const auto& gradient, const std::shared_ptr<Image>& destination) {
    return errorOf([&] { gradient->encode(buffer, g, twoPixels_, state, destination); });
  };
  const auto dx = poisoned(sizeOf(2, 1, 2));
  const auto clipped = gradientKernel();
  clipped->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(refused(clipped, dx), {"clipRect", "no clip"}));
  const auto moved = gradientKernel();
  moved->setPrimaryOffset({1, 0, 0});
  EXPECT_TRUE(names(refused(moved, dx), {"primaryOffset", "1, 0"}));
  const auto movedSource = gradientKernel();
  movedSource->setSecondaryOffset({0, 2, 0});
  EXPECT_TRUE(names(refused(movedSource, dx), {"secondaryOffset", "0, 2"}));
  EXPECT_TRUE(names(refused(gradientKernel(), poisoned(sizeOf(2, 2, 2))), {"destinationGradient", "2x2x2"}));
  EXPECT_TRUE(names(
      errorOf([&] { gradientKernel()->encode(buffer, image(sizeOf(3, 1, 2), counted(6)), twoPixels_, dx); }),
      {"sourceGradient", "3x1x2", "2x1x2"}));
}

TEST_F(GramMatrix, NodesMakeTheirKernels) {
  const auto x = NNImageNode::create();
  const auto node = NNGramMatrixCalculationNode::create(x, 0.5F);
  EXPECT_EQ(node->className(), "NNGramMatrixCalculationNode");
  EXPECT_EQ(node->propertyCallBack(), nullptr);
  EXPECT_EQ(NNGramMatrixCalculationNode::create(x)->alpha(), 1);
  const auto made = std::dynamic_pointer_cast<NNGramMatrixCalculation>(node->makeKernel(device_));
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->alpha(), 0.5F);
  EXPECT_EQ(made->copy()->alpha(), 0.5F);
  const auto gradient = std::dynamic_pointer_cast<NNGramMatrixCalculationGradientNode>(
      node->gradientFilter(NNImageNode::create()));
  ASSERT_NE(gradient, nullptr);
  EXPECT_EQ(gradient->className(), "NNGramMatrixCalculationGradientNode");
  EXPECT_EQ(gradient->alpha(), 0.5F);
  const auto ofGradient =
      std::dynamic_pointer_cast<NNGramMatrixCalculationGradient>(gradient->makeKernel(device_));
  ASSERT_NE(ofGradient, nullptr);
  EXPECT_EQ(ofGradient->alpha(), 0.5F);
}

}  // namespace
}  // namespace mps::gram_matrix_test
