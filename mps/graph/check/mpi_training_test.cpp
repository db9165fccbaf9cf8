#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "mps/graph/check/test_ranks_network.hpp"

/// Ranks that are processes train one graph.
namespace mps::mpi_training_test {
namespace {

using Weights = std::vector<std::vector<float>>;

/// @param communicator null: the whole of each batch
Weights trained(const std::shared_ptr<mtl::Device>& device,
                const std::shared_ptr<Communicator>& communicator) {
  constexpr unsigned steps = 20;
  const std::vector layers{test::layer(device, 3, 1, 4, "conv"), test::layer(device, 4, 4, 3, "dense")};
  const auto graph = test::SmallNetwork(layers[0], layers[1]).trainingGraph(device);
  graph->setCommunicator(communicator);
  test::trainPart(*graph, communicator.get(), steps);
  if (communicator)
    test::encodeNow(*communicator, [&](const auto& commandBuffer) { graph->encodeAgreement(commandBuffer); });
  return test::weightsOf(layers, device);
}

TEST(MpiTraining, FollowsOneDevice) {
  const auto device = mtl::newCPUDevice(1);
  const auto communicator = Communicator::fromEnvironment(device);
  ASSERT_GT(communicator->size(), 1);
  const Weights together = trained(device, communicator);
  test::expectClose(together, trained(device, nullptr));
  EXPECT_EQ(together, trained(device, communicator));
}

}  // namespace
}  // namespace mps::mpi_training_test
