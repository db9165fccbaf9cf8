#include "mps/reduction/reduction.hpp"

#include <gtest/gtest.h>

#include "mps/core/image/state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/reduction/reduction_node.hpp"
#include "mps/reduction/reduction_problem.hpp"

/// The public classes and nodes. The arithmetic over all shapes is tested with the
/// plans.
namespace mps::reduction_test {
namespace {

using testing::counted;
using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class Reduction : public DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  template <class Kernel>
  Values reduced(const std::string& className, const ImageDescriptor& size) {
    const auto kernel = permanent(Kernel::create(device_));
    EXPECT_EQ(kernel->className(), className);
    EXPECT_EQ(kernel->copy()->className(), className);
    const auto buffer = commands();
    const auto result = kernel->encode(buffer, small_);
    run(buffer);
    EXPECT_EQ(result->descriptor(), size) << className;
    return valuesOf(*result);
  }
  [[nodiscard]] std::shared_ptr<NNReduceUnaryGradient> gradientOf(const NNReduceUnary& forward) const {
    return permanent(NNReduceUnaryGradient::create(device_, forward.operation(), forward.axis()));
  }
  /// 2 rows of 3 pixels with 2 channels: (1,12) (2,11) (3,10) / (4,9) (5,8) (6,7).
  std::shared_ptr<Image> small_ = image(sizeOf(3, 2, 2), {1, 12, 2, 11, 3, 10, 4, 9, 5, 8, 6, 7});
};

TEST_F(Reduction, EachClassOfTheTable) {
  const auto row = sizeOf(1, 2, 2);
  EXPECT_EQ(reduced<NNReduceRowMin>("NNReduceRowMin", row), (Values{1, 10, 4, 7}));
  EXPECT_EQ(reduced<NNReduceRowMax>("NNReduceRowMax", row), (Values{3, 12, 6, 9}));
  EXPECT_EQ(reduced<NNReduceRowSum>("NNReduceRowSum", row), (Values{6, 33, 15, 24}));
  EXPECT_EQ(reduced<NNReduceRowMean>("NNReduceRowMean", row), (Values{2, 11, 5, 8}));
  const auto column = sizeOf(3, 1, 2);
  EXPECT_EQ(reduced<NNReduceColumnMin>("NNReduceColumnMin", column), (Values{1, 9, 2, 8, 3, 7}));
  EXPECT_EQ(reduced<NNReduceColumnMax>("NNReduceColumnMax", column), (Values{4, 12, 5, 11, 6, 10}));
  EXPECT_EQ(reduced<NNReduceColumnSum>("NNReduceColumnSum", column), (Values{5, 21, 7, 19, 9, 17}));
  EXPECT_EQ(reduced<NNReduceColumnMean>("NNReduceColumnMean", column),
            (Values{2.5F, 10.5F, 3.5F, 9.5F, 4.5F, 8.5F}));
  const auto one = sizeOf(3, 2, 1);
  EXPECT_EQ(reduced<NNReduceFeatureChannelsMin>("NNReduceFeatureChannelsMin", one), counted(6));
  EXPECT_EQ(reduced<NNReduceFeatureChannelsMax>("NNReduceFeatureChannelsMax", one),
            (Values{12, 11, 10, 9, 8, 7}));
  EXPECT_EQ(reduced<NNReduceFeatureChannelsSum>("NNReduceFeatureChannelsSum", one), Values(6, 13));
  EXPECT_EQ(reduced<NNReduceFeatureChannelsMean>("NNReduceFeatureChannelsMean", one), Values(6, 6.5F));
  EXPECT_EQ(reduced<NNReduceFeatureChannelsArgumentMin>("NNReduceFeatureChannelsArgumentMin", one),
            Values(6, 0));
  EXPECT_EQ(reduced<NNReduceFeatureChannelsArgumentMax>("NNReduceFeatureChannelsArgumentMax", one),
            Values(6, 1));
  EXPECT_EQ(reduced<NNReduceSpatialMean>("NNReduceSpatialMean", sizeOf(1, 1, 2)), (Values{3.5F, 9.5F}));
}

/// The region replaces offset; channels are counted from the first one that is read.
TEST_F(Reduction, RegionsAndRangesOfChannels) {
  const auto buffer = commands();
  const auto mean = permanent(NNReduceSpatialMean::create(device_));
  mean->setClipRectSource({{1, 0, 0}, {100, 1, 1}});
  mean->setOffset({5, 5, 0});
  std::shared_ptr<State> state;
  const auto result = mean->encode(buffer, small_, state, false);
  const auto dx = gradientOf(*mean)->encode(buffer, image(sizeOf(1, 1, 2), {2, 4}), small_, state);
  const auto argument = permanent(NNReduceFeatureChannelsArgumentMax::create(device_));
  argument->setSourceFeatureChannelOffset(4);
  const auto index = argument->encode(buffer, image(sizeOf(1, 1, 7), {9, 9, 9, 9, 1, 3, 3}));
  const auto sum = permanent(NNReduceFeatureChannelsSum::create(device_));
  sum->setWeight(0.5F);
  sum->setClipRect({{1, 1, 0}, {3, 2, 1}});
  const auto placed = poisoned(sizeOf(4, 3, 1));
  const auto sumState = sum->resultState(small_);
  sum->encode(buffer, small_, sumState, placed);
  const auto ofSum =
      gradientOf(*sum)->encode(buffer, image(sizeOf(4, 3, 1), counted(12, 0)), small_, sumState);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{2.5F, 10.5F}));
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, 1, 2, 1, 2, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(valuesOf(*index), (Values{1}));
  EXPECT_EQ(sum->copy()->weight(), 0.5F);
  EXPECT_EQ(valuesOf(*placed),
            (Values{poison, poison, poison, poison, poison, 6.5F, 6.5F, 6.5F, poison, 6.5F, 6.5F, 6.5F}));
  EXPECT_EQ(valuesOf(*ofSum), (Values{2.5F, 2.5F, 3, 3, 3.5F, 3.5F, 4.5F, 4.5F, 5, 5, 5.5F, 5.5F}));
}

/// The written block is as large as the table says; images of a batch lie apart or in one block.
TEST_F(Reduction, PixelsBesideTheResultStayAsTheyAre) {
  const auto other = image(sizeOf(3, 2, 2), counted(12));
  const Values expected{6, 33, poison, poison, poison, poison, 15, 24, poison, poison, poison, poison};
  const Values ofOther{9, 12, poison, poison, poison, poison, 27, 30, poison, poison, poison, poison};
  const auto rows = NNReduceRowSum::create(device_);
  const auto single = poisoned(sizeOf(3, 2, 2));
  const ImageBatch apart{poisoned(sizeOf(3, 2, 2)), poisoned(sizeOf(3, 2, 2))};
  const auto together = batch(sizeOf(3, 2, 2), 2, Values(24, poison));
  const auto buffer = commands();
  rows->encode(buffer, small_, single);
  rows->encodeBatch(buffer, {small_, other}, apart);
  rows->encodeBatch(buffer, {small_, other}, together);
  rows->setClipRect({{1, 0, 0}, {2, 2, 1}});
  const ImageBatch clipped{poisoned(sizeOf(3, 2, 2)), poisoned(sizeOf(3, 2, 2))};
  StateBatch states = rows->resultStateBatch({small_, other});
  rows->encodeBatch(buffer, {small_, other}, states, clipped);
  const auto dx = gradientOf(*rows)->encode(
      buffer, image(sizeOf(3, 2, 2), {9, 9, 1, 2, 9, 9, 9, 9, 3, 4, 9, 9}), small_, states[0]);
  run(buffer);
  EXPECT_EQ(valuesOf(*single), expected);
  for (const ImageBatch& results : {apart, together}) {
    EXPECT_EQ(valuesOf(*results[0]), expected);
    EXPECT_EQ(valuesOf(*results[1]), ofOther);
  }
  EXPECT_EQ(valuesOf(*clipped[1]),
            (Values{poison, poison, 9, 12, poison, poison, poison, poison, 27, 30, poison, poison}));
  EXPECT_EQ(valuesOf(*dx), (Values{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));
}

TEST_F(Reduction, GradientOfAnExtremumGoesToTheFirstOne) {
  const auto source = image(sizeOf(4, 1, 1), {3, 5, 5, 1});
  const auto kernel = permanent(NNReduceRowMax::create(device_));
  const auto buffer = commands();
  std::shared_ptr<State> state;
  kernel->encode(buffer, source, state, false);
  const auto dx = gradientOf(*kernel)->encode(buffer, image(sizeOf(1, 1, 1), {7}), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*dx), (Values{0, 7, 0, 0}));
}

TEST_F(Reduction, WrongUseIsNamed) {
  const auto buffer = commands();
  const auto mean = permanent(NNReduceSpatialMean::create(device_));
  mean->setClipRectSource({{3, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(
      names(errorOf([&] { mean->encode(buffer, small_); }), {"NNReduceSpatialMean", "clipRectSource"}));
  EXPECT_TRUE(names(errorOf([&] { mean->encode(buffer, small_, poisoned(sizeOf(1, 1, 2))); }),
                    {"clipRectSource", "outside"}));
  const auto rows = permanent(NNReduceRowSum::create(device_));
  EXPECT_TRUE(names(errorOf([&] { rows->encode(buffer, small_, poisoned(sizeOf(1, 1, 2))); }),
                    {"NNReduceRowSum", "destinationImage", "1x1", "1x2"}));
  for (const auto operation : {ReductionOperation::ArgumentMin, ReductionOperation::ArgumentMax})
    EXPECT_TRUE(names(
        errorOf([&] { NNReduceUnaryGradient::create(device_, operation, ReductionAxis::FeatureChannels); }),
        {"argument", "no gradient"}));
  const auto gradient = gradientOf(*rows);
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(buffer, small_, small_, poisoned(sizeOf(3, 2, 2))); }),
                    {"gradientState", "missing"}));
  std::shared_ptr<State> state;
  rows->encode(buffer, small_, state, false);
  const auto g = image(sizeOf(1, 2, 2), counted(4));
  EXPECT_NE(gradient->copy(), nullptr);
  EXPECT_TRUE(names(errorOf([&] { gradientOf(*mean)->encode(buffer, g, small_, state); }),
                    {"gradientState", "NNReduceRowSum"}));
  gradient->setPrimaryOffset({0, 1, 0});
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(buffer, g, small_, state, poisoned(sizeOf(3, 2, 2))); }),
                    {"sourceGradient", "1x2"}));
  const auto clipped = gradientOf(*rows);
  clipped->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf([&] { clipped->encode(buffer, g, small_, state, poisoned(sizeOf(3, 2, 2))); }),
                    {"clipRect", "no clip"}));
}

TEST_F(Reduction, NodesMakeTheirKernels) {
  const auto x = NNImageNode::create();
  const auto mean = NNReductionSpatialMeanNode::create(x);
  EXPECT_EQ(mean->className(), "NNReductionSpatialMeanNode");
  mean->setClipRectSource({{1, 1, 0}, {1, 1, 1}});
  const auto kernel = std::dynamic_pointer_cast<NNReduceSpatialMean>(mean->makeKernel(device_));
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->clipRectSource(), mean->clipRectSource());
  const auto gradient = mean->gradientFilter(NNImageNode::create());
  EXPECT_EQ(gradient->className(), "NNReductionSpatialMeanGradientNode");
  EXPECT_NE(std::dynamic_pointer_cast<NNReduceUnaryGradient>(gradient->makeKernel(device_)), nullptr);
  const auto sum = NNReductionFeatureChannelsSumNode::create(x);
  sum->setWeight(3);
  EXPECT_EQ(std::dynamic_pointer_cast<NNReduceFeatureChannelsSum>(sum->makeKernel(device_))->weight(), 3);
  EXPECT_EQ(sum->gradientFilter(NNImageNode::create())->className(), "NNUnaryReductionGradientNode");
  const auto argument = NNReductionFeatureChannelsArgumentMaxNode::create(x);
  EXPECT_TRUE(names(errorOf([&] { argument->gradientFilter(NNImageNode::create()); }),
                    {"NNReductionFeatureChannelsArgumentMaxNode", "no gradient"}));
}

/// Each node stands for its kernel, whose source region it sets, and all but the arguments of
/// minimum and maximum have a gradient (docs/decisions.md, D6).
template <class Node, class Kernel>
void expectNode(const std::shared_ptr<mtl::Device>& device, const std::string& name) {
  SCOPED_TRACE(name);
  const std::shared_ptr<NNUnaryReductionNode> node = Node::create(NNImageNode::create());
  EXPECT_EQ(node->className(), name);
  EXPECT_EQ(node->clipRectSource(), RectNoClip);
  node->setClipRectSource({{1, 2, 0}, {3, 4, 1}});
  const auto kernel = std::dynamic_pointer_cast<Kernel>(node->makeKernel(device));
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->clipRectSource(), node->clipRectSource());
  if (detail::traitsOf(kernel->operation()).isArgument) {
    EXPECT_TRUE(names(errorOf([&] { node->gradientFilter(NNImageNode::create()); }), {name, "no gradient"}));
    return;
  }
  const auto gradient = std::dynamic_pointer_cast<NNReduceUnaryGradient>(
      node->gradientFilter(NNImageNode::create())->makeKernel(device));
  ASSERT_NE(gradient, nullptr);
  EXPECT_TRUE(static_cast<const detail::ImageKernel&>(*gradient).acceptsForward(kernel->className()));
}

TEST_F(Reduction, EachNodeOfTheTable) {
  expectNode<NNReductionRowMinNode, NNReduceRowMin>(device_, "NNReductionRowMinNode");
  expectNode<NNReductionRowMaxNode, NNReduceRowMax>(device_, "NNReductionRowMaxNode");
  expectNode<NNReductionRowSumNode, NNReduceRowSum>(device_, "NNReductionRowSumNode");
  expectNode<NNReductionRowMeanNode, NNReduceRowMean>(device_, "NNReductionRowMeanNode");
  expectNode<NNReductionColumnMinNode, NNReduceColumnMin>(device_, "NNReductionColumnMinNode");
  expectNode<NNReductionColumnMaxNode, NNReduceColumnMax>(device_, "NNReductionColumnMaxNode");
  expectNode<NNReductionColumnSumNode, NNReduceColumnSum>(device_, "NNReductionColumnSumNode");
  expectNode<NNReductionColumnMeanNode, NNReduceColumnMean>(device_, "NNReductionColumnMeanNode");
  expectNode<NNReductionFeatureChannelsMinNode, NNReduceFeatureChannelsMin>(
      device_, "NNReductionFeatureChannelsMinNode");
  expectNode<NNReductionFeatureChannelsMaxNode, NNReduceFeatureChannelsMax>(
      device_, "NNReductionFeatureChannelsMaxNode");
  expectNode<NNReductionFeatureChannelsSumNode, NNReduceFeatureChannelsSum>(
      device_, "NNReductionFeatureChannelsSumNode");
  expectNode<NNReductionFeatureChannelsMeanNode, NNReduceFeatureChannelsMean>(
      device_, "NNReductionFeatureChannelsMeanNode");
  expectNode<NNReductionFeatureChannelsArgumentMinNode, NNReduceFeatureChannelsArgumentMin>(
      device_, "NNReductionFeatureChannelsArgumentMinNode");
  expectNode<NNReductionFeatureChannelsArgumentMaxNode, NNReduceFeatureChannelsArgumentMax>(
      device_, "NNReductionFeatureChannelsArgumentMaxNode");
  expectNode<NNReductionSpatialMeanNode, NNReduceSpatialMean>(device_, "NNReductionSpatialMeanNode");
}

}  // namespace
}  // namespace mps::reduction_test
