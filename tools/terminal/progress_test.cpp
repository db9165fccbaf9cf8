#include "tools/terminal/progress.hpp"

#include <gtest/gtest.h>
#include <cmath>
#include <sstream>

namespace unmetal::progress_test {
namespace {

const Progress halfWay{.epoch = 2,
                       .epochs = 5,
                       .step = 50,
                       .stepsPerEpoch = 100,
                       .batchSize = 64,
                       .loss = 0.43121,
                       .imagesPerSecond = 320};

TEST(ThroughputMeterTest, FollowsTheLastSeconds) {
  double now = 100;
  ThroughputMeter meter([&] { return now; });
  EXPECT_EQ(meter.imagesPerSecond(), 0);
  for (int i = 0; i < 100; ++i) {
    now += 0.1;
    meter.add(10);
  }
  EXPECT_NEAR(meter.imagesPerSecond(), 100, 1e-6);
  for (int i = 0; i < 100; ++i) {
    now += 0.1;
    meter.add(20);
  }
  EXPECT_NEAR(meter.imagesPerSecond(), 200, 1e-6);
}

TEST(ThroughputMeterTest, StepsThatAreFasterThanTheSamples) {
  double now = 0;
  ThroughputMeter meter([&] { return now; });
  for (int i = 0; i < 10'000; ++i) {
    now += 0.001;
    meter.add(3);
  }
  EXPECT_NEAR(meter.imagesPerSecond(), 3000, 1e-6);
}

TEST(ThroughputMeterTest, StepsThatAreSlowerThanTheWindow) {
  double now = 0;
  ThroughputMeter meter([&] { return now; });
  for (int i = 0; i < 4; ++i) {
    now += 20;
    meter.add(40);
  }
  EXPECT_NEAR(meter.imagesPerSecond(), 2, 1e-6);
}

TEST(ThroughputMeterTest, RestartLeavesAPauseOut) {
  double now = 0;
  ThroughputMeter meter([&] { return now; });
  now = 1;
  meter.add(100);
  now = 3;
  meter.restart();
  EXPECT_EQ(meter.imagesPerSecond(), 0);
  now = 4;
  meter.add(100);
  EXPECT_NEAR(meter.imagesPerSecond(), 100, 1e-6);
}

TEST(ProgressTest, Durations) {
  EXPECT_EQ(formatDuration(0), "0 s");
  EXPECT_EQ(formatDuration(4.2), "5 s");
  EXPECT_EQ(formatDuration(65), "1:05");
  EXPECT_EQ(formatDuration(7384), "2:03:04");
  EXPECT_EQ(formatDuration(INFINITY), formatDuration(1e9));
}

TEST(ProgressTest, PlainLine) {
  EXPECT_EQ(progressLine(halfWay), "epoch 2/5  step 50/100  loss 0.4312  320 images/s  1:10 left");
  Progress beginning = halfWay;
  beginning.imagesPerSecond = 0;
  EXPECT_EQ(progressLine(beginning), "epoch 2/5  step 50/100  loss 0.4312");
  beginning.loss = NAN;
  EXPECT_EQ(progressLine(beginning), "epoch 2/5  step 50/100  loss is not finite");
}

TEST(ProgressTest, BarFitsTheTerminal) {
  EXPECT_EQ(progressBar(halfWay, 70),
            "epoch 2/5 [=======>      ]  50 %  loss 0.4312  320 images/s  1:10 left");
  for (std::size_t columns = 0; columns < 200; ++columns) {
    EXPECT_LE(progressBar(halfWay, columns).size(), columns);
  }
  Progress progress = halfWay;
  progress.step = 0;
  EXPECT_NE(progressBar(progress, 100).find("[>  "), std::string::npos);
  progress.step = 100;
  EXPECT_NE(progressBar(progress, 100).find("==] 100 %"), std::string::npos);
}

TEST(ProgressDisplayTest, TerminalIsDrawnTenTimesASecond) {
  double now = 0;
  std::ostringstream stream;
  {
    ProgressDisplay display(
        stream, true, [] { return std::size_t{71}; }, [&] { return now; });
    for (int i = 0; i < 20; ++i) {
      now += 1.0 / 32;
      display.update(halfWay);
    }
    display.print("epoch 2 is done");
    now += 0.2;
    display.update(halfWay);
  }
  const std::string bar = "\r\x1B[K" + progressBar(halfWay, 70);
  const std::string clear = "\r\x1B[K";
  EXPECT_EQ(stream.str(), bar + bar + bar + bar + bar + clear + "epoch 2 is done\n" + bar + clear);
}

TEST(ProgressDisplayTest, TheBarFollowsTheTerminalsWidth) {
  double now = 0;
  std::size_t columns = 71;
  std::ostringstream stream;
  {
    ProgressDisplay display(
        stream, true, [&] { return columns; }, [&] { return now; });
    display.update(halfWay);
    columns = 51;
    now += 1;
    display.update(halfWay);
  }
  const std::string clear = "\r\x1B[K";
  EXPECT_EQ(stream.str(), clear + progressBar(halfWay, 70) + clear + progressBar(halfWay, 50) + clear);
}

TEST(ProgressDisplayTest, WithoutATerminalPlainLinesAreRare) {
  double now = 0;
  std::ostringstream stream;
  {
    ProgressDisplay display(
        stream, false, [] { return std::size_t{80}; }, [&] { return now; });
    for (int i = 0; i < 25; ++i) {
      now += 1;
      display.update(halfWay);
    }
    display.print("epoch 2 is done");
  }
  const std::string line = progressLine(halfWay) + "\n";
  EXPECT_EQ(stream.str(), line + line + line + "epoch 2 is done\n");
}

}  // namespace
}  // namespace unmetal::progress_test
