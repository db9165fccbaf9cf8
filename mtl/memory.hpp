#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mtl/content.hpp"

namespace mtl {

class CommandBuffer;
class Device;

/// A block of device memory. Returns to where it came from when the last owner lets go.
/// Users hold Buffers and images.
class Memory {
 public:
  virtual ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Address on the device.
  [[nodiscard]] std::byte* address() const { return address_; }
  [[nodiscard]] std::size_t length() const { return length_; }

  /// Host address of the same bytes; on the CPU the address itself. A device with memory of its own keeps a
  /// mirror that is valid after synchronize() and completion.
  [[nodiscard]] virtual std::byte* contents() { return address_; }
  /// The host wrote bytes of contents(); the device reads them from the next command on.
  virtual void didModifyRange(std::size_t /*offset*/, std::size_t /*length*/) {}
  /// Writes bytes of the host's at an offset, as contents() and didModifyRange() do, with one copy where there
  /// is no mirror yet.
  virtual void write(std::size_t offset, std::span<const std::byte> bytes);
  /// Records the copy that makes device results visible in contents().
  virtual void synchronize(CommandBuffer& /*commandBuffer*/) {}
  /// Writes zeros, for the host and for the commands from the next one on. Not for a heap's blocks: earlier
  /// commands may still use them.
  virtual void fillWithZeros();

  [[nodiscard]] const std::shared_ptr<Content>& content() const { return content_; }
  /// Some of these bytes, as content() counts them.
  [[nodiscard]] ByteRegion inContent(const ByteRegion& bytes) const { return bytes.movedBy(contentOffset_); }
  /// Message of the command that failed to write some byte; empty while all of the content is good.
  [[nodiscard]] std::string failure() const { return content_->failure(content_->whole()); }
  [[nodiscard]] std::string failure(const ByteRegion& bytes) const {
    return content_->failure(inContent(bytes));
  }
  void setFailure(const std::string& message) { content_->setFailure(content_->whole(), message); }
  void clearFailure() { content_->clearFailure(content_->whole()); }
  void clearFailure(const ByteRegion& bytes) { content_->clearFailure(inContent(bytes)); }

 protected:
  Memory(std::byte* address, std::size_t length)
      : address_(address), length_(length), content_(std::make_shared<Content>(length)) {}
  /// Some bytes of a larger content, from that byte on.
  Memory(std::byte* address, std::size_t length, const Memory& whole, std::size_t offset)
      : address_(address),
        length_(length),
        content_(whole.content_),
        contentOffset_(whole.contentOffset_ + offset) {}

 private:
  std::byte* address_;
  std::size_t length_;
  std::shared_ptr<Content> content_;
  std::size_t contentOffset_ = 0;
};

/// Some bytes of a block, which they keep alive. Failures that name no bytes are the block's.
class MemoryPart final : public Memory {
 public:
  /// @param offset with `length` within the block
  MemoryPart(std::shared_ptr<Memory> whole, std::size_t offset, std::size_t length)
      : Memory(whole->address() + offset, length, *whole, offset),
        whole_(std::move(whole)),
        offset_(offset) {}

  std::byte* contents() override { return whole_->contents() + offset_; }
  void didModifyRange(std::size_t offset, std::size_t length) override {
    whole_->didModifyRange(offset_ + offset, length);
  }
  void write(std::size_t offset, std::span<const std::byte> bytes) override {
    whole_->write(offset_ + offset, bytes);
  }
  /// The whole block's.
  void synchronize(CommandBuffer& commandBuffer) override { whole_->synchronize(commandBuffer); }
  void fillWithZeros() override;

 private:
  std::shared_ptr<Memory> whole_;
  std::size_t offset_;
};

/// Chunked arena for temporary memory: stable addresses, best fit, neighbours merged (design section 4).
///
/// Allocation and release happen while work is encoded. Reuse at once is safe because the commands of a queue
/// run in order. Chunks are kept until the heap dies, so a loop whose shapes repeat stops growing after its
/// first pass. Thread safe.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  /// Every address is a multiple of this.
  static constexpr std::size_t alignment = 256;

  /// @param chunkBytes least size of a chunk
  explicit Heap(Device& device, std::size_t chunkBytes = std::size_t{1} << 22U);
  /// In a part of memory that is there: for blocks too large for a first chunk of `other`. That one serves the others, and
  /// those that do not fit, which this one counts as its own. @param offset a multiple of the alignment
  Heap(std::shared_ptr<Heap> other, std::shared_ptr<Memory> memory, std::size_t offset, std::size_t length);

  /// A block that returns to this heap when its last owner lets go. Zero bytes give a block of length 0.
  /// @throws std::bad_alloc when there is no memory.
  std::shared_ptr<Memory> allocate(std::size_t bytes);

  [[nodiscard]] std::size_t usedBytes() const;      ///< in live blocks
  [[nodiscard]] std::size_t peakBytes() const;      ///< largest usedBytes so far
  [[nodiscard]] std::size_t reservedBytes() const;  ///< in chunks
  [[nodiscard]] std::size_t chunkCount() const;
  [[nodiscard]] std::size_t chunkBytes() const { return chunkBytes_; }

 private:
  class Block;
  struct Chunk {
    std::shared_ptr<Memory> memory;
    std::map<std::size_t, std::size_t> free;  ///< offset to length
  };

  static constexpr std::size_t ofOther =
      static_cast<std::size_t>(-1);  ///< a block's chunk that another heap has

  void release(std::size_t chunk, std::size_t offset, std::size_t length);
  std::optional<std::pair<std::size_t, std::size_t>> bestFit(std::size_t length) const;

  Device& device_;
  std::size_t chunkBytes_;
  std::shared_ptr<Heap> other_;
  mutable std::mutex mutex_;
  std::vector<Chunk> chunks_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace mtl
