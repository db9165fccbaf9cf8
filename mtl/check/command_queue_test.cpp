#include "mtl/command_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "mtl/check/command_test_tools.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/submission.hpp"

namespace mtl::command_queue_test {
namespace {

using testing::call;
using testing::Gate;

TEST(CommandQueue, BuffersRunInTheOrderOfEnqueueingNotOfCommit) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  std::vector<int> order;
  std::vector<std::shared_ptr<CommandBuffer>> buffers;
  for (int i = 0; i < 4; ++i) {
    buffers.push_back(queue->commandBuffer());
    buffers.back()->append(call([&order, i] { order.push_back(i); }));
  }
  buffers[2]->enqueue();
  buffers[0]->enqueue();
  buffers[0]->commit();  // waits for 2
  buffers[1]->commit();  // enqueued now, third
  buffers[3]->enqueue();
  EXPECT_EQ(buffers[0]->status(), CommandBufferStatus::Committed);
  EXPECT_EQ(buffers[1]->status(), CommandBufferStatus::Committed);
  buffers[2]->commit();
  buffers[1]->waitUntilCompleted();
  EXPECT_EQ(order, (std::vector<int>{2, 0, 1}));
  buffers[3]->commit();
  buffers[3]->waitUntilCompleted();
  EXPECT_EQ(order, (std::vector<int>{2, 0, 1, 3}));
}

TEST(CommandQueue, WhatOnlyTheDeviceIsNeededForIsWaitedFor) {
  using std::chrono::milliseconds;
  const auto queue = newCPUDevice(1)->newCommandQueue();
  const auto before = queue->commandBuffer();
  const auto buffer = queue->commandBuffer();
  bool hasRun = false;
  buffer->append(call([&hasRun] { hasRun = true; }));
  before->enqueue();
  const auto submission = buffer->submission();
  EXPECT_FALSE(submission->waitIfHandedOver(std::nullopt)) << "it is not committed";
  buffer->commit();
  EXPECT_FALSE(submission->waitIfHandedOver(std::nullopt)) << "the one before it is not committed";
  Gate gate;
  before->append(call([&gate] { gate.wait(); }));
  before->commit();
  EXPECT_FALSE(submission->waitIfHandedOver(milliseconds(1)));
  gate.open();
  EXPECT_TRUE(submission->waitIfHandedOver(std::nullopt));
  EXPECT_TRUE(hasRun);
}

TEST(CommandQueue, BuffersWithoutEnqueueRunInTheOrderOfCommit) {
  const auto queue = newCPUDevice(2)->newCommandQueue();
  std::vector<int> order;
  std::vector<std::shared_ptr<CommandBuffer>> buffers;
  for (int i = 0; i < 8; ++i) {
    buffers.push_back(queue->commandBuffer());
    buffers.back()->append(call([&order, i] { order.push_back(i); }));
  }
  for (int i = 7; i >= 0; --i) buffers[static_cast<std::size_t>(i)]->commit();
  buffers[0]->waitUntilCompleted();
  EXPECT_EQ(order, (std::vector<int>{7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST(CommandQueue, ADroppedBufferThatWasEnqueuedDoesNotBlockThoseBehindIt) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  auto dropped = queue->commandBuffer();
  const auto next = queue->commandBuffer();
  bool droppedRan = false;
  dropped->append(call([&] { droppedRan = true; }));
  dropped->enqueue();
  next->commit();
  EXPECT_EQ(next->status(), CommandBufferStatus::Committed);
  dropped.reset();
  next->waitUntilCompleted();
  EXPECT_EQ(next->status(), CommandBufferStatus::Completed);
  EXPECT_FALSE(droppedRan);
}

TEST(CommandQueue, ACommittedBufferThatNobodyHoldsWaitsForTheOneBeforeItAndRuns) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  auto first = queue->commandBuffer();
  first->enqueue();
  std::atomic<bool> runs = false;
  auto second = queue->commandBuffer();
  second->append(call([&] { runs = true; }));
  second->commit();
  second = nullptr;
  first = nullptr;
  const auto last = queue->commandBuffer();
  last->commit();
  last->waitUntilCompleted();
  EXPECT_TRUE(runs);
}

TEST(CommandQueue, DroppingEnqueuedBuffersWhileOthersCommitNeitherBlocksNorLoses) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  std::atomic<int> runs = 0;
  constexpr int rounds = 200;
  std::thread dropper([&] {
    for (int i = 0; i < rounds; ++i) queue->commandBuffer()->enqueue();
  });
  std::shared_ptr<CommandBuffer> last;
  for (int i = 0; i < rounds; ++i) {
    last = queue->commandBuffer();
    last->append(call([&] { ++runs; }));
    last->commit();
  }
  dropper.join();
  last->waitUntilCompleted();
  EXPECT_EQ(runs, rounds);
}

TEST(CommandQueue, DroppedBuffersCountNoLongerAgainstTheLimit) {
  const auto queue = newCPUDevice(1)->newCommandQueue(2);
  for (int i = 0; i < 10; ++i) {
    const auto plain = queue->commandBuffer();
    const auto enqueued = queue->commandBuffer();
    enqueued->enqueue();
  }
}

TEST(CommandQueue, TheSixtyFifthUncompletedBufferWaits) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  Gate finish;
  std::vector<std::shared_ptr<CommandBuffer>> buffers;
  for (int i = 0; i < 64; ++i) buffers.push_back(queue->commandBuffer());  // does not block
  buffers[0]->append(call([&] { finish.wait(); }));
  std::atomic<bool> made = false;
  Gate requested;
  std::thread maker([&] {
    requested.open();
    const auto extra = queue->commandBuffer();
    made = true;
  });
  requested.wait();
  buffers[0]->commit();
  buffers[0]->waitUntilScheduled();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(made);
  finish.open();
  maker.join();
  EXPECT_TRUE(made);
}

TEST(CommandQueue, AWaitForRoomMayHaveAnEnd) {
  using std::chrono::milliseconds;
  const auto queue = newCPUDevice(1)->newCommandQueue(2);
  const auto first = queue->newSubmission(milliseconds(0));
  ASSERT_NE(first, nullptr);
  auto second = queue->commandBuffer();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(queue->newSubmission(milliseconds(20)), nullptr);
  EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(20));
  second.reset();
  EXPECT_NE(queue->newSubmission(milliseconds(0)), nullptr) << "what was refused took no room";
}

TEST(CommandQueue, TheLimitCanBeSet) {
  const auto device = newCPUDevice(1);
  EXPECT_THROW(device->newCommandQueue(0), Error);
  const auto queue = device->newCommandQueue(1);
  auto first = queue->commandBuffer();
  std::atomic<bool> made = false;
  std::thread maker([&] {
    const auto second = queue->commandBuffer();
    made = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(made);
  first.reset();
  maker.join();
  EXPECT_TRUE(made);
}

TEST(CommandQueue, ManyBuffersInFlightGiveWhatOneAtATimeGives) {
  const auto queue = newCPUDevice(2)->newCommandQueue();
  const auto run = [&](std::size_t inFlight) {
    std::uint64_t value = 1;
    std::vector<std::shared_ptr<CommandBuffer>> buffers;
    for (std::uint64_t i = 0; i < 200; ++i) {
      auto buffer = queue->commandBuffer();
      buffer->append(call([&value, i] { value = value * 6364136223846793005U + i; }));
      buffer->append(call([&value, i] { value ^= i << 7U; }));
      buffer->commit();
      buffers.push_back(std::move(buffer));
      if (buffers.size() >= inFlight) buffers[buffers.size() - inFlight]->waitUntilCompleted();
    }
    buffers.back()->waitUntilCompleted();
    return value;
  };
  const std::uint64_t alone = run(1);
  EXPECT_EQ(run(2), alone);
  EXPECT_EQ(run(16), alone);
}

TEST(CommandQueue, TheNextBufferIsEncodedWhileOneRuns) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  const auto first = queue->commandBuffer();
  Gate encoded;
  bool sawSecond = false;
  first->append(call([&] { sawSecond = encoded.opensInTime(); }));
  first->commit();
  first->waitUntilScheduled();
  const auto second = queue->commandBuffer();
  bool ran = false;
  second->append(call([&] { ran = true; }));
  second->commit();
  encoded.open();
  second->waitUntilCompleted();
  EXPECT_TRUE(sawSecond);
  EXPECT_TRUE(ran);
}

TEST(CommandQueue, TwoQueuesOfOneDeviceEachKeepTheirOrder) {
  const auto device = newCPUDevice(2);
  const std::vector<std::shared_ptr<CommandQueue>> queues{device->newCommandQueue(),
                                                          device->newCommandQueue()};
  std::vector<std::vector<int>> order(2);
  const auto encode = [&](std::size_t q) {
    std::shared_ptr<CommandBuffer> last;
    for (int i = 0; i < 100; ++i) {
      last = queues[q]->commandBuffer();
      last->append(call([&order, q, i] { order[q].push_back(i); }));
      last->commit();
    }
    last->waitUntilCompleted();
  };
  std::thread other([&] { encode(1); });
  encode(0);
  other.join();
  for (const auto& numbers : order) {
    ASSERT_EQ(numbers.size(), 100U);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i);
  }
}

TEST(CommandQueue, AnUncommittedBufferOfOneQueueDoesNotHoldUpAnother) {
  const auto device = newCPUDevice(1);
  const auto held = device->newCommandQueue()->commandBuffer();
  held->enqueue();
  const auto other = device->newCommandQueue()->commandBuffer();
  other->commit();
  other->waitUntilCompleted();
  EXPECT_EQ(held->status(), CommandBufferStatus::Enqueued);
}

TEST(CommandQueue, TheLastOwnerMayBeAHandler) {
  Gate handled;
  {
    auto queue = newCPUDevice(1)->newCommandQueue();
    auto buffer = queue->commandBuffer();
    buffer->addCompletedHandler([&, own = queue](CommandBuffer&) { handled.open(); });
    buffer->commit();
  }
  EXPECT_TRUE(handled.opensInTime());
}

TEST(CommandQueue, CommittedWorkRunsThoughNobodyHoldsTheBuffer) {
  Gate ran;
  {
    const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
    buffer->append(call([&] { ran.open(); }));
    buffer->commit();
  }
  EXPECT_TRUE(ran.opensInTime());
}

TEST(CommandQueue, NamesAreKept) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  queue->setLabel("training");
  EXPECT_EQ(queue->label(), "training");
  const auto buffer = queue->commandBuffer();
  buffer->setLabel("step");
  EXPECT_EQ(buffer->label(), "step");
  EXPECT_EQ(buffer->commandQueue(), queue);
  EXPECT_EQ(buffer->device(), queue->device());
}

}  // namespace
}  // namespace mtl::command_queue_test
