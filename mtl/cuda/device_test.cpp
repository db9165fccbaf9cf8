#include "mtl/cuda/device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mtl/blit_command_encoder.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/cuda/stream.hpp"
#include "mtl/cuda/test_kernels.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/stream.hpp"

namespace mtl::cuda::device_test {
namespace {

TEST(CudaDevices, ADeviceThatIsNotThereIsNamed) {
  try {
    deviceNamed("cuda:999");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("device cuda:999 cannot be used: "), 0U) << error.what();
  }
}

/// docs/decisions.md, D12.
TEST(CudaDevices, D12ComputeCapabilitiesBelow8AreRefused) {
  for (const auto& [major, minor] : {std::pair(7, 5), std::pair(6, 0), std::pair(3, 5)}) {
    const std::string why = whyTooOld(major, minor);
    EXPECT_EQ(why, "its compute capability is " + std::to_string(major) + "." + std::to_string(minor) +
                       ", this library needs 8.0");
  }
  for (const auto& [major, minor] : {std::pair(8, 0), std::pair(8, 9), std::pair(9, 0), std::pair(12, 1)})
    EXPECT_EQ(whyTooOld(major, minor), "");
}

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "this machine has no CUDA device";
    device_ = device(0);
    queue_ = device_->newCommandQueue();
  }

  std::shared_ptr<Buffer> buffer(std::size_t count) {
    return device_->newBuffer(count * sizeof(std::int32_t));
  }
  static std::int32_t* valuesOf(const Buffer& buffer) {
    return reinterpret_cast<std::int32_t*>(buffer.memory()->address());
  }
  static Command command(std::function<void(mtl::Stream&)> run) {
    Command made;
    made.label = "test";
    made.run = std::move(run);
    return made;
  }
  /// Adds a number to all values of a buffer.
  static Command add(const std::shared_ptr<Buffer>& buffer, std::int32_t number) {
    Command made =
        command([values = valuesOf(*buffer), count = buffer->length() / 4, number](mtl::Stream& stream) {
          testing::add(stream, values, static_cast<std::int64_t>(count), number);
        });
    made.writes.push_back(buffer->memory());
    made.retained.push_back(buffer);
    return made;
  }
  std::vector<std::int32_t> read(const std::shared_ptr<Buffer>& buffer) {
    const auto commandBuffer = queue_->commandBuffer();
    buffer->synchronize(*commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    const auto values = buffer->contentsAs<std::int32_t>();
    return {values.begin(), values.end()};
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<CommandQueue> queue_;
};

TEST_F(CudaDevice, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), DeviceKind::CUDA);
  EXPECT_EQ(device_->name(), "cuda:0");
  EXPECT_FALSE(device_->description().empty());
  EXPECT_GT(device_->recommendedMaxWorkingSetSize(), std::size_t{1} << 28U);
  EXPECT_EQ(device_->threadCount(), 1);
  EXPECT_THROW(device_->setThreadCount(2), Error);
  EXPECT_EQ(deviceNamed("cuda"), device_);
  EXPECT_EQ(device(0), device_);
}

TEST_F(CudaDevice, ABufferBeginsWithZerosOrACopy) {
  const auto zeros = buffer(1000);
  EXPECT_EQ(read(zeros), std::vector<std::int32_t>(1000));
  EXPECT_EQ(buffer(7)->contentsAs<std::int32_t>()[6], 0);
  std::vector<std::int32_t> values(5000);
  std::iota(values.begin(), values.end(), 1);
  const auto copy = device_->newBuffer(std::as_bytes(std::span(values)));
  EXPECT_EQ(copy->contentsAs<std::int32_t>()[4999], 5000);
  EXPECT_EQ(read(copy), values);
  EXPECT_EQ(device_->newBuffer(0)->length(), 0U);
}

TEST_F(CudaDevice, CommandsRunInOrderOverSeveralBuffers) {
  const auto values = buffer(100'000);
  for (std::int32_t step = 1; step <= 50; ++step) {
    const auto commandBuffer = queue_->commandBuffer();
    commandBuffer->append(add(values, step));
    commandBuffer->append(add(values, -1));
    commandBuffer->commit();
  }
  EXPECT_EQ(read(values), std::vector<std::int32_t>(100'000, 50 * 51 / 2 - 50));
}

TEST_F(CudaDevice, BlitsRunOnTheDeviceInOrder) {
  const auto values = buffer(100'000);
  const auto copy = buffer(100'001);
  const auto commandBuffer = queue_->commandBuffer();
  commandBuffer->append(add(values, 5));
  const auto blit = commandBuffer->blitCommandEncoder();
  blit->fillBuffer(values, 4, 7, 0xFF);
  blit->copyFromBuffer(values, 0, copy, 4, values->length());
  blit->fillBuffer(values, 0, values->length(), 0);
  blit->synchronizeResource(copy);
  blit->endEncoding();
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<std::int32_t> expected(100'001, 5);
  expected[0] = 0;
  expected[2] = -1;
  expected[3] = 0x00FFFFFF;
  const auto found = copy->contentsAs<std::int32_t>();
  EXPECT_EQ(std::vector<std::int32_t>(found.begin(), found.end()), expected);
  EXPECT_EQ(read(values), std::vector<std::int32_t>(100'000));
}

/// What the host wrote is read before didModifyRange returns; more than the ring holds, too.
TEST_F(CudaDevice, ModifiedRangesReachTheNextCommand) {
  constexpr std::size_t count = 6'000'001;
  const auto values = buffer(count);
  const auto contents = values->contentsAs<std::int32_t>();
  for (std::int32_t round = 1; round <= 3; ++round) {
    std::fill(contents.begin(), contents.end(), round);
    values->didModifyRange(0, values->length());
    std::fill(contents.begin(), contents.end(), -1);
    const auto commandBuffer = queue_->commandBuffer();
    commandBuffer->append(add(values, 10));
    commandBuffer->commit();
    ASSERT_EQ(read(values), std::vector<std::int32_t>(count, round + 10));
  }
  contents[3] = 77;
  contents[4] = 78;  // not said
  values->didModifyRange(3 * sizeof(std::int32_t), sizeof(std::int32_t));
  const auto found = read(values);
  EXPECT_EQ(found[3], 77);
  EXPECT_EQ(found[4], 13);
}

/// With and without a mirror that the host has looked at before.
TEST_F(CudaDevice, WrittenBytesReachTheNextCommandAndTheHost) {
  constexpr std::size_t count = 300'001;
  for (const bool hasMirror : {false, true}) {
    const auto values = buffer(count);
    if (hasMirror) {
      EXPECT_EQ(values->contentsAs<std::int32_t>()[0], 0);
    }
    const std::vector<std::int32_t> threes(count, 3);
    const std::int32_t seven = 7;
    values->memory()->write(0, std::as_bytes(std::span(threes)));
    values->memory()->write(5 * sizeof seven, std::as_bytes(std::span(&seven, 1)));
    EXPECT_EQ(values->contentsAs<std::int32_t>()[4], 3);
    EXPECT_EQ(values->contentsAs<std::int32_t>()[5], 7);
    const auto commandBuffer = queue_->commandBuffer();
    commandBuffer->append(add(values, 10));
    commandBuffer->commit();
    std::vector<std::int32_t> expected(count, 13);
    expected[5] = 17;
    EXPECT_EQ(read(values), expected);
    values->memory()->write(0, std::as_bytes(std::span(&seven, 1)));
    values->memory()->fillWithZeros();
    EXPECT_EQ(read(values), std::vector<std::int32_t>(count));
  }
  const auto zeros = buffer(4);
  zeros->memory()->write(0, {});
  EXPECT_EQ(zeros->contentsAs<std::int32_t>()[3], 0);
}

TEST_F(CudaDevice, ResultsShowAfterSynchronizeAndCompletionOnly) {
  const auto values = buffer(16);
  const auto contents = values->contentsAs<std::int32_t>();
  const auto commandBuffer = queue_->commandBuffer();
  commandBuffer->append(add(values, 5));
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(contents[0], 0);
  EXPECT_EQ(read(values)[0], 5);
  EXPECT_EQ(contents[0], 5);
}

/// The host goes on while the device works; the handler comes when it has.
TEST_F(CudaDevice, CommitDoesNotWaitAndHandlersComeAfterTheWork) {
  const auto commandBuffer = queue_->commandBuffer();
  commandBuffer->append(command([](mtl::Stream& stream) { testing::spin(stream, 200); }));
  std::atomic<bool> done = false;
  std::thread::id handlerThread;
  commandBuffer->addCompletedHandler([&](CommandBuffer& buffer) {
    EXPECT_EQ(buffer.status(), CommandBufferStatus::Completed);
    handlerThread = std::this_thread::get_id();
    done = true;
  });
  commandBuffer->commit();
  commandBuffer->waitUntilScheduled();
  EXPECT_FALSE(done);
  commandBuffer->waitUntilCompleted();
  EXPECT_TRUE(done);
  EXPECT_NE(handlerThread, std::this_thread::get_id());
}

/// A buffer behind another one does not count the time in which it waits for the device.
TEST_F(CudaDevice, TimesAreThoseOfTheDevicesWork) {
  std::vector<std::shared_ptr<mtl::CommandBuffer>> commandBuffers;
  for (const int milliseconds : {200, 100}) {
    commandBuffers.push_back(queue_->commandBuffer());
    commandBuffers.back()->append(command([=](mtl::Stream& stream) { testing::spin(stream, milliseconds); }));
    commandBuffers.back()->commit();
  }
  std::vector<double> seconds;
  for (const auto& commandBuffer : commandBuffers) {
    commandBuffer->throwIfFailed();
    seconds.push_back(commandBuffer->GPUEndTime() - commandBuffer->GPUStartTime());
  }
  EXPECT_GT(seconds[1], 0.05);
  EXPECT_LT(seconds[1], 0.9 * seconds[0]);
}

TEST_F(CudaDevice, ACommandCanReadWhatEarlierOnesWrote) {
  const auto values = buffer(8);
  std::int32_t found = 0;
  const auto commandBuffer = queue_->commandBuffer();
  commandBuffer->append(add(values, 9));
  commandBuffer->append(command([&](mtl::Stream& stream) {
    stream.read(values->memory()->address() + 4, std::as_writable_bytes(std::span(&found, 1)));
  }));
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(found, 9);
}

TEST_F(CudaDevice, AFailedCommandLeavesQueueAndDeviceUsable) {
  const auto values = buffer(8);
  const auto commandBuffer = queue_->commandBuffer();
  commandBuffer->append(command([](mtl::Stream&) { throw std::runtime_error("planted"); }));
  commandBuffer->append(add(values, 1));
  commandBuffer->commit();
  commandBuffer->waitUntilCompleted();
  ASSERT_TRUE(commandBuffer->error());
  EXPECT_EQ(commandBuffer->error()->message, "test: planted");
  EXPECT_FALSE(values->memory()->failure().empty());
  EXPECT_EQ(read(buffer(8)), std::vector<std::int32_t>(8));
}

TEST_F(CudaDevice, WantOfMemoryIsAnErrorThatPasses) {
  EXPECT_THROW(device_->allocate(std::size_t{1} << 45U), std::bad_alloc);
  EXPECT_EQ(read(buffer(8)), std::vector<std::int32_t>(8));
}

TEST_F(CudaDevice, NothingIsAllocatedInTheSteadyState) {
  const auto step = [&] {
    const auto values = buffer(300'000);
    values->contentsAs<std::int32_t>()[0] = 1;
    values->didModifyRange(0, 4);
    const auto commandBuffer = queue_->commandBuffer();
    const auto scratch = commandBuffer->heap()->allocate(100'000);
    commandBuffer->append(add(values, 1));
    values->synchronize(*commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    EXPECT_EQ(values->contentsAs<std::int32_t>()[0], 2);
  };
  for (int i = 0; i < 3; ++i) step();
  const std::size_t before = device_->systemAllocationCount();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(device_->systemAllocationCount(), before);
}

TEST_F(CudaDevice, QueuesHaveStreamsOfTheirOwn) {
  const auto other = device_->newCommandQueue();
  const auto slow = queue_->commandBuffer();
  const auto values = buffer(8);
  slow->append(command([](mtl::Stream& stream) { testing::spin(stream, 100); }));
  slow->commit();
  const auto quick = other->commandBuffer();
  quick->append(add(values, 3));
  quick->commit();
  quick->throwIfFailed();
  slow->throwIfFailed();
  EXPECT_EQ(read(values)[7], 3);
}

/// Sequences of commands with replay keys, which the device keeps as CUDA graphs.
class CudaReplays : public CudaDevice {
 protected:
  using Values = std::vector<std::int32_t>;

  void SetUp() override {
    CudaDevice::SetUp();
    if (queue_ != nullptr) launchedBefore_ = launchesOfStream();
  }
  /// The same work each time that it has the same place in its sequence.
  Command withKey(Command command, std::size_t place, std::uint64_t number) {
    while (works_.size() <= place) works_.push_back(std::make_shared<int>());
    command.replay.work = works_[place];
    command.replay.numbers[0] = number;
    return command;
  }
  /// Six additions to a buffer: 1, 2, ... times a number.
  void appendAdditions(CommandBuffer& commandBuffer, const std::shared_ptr<Buffer>& buffer,
                       std::int32_t number) {
    for (std::int32_t i = 0; i < 6; ++i) {
      Command command = withKey(add(buffer, (i + 1) * number), static_cast<std::size_t>(i),
                                static_cast<std::uint64_t>(number));
      command.replay.numbers[1] = reinterpret_cast<std::uintptr_t>(buffer->memory()->address());
      commandBuffer.append(std::move(command));
    }
  }
  void run(const std::shared_ptr<CommandBuffer>& commandBuffer) {
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  /// Since the test began.
  std::size_t launchCount() { return launchesOfStream() - launchedBefore_; }

  std::vector<std::shared_ptr<int>> works_;

 private:
  /// Also those of queues that had the stream before.
  std::size_t launchesOfStream() {
    std::size_t count = 0;
    const auto commandBuffer = queue_->commandBuffer();
    commandBuffer->append(
        command([&](mtl::Stream& stream) { count = asCuda(stream).replays().launchCount(); }));
    run(commandBuffer);
    return count;
  }

  std::size_t launchedBefore_ = 0;
};

TEST_F(CudaReplays, DoWhatTheCommandsSayNow) {
  const auto first = buffer(1000);
  const auto second = buffer(1000);
  std::int32_t ofFirst = 0;
  std::int32_t ofSecond = 0;
  for (std::int32_t step = 1; step <= 10; ++step) {
    const bool isFirst = step % 3 != 0;
    const auto commandBuffer = queue_->commandBuffer();
    appendAdditions(*commandBuffer, isFirst ? first : second, step);
    commandBuffer->commit();
    (isFirst ? ofFirst : ofSecond) += 21 * step;
  }
  EXPECT_EQ(read(first), Values(1000, ofFirst));
  EXPECT_EQ(read(second), Values(1000, ofSecond));
  EXPECT_EQ(launchCount(), 9U);
}

TEST_F(CudaReplays, BlocksThatWaitForEachOtherRunTogether) {
  constexpr unsigned count = 100;
  const auto values = buffer(1 + count);
  for (std::int32_t step = 1; step <= 10; ++step) {
    const auto commandBuffer = queue_->commandBuffer();
    for (std::int32_t i = 0; i < 6; ++i) {
      Command made = command([address = valuesOf(*values), step, i](mtl::Stream& stream) {
        testing::addTogether(stream, address, count, step * (i + 1));
      });
      made.writes.push_back(values->memory());
      commandBuffer->append(
          withKey(std::move(made), static_cast<std::size_t>(i), static_cast<std::uint64_t>(step)));
    }
    run(commandBuffer);
  }
  Values expected(1 + count, 21 * 55);
  expected[0] = 60 * count;
  EXPECT_EQ(read(values), expected);
  EXPECT_EQ(launchCount(), 9U);
}

TEST_F(CudaReplays, OfWorkThatCannotBeUpdatedAreRightAndFew) {
  const auto values = buffer(100);
  for (std::uint64_t step = 1; step <= 12; ++step) {
    const auto commandBuffer = queue_->commandBuffer();
    Command set = command([address = valuesOf(*values), step](mtl::Stream& stream) {
      check(cudaMemsetAsync(address, static_cast<int>(step), 400, asCuda(stream).handle()),
            "cudaMemsetAsync");
    });
    set.writes.push_back(values->memory());
    commandBuffer->append(withKey(std::move(set), 6, step));
    appendAdditions(*commandBuffer, values, 1);
    commandBuffer->commit();
    const auto byte = static_cast<std::int32_t>(step);
    EXPECT_EQ(read(values), Values(100, byte * 0x01010101 + 21)) << step;
  }
  EXPECT_EQ(launchCount(), ReplayCache::mostRecordings);
}

TEST_F(CudaReplays, DoNotTakeInWhatWaitsForResults) {
  const auto values = buffer(100);
  std::int32_t found = 0;
  for (std::int32_t step = 1; step <= 4; ++step) {
    const auto commandBuffer = queue_->commandBuffer();
    appendAdditions(*commandBuffer, values, 1);
    commandBuffer->append(withKey(command([&](mtl::Stream& stream) {
                                    stream.read(values->memory()->address(),
                                                std::as_writable_bytes(std::span(&found, 1)));
                                  }),
                                  6, 0));
    run(commandBuffer);
    EXPECT_EQ(found, 21 * step);
  }
  EXPECT_EQ(launchCount(), 0U);
}

TEST_F(CudaReplays, AreForgottenWithTheirQueue) {
  const auto values = buffer(100);
  for (int i = 0; i < 3; ++i) {
    const auto commandBuffer = queue_->commandBuffer();
    appendAdditions(*commandBuffer, values, 1);
    run(commandBuffer);
  }
  const std::weak_ptr<int> work = works_[2];
  works_.clear();
  EXPECT_FALSE(work.expired());
  queue_ = nullptr;
  for (int i = 0; i < 1000 && !work.expired(); ++i)  // the last submission lets go on another thread
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(work.expired());
}

/// In a process of its own, because that one cannot use the device afterwards.
TEST_F(CudaDevice, AfterAFatalErrorEachCommitSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fault = [] {
    const auto faulty = device(0);
    const auto queue = faulty->newCommandQueue();
    const auto values = faulty->newBuffer(8);
    for (int i = 0; i < 3; ++i) {
      const auto commandBuffer = queue->commandBuffer();
      Command made = command([](mtl::Stream& stream) { testing::writeToNowhere(stream); });
      made.writes.push_back(values->memory());
      commandBuffer->append(std::move(made));
      commandBuffer->commit();
      commandBuffer->waitUntilCompleted();
      if (!commandBuffer->error() || values->memory()->failure().empty()) std::_Exit(1);
      const std::string message = commandBuffer->error()->message;
      if (message.find("cuda:0") == std::string::npos) std::_Exit(2);
      if (i > 0 && message.find("cannot be used any more") == std::string::npos) std::_Exit(3);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(fault(), ::testing::ExitedWithCode(0), "");
}

/// As long as the end comes between two of them, none may begin.
TEST_F(CudaDevice, AProcessEndsCleanlyWithWorkInFlight) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto endOn = [](bool otherThread) {
    const auto queue = device(0)->newCommandQueue();
    const auto values = device(0)->newBuffer(std::size_t{1} << 24U);
    std::vector<std::shared_ptr<CommandBuffer>> inFlight;
    for (int i = 0; i < 200; ++i) {
      inFlight.push_back(queue->commandBuffer());
      const auto blit = inFlight.back()->blitCommandEncoder();
      blit->fillBuffer(values, 0, values->length(), 1);
      blit->endEncoding();
      inFlight.back()->commit();
    }
    if (otherThread) std::thread([] { std::exit(7); }).join();
    std::exit(7);
  };
  for (int i = 0; i < 4; ++i) EXPECT_EXIT(endOn(i % 2 == 1), ::testing::ExitedWithCode(7), "^$") << i;
}

}  // namespace
}  // namespace mtl::cuda::device_test
