#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mtl/buffer.hpp"
#include "mtl/check/command_test_tools.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"

/// CommandBuffer::commandTimes says what ran when.
namespace mtl::command_times_test {
namespace {

constexpr double kSleep = 0.002;

Command sleeping(const std::string& label) {
  Command command = testing::call([] { std::this_thread::sleep_for(std::chrono::duration<double>(kSleep)); });
  command.label = label;
  return command;
}

class CommandTimes : public ::testing::Test {
 protected:
  std::shared_ptr<Device> device_ = newCPUDevice(1);
  std::shared_ptr<CommandQueue> queue_ = device_->newCommandQueue();
};

TEST_F(CommandTimes, AreInTheOrderOfTheCommands) {
  const auto buffer = queue_->commandBuffer();
  buffer->setRecordsCommandTimes(true);
  buffer->append(sleeping("first"));
  buffer->append(sleeping("second"));
  EXPECT_TRUE(buffer->commandTimes().empty()) << "not known yet";
  buffer->commit();
  buffer->throwIfFailed();
  const std::vector<CommandTime> times = buffer->commandTimes();
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].label, "first");
  EXPECT_EQ(times[1].label, "second");
  for (const CommandTime& time : times) EXPECT_GE(time.end - time.start, kSleep);
  EXPECT_GE(times[0].start, buffer->GPUStartTime());
  EXPECT_GE(times[1].start, times[0].end);
  EXPECT_GE(buffer->GPUEndTime(), times[1].end);
}

TEST_F(CommandTimes, AreNotRecordedUnlessAskedFor) {
  const auto buffer = queue_->commandBuffer();
  buffer->append(sleeping("alone"));
  buffer->commit();
  buffer->throwIfFailed();
  EXPECT_TRUE(buffer->commandTimes().empty());
  EXPECT_THROW(buffer->setRecordsCommandTimes(true), Error);
}

TEST_F(CommandTimes, CountTheBytesOfEachRegionOnce) {
  const auto memory = device_->allocate(4096);
  Command command = sleeping("rows");
  command.operations = 7;
  command.reads.emplace_back(*memory, ByteRegion(0, 16).repeated(3, 64));
  command.writes.emplace_back(*memory, ByteRegion(1024, 100));
  command.retained.push_back(memory);
  const auto buffer = queue_->commandBuffer();
  buffer->setRecordsCommandTimes(true);
  buffer->append(std::move(command));
  buffer->commit();
  buffer->throwIfFailed();
  ASSERT_EQ(buffer->commandTimes().size(), 1U);
  EXPECT_EQ(buffer->commandTimes()[0].bytes, 3 * 16 + 100);
  EXPECT_EQ(buffer->commandTimes()[0].operations, 7);
}

TEST_F(CommandTimes, LeaveOutWhatAConditionLeavesOut) {
  const auto buffer = queue_->commandBuffer();
  buffer->setRecordsCommandTimes(true);
  Command left = sleeping("left out");
  left.condition = [](Stream&) { return false; };
  buffer->append(std::move(left));
  buffer->append(sleeping("run"));
  buffer->commit();
  buffer->throwIfFailed();
  ASSERT_EQ(buffer->commandTimes().size(), 1U);
  EXPECT_EQ(buffer->commandTimes()[0].label, "run");
}

TEST_F(CommandTimes, AreEmptyAfterAFailure) {
  const auto buffer = queue_->commandBuffer();
  buffer->setRecordsCommandTimes(true);
  buffer->append(sleeping("good"));
  buffer->append(testing::call([] { throw std::runtime_error("broken"); }));
  buffer->commit();
  buffer->waitUntilCompleted();
  EXPECT_EQ(buffer->status(), CommandBufferStatus::Error);
  EXPECT_TRUE(buffer->commandTimes().empty());
}

}  // namespace
}  // namespace mtl::command_times_test
