#include "mtl/replay_cache.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mtl::replay_cache_test {
namespace {

/// What a device would have done, in order: "record", "update 2", "launch 1 2 3 4" with the first number of
/// each command.
using Journal = std::vector<std::string>;

/// A recording that notes what it is asked for. Commands whose work is `fixed` cannot be updated.
class FakeRecording final : public ReplayCache::Recording {
 public:
  FakeRecording(Journal& journal, std::span<Command> commands, const void* fixed, const bool& updatesFail)
      : journal_(journal), updatesFail_(updatesFail) {
    for (const Command& command : commands) {
      numbers_.push_back(command.replay.numbers[0]);
      canUpdate_.push_back(command.replay.work.get() != fixed);
    }
  }
  [[nodiscard]] bool canUpdate(std::size_t index) const override { return canUpdate_[index]; }
  bool update(std::size_t index, Command& command) override {
    journal_.push_back("update " + std::to_string(index));
    numbers_[index] = command.replay.numbers[0];
    return !updatesFail_;
  }
  void launch() override {
    std::string line = "launch";
    for (const std::uint64_t number : numbers_) line += " " + std::to_string(number);
    journal_.push_back(line);
  }

 private:
  Journal& journal_;
  const bool& updatesFail_;
  std::vector<std::uint64_t> numbers_;
  std::vector<bool> canUpdate_;
};

class Replays : public ::testing::Test {
 protected:
  /// Four commands of works 0, 1, 2, 3 with the given numbers; work 3 is fixed.
  static constexpr std::size_t length = ReplayCache::leastCommands;
  using Numbers = std::array<std::uint64_t, length>;

  std::vector<Command> commandsOf(const Numbers& numbers, std::size_t firstWork = 0) {
    std::vector<Command> commands(length);
    for (std::size_t i = 0; i < length; ++i) {
      while (works_.size() <= firstWork + i) works_.push_back(std::make_shared<int>());
      commands[i].replay.work = works_[firstWork + i];
      commands[i].replay.numbers[0] = numbers[i];
    }
    return commands;
  }
  bool run(const Numbers& numbers, std::size_t firstWork = 0) {
    auto commands = commandsOf(numbers, firstWork);
    return cache_.run(commands);
  }
  Journal take() { return std::exchange(journal_, {}); }

  std::vector<std::shared_ptr<int>> works_;
  Journal journal_;
  bool refuses_ = false;
  bool updatesFail_ = false;
  ReplayCache cache_{[this](std::span<Command> commands) -> std::unique_ptr<ReplayCache::Recording> {
    journal_.emplace_back("record");
    if (refuses_) return nullptr;
    return std::make_unique<FakeRecording>(journal_, commands, works_[3].get(), updatesFail_);
  }};
};

TEST_F(Replays, WhatAnEarlierCommandMakesGoodMayBeReadAndNothingElseThatIsInvalid) {
  const auto memory = newCPUDevice(1)->allocate(4);
  const auto runWith = [&](std::size_t writer, std::size_t reader) {
    auto commands = commandsOf({1, 2, 3, 4});
    commands[writer].writes.emplace_back(memory);
    commands[reader].reads.emplace_back(memory);
    return cache_.run(commands);
  };
  run({1, 2, 3, 4});
  memory->setFailure("not written yet");
  EXPECT_TRUE(runWith(0, 2));
  EXPECT_FALSE(runWith(2, 0));
  EXPECT_FALSE(runWith(1, 1)) << "one that adds to what is there";
}

TEST_F(Replays, OnlyBytesThatEarlierCommandsMakeGoodMayBeRead) {
  const auto memory = newCPUDevice(1)->allocate(4);
  const auto runWith = [&](const std::vector<ByteRegion>& written, const ByteRegion& read) {
    auto commands = commandsOf({1, 2, 3, 4});
    for (std::size_t i = 0; i < written.size(); ++i) commands[i].writes.emplace_back(*memory, written[i]);
    commands[3].reads.emplace_back(*memory, read);
    return cache_.run(commands);
  };
  run({1, 2, 3, 4});
  memory->setFailure("not written yet");
  EXPECT_TRUE(runWith({{0, 2}}, {0, 2}));
  EXPECT_FALSE(runWith({{0, 2}}, {1, 2}));
  EXPECT_TRUE(runWith({{2, 2}, {0, 2}}, {1, 2}));
}

TEST_F(Replays, TheFirstRunIsDirectTheSecondIsRecordedAndLaterOnesAreLaunches) {
  const Numbers numbers{1, 2, 3, 4};
  EXPECT_FALSE(run(numbers));
  EXPECT_EQ(take(), Journal{});
  EXPECT_TRUE(run(numbers));
  EXPECT_EQ(take(), (Journal{"record", "launch 1 2 3 4"}));
  EXPECT_TRUE(run(numbers));
  EXPECT_EQ(take(), Journal{"launch 1 2 3 4"});
  EXPECT_EQ(cache_.launchCount(), 2U);
}

TEST_F(Replays, OnlyCommandsWithOtherNumbersAreUpdated) {
  run({1, 2, 3, 4});
  run({1, 2, 3, 4});
  take();
  EXPECT_TRUE(run({1, 9, 8, 4}));
  EXPECT_EQ(take(), (Journal{"update 1", "update 2", "launch 1 9 8 4"}));
  EXPECT_TRUE(run({1, 9, 8, 4}));
  EXPECT_EQ(take(), Journal{"launch 1 9 8 4"});
}

TEST_F(Replays, EveryNumberCounts) {
  const auto again = [&](std::size_t number) {
    auto commands = commandsOf({1, 2, 3, 4});
    commands[2].replay.numbers[number] = 77;
    cache_.run(commands);
    return take();
  };
  run({1, 2, 3, 4});
  run({1, 2, 3, 4});
  for (std::size_t number = 1; number < ReplayKey{}.numbers.size(); ++number) {
    run({1, 2, 3, 4});
    take();
    EXPECT_EQ(again(number).front(), "update 2") << number;
  }
}

TEST_F(Replays, OtherNumbersOfACommandThatCannotBeUpdatedGetARecordingOfTheirOwn) {
  run({1, 2, 3, 4});
  run({1, 2, 3, 4});
  take();
  EXPECT_TRUE(run({1, 2, 3, 5}));
  EXPECT_EQ(take(), (Journal{"record", "launch 1 2 3 5"}));
  EXPECT_TRUE(run({6, 2, 3, 4}));
  EXPECT_EQ(take(), (Journal{"update 0", "launch 6 2 3 4"}));
  EXPECT_TRUE(run({1, 2, 3, 5}));
  EXPECT_EQ(take(), Journal{"launch 1 2 3 5"});
}

/// Numbers that never come again are not worth recordings without end.
TEST_F(Replays, RecordingsThatDoNotPayAreNotMade) {
  std::size_t recorded = 0;
  for (std::uint64_t step = 0; step < 100; ++step) run({1, 2, 3, step});
  for (const std::string& line : take()) recorded += line == "record" ? 1 : 0;
  EXPECT_EQ(recorded, ReplayCache::mostRecordings);
  for (std::size_t i = 0; i < ReplayCache::worthwhileReplays * ReplayCache::mostRecordings; ++i)
    EXPECT_TRUE(run({1, 2, 3, 4}));
  take();
  EXPECT_TRUE(run({1, 2, 3, 1000}));
  EXPECT_EQ(take(), (Journal{"record", "launch 1 2 3 1000"}));
}

TEST_F(Replays, OtherWorkIsAnotherSequence) {
  run({1, 2, 3, 4});
  run({1, 2, 3, 4});
  take();
  EXPECT_FALSE(run({1, 2, 3, 4}, 1));
  EXPECT_EQ(take(), Journal{});
  auto longer = commandsOf({1, 2, 3, 4});
  longer.push_back(longer.front());
  EXPECT_FALSE(cache_.run(longer));
  auto reordered = commandsOf({1, 2, 3, 4});
  std::swap(reordered[0], reordered[1]);
  EXPECT_FALSE(cache_.run(reordered));
  EXPECT_EQ(take(), Journal{});
}

TEST_F(Replays, ShortSequencesAreRunDirectly) {
  auto commands = commandsOf({1, 2, 3, 4});
  const std::span<Command> few = std::span(commands).first(length - 1);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cache_.run(few));
  EXPECT_EQ(take(), Journal{});
}

TEST_F(Replays, ASequenceThatCannotBeRecordedIsNotTriedAgain) {
  refuses_ = true;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(run({1, 2, 3, 4}));
  EXPECT_EQ(take(), Journal{"record"});
}

TEST_F(Replays, ARecordingThatCannotBeUpdatedIsMadeAnew) {
  run({1, 2, 3, 4});
  run({1, 2, 3, 4});
  take();
  updatesFail_ = true;
  EXPECT_TRUE(run({1, 2, 9, 4}));
  EXPECT_EQ(take(), (Journal{"update 2", "record", "launch 1 2 9 4"}));
}

TEST_F(Replays, TheOldestSequencesAreForgotten) {
  run({1, 2, 3, 4});
  const std::weak_ptr<int> first = works_[0];
  works_[0] = nullptr;
  EXPECT_FALSE(first.expired()) << "its address must not be given to other work";
  for (std::size_t i = 1; i <= ReplayCache::mostSequences; ++i) run({1, 2, 3, 4}, i);
  EXPECT_TRUE(first.expired());
}

/// One by one each command finds out for itself, and those behind it are skipped.
TEST_F(Replays, WhatReadsSomethingInvalidIsRunDirectly) {
  run({1, 2, 3, 4});
  run({1, 2, 3, 4});
  take();
  const auto device = newCPUDevice(1);
  const auto memory = device->allocate(16);
  auto commands = commandsOf({1, 2, 3, 4});
  commands[2].reads.push_back(memory);
  EXPECT_TRUE(cache_.run(commands));
  memory->setFailure("planted");
  EXPECT_FALSE(cache_.run(commands));
  EXPECT_EQ(take(), Journal{"launch 1 2 3 4"});
}

}  // namespace
}  // namespace mtl::replay_cache_test
