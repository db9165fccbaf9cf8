#include "tools/commands/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mps/conform/conform_report.hpp"
#include "mps/conform/timing/bench_report.hpp"
#include "mps/core/types/digit_groups.hpp"
#include "tools/commands/gradient_check_report.hpp"

namespace unmetal::program_test {
namespace {

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

Outcome runWith(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "unmetal");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = runProgram(static_cast<int>(arguments.size()), arguments.data());
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

/// One line on stderr that contains `words`, nothing on stdout, status 2.
void expectError(const std::vector<const char*>& arguments, const std::string& words) {
  const Outcome outcome = runWith(arguments);
  EXPECT_EQ(outcome.status, kExitError);
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with("\n")) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("unmetal: ")) << outcome.err;
  EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST(Program, ErrorsAreOneLineThatNamesTheArgument) {
  expectError({}, "a command is missing");
  expectError({"fly"}, "fly");
  expectError({"--fly"}, "--fly");
  expectError({"devices", "--colour"}, "--colour");
  expectError({"conform", "--device", "abacus"}, "--device abacus");
  expectError({"conform", "--threads", "0"}, "--threads");
  expectError({"conform", "--threads", "many"}, "--threads");
  expectError({"conform", "--json"}, "--json");
  expectError({"conform", "--json", "/no/such/folder/rows.json"}, "/no/such/folder/rows.json");
  expectError({"bench", "--json", "/no/such/folder/rows.json"}, "/no/such/folder/rows.json");
  expectError({"conform", "--filter", "no kernel is called so"}, "--filter no kernel is called so");
  for (const char* jobs : {"0", "1025"}) expectError({"conform", "--jobs", jobs}, "--jobs");
  expectError({"conform", "--seed", "-1"}, "--seed");
  expectError({"tune", "--out", "plans.json"}, "--device cpu: only GPUs have plans to tune");
  expectError({"tune", "--device", "abacus", "--out", "plans.json"}, "--device abacus");
  expectError({"tune"}, "--out");
  expectError(
      {"tune", "--picture-size", "224", "--out", "plans.json"},
      "--picture-size: give HEIGHTxWIDTHxCHANNELS, sides from 8 to 1024 and 1 to 4 channels, not \"224\"");
  expectError({"tune", "--batch", "0", "--out", "plans.json"}, "--batch");
  for (const char* option : {"--plans", "--json"})
    expectError({"conform", option, ""}, std::string(option) + ": give the name of a file");
  expectError({"eval", "--checkpoint", "x", "--data", ""}, "--data: give the name of data");
  expectError({"fly\n\x1B[2J"}, "fly\\n\\x1B[2J");
  expectError({"conform", "--plans", "plans.json"}, "--plans plans.json: plans are for GPUs");
  expectError({"check-gradients", "--net", "fishnet"}, "--net: network \"fishnet\" is unknown");
  for (const char* command : {"eval", "predict"})
    expectError({command, "--checkpoint", ""}, "--checkpoint: give the name of a file");
  expectError({"check-gradients", "--batch", "0"}, "--batch");
  expectError({"check-gradients", "--without", "fuseNothing"}, "--without: fuseNothing not in {fuseNeurons,");
  expectError({"check-gradients", "--seed", "-1"}, "--seed");
  expectError({"check-gradients", "--device", "abacus"}, "--device abacus");
  expectError({"check-gradients", "--json", "/no/such/folder/rows.json"}, "/no/such/folder/rows.json");
}

TEST(Program, HelpListsTheCommandsAndTheirOptions) {
  const Outcome help = runWith({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const char* command : {"devices", "conform", "check-gradients", "bench", "tune"})
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  EXPECT_NE(runWith({"tune", "--help"}).out.find("--filter"), std::string::npos);
  const Outcome conform = runWith({"conform", "--help"});
  EXPECT_EQ(conform.status, 0);
  for (const char* option :
       {"--device", "--threads", "--filter", "--without", "--jobs", "--cases", "--json", "--seed"})
    EXPECT_NE(conform.out.find(option), std::string::npos) << option;
  EXPECT_EQ(runWith({"--version"}).out, "unmetal " UNMETAL_VERSION "\n");
}

TEST(Program, CheckGradientsPrintsARowForEachTensorAndCountsThem) {
  const Outcome check = runWith({"check-gradients", "--net", "lenet", "--batch", "1", "--seed", "4"});
  EXPECT_EQ(check.status, 0);
  EXPECT_EQ(check.err, "");
  const auto rows = std::ranges::count(check.out, '\n') - 1;
  EXPECT_GT(rows, 20);
  EXPECT_TRUE(check.out.ends_with("\n" + std::to_string(rows) + " passed, 0 failed\n")) << check.out;
  for (const char* words : {"lenet ", "conv1 gradient", "CNNNeuronGradientNode", "weights", "derivatives"})
    EXPECT_NE(check.out.find(words), std::string::npos) << words;
}

/// Its convolutions have no biases, whose gradients the graph then leaves out.
TEST(Program, CheckGradientsPassesForAResidualNetwork) {
  const Outcome check = runWith({"check-gradients", "--net", "resnet18:2"});
  EXPECT_EQ(check.status, 0) << check.out;
  EXPECT_TRUE(check.out.ends_with(" passed, 0 failed\n"));
  EXPECT_EQ(check.out.find("conv1 gradient\" biases"), std::string::npos);
}

TEST(Program, DevicesBeginWithTheCpu) {
  const Outcome devices = runWith({"devices"});
  EXPECT_EQ(devices.status, 0);
  EXPECT_TRUE(devices.out.starts_with("cpu ")) << devices.out;
  EXPECT_NE(devices.out.find(" thread"), std::string::npos) << devices.out;
  EXPECT_NE(devices.out.find(" GiB"), std::string::npos) << devices.out;
}

TEST(Program, WhatItPrintsDoesNotFollowTheLocale) {
  const auto lines = [] {
    mps::detail::ConformRow conform;
    conform.cases = 1234;
    conform.elements = 1234567;
    conform.worst = 1234.5;
    mps::detail::BenchRow bench;
    bench.batch = 1234;
    bench.milliseconds = 12345.678;
    bench.bytes = bench.flops = 1e12;
    bench.peakBytes = 1'234'567'890;
    mps::detail::MachineFigures machine;
    machine.copyGBps = 12345.6;
    mps::GradientCheckRow check;
    check.elements = 1234567;
    check.worst = 1234.5;
    return mps::detail::conformLine(conform) + mps::detail::benchLine(bench) +
           mps::detail::machineLine(machine) + gradientCheckLine({"lenet", "", check}) +
           runWith({"devices"}).out;
  };
  const std::string before = lines();
  const mps::test::DigitGroups groups;
  EXPECT_EQ(lines(), before);
}

}  // namespace
}  // namespace unmetal::program_test
