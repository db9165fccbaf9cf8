#include "mps/core/kernel/command_buffer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mps/core/testing/test_kernels.hpp"
#include "mtl/blit_command_encoder.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

/// Command buffers that are committed in pieces.
namespace mps::command_buffer_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class CommandBufferTest : public testing::ScaleTest {
 protected:
  static std::size_t readsOf(const std::shared_ptr<Image>& image) {
    return std::static_pointer_cast<TemporaryImage>(image)->readCount();
  }

  const Values in_ = counted(16);
  std::shared_ptr<Image> source_ = image(sizeOf(4, 1, 4), in_);
  std::shared_ptr<Image> result_ = poisoned(sizeOf(4, 1, 4));
  std::shared_ptr<CommandBuffer> buffer_ = CommandBuffer::create(queue_);
};

TEST_F(CommandBufferTest, IsMadeFromAQueueOrAroundABuffer) {
  EXPECT_EQ(buffer_->commandQueue(), queue_);
  EXPECT_EQ(buffer_->device(), device_);
  EXPECT_EQ(buffer_->status(), mtl::CommandBufferStatus::NotEnqueued);
  EXPECT_EQ(buffer_->predicate(), nullptr);
  EXPECT_TRUE(names(errorOf([] { CommandBuffer::create(std::shared_ptr<mtl::CommandQueue>()); }),
                    {"CommandBuffer", "commandQueue", "null"}));
  EXPECT_TRUE(names(errorOf([] { CommandBuffer::create(std::shared_ptr<mtl::CommandBuffer>()); }),
                    {"CommandBuffer", "commandBuffer", "null"}));
}

TEST_F(CommandBufferTest, AWrapperAndTheBufferInItAreOneBuffer) {
  const auto inner = commands();
  const auto wrapper = CommandBuffer::create(inner);
  scale_->encode(inner, source_, result_);
  scale_->encode(wrapper, result_, source_);
  EXPECT_EQ(inner->commandCount(), 2U);
  EXPECT_EQ(wrapper->commandCount(), 2U);
  wrapper->commit();
  EXPECT_TRUE(names(errorOf([&] { inner->commit(); }), {"commit"}));
  inner->throwIfFailed();
  EXPECT_EQ(inner->status(), mtl::CommandBufferStatus::Completed);
  EXPECT_EQ(valuesOf(*source_), scaled(in_, 4));
}

/// The user's encoder must have ended.
TEST_F(CommandBufferTest, KernelsAndCommitsWaitForTheEndOfAnEncoder) {
  const auto blit = buffer_->blitCommandEncoder();
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(buffer_, source_, result_); }), {"endEncoding"}));
  EXPECT_TRUE(names(errorOf([&] { buffer_->commitAndContinue(); }), {"endEncoding"}));
  EXPECT_TRUE(names(errorOf([&] { result_->synchronize(buffer_); }), {"endEncoding"}));
  blit->endEncoding();
  scale_->encode(buffer_, source_, result_);
  run(buffer_);
  EXPECT_EQ(valuesOf(*result_), scaled(in_, 2));
}

TEST_F(CommandBufferTest, PiecesRunInTheOrderInWhichTheyWereCommitted) {
  // Each piece reads what the one before wrote, so that any other order gives other numbers.
  const auto other = image(sizeOf(4, 1, 4));
  for (int piece = 0; piece < 5; ++piece) {
    const bool there = piece % 2 == 0;
    scale_->setFactor(static_cast<float>(piece + 1));
    scale_->encode(buffer_, there ? source_ : other, there ? other : source_);
    buffer_->commitAndContinue();
    EXPECT_EQ(buffer_->commandCount(), 0U);
  }
  scale_->setFactor(1);
  scale_->encode(buffer_, other, result_);
  run(buffer_);
  EXPECT_EQ(valuesOf(*result_), scaled(in_, 120));
}

TEST_F(CommandBufferTest, AnEarlierPieceRunsWhileTheNextIsEncoded) {
  scale_->encode(buffer_, source_, result_);
  const auto piece = buffer_->rootCommandBuffer();
  buffer_->commitAndContinue();
  piece->throwIfFailed();
  EXPECT_EQ(piece->status(), mtl::CommandBufferStatus::Completed);
  EXPECT_EQ(valuesOf(*result_), scaled(in_));
  EXPECT_EQ(buffer_->status(), mtl::CommandBufferStatus::NotEnqueued) << "of the new root";
}

TEST_F(CommandBufferTest, RootCommandBufferIsTheCurrentPiece) {
  const auto first = buffer_->rootCommandBuffer();
  EXPECT_EQ(first->submission(), buffer_->submission());
  EXPECT_EQ(std::dynamic_pointer_cast<CommandBuffer>(first), nullptr) << "innermost: no wrapper itself";
  buffer_->commitAndContinue();
  const auto second = buffer_->rootCommandBuffer();
  EXPECT_NE(second->submission(), first->submission());
  EXPECT_EQ(second->submission(), buffer_->submission());
  EXPECT_EQ(second->commandQueue(), queue_);
  first->waitUntilCompleted();
  EXPECT_EQ(second->status(), mtl::CommandBufferStatus::NotEnqueued);
}

TEST_F(CommandBufferTest, AnotherThreadMayAskWhilePiecesAreCommitted) {
  buffer_->setLabel("step");
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      EXPECT_EQ(buffer_->label(), "step");
      EXPECT_LE(buffer_->status(), mtl::CommandBufferStatus::Error);
      EXPECT_EQ(buffer_->device(), device_);
      EXPECT_NE(buffer_->rootCommandBuffer(), nullptr);
    }
  });
  for (int i = 0; i < 1000; ++i) buffer_->commitAndContinue();
  stop = true;
  other.join();
}

TEST_F(CommandBufferTest, AWrapperOfAWrapperFollowsIt) {
  const auto outer = CommandBuffer::create(std::static_pointer_cast<mtl::CommandBuffer>(buffer_));
  const auto outermost = CommandBuffer::create(std::static_pointer_cast<mtl::CommandBuffer>(outer));
  const auto sameRoot = [&] {
    return outer->submission() == buffer_->submission() && outermost->submission() == buffer_->submission() &&
           outermost->rootCommandBuffer()->submission() == buffer_->submission();
  };
  EXPECT_TRUE(sameRoot());
  const auto first = buffer_->submission();
  const auto crossing = scale_->encode(outermost, source_);
  outermost->commitAndContinue();
  EXPECT_TRUE(sameRoot()) << "the wrapped one goes on too";
  EXPECT_NE(buffer_->submission(), first);
  buffer_->commitAndContinue();
  EXPECT_TRUE(sameRoot());
  scale_->encode(buffer_, crossing, result_);
  outer->commit();
  buffer_->throwIfFailed();
  EXPECT_EQ(valuesOf(*result_), scaled(in_, 4));
}

TEST_F(CommandBufferTest, ATemporaryImageKeepsItsDataAndReadsAcrossTheBoundary) {
  const auto temporary = TemporaryImage::create(buffer_, source_->descriptor());
  temporary->setReadCount(3);
  scale_->encode(buffer_, source_, temporary);
  const auto early = poisoned(sizeOf(4, 1, 4));
  scale_->encode(buffer_, temporary, early);
  EXPECT_EQ(temporary->readCount(), 2U);
  buffer_->commitAndContinue();
  EXPECT_EQ(temporary->readCount(), 2U);
  EXPECT_GT(buffer_->heap()->usedBytes(), 0U);
  // Another buffer of the queue, and other temporary images of this one, must not overwrite what crosses.
  const auto between = commands();
  scale_->setFactor(100);
  scale_->encode(between, scale_->encode(between, source_), image(sizeOf(4, 1, 4)));
  run(between);
  const auto noise = TemporaryImage::create(buffer_, source_->descriptor());
  scale_->encode(buffer_, source_, noise);
  noise->setReadCount(0);
  scale_->setFactor(2);
  scale_->encode(buffer_, temporary, result_);
  buffer_->commitAndContinue();
  const auto late = poisoned(sizeOf(4, 1, 4));
  scale_->encode(buffer_, temporary, late);
  EXPECT_EQ(temporary->readCount(), 0U);
  EXPECT_EQ(buffer_->heap()->usedBytes(), 0U);
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(buffer_, temporary, late); }), {"readCount"}));
  run(buffer_);
  for (const auto& result : {early, result_, late}) EXPECT_EQ(valuesOf(*result), scaled(in_, 4));
}

TEST_F(CommandBufferTest, ATemporaryStateCrossesTheBoundaryToo) {
  const auto state = State::createTemporary(buffer_, StateResourceList{64});
  const auto memory = state->resource(0)->memory();
  EXPECT_EQ(state->readCount(), 1U);
  buffer_->commitAndContinue();
  EXPECT_EQ(state->readCount(), 1U);
  EXPECT_EQ(state->resource(0)->memory(), memory);
  state->setReadCount(0);
  run(buffer_);
}

TEST_F(CommandBufferTest, WhatWasMadeBeforeTheWrappingEndsWithItsPiece) {
  const auto inner = commands();
  const auto before = TemporaryImage::create(inner, source_->descriptor());
  before->setReadCount(5);
  scale_->encode(inner, source_, before);
  const auto wrapper = CommandBuffer::create(inner);
  EXPECT_EQ(errorOf([&] { scale_->encode(wrapper, before, result_); }), "");
  wrapper->commitAndContinue();
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(wrapper, before, result_); }),
                    {"sourceImage", "another command buffer"}));
  EXPECT_EQ(before->readCount(), 4U);
  run(wrapper);
}

TEST_F(CommandBufferTest, ATemporaryImageOfAnotherBufferIsRefused) {
  const auto other = CommandBuffer::create(queue_);
  const auto foreign = TemporaryImage::create(other, source_->descriptor());
  scale_->encode(other, source_, foreign);
  buffer_->commitAndContinue();
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(buffer_, foreign, result_); }),
                    {"sourceImage", "another command buffer"}));
  EXPECT_EQ(foreign->readCount(), 1U);
}

TEST_F(CommandBufferTest, HandlersFireWithTheRootTheyWereAddedTo) {
  std::mutex mutex;
  std::vector<std::string> fired;
  const auto handler = [&](const std::string& name) {
    return [&mutex, &fired, name](mtl::CommandBuffer& completed) {
      const std::lock_guard lock(mutex);
      const bool done = completed.status() == mtl::CommandBufferStatus::Completed;
      fired.push_back(name + (done ? " completed" : " not completed"));
    };
  };
  const auto seen = [&] {
    const std::lock_guard lock(mutex);
    return fired;
  };
  buffer_->addCompletedHandler(handler("first"));
  buffer_->addCompletedHandler(handler("second"));
  const auto firstRoot = buffer_->rootCommandBuffer();
  buffer_->commitAndContinue();
  buffer_->addCompletedHandler(handler("third"));
  firstRoot->waitUntilCompleted();
  EXPECT_EQ(seen(), (std::vector<std::string>{"first completed", "second completed"}));
  run(buffer_);
  EXPECT_EQ(seen(), (std::vector<std::string>{"first completed", "second completed", "third completed"}));
}

TEST_F(CommandBufferTest, WaitingForThePieceThatIsStillOpenIsAnError) {
  buffer_->commitAndContinue();
  EXPECT_TRUE(names(errorOf([&] { buffer_->waitUntilCompleted(); }), {"before commit"}));
  EXPECT_TRUE(names(errorOf([&] { buffer_->waitUntilScheduled(); }), {"before commit"}));
}

TEST_F(CommandBufferTest, AfterTheLastCommitNothingIsTaken) {
  run(buffer_);
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(buffer_, source_, result_); }), {"after commit"}));
  EXPECT_NE(errorOf([&] { buffer_->commitAndContinue(); }), "");
}

TEST_F(CommandBufferTest, TheLabelGoesOnWithTheNextPiece) {
  buffer_->setLabel("step 7");
  buffer_->commitAndContinue();
  EXPECT_EQ(buffer_->label(), "step 7");
}

TEST_F(CommandBufferTest, ErrorSpeaksOfTheCurrentRootAndTheBrokenPieceKeepsItsOwn) {
  scale_->setLabel("broken");
  scale_->setFailure("it broke");
  scale_->encode(buffer_, source_, image(sizeOf(4, 1, 4)));
  const auto broken = buffer_->rootCommandBuffer();
  buffer_->commitAndContinue();
  broken->waitUntilCompleted();
  ASSERT_TRUE(broken->error());
  EXPECT_EQ(broken->error()->message, "Scale \"broken\": it broke");
  EXPECT_FALSE(buffer_->error());
  scale_->setFailure("");
  scale_->encode(buffer_, source_, result_);
  run(buffer_);
  EXPECT_EQ(valuesOf(*result_), scaled(in_)) << "later pieces run";
}

TEST_F(CommandBufferTest, ABrokenPieceInvalidatesTheTemporaryImageThatCrosses) {
  const auto temporary = TemporaryImage::create(buffer_, source_->descriptor());
  temporary->setReadCount(2);
  scale_->setLabel("broken");
  scale_->setFailure("it broke");
  scale_->encode(buffer_, source_, temporary);
  scale_->setFailure("");
  scale_->setLabel("after");
  const auto broken = buffer_->rootCommandBuffer();
  buffer_->commitAndContinue();
  broken->waitUntilCompleted();
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(buffer_, temporary, result_); }),
                    {"sourceImage", "Scale \"broken\": it broke"}));
  EXPECT_EQ(temporary->readCount(), 2U);
}

TEST_F(CommandBufferTest, ManyPiecesAskNothingMoreFromTheSystem) {
  std::size_t afterTheFirst = 0;
  for (int step = 0; step < 12; ++step) {
    const auto earlier = commands();
    earlier->enqueue();  // until it is committed all pieces are in flight
    const auto buffer = CommandBuffer::create(queue_);
    for (int piece = 0; piece < 3; ++piece) {
      scale_->encode(buffer, scale_->encode(buffer, source_), result_);
      buffer->commitAndContinue();
    }
    earlier->commit();
    run(buffer);
    if (step == 0) afterTheFirst = device_->systemAllocationCount();
  }
  EXPECT_EQ(device_->systemAllocationCount(), afterTheFirst);
}

}  // namespace
}  // namespace mps::command_buffer_test
