#include "mtl/blit_command_encoder.hpp"

#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/read_only_memory.hpp"
#include "mtl/stream.hpp"
#include "mtl/submission.hpp"

namespace mtl {
namespace {

/// A command that writes some bytes of a buffer.
Command writing(const char* label, const std::shared_ptr<Buffer>& buffer, const ByteRegion& bytes) {
  if (const auto* const copy = dynamic_cast<const ReadOnlyMemory*>(buffer->memory().get()))
    throw Error("BlitCommandEncoder: " + std::string(label) + ": the buffer to write is " + copy->found() +
                ", expected " + copy->expected());
  Command command;
  command.label = label;
  command.writes.emplace_back(*buffer->memory(), bytes);
  command.retained.push_back(buffer);
  return command;
}

}  // namespace

BlitCommandEncoder::BlitCommandEncoder(std::shared_ptr<CommandBuffer> commandBuffer)
    : commandBuffer_(std::move(commandBuffer)) {
  commandBuffer_->submission()->openEncoder();
}

BlitCommandEncoder::~BlitCommandEncoder() {
  endEncoding();
}

void BlitCommandEncoder::check(const char* method, const std::shared_ptr<Buffer>& buffer, std::size_t offset,
                               std::size_t length) const {
  const std::string name = std::string("BlitCommandEncoder: ") + method;
  if (!commandBuffer_) throw Error(name + " after endEncoding; make a new encoder");
  if (!buffer) throw Error(name + ": a buffer is null");
  if (buffer->device() != commandBuffer_->device())
    throw Error(name + ": a buffer is of another device than the command buffer");
  if (offset > buffer->length() || length > buffer->length() - offset)
    throw Error(name + " of " + std::to_string(length) + " bytes from " + std::to_string(offset) +
                " leaves a buffer of " + std::to_string(buffer->length()) + " bytes");
}

void BlitCommandEncoder::synchronizeResource(const std::shared_ptr<Buffer>& buffer) {
  check("synchronizeResource", buffer, 0, 0);
  if (buffer->storageMode() != StorageMode::Private) buffer->memory()->synchronize(*commandBuffer_);
}

void BlitCommandEncoder::copyFromBuffer(const std::shared_ptr<Buffer>& source, std::size_t sourceOffset,
                                        const std::shared_ptr<Buffer>& destination,
                                        std::size_t destinationOffset, std::size_t size) {
  check("copyFromBuffer", source, sourceOffset, size);
  check("copyFromBuffer", destination, destinationOffset, size);
  if (size == 0) return;
  const std::byte* const from = source->memory()->address() + sourceOffset;
  std::byte* const to = destination->memory()->address() + destinationOffset;
  if (from < to + size && to < from + size)
    throw Error("BlitCommandEncoder: copyFromBuffer between ranges that overlap");
  Command command = writing("copyFromBuffer", destination, {destinationOffset, size});
  command.run = [from, to, size](Stream& stream) { stream.copy(from, to, size); };
  command.reads.emplace_back(*source->memory(), ByteRegion(sourceOffset, size));
  command.retained.push_back(source);
  commandBuffer_->append(std::move(command));
}

void BlitCommandEncoder::fillBuffer(const std::shared_ptr<Buffer>& buffer, std::size_t offset,
                                    std::size_t length, std::uint8_t value) {
  check("fillBuffer", buffer, offset, length);
  if (length == 0) return;
  Command command = writing("fillBuffer", buffer, {offset, length});
  command.run = [to = buffer->memory()->address() + offset, length, value](Stream& stream) {
    stream.fill(to, length, value);
  };
  commandBuffer_->append(std::move(command));
}

void BlitCommandEncoder::endEncoding() {
  if (!commandBuffer_) return;
  commandBuffer_->submission()->closeEncoder();
  commandBuffer_ = nullptr;
}

}  // namespace mtl
