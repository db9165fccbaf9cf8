#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace mtl {

struct Command;

/// The place where the commands of one queue run, in order.
///
/// Each back end derives its own: mtl::cpu::Stream holds the workers, a CUDA stream the stream handle. A plan
/// (mps/core/plan/plan.hpp) knows which back end it was prepared for and casts.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Copies what earlier commands wrote at a device address to the host. Waits for them: only for commands
  /// whose work depends on the values.
  virtual void read(const std::byte* address, std::span<std::byte> bytes) = 0;

  /// Copies between device addresses; the two ranges do not overlap.
  virtual void copy(const std::byte* from, std::byte* to, std::size_t bytes) = 0;
  /// Sets bytes at a device address.
  virtual void fill(std::byte* to, std::size_t bytes, std::uint8_t value) = 0;

  /// Runs commands that all have a replay key at once, from what the device kept of an earlier run. False:
  /// nothing has run; run them one by one.
  virtual bool replay(std::span<Command> commands);

  /// When all work is done that was given to the stream before.
  class Moment {
   public:
    Moment() = default;
    virtual ~Moment() = default;
    Moment(const Moment&) = delete;
    Moment& operator=(const Moment&) = delete;
    /// Of two moments of one stream that have both come. @throws Error when the device cannot tell
    [[nodiscard]] virtual double secondsAfter(const Moment& earlier) const = 0;
  };
  /// Now, where commands run on the calling thread.
  virtual std::unique_ptr<Moment> moment();

 protected:
  Stream() = default;
  Stream(const Stream&) = default;
  Stream& operator=(const Stream&) = default;
};

}  // namespace mtl
