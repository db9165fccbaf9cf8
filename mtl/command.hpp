#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mtl/command_buffer.hpp"
#include "mtl/content.hpp"

/// What kernels record in a command buffer.
namespace mtl {

class Memory;
class Stream;
class Submission;

/// Stands for bytes that a command reads or writes; keeps the mark of their content, not the block.
struct ContentMark {
  /// All of a block.
  ContentMark(const std::shared_ptr<Memory>& memory);  // NOLINT: implicit, so that blocks can be listed
  /// Some of its bytes.
  ContentMark(const Memory& memory, const ByteRegion& bytes);

  [[nodiscard]] std::string failure() const { return content->failure(region); }
  void setFailure(const std::string& message) const { content->setFailure(region, message); }
  void clearFailure() const { content->clearFailure(region); }

  std::shared_ptr<Content> content;
  ByteRegion region;
};

/// Says what a command does, so that a device can keep a sequence of commands and run it again (CUDA graphs):
/// commands with equal keys do the same.
struct ReplayKey {
  std::shared_ptr<const void> work;         ///< null: always run by itself
  std::array<std::uint64_t, 23> numbers{};  ///< what the work runs on: addresses and per-step scalars
};

/// One recorded piece of work.
struct Command {
  std::string label;                 ///< kernel and label, for messages
  double operations = 0;             ///< as in CommandTime
  std::function<void(Stream&)> run;  ///< called on the executing thread, once unless it has a replay key
  ReplayKey replay = {};
  std::vector<ContentMark> reads;   ///< invalid content makes the command fail
  std::vector<ContentMark> writes;  ///< marked invalid when the command does not run to its end
  /// Marked invalid when the condition leaves the command out: the host has counted a part that they then lack.
  std::vector<ContentMark> lacking;
  /// Asked when the command is due; false leaves it out, with what it would have written as it was. Empty: it
  /// always runs. What it throws makes the command fail.
  std::function<bool(Stream&)> condition;
  std::vector<std::shared_ptr<const void>> retained;  ///< kept alive until the buffer has completed

  /// Why something that it reads is invalid; empty while all is good.
  [[nodiscard]] std::string invalidRead() const;
};

/// A place in what a command buffer has recorded.
struct RecordingMark {
  std::size_t commands = 0;
  std::size_t ifDropped = 0;  ///< functions given to CommandBuffer::ifDropped
};

/// Drops what was recorded since construction unless keep() is called: a failed encode leaves no trace. Until keep() or
/// its end nobody can commit the buffer. @throws Error when it was committed already, or the process is ending
class RecordingGuard {
 public:
  explicit RecordingGuard(CommandBuffer& commandBuffer);
  ~RecordingGuard();
  RecordingGuard(const RecordingGuard&) = delete;
  RecordingGuard& operator=(const RecordingGuard&) = delete;
  void keep();

 private:
  std::shared_ptr<Submission> submission_;  ///< null: kept
  RecordingMark mark_;
};

}  // namespace mtl
