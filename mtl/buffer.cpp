#include "mtl/buffer.hpp"

#include "mtl/command_buffer.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"

namespace mtl {

Buffer::Buffer(std::shared_ptr<Device> device, std::shared_ptr<Memory> memory, StorageMode storageMode)
    : device_(std::move(device)), memory_(std::move(memory)), storageMode_(storageMode) {}

std::size_t Buffer::length() const {
  return memory_->length();
}

std::byte* Buffer::contents() const {
  return storageMode_ == StorageMode::Private ? nullptr : memory_->contents();
}

void Buffer::didModifyRange(std::size_t offset, std::size_t length) {
  if (offset > this->length() || length > this->length() - offset)
    throw Error("Buffer: didModifyRange of " + std::to_string(length) + " bytes from " +
                std::to_string(offset) + " leaves a buffer of " + std::to_string(this->length()) + " bytes");
  memory_->didModifyRange(offset, length);
  memory_->clearFailure({offset, length});
}

void Buffer::synchronize(CommandBuffer& commandBuffer) {
  commandBuffer.checkOpen();
  commandBuffer.checkDevice("Buffer", device_);
  if (storageMode_ != StorageMode::Private) memory_->synchronize(commandBuffer);
}

}  // namespace mtl
