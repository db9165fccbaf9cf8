#include <gtest/gtest.h>

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "mtl/check/command_test_tools.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"

/// What happens when a command fails while it runs: design section 6, point 6.
namespace mtl::command_failure_test {
namespace {

using testing::call;
using testing::fail;

/// A command that reads and writes blocks, as far as its buffer knows.
Command touching(const std::string& label, const std::vector<std::shared_ptr<Memory>>& reads,
                 const std::vector<std::shared_ptr<Memory>>& writes, std::function<void()> function) {
  Command command = call(std::move(function), label);
  for (const auto& memory : reads) command.reads.push_back(memory);
  for (const auto& memory : writes) command.writes.push_back(memory);
  return command;
}

class CommandFailure : public ::testing::Test {
 protected:
  std::shared_ptr<CommandBuffer> run(std::vector<Command> commands) {
    auto buffer = queue_->commandBuffer();
    for (Command& command : commands) buffer->append(std::move(command));
    buffer->commit();
    buffer->waitUntilCompleted();
    return buffer;
  }

  std::shared_ptr<Device> device_ = newCPUDevice(2);
  std::shared_ptr<CommandQueue> queue_ = device_->newCommandQueue();
};

TEST_F(CommandFailure, StopsTheBufferWithLabelAndMessage) {
  bool before = false;
  bool after = false;
  bool handled = false;
  auto buffer = queue_->commandBuffer();
  buffer->append(call([&] { before = true; }));
  buffer->append(fail("no such algorithm", "CNNPoolingMax \"pool1\""));
  buffer->append(call([&] { after = true; }));
  buffer->addCompletedHandler([&](CommandBuffer& failed) {
    handled = true;
    EXPECT_EQ(failed.status(), CommandBufferStatus::Error);
    EXPECT_TRUE(failed.error().has_value());
  });
  buffer->commit();
  EXPECT_NO_THROW(buffer->waitUntilCompleted());
  EXPECT_TRUE(before);
  EXPECT_FALSE(after);
  EXPECT_TRUE(handled);
  ASSERT_TRUE(buffer->error().has_value());
  EXPECT_EQ(buffer->error()->message, "CNNPoolingMax \"pool1\": no such algorithm");
  EXPECT_EQ(buffer->error()->code, CommandBufferErrorCode::Internal);
  try {
    buffer->throwIfFailed();
    FAIL() << "throwIfFailed returned";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "CNNPoolingMax \"pool1\": no such algorithm");
  }
}

TEST_F(CommandFailure, LackOfMemoryHasItsOwnCode) {
  const auto buffer = run([] {
    std::vector<Command> commands;
    commands.push_back(call([] { throw std::bad_alloc(); }, "big"));
    return commands;
  }());
  const std::optional<CommandBufferError> error = buffer->error();
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, CommandBufferErrorCode::OutOfMemory);
  EXPECT_EQ(error->message, "big: out of memory");
}

TEST_F(CommandFailure, AnExceptionOfAnyTypeIsAnError) {
  std::vector<Command> commands;
  commands.push_back(call([] { throw 17; }, "odd"));
  const auto buffer = run(std::move(commands));
  ASSERT_TRUE(buffer->error().has_value());
  EXPECT_EQ(buffer->error()->message.rfind("odd: ", 0), 0U);
}

TEST_F(CommandFailure, LeavesTheQueueUsable) {
  for (int i = 0; i < 100; ++i) {  // more than the queue's limit: failed buffers must be counted as ended
    std::vector<Command> commands;
    commands.push_back(fail("again"));
    EXPECT_EQ(run(std::move(commands))->status(), CommandBufferStatus::Error);
  }
  bool ran = false;
  std::vector<Command> commands;
  commands.push_back(call([&] { ran = true; }));
  EXPECT_EQ(run(std::move(commands))->status(), CommandBufferStatus::Completed);
  EXPECT_TRUE(ran);
}

TEST_F(CommandFailure, MarksWhatTheFailedAndTheSkippedCommandsWouldHaveWritten) {
  const auto earlier = device_->allocate(16);
  const auto failed = device_->allocate(16);
  const auto skipped = device_->allocate(16);
  const auto untouched = device_->allocate(16);
  std::vector<Command> commands;
  commands.push_back(touching("a", {}, {earlier}, [] {}));
  commands.push_back(touching("b", {untouched}, {failed}, [] { throw std::runtime_error("broken"); }));
  commands.push_back(touching("c", {failed}, {skipped}, [] {}));
  run(std::move(commands));
  EXPECT_EQ(earlier->failure(), "");
  EXPECT_EQ(untouched->failure(), "");
  EXPECT_EQ(failed->failure(), "b: broken");
  EXPECT_EQ(skipped->failure(), "b: broken");
}

TEST_F(CommandFailure, LaterUseFailsWithTheFirstMessageDownTheChain) {
  const auto first = device_->allocate(16);
  const auto second = device_->allocate(16);
  const auto third = device_->allocate(16);
  std::vector<Command> commands;
  commands.push_back(touching("writer", {}, {first}, [] { throw std::runtime_error("broken"); }));
  run(std::move(commands));
  bool ran = false;
  commands.clear();
  commands.push_back(touching("reader", {first}, {second}, [&] { ran = true; }));
  const auto reader = run(std::move(commands));
  EXPECT_FALSE(ran);
  ASSERT_TRUE(reader->error().has_value());
  EXPECT_EQ(reader->error()->code, CommandBufferErrorCode::InvalidResource);
  EXPECT_EQ(reader->error()->message, "writer: broken");
  commands.clear();
  commands.push_back(touching("second reader", {second}, {third}, [&] { ran = true; }));
  EXPECT_EQ(run(std::move(commands))->error()->message, "writer: broken");
  EXPECT_FALSE(ran);
  EXPECT_EQ(third->failure(), "writer: broken");
}

TEST_F(CommandFailure, ABufferThatWasEncodedBeforeTheFailureIsStoppedToo) {
  const auto memory = device_->allocate(16);
  const auto result = device_->allocate(16);
  const auto writer = queue_->commandBuffer();
  const auto reader = queue_->commandBuffer();
  writer->append(touching("writer", {}, {memory}, [] { throw std::runtime_error("broken"); }));
  bool ran = false;
  reader->append(touching("reader", {memory}, {result}, [&] { ran = true; }));
  writer->commit();
  reader->commit();
  reader->waitUntilCompleted();
  EXPECT_FALSE(ran);
  ASSERT_TRUE(reader->error().has_value());
  EXPECT_EQ(reader->error()->message, "writer: broken");
}

TEST_F(CommandFailure, ASuccessfulWriteMakesTheContentGoodAgain) {
  const auto memory = device_->allocate(16);
  std::vector<Command> commands;
  commands.push_back(touching("writer", {}, {memory}, [] { throw std::runtime_error("broken"); }));
  run(std::move(commands));
  ASSERT_NE(memory->failure(), "");
  bool ran = false;
  commands.clear();
  commands.push_back(touching("second writer", {}, {memory}, [] {}));
  commands.push_back(touching("reader", {memory}, {}, [&] { ran = true; }));
  EXPECT_EQ(run(std::move(commands))->status(), CommandBufferStatus::Completed);
  EXPECT_TRUE(ran);
  EXPECT_EQ(memory->failure(), "");
}

TEST_F(CommandFailure, ATemporaryBlockThatWentBackToItsHeapIsStillKnownAsInvalid) {
  const auto heap = std::make_shared<Heap>(*device_);
  const auto result = device_->allocate(16);
  const auto writer = queue_->commandBuffer();
  const auto reader = queue_->commandBuffer();
  {
    const auto temporary = heap->allocate(64);
    writer->append(touching("writer", {}, {temporary}, [] { throw std::runtime_error("broken"); }));
    reader->append(touching("reader", {temporary}, {result}, [] {}));
  }
  EXPECT_EQ(heap->usedBytes(), 0U) << "recorded commands keep no temporary block";
  const auto next = heap->allocate(64);  // the same place, another content
  writer->commit();
  reader->commit();
  reader->waitUntilCompleted();
  ASSERT_TRUE(reader->error().has_value());
  EXPECT_EQ(reader->error()->message, "writer: broken");
  EXPECT_EQ(result->failure(), "writer: broken");
  EXPECT_EQ(next->failure(), "");
}

TEST_F(CommandFailure, OneQueueDoesNotStopAnother) {
  const auto other = device_->newCommandQueue()->commandBuffer();
  bool ran = false;
  other->append(call([&] { ran = true; }));
  std::vector<Command> commands;
  commands.push_back(fail("broken"));
  run(std::move(commands));
  other->commit();
  other->waitUntilCompleted();
  EXPECT_EQ(other->status(), CommandBufferStatus::Completed);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace mtl::command_failure_test
