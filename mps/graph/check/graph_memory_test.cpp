#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "mps/core/testing/test_images.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mtl/memory.hpp"

/// What a graph keeps for the sizes that it has seen, and what its results must not depend on: design
/// sections 4 and 14.
namespace mps::graph_memory_test {
namespace {

using test::SmallNetwork;
using testing::sizeOf;

class GraphMemory : public testing::DeviceTest {
 protected:
  /// A graph with temporary images: absolute value, maximum, average.
  std::shared_ptr<NNGraph> poolingGraph() {
    const auto absolute = CNNNeuronAbsoluteNode::create(NNImageNode::create());
    const auto maximum = CNNPoolingMaxNode::create(absolute->resultImage(), 3, 1);
    return NNGraph::create(device_,
                           CNNPoolingAverageNode::create(maximum->resultImage(), 3, 1)->resultImage());
  }
  void encode(NNGraph& graph, std::size_t width, std::size_t height) {
    const auto buffer = commands();
    graph.encode(buffer, {image(sizeOf(width, height, 1))});
    run(buffer);
  }
};

TEST_F(GraphMemory, OfManySizesOnlyTheLastFewKeepTheirMemory) {
  const auto graph = poolingGraph();
  encode(*graph, 1, 1);
  const std::size_t before = device_->currentAllocatedSize();
  encode(*graph, 512, 512);
  const std::size_t large = device_->currentAllocatedSize() - before;
  ASSERT_GE(large, 512U * 512U * sizeof(float)) << "the temporary images of one layout";
  for (std::size_t i = 0; i < 7; ++i) encode(*graph, 8, 8 + i);
  EXPECT_GE(device_->currentAllocatedSize() - before, large) << "eight are kept";
  encode(*graph, 8, 64);
  EXPECT_LT(device_->currentAllocatedSize() - before, large / 8) << "the ninth drops the first";
  const std::size_t bound = device_->currentAllocatedSize() + 8 * 4 * 64 * 64 * sizeof(float);
  for (std::size_t i = 0; i < 100; ++i) {
    encode(*graph, 16 + i % 48, 16 + i / 3);
    ASSERT_LE(device_->currentAllocatedSize(), bound) << i;
  }
}

TEST_F(GraphMemory, ASizeThatIsUsedAgainIsKept) {
  const auto graph = poolingGraph();
  encode(*graph, 256, 256);
  const std::size_t with = device_->currentAllocatedSize();
  for (std::size_t i = 0; i < 30; ++i) {
    encode(*graph, 4, 4 + i);
    encode(*graph, 256, 256);
  }
  EXPECT_GE(device_->currentAllocatedSize(), with);
  EXPECT_EQ(graph->plannedTemporaryBytes() % (256 * 256 * sizeof(float)), 0U);
}

/// Blocks of the device's pool and of a queue's heap in another order than a fresh process gives them, and
/// full of NaNs.
void shuffleAndPoison(mtl::Device& device, mtl::CommandQueue& queue, unsigned seed,
                      std::vector<std::shared_ptr<mtl::Memory>>& kept) {
  std::mt19937 random(seed);
  std::vector<std::shared_ptr<mtl::Memory>> blocks;
  for (int i = 0; i < 200; ++i) {
    const std::size_t bytes = std::size_t{64} << (random() % 11U);
    blocks.push_back(i % 2 == 0 ? device.allocate(bytes) : queue.heap()->allocate(bytes));
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& block : blocks)
    for (std::size_t at = 0; at + sizeof nan <= block->length(); at += sizeof nan)
      std::memcpy(block->address() + at, &nan, sizeof nan);
  std::shuffle(blocks.begin(), blocks.end(), random);
  kept.assign(blocks.begin(), blocks.begin() + 50);  // holes between what comes back
}

/// docs/decisions.md, D10: a training graph keeps the source of a pooling for the gradient only where that reads its
/// elements.
TEST_F(GraphMemory, D10TheSourceOfAnAverageIsNotKeptForItsGradient) {
  const ImageDescriptor size = sizeOf(64, 64, 1);
  const auto plannedBytes = [&](const auto& makePooling) {
    const auto before = CNNNeuronLinearNode::create(NNImageNode::create(), 2, 1);
    const auto pooling = makePooling(before->resultImage());
    const auto behind = CNNPoolingAverageNode::create(pooling->resultImage(), 3, 1);
    const auto loss = CNNLossNode::create(
        behind->resultImage(),
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, CNNReductionType::Sum));
    const auto graph = NNGraph::create(device_, loss->trainingGraph(nullptr)[0]->resultImage());
    const auto buffer = commands();
    graph->encode(buffer, {image(size)}, {CNNLossLabels::create(device_, {1, 1, 1}, image(size), nullptr)});
    run(buffer);
    return graph->plannedTemporaryBytes();
  };
  const std::size_t average =
      plannedBytes([](const auto& x) { return CNNPoolingAverageNode::create(x, 3, 1); });
  const std::size_t maximum = plannedBytes([](const auto& x) { return CNNPoolingMaxNode::create(x, 3, 1); });
  const std::size_t norm = plannedBytes([](const auto& x) { return CNNPoolingL2NormNode::create(x, 3, 1); });
  EXPECT_EQ(norm, average + testing::elementsOf(size) * sizeof(float)) << "it reads its source";
  EXPECT_EQ(maximum, average) << "it has saved the places";
}

TEST_F(GraphMemory, StepsOnShuffledAndPoisonedMemoryGiveTheSameBits) {
  const auto trained = [](unsigned seed) {
    const auto device = mtl::newCPUDevice(2);
    const auto queue = device->newCommandQueue();
    std::vector<std::shared_ptr<mtl::Memory>> kept;
    if (seed != 0) shuffleAndPoison(*device, *queue, seed, kept);
    const auto first = test::layer(device, 3, 1, 4, "conv");
    const auto second = test::layer(device, 4, 4, 3, "dense");
    const auto graph = SmallNetwork(first, second).trainingGraph(device);
    test::train(*graph, device, 4, 2, queue);
    std::vector<float> weights = test::weightsOf(*first);
    const std::vector<float> more = test::weightsOf(*second);
    weights.insert(weights.end(), more.begin(), more.end());
    return weights;
  };
  const auto expected = trained(0);
  const unsigned base = std::random_device{}() % 100000 + 1;
  for (unsigned seed = base; seed < base + 5; ++seed) {
    const auto found = trained(seed);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace mps::graph_memory_test
