#include "tools/timing/repeated_step.hpp"

#include <gtest/gtest.h>

#include "mtl/device.hpp"

namespace unmetal::repeated_step_test {
namespace {

TEST(RepeatedStep, IsTimedInAsManyRunsAsAreAskedFor) {
  NetworkOptions options;
  options.name = "mnist-cnn";
  options.width = options.height = 28;
  options.batchSize = 2;
  RepeatedStep step(mtl::newCPUDevice(1), options);
  constexpr int runs = 1;
  const auto timing = step.time(runs);
  EXPECT_GT(timing.milliseconds, 0);
  EXPECT_EQ(timing.runs, runs);
}

}  // namespace
}  // namespace unmetal::repeated_step_test
