#include "mps/conform/measure.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "mps/conform/bench.hpp"
#include "mps/conform/bench_report.hpp"
#include "mps/core/error.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

/// Times themselves are never asserted; that they are counted and divided right is.
namespace mps::detail::measure_test {
namespace {

TEST(Measure, MedianAndSpreadOfSortedAndUnsortedValues) {
  EXPECT_THROW(summarize({}), Error);
  const Timing one = summarize(std::vector<double>{4});
  EXPECT_EQ(one.milliseconds, 4);
  EXPECT_EQ(one.spread, 0);
  const Timing odd = summarize(std::vector<double>{100, 1, 3, 2, 4});
  EXPECT_EQ(odd.milliseconds, 3);
  EXPECT_EQ(odd.spread, (4.0 - 2.0) / 3.0);
  EXPECT_EQ(odd.runs, 5);
  EXPECT_EQ(summarize(std::vector<double>{1, 2, 3, 4}).milliseconds, 2.5);
}

TEST(Measure, ShortWorkIsRepeatedAndTimesAreOfOneRepetition) {
  std::vector<int> asked;
  const RepeatedWork work = [&](int repetitions) {
    asked.push_back(repetitions);
    return 0.5 * repetitions;
  };
  const Timing timing = timeRepeated(work, 3);
  EXPECT_EQ(asked, (std::vector<int>{1, 1, 10, 10, 10}));
  EXPECT_EQ(timing.milliseconds, 0.5);
  EXPECT_EQ(timing.runs, 3);
}

TEST(Measure, RunsCanBeLonger) {
  std::vector<int> asked;
  const RepeatedWork work = [&](int repetitions) {
    asked.push_back(repetitions);
    return 2.0 * repetitions;
  };
  EXPECT_EQ(timeRepeated(work, 2, 101).milliseconds, 2);
  EXPECT_EQ(asked, (std::vector<int>{1, 1, 51, 51}));
}

TEST(Measure, AlternatingRunsTakeTurns) {
  std::string order;
  const auto work = [&](char letter, double milliseconds) {
    return [&order, letter, milliseconds](int repetitions) {
      order += letter;
      return milliseconds * repetitions;
    };
  };
  const TimingPair timing = timeAlternating(work('a', 20), work('b', 10), 3);
  EXPECT_EQ(order, "aabbababab");
  EXPECT_EQ(timing.first.milliseconds, 20);
  EXPECT_EQ(timing.second.milliseconds, 10);
}

TEST(Measure, FiguresOfThisMachineArePlausible) {
  const auto device = mtl::createSystemDefaultDevice();
  EXPECT_GE(lastLevelCacheBytes(), std::size_t{1} << 15U);
  EXPECT_EQ(largeWorkingSetBytes(*device), 4 * lastLevelCacheBytes());
  EXPECT_GT(copyBandwidth(device, 1 << 20U), 0);
  EXPECT_GT(residentBytes(), std::size_t{1} << 20U);
  EXPECT_GE(peakResidentBytes(), residentBytes());
}

/// Copies bytes: takes as long as its floor.
class CopyPlan final : public Plan {
 public:
  void run(mtl::Stream&, const Operands& operands) const override {
    std::memcpy(operands.destination, operands.source, 1000);
  }
};

TEST(Bench, RowsHaveFloorFractionAndTheDocumentedJson) {
  const auto device = mtl::createSystemDefaultDevice();
  std::size_t finished = 0;
  BenchOptions options;
  options.device = device;
  options.filter = "COPY";
  options.runs = 3;
  options.machine = MachineFigures{"Testing Machine", "cpu", 2, 20, 200};
  options.rowFinished = [&](const BenchRow&) { ++finished; };
  Bench bench(options);

  const auto source = device->allocate(1000);
  const auto destination = device->allocate(1000);
  const Operands operands{.source = source->address(), .destination = destination->address()};
  bench.plan({"Copy", Direction::Gradient, ImageFeatureChannelFormat::Float16, "500", 1}, {.bytes = 2000},
             CopyPlan(), operands);
  bench.plan({"Other", Direction::Forward, ImageFeatureChannelFormat::Float16, "500", 1}, {.bytes = 2000},
             CopyPlan(), operands);
  bench.kernel({"CopyNothing", Direction::Forward, ImageFeatureChannelFormat::Float32, "1", 1},
               {.bytes = 8, .flops = 1e6}, [](const auto&) {});
  EXPECT_THROW(bench.kernel({"CopyUncounted", Direction::Forward, ImageFeatureChannelFormat::Float32, "1", 1},
                            {}, [](const auto&) {}),
               Error);
  BenchRow net;
  net.kernel = "copy-net";
  net.isNet = true;
  net.direction = "step";
  net.milliseconds = 10;
  net.flops = bench.machine().matmulGflops * 1e6;  // one millisecond
  net.imagesPerSecond = 6400;
  net.peakBytes = 1e8;
  bench.add(net);

  EXPECT_EQ(finished, 3U);
  const auto json = nlohmann::json::parse(benchJson(bench));
  ASSERT_EQ(json.size(), 4U);
  for (const char* field : {"name", "device", "threads", "copy_GBps", "matmul_GFLOPs"})
    EXPECT_TRUE(json[0].contains(field)) << field;
  for (const char* field : {"kernel", "direction", "format", "shape", "batch", "device", "ms", "spread",
                            "bytes", "flops", "floor_ms", "fraction_of_floor"})
    EXPECT_TRUE(json[1].contains(field)) << field;
  EXPECT_EQ(json[1]["direction"], "gradient");
  EXPECT_EQ(json[1]["bytes"], 2000);
  const double fraction = json[1]["floor_ms"].get<double>() / json[1]["ms"].get<double>();
  EXPECT_DOUBLE_EQ(json[1]["fraction_of_floor"].get<double>(), fraction);
  EXPECT_GE(json[2]["floor_ms"].get<double>(), 1e6 / bench.machine().matmulGflops * 1e-6);
  EXPECT_EQ(json[3]["net"], "copy-net");
  EXPECT_FALSE(json[3].contains("kernel"));
  EXPECT_NEAR(json[3]["floor_ms"].get<double>(), 1, 1e-12);
  EXPECT_NEAR(json[3]["fraction_of_floor"].get<double>(), 0.1, 1e-12);
  EXPECT_EQ(json[3]["images_per_s"], 6400);
  EXPECT_EQ(json[3]["peak_bytes"], 1e8);
  EXPECT_NE(benchLine(bench.rows()[2]).find("6400 images/s"), std::string::npos)
      << benchLine(bench.rows()[2]);
  EXPECT_EQ(machineLine(bench.machine()),
            "cpu, Testing Machine, 2 threads: copy 20.0 GB/s, matrix product 200.0 GFLOP/s");
}

TEST(Bench, ABatchFillsTheCachesSeveralTimes) {
  BenchOptions options;
  options.device = mtl::createSystemDefaultDevice();
  options.machine = MachineFigures{};
  const Bench bench(options);
  const std::size_t bytes = largeWorkingSetBytes(*options.device);
  EXPECT_EQ(bench.batchFor(bytes), 1);
  EXPECT_EQ(bench.batchFor(bytes / 2), 2);
  EXPECT_EQ(bench.batchFor(bytes - 1), 2);

  options.workingSetBytes = 1000;
  const Bench small(options);
  EXPECT_EQ(small.batchFor(bytes), 1);
  EXPECT_EQ(small.batchFor(100), 10);
}

TEST(Bench, OnlyADeviceThatIsNoCpuMayLackKernels) {
  BenchOptions options;
  options.device = mtl::createSystemDefaultDevice();
  options.machine = MachineFigures{};
  Bench bench(options);
  EXPECT_THROW(bench.family([](Bench&) { throwNoImplementation("a problem", ""); }), Error);
  bench.family([](Bench& inner) { inner.add({}); });
  EXPECT_EQ(bench.rows().size(), 1U);
  EXPECT_TRUE(bench.missing().empty());
}

}  // namespace
}  // namespace mps::detail::measure_test
