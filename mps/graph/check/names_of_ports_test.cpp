#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/core/array/nd_array.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/array_ref.hpp"
#include "mps/graph/check/test_network.hpp"

/// What somebody who ports a program tries first: lists in every shape, nullptr for nil, and one way to make objects.
namespace mps::names_of_ports_test {
namespace {

using test::SmallNetwork;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;

std::vector<int> listOf(ArrayRef<int> list) {
  return {list.begin(), list.end()};
}

TEST(ArrayRefTest, IsAVectorAnArrayABracedListOneElementOrNothing) {
  EXPECT_EQ(listOf(std::vector{1, 2}), (std::vector{1, 2}));
  EXPECT_EQ(listOf(std::array{3, 4}), (std::vector{3, 4}));
  const int numbers[] = {5, 6};
  EXPECT_EQ(listOf(numbers), (std::vector{5, 6}));
  EXPECT_EQ(listOf(std::span(numbers)), (std::vector{5, 6}));
  EXPECT_EQ(listOf({7, 8, 9}), (std::vector{7, 8, 9}));
  EXPECT_EQ(listOf(7), std::vector{7});
  EXPECT_EQ(listOf({}), std::vector<int>());
  EXPECT_EQ(listOf(nullptr), std::vector<int>());
}

class NamesOfPortsTest : public testing::DeviceTest {
 protected:
  SmallNetwork smallNetwork() const {
    return {TrainableConvolution::create(device_, CNNConvolutionDescriptor::create(3, 3, 1, 4), "first", 1,
                                         nullptr),
            TrainableConvolution::create(device_, CNNConvolutionDescriptor::create(4, 4, 4, 3), "second", 2,
                                         nullptr),
            false};
  }
  /// Loss labels one by one, as programs make them.
  std::vector<std::shared_ptr<CNNLossLabels>> labels(std::size_t count) const {
    std::vector<std::shared_ptr<CNNLossLabels>> made;
    const std::vector<float> label{0, 1, 0};
    for (std::size_t i = 0; i < count; ++i)
      made.push_back(CNNLossLabels::create(
          device_, {1, 1, 1},
          CNNLossDataDescriptor::create(label, DataLayout::HeightxWidthxFeatureChannels, {1, 1, 3}),
          nullptr));
    return made;
  }
};

TEST_F(NamesOfPortsTest, AGraphTakesListsOfLabelsInEveryShape) {
  const SmallNetwork network = smallNetwork();
  const auto graph = NNGraph::create(device_, {network.loss->resultImage()}, {true});
  const auto images = ImageBatch::create(device_, sizeOf(8, 8, 1), 2);
  images.writeBytes(Values(128, 0.5F), DataLayout::HeightxWidthxFeatureChannels);
  const auto list = labels(2);
  const StateBatch batch = list;
  std::vector<std::vector<float>> losses;
  const auto encode = [&](const auto& encodeOn) {
    const auto commandBuffer = commands();
    encodeOn(commandBuffer);
    run(commandBuffer);
    losses.emplace_back(2);
    CNNLossLabels::lossImages(list).readBytes(losses.back(), DataLayout::HeightxWidthxFeatureChannels);
  };
  encode([&](const auto& buffer) { graph->encodeBatch(buffer, {images}, {list}); });
  encode([&](const auto& buffer) { graph->encodeBatch(buffer, {images}, {{list[0], list[1]}}); });
  encode([&](const auto& buffer) { graph->encodeBatch(buffer, {images}, {batch}, nullptr, nullptr); });
  encode([&](const auto& buffer) { graph->encodeBatch(buffer, images, batch); });
  encode([&](const auto& buffer) {
    graph->encodeBatch(buffer, std::vector<ImageBatch>{images}, std::vector<StateBatch>{batch});
  });
  encode([&](const auto& buffer) { graph->encodeBatch(buffer, {{images[0], images[1]}}, {list}); });
  for (const auto& found : losses) {
    EXPECT_GT(found[0], 0);
    EXPECT_EQ(found, losses[0]);
  }
}

TEST_F(NamesOfPortsTest, NullptrIsNoListOfStates) {
  const SmallNetwork network = smallNetwork();
  const auto inference = NNGraph::create(device_, network.dense->resultImage());
  const auto image = this->image(sizeOf(8, 8, 1), Values(64, 1));
  const auto buffer = commands();
  EXPECT_NE(inference->encode(buffer, {image}, nullptr, nullptr, nullptr), nullptr);
  EXPECT_EQ(inference->encodeBatch(buffer, {ImageBatch{image}}, nullptr, nullptr, nullptr).size(), 1U);

  const auto kernel = CNNConvolution::create(device_, network.first);
  EXPECT_EQ(kernel->destinationImageDescriptor({image}, nullptr), kernel->destinationImageDescriptor(image));
  EXPECT_NE(kernel->resultState(image, nullptr, nullptr), nullptr);
  EXPECT_EQ(kernel->resultStateBatch({image, image}, nullptr, nullptr).size(), 2U);
  EXPECT_NE(kernel->temporaryResultState(buffer, image, nullptr, nullptr), nullptr);
  EXPECT_EQ(kernel->encodingStorageSize(image, nullptr, nullptr), kernel->encodingStorageSize(image));

  const auto weights = CNNLossLabels::createBatch(device_, {1, 1, 1}, ImageBatch{image}, nullptr);
  EXPECT_EQ(weights.size(), 1U);
  auto descriptor = CNNConvolutionDescriptor::create(1, 1, 1, 2);
  descriptor.setBatchNormalizationParametersForInference({1, 2}, {3, 4}, nullptr, nullptr, 0);
  EXPECT_EQ(descriptor.folding()->shift.size(), 2U);
}

TEST_F(NamesOfPortsTest, BracesAroundAFlagAreAListOfFlags) {
  const SmallNetwork network = smallNetwork();
  EXPECT_FALSE(NNGraph::create(device_, {network.loss->resultImage()}, {false})->resultImageIsNeeded());
  EXPECT_FALSE(NNGraph::create(device_, network.loss->resultImage(), false)->resultImageIsNeeded());
  EXPECT_TRUE(NNGraph::create(device_, network.loss->resultImage())->resultImageIsNeeded());
  EXPECT_TRUE(names(errorOf([&] {
                      NNGraph::create(device_, {network.loss->resultImage()}, {true, true});
                    }),
                    {"resultsAreNeeded"}));
}

TEST_F(NamesOfPortsTest, NodesOfSeveralSourcesTakeBraces) {
  const auto a = NNImageNode::create(), b = NNImageNode::create();
  EXPECT_EQ(NNConcatenationNode::create({a, b})->sources().size(), 2U);
  EXPECT_EQ(NNAdditionNode::create({a, b})->sources().size(), 2U);
  EXPECT_EQ(NNAdditionNode::create(std::vector{a, b})->sources().size(), 2U);
}

TEST(DescriptorNamesTest, ApplesNamesAreCreate) {
  EXPECT_EQ(CNNLossDescriptor::create(CNNLossType::Huber, CNNReductionType::Mean),
            CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Huber, CNNReductionType::Mean));
  EXPECT_EQ(CNNConvolutionDescriptor::create(3, 5, 2, 4).describe(),
            CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 5, 2, 4).describe());
  EXPECT_EQ(CNNDepthWiseConvolutionDescriptor::create(3, 5, 2, 4).channelMultiplier(),
            CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(3, 5, 2, 4).channelMultiplier());
  EXPECT_EQ(CNNSubPixelConvolutionDescriptor::create(3, 5, 2, 4).describe(),
            CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(3, 5, 2, 4).describe());
  EXPECT_EQ(NNNeuronDescriptor::create(CNNNeuronType::Power, 1, 2, 3),
            NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Power, 1, 2, 3));
  EXPECT_EQ(VectorDescriptor::create(5, DataType::Float32),
            VectorDescriptor::vectorDescriptor(5, DataType::Float32));
  EXPECT_EQ(MatrixDescriptor::create(5, 2, 8, DataType::Float32),
            MatrixDescriptor::matrixDescriptor(5, 2, 8, DataType::Float32));
  EXPECT_EQ(NDArrayDescriptor::create(DataType::Float32, {2, 3}),
            NDArrayDescriptor::descriptor(DataType::Float32, {2, 3}));
  EXPECT_EQ(NNOptimizerDescriptor::create(1, 2, NNRegularizationType::L1, 3),
            NNOptimizerDescriptor::optimizerDescriptor(1, 2, NNRegularizationType::L1, 3));
  EXPECT_EQ(NNDefaultPadding::create(NNPaddingMethod::SizeFull)->paddingMethod(),
            NNDefaultPadding::padding(NNPaddingMethod::SizeFull)->paddingMethod());
  EXPECT_EQ(ImageDescriptor::create(ImageFeatureChannelFormat::Float32, 3, 2, 1),
            ImageDescriptor(ImageFeatureChannelFormat::Float32, 3, 2, 1));
  const std::array<float, 2> numbers{1, 2};
  EXPECT_EQ(CNNLossDataDescriptor::create(numbers, DataLayout::HeightxWidthxFeatureChannels, {1, 1, 2})
                .size()
                .depth,
            CNNLossDataDescriptor::cnnLossDataDescriptor(numbers, DataLayout::HeightxWidthxFeatureChannels,
                                                         {1, 1, 2})
                .size()
                .depth);
}

}  // namespace
}  // namespace mps::names_of_ports_test
