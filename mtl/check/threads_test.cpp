#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "mtl/check/command_test_tools.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/worker.hpp"

/// The threads of devices and queues: when they begin, and what happens where they cannot run.
namespace mtl::threads_test {
namespace {

/// While alive the system gives no thread: each would ask for a stack larger than its address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t attributes = before_;
    pthread_attr_setstacksize(&attributes, std::size_t{1} << 60U);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

template <class Function>
std::string errorOf(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Threads, ADeviceBeginsItsThreadWithTheFirstQueue) {
  const auto device = newCPUDevice(1);
  std::string error;
  {
    const NoThreads none;
    error = errorOf([&] { (void)device->newCommandQueue(); });
  }
  EXPECT_TRUE(error.starts_with("Device cpu: the executing thread cannot be started: ")) << error;
  const auto buffer = device->newCommandQueue()->commandBuffer();
  const NoThreads none;
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Completed);
}

TEST(Threads, AQueueBeginsItsHandlerThreadWithTheFirstHandler) {
  const auto queue = newCPUDevice(1)->newCommandQueue(1);
  auto buffer = queue->commandBuffer();
  int handled = 0;
  const auto handler = [&](CommandBuffer&) { ++handled; };
  {
    const NoThreads none;
    for (const bool scheduled : {false, true}) {
      const std::string error = errorOf(
          [&] { scheduled ? buffer->addScheduledHandler(handler) : buffer->addCompletedHandler(handler); });
      EXPECT_TRUE(error.starts_with("CommandQueue: the thread for handlers cannot be started: ")) << error;
    }
  }
  buffer->addCompletedHandler(handler);
  {
    const NoThreads none;
    buffer->addScheduledHandler(handler);
    buffer->commit();
    buffer->waitUntilCompleted();
  }
  EXPECT_EQ(handled, 2);
  EXPECT_EQ(buffer->error(), std::nullopt);
  buffer = queue->commandBuffer();  // the queue allows one at a time
}

/// Bytes of the calling thread's stack.
std::size_t stackOfThisThread() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

TEST(Threads, TheirStacksDoNotFollowASmallLimit) {
  pthread_attr_t before;
  pthread_getattr_default_np(&before);
  pthread_attr_t small = before;
  ASSERT_EQ(pthread_attr_setstacksize(&small, std::size_t{64} << 10U), 0);
  ASSERT_EQ(pthread_setattr_default_np(&small), 0);
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  std::size_t ofCommand = 0;
  std::size_t ofHandler = 0;
  buffer->append(testing::call([&] { ofCommand = stackOfThisThread(); }));
  buffer->addCompletedHandler([&](CommandBuffer&) { ofHandler = stackOfThisThread(); });
  buffer->commit();
  buffer->waitUntilCompleted();
  pthread_setattr_default_np(&before);
  EXPECT_GE(ofCommand, Worker::leastStackBytes);
  EXPECT_GE(ofHandler, Worker::leastStackBytes);
}

/// The exit code of a child process that calls the function; it must return within a minute.
template <class Function>
int exitCodeOfChild(Function&& function) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(function());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Threads, AChildProcessIsToldThatTheyDoNotRunThere) {
  auto device = newCPUDevice(1);
  const auto isRefused = [](const std::string& error) { return error.find("child process") != error.npos; };
  auto queue = device->newCommandQueue();
  auto buffer = queue->commandBuffer();
  buffer->addCompletedHandler([](CommandBuffer&) {});
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_EQ(exitCodeOfChild([&] {
              const bool newQueue = isRefused(errorOf([&] { (void)device->newCommandQueue(); }));
              const bool newBuffer = isRefused(errorOf([&] { (void)queue->commandBuffer(); }));
              buffer = nullptr;
              queue = nullptr;
              device = nullptr;  // waits for no thread
              return newQueue && newBuffer ? 0 : 1;
            }),
            0);
  EXPECT_NE(queue->commandBuffer(), nullptr) << "the parent goes on";
}

}  // namespace
}  // namespace mtl::threads_test
