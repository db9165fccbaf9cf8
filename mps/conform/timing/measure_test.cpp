#include "mps/conform/timing/measure.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mps/conform/families.hpp"
#include "mps/conform/timing/bench.hpp"
#include "mps/conform/timing/bench_report.hpp"
#include "mps/core/types/error.hpp"
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
  EXPECT_EQ(asked, (std::vector<int>{1, 1, 2, 4, 51, 51}));
}

TEST(Measure, StepsThatAPipelineHasRoomForSayNothing) {
  int room = 5;
  const RepeatedWork work = [&](int repetitions) {
    const int waited = std::max(0, repetitions - room);
    room = std::max(0, room - repetitions);
    return 1.0 * waited;
  };
  EXPECT_EQ(chooseRepetitions(work, 10), 14);  // of 4 steps, after 3, 3 were waited for
}

TEST(Measure, WorkThatTakesNoTimeIsRepeatedOnlySoOften) {
  EXPECT_EQ(chooseRepetitions([](int) { return 0.0; }), 10'000);
}

TEST(Measure, AlternatingRunsTakeTurns) {
  std::string order;
  const auto work = [&](char letter, double milliseconds) {
    return [&order, letter, milliseconds](int repetitions) {
      order += letter;
      return milliseconds * repetitions;
    };
  };
  const std::vector<RepeatedWork> works{work('a', 20), work('b', 10), work('c', 5)};
  const std::vector<Timing> timings = timeInTurns(works, 3);
  EXPECT_EQ(order, "aabbccabcabcabc");
  ASSERT_EQ(timings.size(), 3U);
  EXPECT_EQ(timings[0].milliseconds, 20);
  EXPECT_EQ(timings[1].milliseconds, 10);
  EXPECT_EQ(timings[2].milliseconds, 5);
}

TEST(Measure, SlowWorkTakesFewerTurns) {
  const RepeatedWork slow = [](int repetitions) { return 2 * kSlowMilliseconds * repetitions; };
  EXPECT_EQ(timeRepeated(slow, 5).runs, kRunsOfSlowWork);
  EXPECT_EQ(timeRepeated(slow, 2).runs, 2);
}

TEST(Measure, FiguresOfThisMachineArePlausible) {
  const auto device = mtl::createSystemDefaultDevice();
  EXPECT_GE(lastLevelCacheBytes(), std::size_t{1} << 15U);
  EXPECT_EQ(largeWorkingSetBytes(*device), 4 * lastLevelCacheBytes());
  EXPECT_GT(copyBandwidth(device, 1 << 20U), 0);
  EXPECT_GT(residentBytes(), std::size_t{1} << 20U);
  EXPECT_GE(peakResidentBytes(), residentBytes());
}

/// Nothing that runs, and what it says when it is chosen.
class NamedPlan final : public Plan {
 public:
  void run(mtl::Stream&, const Operands&) const override {}
};

struct Number {
  int value = 0;
  bool operator==(const Number&) const = default;
  [[nodiscard]] std::size_t hash() const { return static_cast<std::size_t>(value); }
  [[nodiscard]] std::string describe() const { return "number " + std::to_string(value); }
};

Preparation prepareEven(const Number& number) {
  if (number.value % 2 != 0) return Refusal{"the number is odd"};
  return std::make_shared<NamedPlan>();
}
Preparation prepareAny(const Number&) {
  return std::make_shared<NamedPlan>();
}

std::span<const Implementation<Number>> listOfNumbers() {
  static constexpr std::array<Implementation<Number>, 3> list{
      {{"even", prepareEven}, {"fast", prepareAny}, {"slow", prepareAny}}};
  return list;
}

/// Rows of the "kernels" Even and Odd with this implementation asked for.
std::vector<BenchRow> rowsOf(const std::string& implementation) {
  const auto device = mtl::createSystemDefaultDevice();
  BenchOptions options;
  options.device = device;
  options.implementation = implementation;
  options.runs = 1;
  options.machine = MachineFigures{"Testing Machine", "cpu", 2, 20, 200};
  Bench bench(options);
  for (const int value : {2, 3})
    bench.kernel(
        {value == 2 ? "Even" : "Odd", Direction::Forward, ImageFeatureChannelFormat::Float32, "1", 1},
        {.bytes = 8}, [&](const auto&) {
          planFor(*device, BackEnds<Number>{listOfNumbers, listOfNumbers}, Number{value});
        });
  return bench.rows();
}

std::vector<std::string> namesOf(const std::vector<BenchRow>& rows) {
  std::vector<std::string> names;
  for (const BenchRow& row : rows)
    names.push_back(row.kernel + " " + row.implementation + (row.refusal.empty() ? "" : ": " + row.refusal));
  return names;
}

TEST(BenchImplementations, WithoutANameTheRowSaysWhatRan) {
  EXPECT_EQ(namesOf(rowsOf("")), (std::vector<std::string>{"Even even", "Odd fast"}));
}

TEST(BenchImplementations, ANameIsTimedWithTheNextThatAccepts) {
  const std::vector<BenchRow> rows = rowsOf("even");
  EXPECT_EQ(namesOf(rows),
            (std::vector<std::string>{"Even even", "Even fast", "Odd even: even: the number is odd"}));
  ASSERT_TRUE(rows[0].nextOverThis);
  EXPECT_FALSE(rows[1].nextOverThis);
  EXPECT_EQ(namesOf(rowsOf("slow")), (std::vector<std::string>{"Even slow", "Odd slow"}));
  EXPECT_TRUE(rowsOf("of another list").empty());
}

TEST(BenchImplementations, AllAreTimedInOrder) {
  EXPECT_EQ(namesOf(rowsOf("all")),
            (std::vector<std::string>{"Even even", "Even fast", "Even slow",
                                      "Odd even: even: the number is odd", "Odd fast", "Odd slow"}));
}

TEST(BenchImplementations, ARefusalStandsInLineAndJson) {
  BenchOptions options;
  options.device = mtl::createSystemDefaultDevice();
  options.machine = MachineFigures{};
  Bench bench(options);
  BenchRow row;
  row.kernel = "Odd";
  row.implementation = "even";
  row.refusal = "even: the number is odd";
  bench.add(row);
  EXPECT_NE(benchLine(bench.rows()[0]).find("refused by even: the number is odd"), std::string::npos);
  const auto json = nlohmann::json::parse(benchJson(bench));
  EXPECT_EQ(json[1]["refused"], "even: the number is odd");
  EXPECT_FALSE(json[1].contains("ms"));
}

TEST(BenchImplementations, NamesOfAllThatExist) {
  const std::vector<std::string> names = implementationNames(mtl::createSystemDefaultDevice());
  EXPECT_NE(std::ranges::find(names, "onednn"), names.end());
  EXPECT_TRUE(std::ranges::is_sorted(names));
}

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

  bench.kernel({"Copy", Direction::Gradient, ImageFeatureChannelFormat::Float16, "500", 1}, {.bytes = 2000},
               [](const auto&) {});
  bench.kernel({"Other", Direction::Forward, ImageFeatureChannelFormat::Float16, "500", 1}, {.bytes = 2000},
               [](const auto&) {});
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
                            "bytes", "flops", "floor_ms", "fraction_of_floor", "implementation"})
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
