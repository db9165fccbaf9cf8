#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace mtl {

class Buffer;
class CommandBuffer;

/// Records copies and fills of buffers (Metal's MTLBlitCommandEncoder).
///
///     const auto blit = commandBuffer->blitCommandEncoder();
///     blit->fillBuffer(sums, 0, sums->length(), 0);
///     blit->copyFromBuffer(weights, 0, snapshot, 0, weights->length());
///     blit->endEncoding();
///
/// Everything runs on the device, in the order of encoding with the other work of the command buffer; contents() shows
/// it after synchronizeResource and completion. Buffers of every storage mode are taken, and offsets and lengths need no
/// alignment; 0 bytes record nothing. While the encoder is open, kernels cannot be encoded to its command buffer, nor
/// can that be committed: both throw. Letting the encoder go ends it, too.
///
/// All methods but endEncoding throw Error, and record nothing, after the end or the commit, for a null buffer and for
/// one of another device.
class BlitCommandEncoder {
 public:
  /// Use CommandBuffer::blitCommandEncoder.
  explicit BlitCommandEncoder(std::shared_ptr<CommandBuffer> commandBuffer);
  ~BlitCommandEncoder();
  BlitCommandEncoder(const BlitCommandEncoder&) = delete;
  BlitCommandEncoder& operator=(const BlitCommandEncoder&) = delete;

  /// Device results of a buffer become visible in its contents(), as Buffer::synchronize does. Nothing to do for
  /// private buffers.
  void synchronizeResource(const std::shared_ptr<Buffer>& buffer);
  /// source[sourceOffset, sourceOffset + size) becomes destination[destinationOffset, destinationOffset + size).
  /// @throws Error when a range leaves its buffer, and when the two overlap
  void copyFromBuffer(const std::shared_ptr<Buffer>& source, std::size_t sourceOffset,
                      const std::shared_ptr<Buffer>& destination, std::size_t destinationOffset,
                      std::size_t size);
  /// Each byte of buffer[offset, offset + length) becomes `value`. @throws Error when the range leaves the buffer
  void fillBuffer(const std::shared_ptr<Buffer>& buffer, std::size_t offset, std::size_t length,
                  std::uint8_t value);
  /// Nothing can be recorded any more. Later calls have no effect.
  void endEncoding();

 private:
  void check(const char* method, const std::shared_ptr<Buffer>& buffer, std::size_t offset,
             std::size_t length) const;

  std::shared_ptr<CommandBuffer> commandBuffer_;  ///< null after the end
};

}  // namespace mtl
