#include "fuzz/random_calls/supervisor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

namespace unmetal::random_calls {
namespace supervisor_test {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kCalls = 5;

/// Makes kCalls calls, each of which is an action, in child processes.
class Supervisor : public testing::Test {
 protected:
  template <class Action>
  bool supervise(double longestCall, Action action) {
    const auto makeCalls = [&](std::uint64_t first) {
      for (std::uint64_t call = first; call < kCalls; ++call) {
        progress_->call = call;
        progress_->began = steadySeconds();
        ++progress_->calls;
        if (const ChildEnding ending = action(call); ending != ChildEnding::Done) return ending;
      }
      return ChildEnding::Done;
    };
    return superviseCalls(*progress_, longestCall, makeCalls, [&](const LostCall& lost) {
      lost_.push_back(std::to_string(lost.call) + " " + lost.how);
    });
  }

  std::unique_ptr<Progress, UnmapProgress> progress_ = sharedProgress();
  std::vector<std::string> lost_;
};

TEST_F(Supervisor, LosesNothingWhereNothingEnds) {
  EXPECT_TRUE(supervise(60, [](std::uint64_t) { return ChildEnding::Done; }));
  EXPECT_EQ(progress_->calls, kCalls);
  EXPECT_THAT(lost_, ElementsAre());
}

TEST_F(Supervisor, GoesOnBehindACrash) {
  EXPECT_TRUE(supervise(60, [](std::uint64_t call) {
    if (call == 1) ::raise(SIGKILL);
    if (call == 3) ::_exit(66);  // as a sanitizer does
    return ChildEnding::Done;
  }));
  EXPECT_EQ(progress_->calls, kCalls);
  EXPECT_THAT(lost_, ElementsAre("1 ends its process: Killed", "3 ends its process with status 66"));
}

TEST_F(Supervisor, EndsACallThatHangs) {
  EXPECT_TRUE(supervise(0.5, [](std::uint64_t call) {
    if (call == 2) ::pause();
    return ChildEnding::Done;
  }));
  EXPECT_EQ(progress_->calls, kCalls);
  EXPECT_THAT(lost_, ElementsAre(HasSubstr("2 takes more than")));
}

TEST_F(Supervisor, StartsAgainBehindALostDevice) {
  EXPECT_TRUE(supervise(
      60, [](std::uint64_t call) { return call == 4 ? ChildEnding::Done : ChildEnding::StartAgain; }));
  EXPECT_EQ(progress_->calls, kCalls);
  EXPECT_THAT(lost_, ElementsAre());
}

TEST_F(Supervisor, SaysWhatCannotStart) {
  EXPECT_FALSE(
      supervise(60, [](std::uint64_t) -> ChildEnding { throw std::runtime_error("no such device"); }));
  EXPECT_THAT(lost_, ElementsAre());
}

}  // namespace supervisor_test
}  // namespace unmetal::random_calls
