#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

/// Which bytes of a block of memory are good.
namespace mtl {

/// Some bytes of a block: a run of adjacent ones, and the same again at up to three distances.
class ByteRegion {
 public:
  ByteRegion() = default;
  /// [offset, offset + length)
  ByteRegion(std::size_t offset, std::size_t length) : offset_(offset), length_(length) {}

  /// What there is so far `count` times, `stride` bytes from one to the next; three times at most. Begin with what lies
  /// closest together: adjacent bytes become one run.
  [[nodiscard]] ByteRegion repeated(std::size_t count, std::size_t stride) const;

  [[nodiscard]] std::size_t byteCount() const {
    return length_ * repeats_[0].count * repeats_[1].count * repeats_[2].count;
  }
  [[nodiscard]] ByteRegion movedBy(std::size_t bytes) const {
    ByteRegion region = *this;
    region.offset_ += bytes;
    return region;
  }

  /// Calls function(begin, end) for each run until it returns false. @return whether all returned true
  template <class Function>
  bool forEachRun(Function&& function) const {
    for (std::size_t i = 0; i < repeats_[2].count; ++i)
      for (std::size_t j = 0; j < repeats_[1].count; ++j)
        for (std::size_t k = 0; k < repeats_[0].count; ++k) {
          const std::size_t begin =
              offset_ + i * repeats_[2].stride + j * repeats_[1].stride + k * repeats_[0].stride;
          if (!function(begin, begin + length_)) return false;
        }
    return true;
  }

 private:
  struct Repeat {
    std::size_t count = 1;
    std::size_t stride = 0;
  };
  std::size_t offset_ = 0;
  std::size_t length_ = 0;
  std::array<Repeat, 3> repeats_;  ///< the innermost first; those not used yet count once
  std::size_t used_ = 0;
};

/// Bytes that a failed command should have written, and what it said.
class InvalidBytes {
 public:
  [[nodiscard]] bool empty() const { return runs_.empty(); }
  /// The message about the first byte of the region that is invalid; empty while all are good.
  [[nodiscard]] std::string failure(const ByteRegion& region) const;
  /// Bytes that are invalid already keep their message.
  void add(const ByteRegion& region, const std::string& message);
  void remove(const ByteRegion& region);

 private:
  struct Run {
    std::size_t end = 0;
    std::shared_ptr<const std::string> message;
  };
  using Runs = std::map<std::size_t, Run>;  ///< by the first byte; they do not overlap

  void addRun(std::size_t begin, std::size_t end, const std::shared_ptr<const std::string>& message);
  void removeRun(std::size_t begin, std::size_t end);

  Runs runs_;
};

/// Whether a block's content is good. Commands hold it in place of the block, so a temporary block may go
/// back to its heap before they run. Thread safe.
class Content {
 public:
  /// @param length of the block in bytes
  explicit Content(std::size_t length) : length_(length) {}

  [[nodiscard]] ByteRegion whole() const { return {0, length_}; }
  /// Message of the command that failed to write some of the bytes; empty while they are good.
  [[nodiscard]] std::string failure(const ByteRegion& region) const;
  /// The first failure of a byte stays until it is good again.
  void setFailure(const ByteRegion& region, const std::string& message);
  void clearFailure(const ByteRegion& region);
  [[nodiscard]] InvalidBytes invalidBytes() const;

 private:
  std::size_t length_;
  mutable std::mutex mutex_;
  InvalidBytes invalid_;
};

}  // namespace mtl
