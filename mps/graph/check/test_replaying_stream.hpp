#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mtl/command.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/replay_cache.hpp"

namespace mps::test {

/// Replays on the CPU as a GPU does: a sequence that comes again runs what it was recorded from, but for
/// commands whose key says that they changed.
class ReplayingStream final : public mtl::cpu::Stream {
 public:
  /// @param updatable of three commands in a row so many can be updated
  explicit ReplayingStream(std::size_t updatable)
      : Stream(2), cache_([this, updatable](std::span<mtl::Command> commands) {
          return std::make_unique<Recording>(*this, commands, updatable);
        }) {}
  bool replay(std::span<mtl::Command> commands) override { return cache_.run(commands); }
  [[nodiscard]] std::size_t launchCount() const { return cache_.launchCount(); }

 private:
  class Recording final : public mtl::ReplayCache::Recording {
   public:
    Recording(mtl::Stream& stream, std::span<mtl::Command> commands, std::size_t updatable)
        : stream_(stream), updatable_(updatable) {
      for (const mtl::Command& command : commands) work_.push_back(command.run);
    }
    [[nodiscard]] bool canUpdate(std::size_t index) const override { return index % 3 < updatable_; }
    bool update(std::size_t index, mtl::Command& command) override {
      work_[index] = command.run;
      return true;
    }
    void launch() override {
      for (const auto& work : work_) work(stream_);
    }

   private:
    mtl::Stream& stream_;
    std::size_t updatable_;
    std::vector<std::function<void(mtl::Stream&)>> work_;
  };

  mtl::ReplayCache cache_;
};

}  // namespace mps::test
