#include "tools/timing/step_profile.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mps/core/types/error.hpp"

namespace unmetal::step_profile_test {
namespace {

using mtl::CommandTime;

mps::detail::MachineFigures machine() {
  mps::detail::MachineFigures figures;
  figures.copyGBps = 1;         // 1e6 bytes in a millisecond
  figures.matmulGflops = 1000;  // 1e9 operations in a millisecond
  return figures;
}

std::vector<CommandTime> step(double start, double length) {
  return {{"CNNConvolution \"conv1\"", start, start + length, 1e6, 4e9},
          {"CNNPoolingMax \"pool1\"", start + length, start + length + 0.001, 2e6, 0},
          {"CNNConvolutionGradient \"conv1 gradient\"", start + length + 0.002, start + length + 0.005, 1e6,
           8e9}};
}

TEST(StepProfile, TakesMediansAndSumsThem) {
  const StepProfile profile({step(0, 0.002), step(1, 0.004), step(2, 0.003)}, machine());
  EXPECT_NEAR(profile.milliseconds(), 8, 1e-6);
  const auto kinds = profile.byKind();
  ASSERT_EQ(kinds.size(), 3U);
  EXPECT_EQ(kinds[0].name, "convolution");
  EXPECT_EQ(kinds[0].commands, 2U);
  EXPECT_NEAR(kinds[0].milliseconds, 3 + 3, 1e-6);
  EXPECT_NEAR(kinds[0].floorMilliseconds, 4 + 8, 1e-6);
  EXPECT_EQ(kinds[1].name, "pooling");
  EXPECT_NEAR(kinds[1].floorMilliseconds, 2, 1e-6);
  EXPECT_EQ(kinds[2].name, "between commands");
  EXPECT_NEAR(kinds[2].milliseconds, 1, 1e-6);
  const auto layers = profile.byLayer();
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].name, "conv1");
  EXPECT_EQ(layers[0].commands, 2U);
  EXPECT_EQ(layers[1].name, "pool1");
  const std::string report = profile.report();
  for (const char* words : {"a step: 8.000 ms", "by kind", "by layer", "conv1", "between commands"})
    EXPECT_NE(report.find(words), std::string::npos) << words;
}

TEST(StepProfile, StepsOfOtherCommandsThrow) {
  auto other = step(1, 0.002);
  other[1].label = "CNNPoolingAverage";
  EXPECT_THROW(StepProfile({step(0, 0.002), other}, machine()), mps::Error);
  EXPECT_THROW(StepProfile({}, machine()), mps::Error);
  EXPECT_THROW(StepProfile({{}}, machine()), mps::Error);
}

TEST(StepProfile, ATraceHasEachCommand) {
  const StepProfile profile({step(5, 0.002), step(6, 0.002)}, machine());
  const auto trace = nlohmann::json::parse(profile.trace());
  const auto& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0].at("ts"), 0);
  EXPECT_NEAR(events[0].at("dur").get<double>(), 2000, 1e-3);
  EXPECT_EQ(events[3].at("name"), "CNNConvolution \"conv1\"");
  EXPECT_NEAR(events[3].at("ts").get<double>(), 1e6, 1e-3);
  for (const auto& event : events) EXPECT_EQ(event.at("ph"), "X");
}

TEST(StepProfile, NamesKindsAndLayers) {
  EXPECT_EQ(kindOfCommand("CNNBatchNormalizationStatistics \"bn\""), "normalization");
  EXPECT_EQ(kindOfCommand("NNOptimizerAdam"), "update");
  EXPECT_EQ(kindOfCommand("CNNAdd"), "element-wise");
  EXPECT_EQ(layerOfCommand("CNNAdd \"block 1\""), "block 1");
  EXPECT_EQ(layerOfCommand("NNOptimizerAdam"), "NNOptimizerAdam");
  EXPECT_EQ(layerOfCommand("CNNConvolutionGradient \"conv1 gradient\""), "conv1");
  EXPECT_EQ(layerOfCommand("CNNConvolution \"policy gradient\""), "policy gradient");
  EXPECT_EQ(layerOfCommand("CNNPoolingMaxGradient"), "CNNPoolingMax");
}

}  // namespace
}  // namespace unmetal::step_profile_test
