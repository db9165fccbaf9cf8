#include "mtl/back_ends.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mtl/back_ends.hpp"
#include "mtl/check/command_test_tools.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/submission.hpp"

namespace mtl::command_buffer_test {
namespace {

using testing::call;
using testing::fail;
using testing::Gate;

/// The text of the Error that a call throws; empty when it throws none.
template <class Function>
std::string errorOf(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(CommandBuffer, StatusFollowsTheLifeOfTheBuffer) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  const auto buffer = queue->commandBuffer();
  Gate started;
  Gate finish;
  buffer->append(call([&] {
    started.open();
    finish.wait();
  }));
  const auto next = queue->commandBuffer();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::NotEnqueued);
  EXPECT_EQ(buffer->GPUStartTime(), 0);
  EXPECT_EQ(buffer->GPUEndTime(), 0);
  buffer->enqueue();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Enqueued);
  buffer->enqueue();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Enqueued);
  buffer->commit();
  ASSERT_TRUE(started.opensInTime());
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Scheduled);
  EXPECT_GT(buffer->GPUStartTime(), 0);
  EXPECT_EQ(buffer->GPUEndTime(), 0);
  next->commit();
  EXPECT_EQ(next->status(), CommandBufferStatus::Committed);
  finish.open();
  next->waitUntilCompleted();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Completed);
  EXPECT_EQ(next->status(), CommandBufferStatus::Completed);
  EXPECT_GE(buffer->GPUEndTime(), buffer->GPUStartTime());
  EXPECT_GE(next->GPUStartTime(), buffer->GPUEndTime());
  EXPECT_FALSE(buffer->error().has_value());
  EXPECT_NO_THROW(buffer->throwIfFailed());
}

TEST(CommandBuffer, NothingRunsBeforeCommit) {
  const auto device = newCPUDevice(1);
  const auto queue = device->newCommandQueue();
  const auto buffer = queue->commandBuffer();
  std::atomic<int> runs = 0;
  buffer->append(call([&] { ++runs; }));
  buffer->enqueue();
  // A buffer of another queue passes through the same executor meanwhile.
  const auto other = device->newCommandQueue()->commandBuffer();
  other->commit();
  other->waitUntilCompleted();
  EXPECT_EQ(runs, 0);
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_EQ(runs, 1);
}

TEST(CommandBuffer, CommandsRunOnceInTheOrderOfEncoding) {
  const auto buffer = newCPUDevice(2)->newCommandQueue()->commandBuffer();
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) buffer->append(call([&order, i] { order.push_back(i); }));
  EXPECT_EQ(buffer->commandCount(), 100U);
  buffer->commit();
  buffer->waitUntilCompleted();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(CommandBuffer, WhatADroppedBufferNeedsRunsInItsPlace) {
  const auto device = newCPUDevice(1);
  const auto queue = device->newCommandQueue(1);
  std::vector<int> order;
  const auto note = [&](int number) { return call([&order, number] { order.push_back(number); }); };
  auto dropped = queue->commandBuffer();
  dropped->append(note(1));
  for (const int number : {2, 3})
    dropped->ifDropped([&, number](CommandBuffer& instead) { instead.append(note(number)); });
  dropped->enqueue();
  dropped = nullptr;
  auto committed = queue->commandBuffer();  // the queue allows one at a time: the replacement has ended
  EXPECT_EQ(order, (std::vector{2, 3}));
  committed->append(note(4));
  committed->ifDropped([&](CommandBuffer& instead) { instead.append(note(5)); });
  committed->commit();
  committed->waitUntilCompleted();
  committed = nullptr;
  queue->commandBuffer();
  EXPECT_EQ(order, (std::vector{2, 3, 4}));
}

TEST(CommandBuffer, WhatRunsInPlaceOfAnEnqueuedBufferRunsBeforeThoseBehindIt) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  std::vector<int> order;
  const auto note = [&](int number) { return call([&order, number] { order.push_back(number); }); };
  std::vector<std::shared_ptr<CommandBuffer>> dropped;
  for (const int number : {1, 2, 3, 4}) {
    dropped.push_back(queue->commandBuffer());
    dropped.back()->append(note(-number));
    dropped.back()->ifDropped([&, number](CommandBuffer& instead) {
      if (number == 3) throw std::runtime_error("no luck");
      if (number != 2) instead.append(note(number));
    });
    dropped.back()->enqueue();
  }
  const auto last = queue->commandBuffer();
  last->append(note(5));
  last->commit();
  for (const std::size_t i : {1U, 3U, 2U, 0U}) {
    EXPECT_EQ(last->status(), CommandBufferStatus::Committed) << "waits for those before it";
    dropped[i] = nullptr;
  }
  last->waitUntilCompleted();
  EXPECT_EQ(order, (std::vector{1, 4, 5}));
}

TEST(CommandBuffer, AFailedEncodeTakesBackWhatItGaveForADroppedBuffer) {
  const auto queue = newCPUDevice(1)->newCommandQueue(1);
  std::vector<int> order;
  const auto give = [&](CommandBuffer& buffer, int number) {
    buffer.ifDropped([&order, number](CommandBuffer& instead) {
      instead.append(call([&order, number] { order.push_back(number); }));
    });
  };
  auto buffer = queue->commandBuffer();
  give(*buffer, 1);
  {
    const RecordingGuard guard(*buffer);
    give(*buffer, 2);
  }
  buffer = nullptr;
  queue->commandBuffer();
  EXPECT_EQ(order, std::vector{1});
}

TEST(CommandBuffer, AReplacementThatCannotBeRecordedIsNone) {
  const auto queue = newCPUDevice(1)->newCommandQueue(1);
  auto buffer = queue->commandBuffer();
  buffer->ifDropped([](CommandBuffer&) { throw std::runtime_error("no luck"); });
  buffer = nullptr;
  EXPECT_NE(queue->commandBuffer(), nullptr) << "its share of the queue's limit is free again";
}

TEST(CommandBuffer, CommandsDoNotRunOnTheCommittingThread) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  std::thread::id runner;
  std::thread::id handler;
  buffer->append(call([&] { runner = std::this_thread::get_id(); }));
  buffer->addCompletedHandler([&](CommandBuffer&) { handler = std::this_thread::get_id(); });
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_NE(runner, std::this_thread::get_id());
  EXPECT_NE(handler, std::this_thread::get_id());
  EXPECT_NE(handler, runner);
}

TEST(CommandBuffer, CommitIsAllowedOnce) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  buffer->setLabel("step 7");
  int runs = 0;
  buffer->append(call([&] { ++runs; }));
  buffer->commit();
  EXPECT_NE(errorOf([&] { buffer->commit(); }).find("step 7"), std::string::npos);
  buffer->waitUntilCompleted();
  EXPECT_NE(errorOf([&] { buffer->commit(); }), "");
  buffer->enqueue();  // without effect
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Completed);
  EXPECT_EQ(runs, 1);
}

TEST(CommandBuffer, TwoThreadsThatCommitTheSameBufferSubmitItOnce) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  for (int round = 0; round < 50; ++round) {
    const auto buffer = queue->commandBuffer();
    std::atomic<int> runs = 0;
    std::atomic<int> refusals = 0;
    buffer->append(call([&] { ++runs; }));
    const auto commit = [&] {
      if (!errorOf([&] { buffer->commit(); }).empty()) ++refusals;
    };
    std::thread other(commit);
    commit();
    other.join();
    buffer->waitUntilCompleted();
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(refusals, 1);
  }
}

TEST(CommandBuffer, NothingIsAddedAfterCommit) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  buffer->commit();
  EXPECT_NE(errorOf([&] { buffer->append(call([] {})); }), "");
  EXPECT_NE(errorOf([&] { buffer->checkOpen(); }), "");
  EXPECT_NE(errorOf([&] { buffer->addCompletedHandler([](CommandBuffer&) {}); }), "");
  EXPECT_NE(errorOf([&] { buffer->addScheduledHandler([](CommandBuffer&) {}); }), "");
  buffer->waitUntilCompleted();
}

TEST(CommandBuffer, AnEmptyHandlerIsRefused) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  EXPECT_NE(errorOf([&] { buffer->addCompletedHandler(nullptr); }), "");
  EXPECT_NE(errorOf([&] { buffer->addScheduledHandler(nullptr); }), "");
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Completed);
}

TEST(CommandBuffer, WaitingBeforeCommitThrows) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  EXPECT_NE(errorOf([&] { buffer->waitUntilCompleted(); }), "");
  EXPECT_NE(errorOf([&] { buffer->waitUntilScheduled(); }), "");
  EXPECT_NE(errorOf([&] { buffer->throwIfFailed(); }), "");
  buffer->enqueue();
  EXPECT_NE(errorOf([&] { buffer->waitUntilCompleted(); }), "");
  buffer->commit();
  buffer->waitUntilCompleted();
}

TEST(CommandBuffer, HandlersRunInOrderWithTheBufferAndBeforeTheWaitReturns) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  for (int round = 0; round < 20; ++round) {
    const auto buffer = queue->commandBuffer();
    buffer->setLabel("labelled");
    std::vector<int> order;
    std::vector<std::string> labels;
    std::vector<CommandBufferStatus> states;
    for (int i = 0; i < 5; ++i) {
      buffer->addScheduledHandler([&order, i](CommandBuffer&) { order.push_back(i); });
      buffer->addCompletedHandler([&, i](CommandBuffer& completed) {
        order.push_back(100 + i);
        labels.push_back(completed.label());
        states.push_back(completed.status());
      });
    }
    buffer->commit();
    buffer->waitUntilCompleted();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 100, 101, 102, 103, 104}));
    EXPECT_EQ(labels, std::vector<std::string>(5, "labelled"));
    EXPECT_EQ(states, std::vector<CommandBufferStatus>(5, CommandBufferStatus::Completed));
  }
}

TEST(CommandBuffer, HandlersOfOneQueueShareAThread) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  std::vector<std::thread::id> threads;
  std::vector<std::shared_ptr<CommandBuffer>> buffers;
  for (int i = 0; i < 10; ++i) {
    buffers.push_back(queue->commandBuffer());
    buffers.back()->addCompletedHandler(
        [&](CommandBuffer&) { threads.push_back(std::this_thread::get_id()); });
    buffers.back()->commit();
  }
  buffers.back()->waitUntilCompleted();
  ASSERT_EQ(threads.size(), 10U);  // in order: all earlier handlers have run
  for (const auto thread : threads) EXPECT_EQ(thread, threads.front());
}

TEST(CommandBuffer, WaitUntilScheduledReturnsWhileTheBufferRunsAndAfterItsHandlers) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  Gate finish;
  std::atomic<bool> handled = false;
  buffer->append(call([&] { finish.wait(); }));
  buffer->addScheduledHandler([&](CommandBuffer&) { handled = true; });
  buffer->commit();
  buffer->waitUntilScheduled();
  EXPECT_TRUE(handled);
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Scheduled);
  finish.open();
  buffer->waitUntilCompleted();
  buffer->waitUntilScheduled();
}

TEST(CommandBuffer, AWaitWithALimitSaysWhetherItIsOver) {
  constexpr std::chrono::milliseconds limit(5);
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  EXPECT_NE(errorOf([&] { buffer->submission()->wait(false, limit); }), "");
  Gate finish;
  buffer->append(call([&] { finish.wait(); }));
  buffer->commit();
  EXPECT_TRUE(buffer->submission()->wait(true));
  EXPECT_FALSE(buffer->submission()->wait(false, limit));
  finish.open();
  EXPECT_TRUE(buffer->submission()->wait(false));
  EXPECT_TRUE(buffer->submission()->wait(false, limit));
  EXPECT_TRUE(buffer->submission()->wait(true, limit));
}

TEST(CommandBuffer, AHandlerThatWaitsForItsOwnBufferGetsAnError) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  const auto buffer = queue->commandBuffer();
  std::string throughFace;
  std::string throughOwner;
  buffer->addCompletedHandler([&](CommandBuffer& completed) {
    throughFace = errorOf([&] { completed.waitUntilCompleted(); });
    throughOwner = errorOf([&] { buffer->waitUntilCompleted(); });
  });
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_NE(throughFace, "");
  EXPECT_NE(throughOwner, "");
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Completed);
}

TEST(CommandBuffer, ACompletedHandlerMayWaitForWhatHasHappened) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  std::string inScheduled;
  std::string inCompleted = "has not run";
  buffer->addScheduledHandler(
      [&](CommandBuffer& self) { inScheduled = errorOf([&] { self.waitUntilScheduled(); }); });
  buffer->addCompletedHandler(
      [&](CommandBuffer& self) { inCompleted = errorOf([&] { self.waitUntilScheduled(); }); });
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_NE(inScheduled, "") << "its own handlers are not done";
  EXPECT_EQ(inCompleted, "");
}

TEST(CommandBuffer, AHandlerMayWaitForALaterBufferOfItsQueue) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  const auto first = queue->commandBuffer();
  CommandBufferStatus seen{};
  bool ran = false;
  bool handled = false;
  first->addCompletedHandler([&](CommandBuffer&) {
    const auto later = queue->commandBuffer();
    later->append(call([&] { ran = true; }));
    later->addCompletedHandler([&](CommandBuffer&) { handled = true; });
    later->commit();
    later->waitUntilCompleted();
    seen = later->status();
    EXPECT_TRUE(ran);
    EXPECT_FALSE(handled);  // it comes after this handler
  });
  first->commit();
  first->waitUntilCompleted();
  EXPECT_EQ(seen, CommandBufferStatus::Completed);
  const auto last = queue->commandBuffer();
  last->addCompletedHandler([](CommandBuffer&) {});
  last->commit();
  last->waitUntilCompleted();
  EXPECT_TRUE(handled);
}

TEST(CommandBuffer, AnExceptionOfAHandlerIsReportedInTheBuffer) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  const auto buffer = queue->commandBuffer();
  bool laterHandlerRan = false;
  buffer->addCompletedHandler([](CommandBuffer&) { throw std::runtime_error("disk is full"); });
  buffer->addCompletedHandler([](CommandBuffer&) { throw 42; });
  buffer->addCompletedHandler([&](CommandBuffer&) { laterHandlerRan = true; });
  buffer->commit();
  buffer->waitUntilCompleted();
  ASSERT_TRUE(buffer->error().has_value());
  EXPECT_NE(buffer->error()->message.find("disk is full"), std::string::npos);
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Error) << "error() is set, so the status says so";
  EXPECT_TRUE(laterHandlerRan);
  EXPECT_NE(errorOf([&] { buffer->throwIfFailed(); }).find("disk is full"), std::string::npos);
  const auto next = queue->commandBuffer();
  next->commit();
  next->waitUntilCompleted();
  EXPECT_EQ(next->status(), CommandBufferStatus::Completed);
}

TEST(CommandBuffer, AnExceptionOfAScheduledHandlerIsReportedWheneverItComes) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  buffer->addScheduledHandler([](CommandBuffer&) { throw std::runtime_error("early"); });
  buffer->addCompletedHandler([](CommandBuffer&) {});
  buffer->commit();
  buffer->waitUntilCompleted();
  ASSERT_TRUE(buffer->error().has_value());
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Error);
}

TEST(CommandBuffer, TheErrorOfACommandStandsBeforeThatOfAHandler) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  buffer->append(fail("first", "kernel"));
  buffer->addCompletedHandler([](CommandBuffer& failed) {
    EXPECT_EQ(failed.status(), CommandBufferStatus::Error);
    throw std::runtime_error("second");
  });
  buffer->commit();
  buffer->waitUntilCompleted();
  ASSERT_TRUE(buffer->error().has_value());
  EXPECT_EQ(buffer->error()->message, "kernel: first");
  EXPECT_EQ(buffer->error()->code, CommandBufferErrorCode::Internal);
}

TEST(CommandBuffer, RetainedObjectsLiveUntilTheBufferHasCompletedAndNoLonger) {
  const auto queue = newCPUDevice(1)->newCommandQueue();
  const auto buffer = queue->commandBuffer();
  auto object = std::make_shared<int>(5);
  const std::weak_ptr<int> watched = object;
  Command command;
  command.label = "reader";
  bool aliveInside = false;
  command.run = [&](Stream&) { aliveInside = !watched.expired(); };
  command.retained.push_back(std::move(object));
  buffer->append(std::move(command));
  EXPECT_FALSE(watched.expired());
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_TRUE(aliveInside);
  EXPECT_TRUE(watched.expired());
}

TEST(CommandBuffer, RollbackDropsTheLaterCommands) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  std::vector<int> ran;
  buffer->append(call([&] { ran.push_back(1); }));
  {
    RecordingGuard guard(*buffer);
    buffer->append(call([&] { ran.push_back(2); }));
    buffer->append(call([&] { ran.push_back(3); }));
  }
  EXPECT_EQ(buffer->commandCount(), 1U);
  {
    RecordingGuard guard(*buffer);
    buffer->append(call([&] { ran.push_back(4); }));
    guard.keep();
  }
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_EQ(ran, (std::vector<int>{1, 4}));
}

TEST(CommandBuffer, NobodyCommitsItInsideAnEncode) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  buffer->setLabel("step");
  bool ran = false;
  {
    RecordingGuard outer(*buffer);
    buffer->append(call([&] { ran = true; }));
    {
      RecordingGuard inner(*buffer);
      EXPECT_NE(errorOf([&] { buffer->commit(); }).find("\"step\": committed inside an encode"),
                std::string::npos);
      inner.keep();
    }
    EXPECT_NE(errorOf([&] { buffer->commit(); }), "");
    EXPECT_EQ(buffer->status(), CommandBufferStatus::NotEnqueued);
  }
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Completed);
  EXPECT_FALSE(ran) << "the encode failed";
}

TEST(CommandBuffer, AnEncodeDoesNotBeginAfterCommit) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  buffer->commit();
  EXPECT_NE(errorOf([&] { const RecordingGuard guard(*buffer); }).find("encode after commit"),
            std::string::npos);
}

TEST(CommandBuffer, ASecondCommitIsCalledOne) {
  const auto buffer = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  buffer->setLabel("step");
  buffer->commit();
  EXPECT_EQ(errorOf([&] { buffer->commit(); }),
            "CommandBuffer \"step\": committed twice; make a new command buffer for more work");
  buffer->waitUntilCompleted();
  EXPECT_NE(errorOf([&] { buffer->commit(); }).find("committed twice"), std::string::npos);
}

TEST(CommandBuffer, DevicesOfTheSameNameAreToldApart) {
  const auto own = newCPUDevice(1), other = newCPUDevice(1);
  EXPECT_EQ(own->name(), "cpu");
  EXPECT_NE(nameForMessages(*own), nameForMessages(*other));
  EXPECT_EQ(nameForMessages(*createSystemDefaultDevice()), "cpu");
  const auto buffer = own->newCommandQueue()->commandBuffer();
  const std::string error = errorOf([&] { other->newBuffer(4)->synchronize(*buffer); });
  EXPECT_NE(error.find(nameForMessages(*own)), std::string::npos) << error;
  EXPECT_NE(error.find(nameForMessages(*other)), std::string::npos) << error;
}

}  // namespace
}  // namespace mtl::command_buffer_test
