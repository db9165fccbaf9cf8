#include "mtl/process_end.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "mtl/check/command_test_tools.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// What becomes of work in flight when the process ends. Each test ends a process of its own.
namespace mtl::process_end_test {
namespace {

using testing::call;

/// A static object as those of libraries: made at the first use of it, gone at the end of the process.
class Library {
 public:
  static Library& instance() {
    static Library library;
    return library;
  }
  ~Library() { isGone = true; }
  static void use() {
    instance();
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (isGone) std::_Exit(66);
    }
  }

 private:
  static inline std::atomic<bool> isGone{false};
};

/// Commits commands that use the library, and returns when the first of them runs.
std::vector<std::shared_ptr<CommandBuffer>> commitWork(const std::shared_ptr<Device>& device) {
  const auto queue = device->newCommandQueue();
  const auto begun = std::make_shared<testing::Gate>();
  std::vector<std::shared_ptr<CommandBuffer>> buffers;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(queue->commandBuffer());
    if (i == 0) buffers.back()->append(call([begun] { begun->open(); }));
    for (int k = 0; k < 5; ++k) buffers.back()->append(call([] { Library::use(); }));
    buffers.back()->commit();
  }
  begun->wait();
  return buffers;
}

class ProcessEndTest : public ::testing::Test {
 protected:
  ProcessEndTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

constexpr auto isClean = [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 7; };

TEST_F(ProcessEndTest, NoCommandRunsWhileStaticObjectsGo) {
  EXPECT_EXIT(
      {
        const auto buffers = commitWork(newCPUDevice(1));
        std::exit(7);
      },
      isClean, "^$");
}

TEST_F(ProcessEndTest, NorOnTheDefaultDeviceWhichIsStaticItself) {
  EXPECT_EXIT(
      {
        commitWork(createSystemDefaultDevice());
        std::exit(7);
      },
      isClean, "^$");
}

TEST_F(ProcessEndTest, NorWhenAnotherThreadEndsTheProcess) {
  EXPECT_EXIT(
      {
        Library::instance();
        const auto buffers = commitWork(newCPUDevice(1));
        std::thread([] { std::exit(7); }).join();
      },
      isClean, "^$");
}

TEST_F(ProcessEndTest, WhatDoesNotRunFailsWithASentence) {
  // Here as an object that goes after that which the end waits for.
  static std::vector<std::shared_ptr<CommandBuffer>> buffers;
  struct Last {
    ~Last() {
      for (const auto& buffer : buffers) buffer->waitUntilCompleted();
      const auto error = buffers.back()->error();
      const bool isNamed = error && error->message.find("the process is ending") != std::string::npos;
      if (!isNamed || error->code != CommandBufferErrorCode::AccessRevoked) std::_Exit(67);
    }
  };
  EXPECT_EXIT(
      {
        static const Last last;
        buffers = commitWork(newCPUDevice(1));
        std::exit(7);
      },
      isClean, "^$");
}

TEST_F(ProcessEndTest, AChildOfAForkDoesNotWaitForThreadsThatItDoesNotHave) {
  EXPECT_EXIT(
      {
        const auto buffers = commitWork(newCPUDevice(1));
        if (const pid_t child = fork(); child == 0) {
          std::exit(0);
        } else {
          int status = -1;
          waitpid(child, &status, 0);
          if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) std::_Exit(68);
        }
        std::exit(7);
      },
      isClean, "");  // the leak sanitizer of the child writes a line
}

TEST_F(ProcessEndTest, AHandlerCanEndTheProcess) {
  EXPECT_EXIT(
      {
        const auto queue = newCPUDevice(1)->newCommandQueue();
        const auto buffer = queue->commandBuffer();
        buffer->addCompletedHandler([](CommandBuffer&) { std::exit(7); });
        buffer->commit();
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      isClean, "^$");
}

TEST_F(ProcessEndTest, AHandlerThatWaitsForeverDoesNotHoldItUp) {
  EXPECT_EXIT(
      {
        const auto begun = std::make_shared<testing::Gate>();
        const auto queue = newCPUDevice(1)->newCommandQueue();
        const auto buffer = queue->commandBuffer();
        buffer->addCompletedHandler([begun](CommandBuffer&) {
          begun->open();
          std::this_thread::sleep_for(std::chrono::hours(1));
        });
        buffer->commit();
        begun->wait();
        std::exit(7);
      },
      isClean, "^$");
}

TEST_F(ProcessEndTest, HandlersAreNotCalledAnyMore) {
  EXPECT_EXIT(
      {
        const auto queue = newCPUDevice(1)->newCommandQueue();
        const auto begun = std::make_shared<testing::Gate>();
        const auto buffer = queue->commandBuffer();
        buffer->append(call([begun] {
          begun->open();
          while (!ProcessEnd::hasBegun()) std::this_thread::yield();
        }));
        buffer->addCompletedHandler([](CommandBuffer&) { std::_Exit(69); });
        buffer->commit();
        begun->wait();
        std::exit(7);
      },
      isClean, "^$");
}

TEST_F(ProcessEndTest, AThreadThatEndsIsNoEnd) {
  std::thread([] { (void)newCPUDevice(1)->newCommandQueue(); }).join();
  EXPECT_FALSE(ProcessEnd::hasBegun());
}

}  // namespace
}  // namespace mtl::process_end_test
