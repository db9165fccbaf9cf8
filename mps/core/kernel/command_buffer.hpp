#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "mtl/command_buffer.hpp"

namespace mtl {
class Buffer;
class CommandQueue;
}  // namespace mtl

namespace mps {

/// Decides on the device whether work runs (MPSPredicate): a uint32 in a buffer, read
/// when the work is due. 0 skips it and leaves destinations as they were; read counts fall all the same. Sums of
/// gradients that several encodes add to begin at 0 all the same. Statistics of a batch normalisation that lack a
/// skipped part fail what reads them, because the host has counted its elements.
class Predicate {
 public:
  /// @param offset in bytes, a multiple of 4. @throws Error for another offset or one outside the buffer.
  static std::shared_ptr<Predicate> create(std::shared_ptr<mtl::Buffer> buffer, std::size_t offset);
  /// With 4 bytes of its own, 0 at first.
  static std::shared_ptr<Predicate> create(const std::shared_ptr<mtl::Device>& device);

  [[nodiscard]] const std::shared_ptr<mtl::Buffer>& predicateBuffer() const { return buffer_; }
  [[nodiscard]] std::size_t predicateOffset() const { return offset_; }

 private:
  Predicate(std::shared_ptr<mtl::Buffer> buffer, std::size_t offset)
      : buffer_(std::move(buffer)), offset_(offset) {}
  std::shared_ptr<mtl::Buffer> buffer_;
  std::size_t offset_;
};

/// A command buffer that can be committed piece by piece (MPSCommandBuffer).
///
/// It wraps a root command buffer. commitAndContinue() commits the root and goes on with a new one of the
/// same queue; temporary images and states that were made since the wrapping stay usable. Handlers added so
/// far fire with the committed root; status(), error() and the waits speak of the current root. A wrapper of
/// a wrapper follows it: both have the same root at all times.
class CommandBuffer : public mtl::CommandBuffer {
 public:
  static std::shared_ptr<CommandBuffer> create(const std::shared_ptr<mtl::CommandQueue>& commandQueue);
  static std::shared_ptr<CommandBuffer> create(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

  /// The root as it is now; keep it to wait for a piece.
  [[nodiscard]] std::shared_ptr<mtl::CommandBuffer> rootCommandBuffer() const;
  /// Commits what was encoded so far and continues. When the wrapped buffer can do so itself, it does.
  void commitAndContinue();

  /// Applies to what is encoded from now on through this wrapper; null for none. @throws Error when its buffer is of
  /// another device
  [[nodiscard]] const std::shared_ptr<Predicate>& predicate() const { return predicate_; }
  void setPredicate(std::shared_ptr<Predicate> predicate);

  /// @name The library's own
  /// @{
  /// The second half of commitAndContinue(), with a submission of the same queue.
  void continueWith(std::shared_ptr<mtl::Submission> next);
  void append(mtl::Command command) override;
  [[nodiscard]] const std::shared_ptr<mtl::Submission>& submission() const override;
  [[nodiscard]] bool mayLeaveOut() const override { return predicate_ != nullptr; }
  /// @}

 protected:
  [[nodiscard]] std::shared_ptr<mtl::Submission> current() const override;

 private:
  CommandBuffer(std::shared_ptr<mtl::Submission> submission, std::shared_ptr<CommandBuffer> wrapped);

  mutable std::mutex mutex_;                ///< for the root to change while another thread asks about it
  std::shared_ptr<CommandBuffer> wrapped_;  ///< of one wrapper around another
  std::shared_ptr<Predicate> predicate_;
};

/// Hint how many bytes of temporary memory will be alive at once. Heaps grow to what is needed and keep it,
/// so nothing is done (MPSHintTemporaryMemoryHighWaterMark).
void HintTemporaryMemoryHighWaterMark(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,  // NOLINT
                                      std::size_t bytes);
/// Hint how long idle heaps are kept; nothing is done (MPSSetHeapCacheDuration).
void SetHeapCacheDuration(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          double seconds);  // NOLINT

/// Whether MPS kernels run on a device: every device there is; false for null (MPSSupportsMTLDevice).
bool SupportsMTLDevice(const std::shared_ptr<mtl::Device>& device);  // NOLINT: Apple's name

/// Bits of GetPreferredDevice.
enum class DeviceOptions : std::uint64_t { Default = 0, LowPower = 1, SkipRemovable = 2 };
/// The device to use by default: a GPU where there is one, else the CPU; LowPower prefers the CPU. The
/// environment variable MPS_PREFERRED_DEVICE, an index into mtl::copyAllDevices(), overrides; -1 prints them with their
/// indices to stderr and chooses none; an empty one counts as none (MPSGetPreferredDevice).
/// @throws Error, which names the variable, when it is something else
std::shared_ptr<mtl::Device> GetPreferredDevice(DeviceOptions options);  // NOLINT: Apple's name

}  // namespace mps
