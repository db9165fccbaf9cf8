#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "mps/graph/check/test_network.hpp"
#include "mtl/error.hpp"

/// A process that ends while its training runs.
namespace mps::graph_process_end_test {
namespace {

/// Commits steps and waits for none.
void commitSteps(const std::shared_ptr<mtl::Device>& device) {
  const auto graph =
      test::SmallNetwork(test::layer(device, 3, 1, 4, "conv"), test::layer(device, 4, 4, 3, "dense"))
          .trainingGraph(device);
  const auto queue = device->newCommandQueue();
  for (unsigned step = 0; step < 20; ++step) {
    const auto commandBuffer = queue->commandBuffer();
    graph->encodeBatch(commandBuffer, {test::pictures(device, step)}, {test::labels(device, step)});
    commandBuffer->commit();
  }
}

constexpr auto isClean = [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 7; };

class GraphProcessEnd : public ::testing::Test {
 protected:
  GraphProcessEnd() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(GraphProcessEnd, IsCleanWithTheDefaultDevice) {
  for (int repeat = 0; repeat < 3; ++repeat)
    EXPECT_EXIT(
        {
          commitSteps(mtl::createSystemDefaultDevice());
          std::exit(7);
        },
        isClean, "^$");
}

TEST_F(GraphProcessEnd, IsCleanWhenAnotherThreadEndsTheProcess) {
  for (int repeat = 0; repeat < 3; ++repeat)
    EXPECT_EXIT(
        {
          const auto device = mtl::newCPUDevice(2);
          commitSteps(device);
          std::thread([] { std::exit(7); }).join();
        },
        isClean, "^$");
}

/// Encodes when the process has begun to end.
struct Late {
  std::shared_ptr<NNGraph> graph;
  std::shared_ptr<mtl::CommandQueue> queue;
  ~Late() {
    const auto device = queue->device();
    try {
      graph->encodeBatch(queue->commandBuffer(), {test::pictures(device, 0)}, {test::labels(device, 0)});
    } catch (const mtl::Error& error) {
      if (std::string(error.what()).find("the process is ending") != std::string::npos) return;
    }
    std::_Exit(66);
  }
};

TEST_F(GraphProcessEnd, StaticObjectsCannotEncodeAnyMore) {
  EXPECT_EXIT(
      {
        static Late late;
        const auto device = mtl::newCPUDevice(1);
        late.graph =
            test::SmallNetwork(test::layer(device, 3, 1, 4, "conv"), test::layer(device, 4, 4, 3, "dense"))
                .trainingGraph(device);
        late.queue = device->newCommandQueue();
        std::exit(7);
      },
      isClean, "^$");
}

}  // namespace
}  // namespace mps::graph_process_end_test
