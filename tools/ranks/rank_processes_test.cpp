#include "tools/ranks/rank_processes.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "tools/commands/program.hpp"
#include "tools/ranks/ranks.hpp"

namespace unmetal::rank_processes_test {
namespace {

using mps::detail::errorOf;
using std::chrono::milliseconds;

RankProcess shell(const std::string& script, const std::string& rank = "0") {
  return {{{"RANK", rank}}, {"/bin/sh", "-c", script}};
}

TEST(RunProcesses, WaitsForAllAndGivesEachItsEnvironment) {
  EXPECT_EQ(runProcesses({shell("test $RANK = 0"), shell("sleep 0.1; test $RANK = 1", "1")}, milliseconds(0)),
            0);
  EXPECT_EQ(runProcesses({shell("exit 2"), shell("exit 0")}, milliseconds(1000)), 2);
}

TEST(RunProcesses, OneThatMissesAnotherIsBelieved) {
  EXPECT_EQ(runProcesses({shell("kill -9 $$"), shell("sleep 0.2; exit 3")}, milliseconds(5000)),
            kExitRankMissing);
  EXPECT_EQ(runProcesses({shell("kill -9 $$"), shell("exit 0")}, milliseconds(5000)), kExitSignal + 9);
}

/// One is stopped, and does not end by itself.
TEST(RunProcesses, TheOthersHaveSoLongToEnd) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(
      runProcesses({shell("exit 2"), shell("exec sleep 100"), shell("kill -STOP $$")}, milliseconds(100)), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(RunProcesses, WhatCannotBeStartedIsNamed) {
  EXPECT_NE(errorOf<mps::Error>([] {
              static_cast<void>(runProcesses({{{}, {"/no/such/file"}}}, milliseconds(0)));
            }).find("cannot start /no/such/file"),
            std::string::npos);
}

TEST(RankProcesses, AreThisProgramWithThePlaceOfEach) {
  const auto processes = rankProcesses(2);
  ASSERT_EQ(processes.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto valueOf = [&](const std::string& name) {
      const auto found =
          std::ranges::find(processes[i].environment, name, &std::pair<std::string, std::string>::first);
      return found == processes[i].environment.end() ? "" : found->second;
    };
    EXPECT_EQ(valueOf("RANK"), std::to_string(i));
    EXPECT_EQ(valueOf("LOCAL_RANK"), std::to_string(i));
    EXPECT_EQ(valueOf("WORLD_SIZE"), "2");
    EXPECT_EQ(valueOf("MASTER_ADDR"), "127.0.0.1");
    EXPECT_GT(std::stoi(valueOf("MASTER_PORT")), 0);
    EXPECT_EQ(processes[i].words.front(), "/proc/self/exe");
  }
}

TEST(DeviceNames, AreThoseBetweenCommas) {
  EXPECT_EQ(deviceNames("cuda:0,cuda:3"), (std::vector<std::string>{"cuda:0", "cuda:3"}));
  EXPECT_EQ(deviceNames("cpu,cpu"), (std::vector<std::string>{"cpu", "cpu"}));
  EXPECT_EQ(errorOf<mps::Error>([] { (void)deviceNames("cuda:0,,cuda:1"); }),
            "--devices cuda:0,,cuda:1: a name is empty");
  EXPECT_EQ(errorOf<mps::Error>([] { (void)deviceNames("cuda:0,cuda:0"); }),
            "--devices cuda:0,cuda:0: cuda:0 is there twice, give each rank a device of its own");
}

}  // namespace
}  // namespace unmetal::rank_processes_test
