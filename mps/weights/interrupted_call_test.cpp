#include "mps/weights/interrupted_call.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "mps/weights/atomic_file.hpp"
#include "mps/weights/test_folder.hpp"

namespace mps::interrupted_call_test {
namespace {

/// What the next calls of fsync report instead of doing anything.
int interruptions = 0;
int fsyncCalls = 0;

}  // namespace
}  // namespace mps::interrupted_call_test

/// Stands before the C library's. NOLINTNEXTLINE: its name
extern "C" int fsync(int descriptor) {
  using namespace mps::interrupted_call_test;
  ++fsyncCalls;
  if (interruptions > 0) {
    --interruptions;
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

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

TEST(InterruptedCall, OfAFilesSynchronisationIsNoFailure) {
  const detail::TestFolder folder;
  AtomicFile file(folder / "a.txt");
  file.write("text");
  interruptions = 3;
  fsyncCalls = 0;
  EXPECT_NO_THROW(file.commit());
  EXPECT_EQ(interruptions, 0);
  EXPECT_GT(fsyncCalls, 3) << "until it is done";
  EXPECT_EQ(detail::readText(folder / "a.txt"), "text");
}

TEST(InterruptedCall, AnOldErrorNumberMeansNothing) {
  errno = EINTR;
  int calls = 0;
  EXPECT_EQ(repeatWhileInterrupted([&] { return ++calls; }), 1);
}

}  // namespace
}  // namespace mps::interrupted_call_test
