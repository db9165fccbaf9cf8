#include "fuzz/random_calls/runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <string>

#include "fuzz/random_calls/arrays.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"

namespace unmetal::random_calls {
namespace runner_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Where the families below do what they should not.
bool isSecondDevice(const Call& call) {
  return call.device->threadCount() == 2;
}

void callRight(Call& call) {
  makeUpdatedArrays(call, "right", {.columns = 3}, Numbers::Uniform, {});
}
void callWrong(Call& call) {
  const double value = isSecondDevice(call) ? 2 : 1;
  makeSourceArrays(call, "wrong", {.columns = 3}, [&](std::size_t) { return value; }).observation->role =
      Role::Result;
}
void callThatThrows(Call&) {
  throw mps::Error("no device does this");
}
void callThatOneThrows(Call& call) {
  if (isSecondDevice(call)) throw mps::Error("this device does not");
}
void callThatFailsToRun(Call& call) {
  call.stage = "encode, run";
  callThatOneThrows(call);
}

class Runner : public testing::Test {
 protected:
  /// Makes calls of these families; @return what was printed
  std::string run(std::span<const Family> families, const RunOptions& options, std::uint64_t first = 0) {
    std::ostringstream out;
    ending_ =
        makeCalls({mtl::newCPUDevice(1), mtl::newCPUDevice(2)}, families, options, first, progress_, out);
    return out.str();
  }
  RunOptions calls(std::uint64_t count) {
    RunOptions options;
    options.seed = 5;
    options.mostCalls = count;
    options.command = "random_calls --seed 5";
    return options;
  }

  Progress progress_;
  Ending ending_ = Ending::Done;
};

constexpr std::array kFamilies{Family{"right", callRight}, Family{"wrong", callWrong},
                               Family{"refused", callThatThrows}};

TEST_F(Runner, SaysWhatDiffersAndHowToSeeItAgain) {
  const std::string text = run(kFamilies, calls(6));
  EXPECT_THAT(text, AllOf(HasSubstr("DIFFERENCE, wrong: VALUES of wrong: 3 of"),
                          HasSubstr("again: random_calls --seed 5 --only 1\n"),
                          HasSubstr("again: random_calls --seed 5 --only 4\n"), Not(HasSubstr("right"))));
  EXPECT_EQ(progress_.findings(), 2U);
  std::ostringstream table;
  printTallies(progress_, kFamilies, table);
  EXPECT_THAT(table.str(), HasSubstr("6 calls, 2 different, 0 ended their process"));
  EXPECT_EQ(progress_.tallies[2].refused, 2U);
}

TEST_F(Runner, RepeatsOneCall) {
  RunOptions options = calls(100);
  options.only = 4;
  EXPECT_THAT(run(kFamilies, options), HasSubstr("wrong"));
  EXPECT_EQ(progress_.calls, 1U);
  options.only = 3;
  EXPECT_THAT(run(kFamilies, options), IsEmpty());
}

TEST_F(Runner, KeepsToOneFamily) {
  RunOptions options = calls(5);
  options.family = "refused";
  EXPECT_THAT(run(kFamilies, options), IsEmpty());
  EXPECT_EQ(progress_.tallies[2].calls, 5U);
}

TEST_F(Runner, StopsInTime) {
  RunOptions options = calls(100);
  options.end = steadySeconds() - 1;
  EXPECT_THAT(run(kFamilies, options), IsEmpty());
  EXPECT_EQ(progress_.calls, 0U);
}

TEST_F(Runner, GoesOnWhereAChildProcessEnded) {
  run(kFamilies, calls(1), 7);
  EXPECT_EQ(progress_.call, 7U);
}

TEST_F(Runner, NamesAnExceptionOfOneDevice) {
  constexpr std::array families{Family{"throws", callThatOneThrows}};
  EXPECT_THAT(run(families, calls(1)), HasSubstr("EXCEPTIONS: none and \"this device does not\""));
  EXPECT_EQ(ending_, Ending::Done);
}

TEST_F(Runner, LeavesADeviceThatFailed) {
  constexpr std::array families{Family{"fails", callThatFailsToRun}};
  EXPECT_THAT(run(families, calls(5)), HasSubstr("EXCEPTIONS"));
  EXPECT_EQ(ending_, Ending::DeviceLost);
  EXPECT_EQ(progress_.calls, 1U);
}

}  // namespace runner_test
}  // namespace unmetal::random_calls
