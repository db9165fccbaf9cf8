#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/distributed/communicator.hpp"
#include "mps/graph/check/test_ranks_network.hpp"
#include "mps/loss/loss_node.hpp"

/// Losses of a batch that ranks share: a count by which they divide is that of the whole batch.
namespace mps::distributed_loss_test {
namespace {

using test::SmallNetwork;
using Device = std::shared_ptr<mtl::Device>;
using Ranks = std::shared_ptr<Communicator>;
using Weights = std::vector<std::vector<float>>;

constexpr unsigned steps = 6;
constexpr std::size_t classes = 3;
constexpr auto layout = DataLayout::HeightxWidthxFeatureChannels;

/// Neighbours in the batch.
struct Part {
  std::size_t first, count;
};
/// A rank's. @param rank null: all of it
Part partOf(const Ranks& rank) {
  if (!rank) return {0, SmallNetwork::batch};
  const auto place = static_cast<std::size_t>(rank->rank()), size = static_cast<std::size_t>(rank->size());
  const std::size_t first = SmallNetwork::batch * place / size;
  return {first, SmallNetwork::batch * (place + 1) / size - first};
}

/// Losses of all steps, and the weights behind the last one.
struct Course {
  std::vector<float> losses;
  Weights weights;
};

/// A number for each class of each image.
ImageBatch numbers(const Device& device, unsigned step, std::size_t kinds, float unit) {
  auto images =
      ImageBatch::create(device, {ImageFeatureChannelFormat::Float32, 1, 1, classes}, SmallNetwork::batch);
  std::vector<float> values(classes * SmallNetwork::batch);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = unit * static_cast<float>((i * i + step) % kinds);
  images.writeBytes(values, layout);
  return images;
}
ImageBatch targets(const Device& device, unsigned step) {
  return numbers(device, step, 3, 0.25F);
}
/// Factors of the labels: 0, 0.5 ... 2, so that each rank has other ones.
ImageBatch labelWeights(const Device& device, unsigned step) {
  return numbers(device, step, 5, 0.5F);
}

void run(const Device& device,
         const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  encode(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

/// With a loss over the whole batch, one number, of which each rank has its part.
Course trainedAcrossTheBatch(const Device& device, const Ranks& rank, CNNReductionType reduction,
                             bool hasLabelWeights) {
  const auto layer = test::layer(device, 8, 1, classes, "dense");
  auto descriptor = CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, reduction);
  descriptor.setReduceAcrossBatch(true);
  const auto dense = CNNFullyConnectedNode::create(NNImageNode::create(), layer);
  const auto loss = NNForwardLossNode::create(dense->resultImage(), NNImageNode::create(),
                                              hasLabelWeights ? NNImageNode::create() : nullptr, descriptor);
  loss->resultImage()->setExportFromGraph(true);
  loss->resultImage()->setImageAllocator(Image::defaultAllocator());
  const auto ones = NNInitialGradientNode::create(loss->resultImage())->resultImage();
  const auto graph = NNGraph::create(device, loss->trainingGraph(ones)[0]->resultImage(), false);
  graph->setCommunicator(rank);
  const Part part = partOf(rank);
  if (rank) graph->setBatchShare(part.first, SmallNetwork::batch);
  Course course;
  for (unsigned step = 0; step < steps; ++step) {
    std::vector<ImageBatch> sources{test::pictures(device, step).slice(part.first, part.count),
                                    targets(device, step).slice(part.first, part.count)};
    if (hasLabelWeights) sources.push_back(labelWeights(device, step).slice(part.first, part.count));
    std::vector<ImageBatch> losses;
    run(device, [&](const auto& commandBuffer) { graph->encodeBatch(commandBuffer, sources, {}, &losses); });
    losses.at(0)[0]->readBytes(std::span(&course.losses.emplace_back(), 1), layout);
  }
  course.weights = test::weightsOf({layer}, device);
  return course;
}

/// With a loss of each image.
Course trainedWithLabelWeights(const Device& device, const Ranks& rank) {
  const std::vector layers{test::layer(device, 3, 1, 4, "conv"), test::layer(device, 4, 4, classes, "dense")};
  const auto graph = SmallNetwork(layers[0], layers[1]).trainingGraph(device);
  graph->setCommunicator(rank);
  const Part part = partOf(rank);
  if (rank) graph->setBatchShare(part.first, SmallNetwork::batch);
  Course course;
  for (unsigned step = 0; step < steps; ++step) {
    const StateBatch labels =
        CNNLossLabels::createBatch(device, {1, 1, 1}, targets(device, step), labelWeights(device, step))
            .slice(part.first, part.count);
    run(device, [&](const auto& commandBuffer) {
      graph->encodeBatch(commandBuffer, {test::pictures(device, step).slice(part.first, part.count)},
                         {labels});
    });
    std::vector<float> losses(part.count);
    CNNLossLabels::lossImages(labels).readBytes(losses, layout);
    // Those of the other ranks stay 0, so that the sum over the ranks has all.
    course.losses.resize((step + 1) * SmallNetwork::batch);
    std::ranges::copy(losses,
                      course.losses.end() - SmallNetwork::batch + static_cast<std::ptrdiff_t>(part.first));
  }
  course.weights = test::weightsOf(layers, device);
  return course;
}

using Train = std::function<Course(const Device& device, const Ranks& rank)>;

/// The losses of the ranks come to those of one together.
void expectFollowsOne(const Train& train) {
  const Course alone = train(mtl::newCPUDevice(1), nullptr);
  for (const std::size_t size : {2U, 3U, 4U}) {
    SCOPED_TRACE(size);
    std::vector<Course> courses(size);
    test::runAll(test::ranks(size), [&](const Ranks& rank) {
      courses[static_cast<std::size_t>(rank->rank())] = train(rank->device(), rank);
    });
    std::vector<float> losses(alone.losses.size());
    for (const Course& course : courses) {
      EXPECT_EQ(course.weights, courses[0].weights);
      ASSERT_EQ(course.losses.size(), losses.size());
      for (std::size_t i = 0; i < losses.size(); ++i) losses[i] += course.losses[i];
    }
    test::expectClose({losses}, {alone.losses});
    test::expectClose(courses[0].weights, alone.weights);
  }
}

TEST(DistributedLoss, AMeanAcrossTheBatchIsThatOfAllRanks) {
  const std::vector<std::pair<CNNReductionType, bool>> cases{{CNNReductionType::Mean, false},
                                                             {CNNReductionType::Mean, true},
                                                             {CNNReductionType::Sum, true},
                                                             {CNNReductionType::SumByNonZeroWeights, false}};
  for (const auto& entry : cases) {
    SCOPED_TRACE(std::to_string(static_cast<int>(entry.first)) + (entry.second ? " with weights" : ""));
    expectFollowsOne([&](const Device& device, const Ranks& rank) {
      return trainedAcrossTheBatch(device, rank, entry.first, entry.second);
    });
  }
}

TEST(DistributedLoss, LabelWeightsAreThoseOfTheRanksImages) {
  expectFollowsOne(trainedWithLabelWeights);
}

/// Its divisor follows from the weights of all ranks, which none has.
TEST(DistributedLoss, ACountOfWeightsOfOtherRanksIsRefused) {
  const auto errors = test::runRanks(test::ranks(2), [](const Ranks& rank) {
    trainedAcrossTheBatch(rank->device(), rank, CNNReductionType::SumByNonZeroWeights, true);
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("reductionType is SumByNonZeroWeights across a batch of several ranks, expected "
                         "another: a rank does not know the weights of the others"),
              std::string::npos)
        << error;
}

}  // namespace
}  // namespace mps::distributed_loss_test
