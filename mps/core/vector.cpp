#include "mps/core/vector.hpp"

#include "mps/core/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {
namespace {

void checkType(DataType type) {
  if (sizeInBytes(type) == 0)
    throw Error("VectorDescriptor", "dataType", name(type), "a type of whole bytes");
}

std::size_t bytesOf(const VectorDescriptor& descriptor) {
  if (descriptor.vectors() == 0 || descriptor.length() == 0) return 0;
  return (descriptor.vectors() - 1) * descriptor.vectorBytes() +
         descriptor.length() * sizeInBytes(descriptor.dataType());
}

}  // namespace

VectorDescriptor VectorDescriptor::vectorDescriptor(std::size_t length, DataType dataType) {
  checkType(dataType);
  return {length, 1, length * sizeInBytes(dataType), dataType};
}

VectorDescriptor VectorDescriptor::vectorDescriptor(std::size_t length, std::size_t vectors,
                                                    std::size_t vectorBytes, DataType dataType) {
  checkType(dataType);
  const std::size_t size = sizeInBytes(dataType);
  if (vectorBytes % size != 0 || vectorBytes < length * size)
    throw Error("VectorDescriptor", "vectorBytes", std::to_string(vectorBytes),
                "a multiple of " + std::to_string(size) + " from " + std::to_string(length * size) + " on");
  return {length, vectors, vectorBytes, dataType};
}

std::size_t VectorDescriptor::vectorBytes(std::size_t length, DataType dataType) {
  checkType(dataType);
  const std::size_t size = sizeInBytes(dataType);
  if (length <= 1) return length * size;
  const bool isFloat =
      (static_cast<std::uint32_t>(dataType) & static_cast<std::uint32_t>(DataType::FloatBit)) != 0;
  return isFloat ? (length * size + 15) / 16 * 16 : (length + 3) / 4 * 4 * size;
}

Vector::Vector(std::shared_ptr<mtl::Device> device, std::shared_ptr<mtl::Buffer> buffer,
               const VectorDescriptor& descriptor, std::size_t offset)
    : buffer_(std::move(buffer)),
      device_(std::move(device)),
      descriptor_(descriptor),
      offset_(offset),
      ownsBuffer_(buffer_ == nullptr) {}

std::shared_ptr<Vector> Vector::create(std::shared_ptr<mtl::Buffer> buffer,
                                       const VectorDescriptor& descriptor, std::size_t offset) {
  if (!buffer) throw Error("Vector", "buffer", "null", "a buffer");
  if (offset % sizeInBytes(descriptor.dataType()) != 0)
    throw Error("Vector", "offset", std::to_string(offset), "a multiple of the element size");
  const std::size_t needed = offset + bytesOf(descriptor);
  if (needed > buffer->length())
    throw Error("Vector", "buffer", std::to_string(buffer->length()) + " bytes",
                "at least " + std::to_string(needed));
  auto device = buffer->device();
  return std::shared_ptr<Vector>(new Vector(std::move(device), std::move(buffer), descriptor, offset));
}

std::shared_ptr<Vector> Vector::create(std::shared_ptr<mtl::Device> device,
                                       const VectorDescriptor& descriptor) {
  if (!device) throw Error("Vector", "device", "null", "a device");
  return std::shared_ptr<Vector>(new Vector(std::move(device), nullptr, descriptor, 0));
}

std::shared_ptr<mtl::Buffer> Vector::data() {
  if (!buffer_) buffer_ = device_->newBuffer(vectors() * vectorBytes());
  return buffer_;
}

std::size_t Vector::resourceSize() const {
  return ownsBuffer_ ? vectors() * vectorBytes() : 0;
}

void Vector::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error("Vector", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  if (buffer_ && !isTemporary()) buffer_->synchronize(*commandBuffer);
}

TemporaryVector::TemporaryVector(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 const VectorDescriptor& descriptor)
    : Vector(commandBuffer->device(), nullptr, descriptor, 0), commandBuffer_(commandBuffer) {}

std::shared_ptr<TemporaryVector> TemporaryVector::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const VectorDescriptor& descriptor) {
  if (!commandBuffer) throw Error("TemporaryVector", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  return std::shared_ptr<TemporaryVector>(new TemporaryVector(commandBuffer, descriptor));
}

void TemporaryVector::prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                      std::span<const VectorDescriptor> /*descriptors*/) {}

std::shared_ptr<mtl::Buffer> TemporaryVector::data() {
  if (readCount_ == 0) throw Error("temporary vector: its readCount is 0 and its memory serves others");
  if (!buffer_)
    buffer_ = std::make_shared<mtl::Buffer>(
        device(), commandBuffer_->heap()->allocate(vectors() * vectorBytes()), mtl::StorageMode::Private);
  return buffer_;
}

void TemporaryVector::setReadCount(std::size_t readCount) {
  if (readCount_ == 0) throw Error("temporary vector: readCount is set after it reached 0");
  readCount_ = readCount;
  if (readCount > 0) return;
  buffer_.reset();
  commandBuffer_.reset();
}

}  // namespace mps
