#include "mps/weights/interrupted_call.hpp"

#include <gtest/gtest.h>

namespace mps::interrupted_call_test {
namespace {

TEST(InterruptedCall, IsRepeatedUntilItIsDone) {
  int calls = 0;
  const auto twiceInterrupted = [&] {
    if (++calls == 3) return 0;
    errno = EINTR;
    return -1;
  };
  EXPECT_EQ(repeatWhileInterrupted(twiceInterrupted), 0);
  EXPECT_EQ(calls, 3);
}

TEST(InterruptedCall, AFailureIsNotRepeated) {
  int calls = 0;
  const auto fails = [&] {
    ++calls;
    errno = ENOSPC;
    return -1;
  };
  EXPECT_EQ(repeatWhileInterrupted(fails), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(calls, 1);
}

TEST(InterruptedCall, AnOldErrorNumberMeansNothing) {
  errno = EINTR;
  int calls = 0;
  EXPECT_EQ(repeatWhileInterrupted([&] { return ++calls; }), 1);
}

}  // namespace
}  // namespace mps::interrupted_call_test
