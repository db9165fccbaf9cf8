#include "mtl/replay_cache.hpp"

#include <algorithm>
#include <optional>

#include "mtl/command.hpp"
#include "mtl/memory.hpp"

namespace mtl {
namespace {

/// How many commands have other numbers than a recording; nothing when one of them cannot be updated.
template <class Numbers>
std::optional<std::size_t> updatesNeeded(const ReplayCache::Recording& recording,
                                         const std::vector<Numbers>& numbers,
                                         std::span<const Command> commands) {
  std::size_t updates = 0;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].replay.numbers == numbers[i]) continue;
    if (!recording.canUpdate(i)) return std::nullopt;
    ++updates;
  }
  return updates;
}

/// Whether a command would read what no command before it makes good.
bool readsInvalid(std::span<const Command> commands) {
  for (std::size_t i = 0; i < commands.size(); ++i) {
    for (const ContentMark& read : commands[i].reads) {
      if (read.failure().empty()) continue;
      InvalidBytes left = read.content->invalidBytes();
      for (const Command& earlier : commands.first(i))
        for (const ContentMark& write : earlier.writes)
          if (write.content == read.content) left.remove(write.region);
      if (!left.failure(read.region).empty()) return true;
    }
  }
  return false;
}

}  // namespace

ReplayCache::Sequence* ReplayCache::find(std::span<const Command> commands) {
  const auto found = std::ranges::find_if(sequences_, [&](const Sequence& sequence) {
    return std::ranges::equal(
        sequence.works, commands, {}, {},
        [](const Command& command) -> const auto& { return command.replay.work; });
  });
  if (found == sequences_.end()) return nullptr;
  sequences_.splice(sequences_.begin(), sequences_, found);
  return &sequences_.front();
}

void ReplayCache::remember(std::span<const Command> commands) {
  Sequence sequence;
  sequence.works.reserve(commands.size());
  for (const Command& command : commands) sequence.works.push_back(command.replay.work);
  sequences_.push_front(std::move(sequence));
  if (sequences_.size() > mostSequences) sequences_.pop_back();
}

bool ReplayCache::run(std::span<Command> commands) {
  if (commands.size() < leastCommands || readsInvalid(commands)) return false;
  Sequence* const sequence = find(commands);
  if (sequence == nullptr) {
    remember(commands);
    return false;
  }
  if (sequence->isRefused) return false;
  return replay(*sequence, commands) || recordAndRun(*sequence, commands);
}

bool ReplayCache::replay(Sequence& sequence, std::span<Command> commands) {
  auto best = sequence.entries.end();
  std::size_t fewest = 0;
  for (auto entry = sequence.entries.begin(); entry != sequence.entries.end(); ++entry) {
    const auto updates = updatesNeeded(*entry->recording, entry->numbers, commands);
    if (!updates || (best != sequence.entries.end() && *updates >= fewest)) continue;
    best = entry;
    fewest = *updates;
  }
  if (best == sequence.entries.end()) return false;
  sequence.entries.splice(sequence.entries.begin(), sequence.entries, best);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].replay.numbers == best->numbers[i]) continue;
    if (!best->recording->update(i, commands[i])) {
      sequence.entries.erase(best);
      return false;
    }
    best->numbers[i] = commands[i].replay.numbers;
  }
  best->recording->launch();
  ++sequence.replayed;
  ++launchCount_;
  return true;
}

bool ReplayCache::recordAndRun(Sequence& sequence, std::span<Command> commands) {
  if (sequence.recorded >= mostRecordings && sequence.replayed < worthwhileReplays * sequence.recorded)
    return false;
  Entry entry;
  entry.recording = record_(commands);
  if (!entry.recording) {
    sequence.isRefused = true;
    return false;
  }
  ++sequence.recorded;
  for (const Command& command : commands) entry.numbers.push_back(command.replay.numbers);
  sequence.entries.push_front(std::move(entry));
  if (sequence.entries.size() > mostRecordings) sequence.entries.pop_back();
  sequence.entries.front().recording->launch();
  ++launchCount_;
  return true;
}

}  // namespace mtl
