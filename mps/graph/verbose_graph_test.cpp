#include <gtest/gtest.h>

#include "mps/graph/test_network.hpp"

namespace mps {
namespace {

/// Behaviour of programs that set graph.options = verbose (spec/06).
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
  EXPECT_EQ(printed(2), "") << "known sizes";
  const std::string text = printed(3);
  EXPECT_EQ(text, "unmetal: " + graph->debugDescription() + "\n");
}

}  // namespace
}  // namespace mps
