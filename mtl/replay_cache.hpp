#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "mtl/command.hpp"

namespace mtl {

/// Runs sequences of commands from recordings that the device made of earlier ones with the same work.
/// Engine-internal, one for each stream. Not thread safe.
///
/// A sequence runs command by command when it comes for the first time, for work of its first run, such as
/// the loading of code, cannot be recorded. Then it is recorded, and a recording serves all later sequences
/// that differ in numbers of commands that can be updated alone.
class ReplayCache {
 public:
  /// A sequence of commands as the device keeps it.
  class Recording {
   public:
    Recording() = default;
    virtual ~Recording() = default;
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    /// Whether the command at this place can have other numbers from launch to launch.
    [[nodiscard]] virtual bool canUpdate(std::size_t index) const = 0;
    /// Gives it those of `command` from the next launch on. False: that failed, and the recording is useless.
    virtual bool update(std::size_t index, Command& command) = 0;
    virtual void launch() = 0;
  };

  /// Makes a recording; nothing runs. Null when the commands cannot be recorded.
  using Recorder = std::function<std::unique_ptr<Recording>(std::span<Command>)>;

  /// Shorter sequences are not worth it.
  static constexpr std::size_t leastCommands = 4;
  /// Sequences of different work that are remembered, the last used first.
  static constexpr std::size_t mostSequences = 16;
  /// Recordings of one sequence, for different numbers. More are made only when those that were made served
  /// `worthwhileReplays` times each.
  static constexpr std::size_t mostRecordings = 4;
  static constexpr std::size_t worthwhileReplays = 8;

  explicit ReplayCache(Recorder record) : record_(std::move(record)) {}

  /// Runs commands with replay keys. False: nothing has run, and they must be run one by one; so must those
  /// that read something invalid.
  /// @throws what Recording::launch does
  bool run(std::span<Command> commands);
  void clear() { sequences_.clear(); }
  /// How many times a recording was launched.
  [[nodiscard]] std::size_t launchCount() const { return launchCount_; }

 private:
  using Numbers = decltype(ReplayKey::numbers);
  struct Entry {
    std::unique_ptr<Recording> recording;
    std::vector<Numbers> numbers;  ///< of the next launch
  };
  struct Sequence {
    std::vector<std::shared_ptr<const void>> works;  ///< kept alive, so that no other work has their address
    std::list<Entry> entries;                        ///< the last used first
    std::size_t recorded = 0;
    std::size_t replayed = 0;
    bool isRefused = false;  ///< it cannot be recorded
  };

  Sequence* find(std::span<const Command> commands);
  void remember(std::span<const Command> commands);
  /// From an entry that fits. False when there is none.
  bool replay(Sequence& sequence, std::span<Command> commands);
  bool recordAndRun(Sequence& sequence, std::span<Command> commands);

  Recorder record_;
  std::list<Sequence> sequences_;  ///< the last used first
  std::size_t launchCount_ = 0;
};

}  // namespace mtl
