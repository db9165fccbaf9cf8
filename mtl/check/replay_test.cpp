#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "mtl/check/command_test_tools.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/stream.hpp"
#include "mtl/submission.hpp"

/// Which commands of a buffer a device is asked to replay together.
namespace mtl::replay_test {
namespace {

/// A stream that notes what it is asked to replay.
class FakeStream final : public Stream {
 public:
  void read(const std::byte* /*address*/, std::span<std::byte> /*bytes*/) override {}
  void copy(const std::byte* /*from*/, std::byte* /*to*/, std::size_t /*bytes*/) override {}
  void fill(std::byte* /*to*/, std::size_t /*bytes*/, std::uint8_t /*value*/) override {}
  bool replay(std::span<Command> commands) override {
    std::string labels;
    for (const Command& command : commands) labels += command.label;
    asked.push_back(labels);
    if (fails) throw std::runtime_error("planted");
    return replays;
  }

  std::vector<std::string> asked;
  bool replays = false;
  bool fails = false;
};

class ReplayedCommands : public ::testing::Test {
 protected:
  Command command(const std::string& label, bool isReplayable) {
    Command made = testing::call([this, label] { run_ += label; }, label);
    if (isReplayable) made.replay.work = std::make_shared<int>();
    made.writes.push_back(memory_);
    return made;
  }
  /// Capital letters are commands that can be replayed.
  void append(const std::string& labels) {
    for (const char label : labels)
      submission_->append(command(std::string(1, label), label >= 'A' && label <= 'Z'));
  }

  std::shared_ptr<Device> device_ = newCPUDevice(1);
  std::shared_ptr<CommandQueue> queue_ = device_->newCommandQueue();
  std::shared_ptr<Submission> submission_ = queue_->newSubmission();
  std::shared_ptr<Memory> memory_ = device_->allocate(16);
  FakeStream stream_;
  std::string run_;
};

TEST_F(ReplayedCommands, AreTheLongestRunsOfThoseThatCanBe) {
  append("ABxyCDEz");
  submission_->runCommands(stream_);
  EXPECT_EQ(stream_.asked, (std::vector<std::string>{"AB", "CDE"}));
  EXPECT_EQ(run_, "ABxyCDEz");
}

TEST_F(ReplayedCommands, AreNotRunAgain) {
  append("xABy");
  stream_.replays = true;
  memory_->setFailure("old");
  submission_->runCommands(stream_);
  EXPECT_EQ(run_, "xy");
  EXPECT_EQ(memory_->failure(), "");
}

TEST_F(ReplayedCommands, AreNotThoseThatMayBeLeftOut) {
  append("AB");
  Command conditional = command("C", true);
  conditional.condition = [](Stream&) { return false; };
  submission_->append(std::move(conditional));
  append("D");
  submission_->runCommands(stream_);
  EXPECT_EQ(stream_.asked, (std::vector<std::string>{"AB", "D"}));
  EXPECT_EQ(run_, "ABD");
}

TEST_F(ReplayedCommands, AreCheckedFirstAndRunOneByOneUpToTheOneThatFails) {
  append("A");
  bool isRight = true;
  submission_->checkBeforeNext([&isRight] {
    if (!isRight) throw std::runtime_error("wrong label");
  });
  append("BC");
  stream_.replays = true;
  submission_->runCommands(stream_);
  EXPECT_EQ(stream_.asked, std::vector<std::string>{"ABC"}) << "all is right";
  isRight = false;
  submission_->runCommands(stream_);
  EXPECT_EQ(stream_.asked, std::vector<std::string>{"ABC"}) << "not asked again";
  EXPECT_EQ(run_, "A");
  EXPECT_EQ(memory_->failure(), "B: wrong label");
  ASSERT_TRUE(submission_->error());
  EXPECT_EQ(submission_->error()->message, "B: wrong label");
}

TEST_F(ReplayedCommands, LoseTheirChecksWhenTheyAreRolledBack) {
  append("A");
  const RecordingMark mark = submission_->recorded();
  submission_->checkBeforeNext([] { throw std::runtime_error("planted"); });
  append("B");
  submission_->rollback(mark);
  append("C");
  submission_->runCommands(stream_);
  EXPECT_EQ(run_, "AC");
  EXPECT_FALSE(submission_->error());
}

TEST_F(ReplayedCommands, AreSkippedAfterAFailure) {
  submission_->append(testing::fail("planted", "x"));
  append("ABy");
  submission_->runCommands(stream_);
  EXPECT_TRUE(stream_.asked.empty());
  EXPECT_EQ(run_, "");
  EXPECT_EQ(memory_->failure(), "x: planted");
}

TEST_F(ReplayedCommands, FailTogether) {
  append("ABy");
  stream_.fails = true;
  submission_->runCommands(stream_);
  EXPECT_EQ(run_, "");
  EXPECT_EQ(memory_->failure(), "A to B: planted");
  ASSERT_TRUE(submission_->error());
  EXPECT_EQ(submission_->error()->message, "A to B: planted");
}

}  // namespace
}  // namespace mtl::replay_test
