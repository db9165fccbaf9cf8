#include <gtest/gtest.h>

#include "mps/graph/check/test_network.hpp"

namespace mps::verbose_graph_test {
namespace {

/// Behaviour of programs that set graph.options = verbose.
TEST(VerboseGraph, DescribesItselfWhenItMeetsNewSizes) {
  const auto device = mtl::newCPUDevice(2);
  const auto pool = CNNPoolingMaxNode::create(NNImageNode::create(), 2);
  const auto graph = NNGraph::create(device, pool->resultImage());
  const auto queue = device->newCommandQueue();
  const auto printed = [&](std::size_t count) {
    ::testing::internal::CaptureStderr();
    graph->encodeBatch(queue->commandBuffer(), {test::pictures(device, 0).slice(0, count)});
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(printed(2), "");
  graph->setOptions(KernelOptions::Verbose);
  const std::string ofKernel = printed(2);  // the graph itself knows these sizes
  EXPECT_EQ(ofKernel.find("unmetal: CNNPoolingMax: "), 0U) << ofKernel;
  const std::string text = printed(3);
  EXPECT_EQ(text, "unmetal: " + graph->debugDescription() + "\n" + ofKernel);
}

}  // namespace
}  // namespace mps::verbose_graph_test
