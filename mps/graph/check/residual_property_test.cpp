#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_primitives_cpu.hpp"
#include "mps/conform/testing/property_testing.hpp"
#include "mps/graph/check/test_network.hpp"

/// Random residual blocks with a projection, as graphs that train: every kernel's results and gradients against their float64
/// references, and trainings twice, with guards around the memory of each of oneDNN's primitives.
namespace mps::residual_property_test {
namespace {

using detail::GuardedPrimitives;
using detail::PageSide;
using detail::property_testing::Doing;
using detail::property_testing::Draw;

constexpr std::size_t kClasses = 5;

/// stem k x k -> TanH -> ( 3 x 3 with a stride -> TanH -> 3 x 3, perhaps in groups or dilated ) + projection 1 x 1 with that
/// stride -> TanH -> fully connected -> softmax cross-entropy.
struct Block {
  std::size_t batch, size, stride, channels, stem, stemKernel, groups, width, dilation;
  int threads;
  std::uint64_t seed;

  explicit Block(Draw& draw) {
    const auto between = [&](std::int64_t least, std::int64_t most) {
      return static_cast<std::size_t>(draw.between(least, most));
    };
    batch = 2 * between(0, 3) + 1;
    stride = between(2, 3);
    size = stride * between(2, 7);
    channels = between(1, 4);
    stem = between(1, 40);
    stemKernel = draw.of<std::size_t>({1, 3, 5, 7});
    groups = draw.of<std::size_t>({1, 1, 2, 3});
    width = groups * between(1, static_cast<std::int64_t>(40 / groups));
    dilation = draw.of<std::size_t>({1, 1, 2, 3});
    threads = detail::property_testing::drawThreads(draw);
    seed = draw.seed();
  }
  [[nodiscard]] std::string describe() const {
    return std::to_string(batch) + " images " + std::to_string(size) + "x" + std::to_string(size) + "x" +
           std::to_string(channels) + ", stem " + std::to_string(stemKernel) + "x" +
           std::to_string(stemKernel) + " to " + std::to_string(stem) + " channels, stride " +
           std::to_string(stride) + " to " + std::to_string(width) + ", " + std::to_string(groups) +
           " groups, dilation " + std::to_string(dilation) + ", " + std::to_string(threads) + " threads";
  }
};

class ResidualNet {
 public:
  explicit ResidualNet(const Block& block) : block_(block), device_(mtl::newCPUDevice(block.threads)) {
    const auto stem = convolution(NNImageNode::create(), block.stemKernel, block.channels, block.stem, 1);
    const auto trunk = smooth(stem);
    const auto first = smooth(convolution(trunk, 3, block.stem, block.width, block.stride));
    const auto main = CNNConvolutionNode::create(first, groupedLayer(block))->resultImage();
    const auto projection = convolution(trunk, 1, block.stem, block.width, block.stride);
    const auto sum = smooth(NNAdditionNode::create(main, projection)->resultImage());
    const auto dense =
        CNNFullyConnectedNode::create(sum, layer(block.size / block.stride, block.width, kClasses, 1));
    const auto loss = CNNLossNode::create(
        dense->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
    graph_ = NNGraph::create(device_, results, std::vector<bool>(results.size(), false));
  }

  [[nodiscard]] GradientCheckReport check() const {
    return checkGradients(*graph_, {pictures()}, {labels()}, {.seed = block_.seed, .elementsPerTensor = 1});
  }

  /// The weights of all layers after some steps.
  [[nodiscard]] std::vector<std::vector<float>> train() const {
    const auto queue = device_->newCommandQueue();
    for (int step = 0; step < 3; ++step) {
      const auto commandBuffer = queue->commandBuffer();
      graph_->encodeBatch(commandBuffer, {pictures()}, {labels()});
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
    }
    return test::weightsOf(layers_, device_);
  }

 private:
  std::shared_ptr<TrainableConvolution> layer(std::size_t kernel, std::size_t in, std::size_t out,
                                              std::size_t stride) {
    auto shape = CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out);
    shape.setStrideInPixelsX(stride);
    shape.setStrideInPixelsY(stride);
    return layerOf(shape);
  }
  std::shared_ptr<TrainableConvolution> groupedLayer(const Block& block) {
    auto shape = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, block.width, block.width);
    shape.setGroups(block.groups);
    shape.setDilationRateX(block.dilation);
    shape.setDilationRateY(block.dilation);
    return layerOf(shape);
  }
  std::shared_ptr<TrainableConvolution> layerOf(const CNNConvolutionDescriptor& shape) {
    layers_.push_back(TrainableConvolution::create(device_, shape, "layer" + std::to_string(layers_.size()),
                                                   block_.seed + layers_.size(), test::sgd(device_, 0.01F)));
    return layers_.back();
  }
  std::shared_ptr<NNImageNode> convolution(const std::shared_ptr<NNImageNode>& source, std::size_t kernel,
                                           std::size_t in, std::size_t out, std::size_t stride) {
    return CNNConvolutionNode::create(source, layer(kernel, in, out, stride))->resultImage();
  }
  /// Without a kink, next to which no derivative can be checked.
  static std::shared_ptr<NNImageNode> smooth(const std::shared_ptr<NNImageNode>& source) {
    return CNNNeuronTanHNode::create(source)->resultImage();
  }
  [[nodiscard]] ImageBatch pictures() const {
    auto images = ImageBatch::create(
        device_, {ImageFeatureChannelFormat::Float32, block_.size, block_.size, block_.channels},
        block_.batch);
    const auto values = detail::randomValues(block_.batch * block_.size * block_.size * block_.channels,
                                             block_.seed, detail::RandomKind::Uniform);
    const std::vector<float> stored(values.begin(), values.end());
    images.writeBytes(std::span<const float>(stored), DataLayout::HeightxWidthxFeatureChannels);
    return images;
  }
  [[nodiscard]] StateBatch labels() const {
    auto batch = CNNLossLabels::createClassBatch(device_, block_.batch);
    std::vector<std::uint8_t> classes(block_.batch);
    for (std::size_t i = 0; i < classes.size(); ++i)
      classes[i] = static_cast<std::uint8_t>((i + block_.seed) % kClasses);
    CNNLossLabels::writeClassIndices(batch, classes);
    return batch;
  }

  Block block_;
  std::shared_ptr<mtl::Device> device_;
  std::vector<std::shared_ptr<TrainableConvolution>> layers_;
  std::shared_ptr<NNGraph> graph_;
};

TEST(ResidualProperty, RandomBlocksTrain) {
  detail::property_testing::forRandomProblems({.count = 3, .seed = 1}, [](Draw& draw) {
    const Block block(draw);
    const Doing doing(block.describe());
    for (const PageSide side : {PageSide::Before, PageSide::After}) {
      const GuardedPrimitives guards(side);
      EXPECT_EQ(ResidualNet(block).check().describe(), "");
      EXPECT_EQ(guards.report(), "");
    }
    const auto weights = ResidualNet(block).train();
    EXPECT_EQ(weights, ResidualNet(block).train()) << "a second run";
    const GuardedPrimitives guards(PageSide::After);
    EXPECT_EQ(weights, ResidualNet(block).train()) << "a guarded run";
    EXPECT_EQ(guards.report(), "");
  });
}

}  // namespace
}  // namespace mps::residual_property_test
