#include "mps/core/array/array_storage.hpp"

#include <algorithm>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mps::detail {
namespace {

std::size_t checkedSum(const char* owner, std::size_t a, std::size_t b) {
  if (a > std::numeric_limits<std::size_t>::max() - b)
    throw Error(owner, "size in bytes", "too large", "less than 2^64");
  return a + b;
}

/// From the first to the last element.
std::size_t usedBytes(const char* owner, const ArrayExtent& extent) {
  if (extent.count == 0 || extent.itemBytes == 0) return 0;
  return checkedSum(owner, checkedProduct(owner, extent.count - 1, extent.stride), extent.itemBytes);
}

/// What a buffer of our own has: the gap after the last one is part of it.
std::size_t ownedBytes(const char* owner, const ArrayExtent& extent) {
  return std::max(checkedProduct(owner, extent.count, extent.stride), usedBytes(owner, extent));
}

}  // namespace

std::size_t recommendedStride(const char* owner, std::size_t elements, DataType dataType) {
  const std::size_t size = sizeInBytes(dataType);
  if (elements <= 1) return elements * size;
  const bool isFloat =
      (static_cast<std::uint32_t>(dataType) & static_cast<std::uint32_t>(DataType::FloatBit)) != 0;
  if (isFloat) return checkedSum(owner, checkedProduct(owner, elements, size), 15) / 16 * 16;
  return checkedProduct(owner, checkedSum(owner, elements, 3) / 4 * 4, size);
}

void codeElementType(Coder& coder, DataType& dataType) {
  coder.codeEnumeration("dataType", dataType, DataType::Unorm8);
  if (std::string_view(name(dataType)) == "unknown" || sizeInBytes(dataType) == 0)
    coder.refuse("dataType", std::to_string(static_cast<std::uint32_t>(dataType)), "a type of whole bytes");
}

void checkElementType(const char* owner, DataType dataType) {
  if (sizeInBytes(dataType) == 0) throw Error(owner, "dataType", name(dataType), "a type of whole bytes");
}

std::size_t checkedProduct(const char* owner, std::size_t a, std::size_t b) {
  if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b)
    throw Error(owner, "size in bytes", "too large", "less than 2^64");
  return a * b;
}

ArrayStorage::ArrayStorage(const char* owner, std::shared_ptr<mtl::Buffer> buffer, std::size_t offset,
                           const ArrayExtent& extent, DataType dataType)
    : owner_(owner), buffer_(std::move(buffer)), offset_(offset), ownsBuffer_(false) {
  if (!buffer_) throw Error(owner, "buffer", "null", "a buffer");
  if (offset % sizeInBytes(dataType) != 0)
    throw Error(owner, "offset", std::to_string(offset),
                "a multiple of the element size " + std::to_string(sizeInBytes(dataType)));
  const std::size_t needed = checkedSum(owner, offset, usedBytes(owner, extent));
  if (needed > buffer_->length())
    throw Error(owner, "buffer", std::to_string(buffer_->length()) + " bytes",
                "at least " + std::to_string(needed));
  device_ = buffer_->device();
}

ArrayStorage::ArrayStorage(const char* owner, std::shared_ptr<mtl::Device> device, const ArrayExtent& extent)
    : owner_(owner), device_(std::move(device)), bytes_(ownedBytes(owner, extent)) {
  if (!device_) throw Error(owner, "device", "null", "a device");
}

ArrayStorage::ArrayStorage(const char* owner, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           const ArrayExtent& extent)
    : owner_(owner), bytes_(ownedBytes(owner, extent)), isTemporary_(true), readCount_(1) {
  if (!commandBuffer) throw Error(owner, "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  device_ = commandBuffer->device();
  heap_ = commandBuffer->heap();
  scope_ = commandBuffer->submission()->scope();
  watch_.begin(commandBuffer->submission()->log(), *this);
}

ArrayStorage::~ArrayStorage() {
  watch_.end();
}

std::string ArrayStorage::describeUnread() const {
  const std::lock_guard lock(mutex_);
  return owner_ + (producer_.empty() ? std::string() : ", written by " + producer_ + ",");
}

std::size_t ArrayStorage::readCount() const {
  const std::lock_guard lock(mutex_);
  return readCount_;
}

void ArrayStorage::setProducer(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  producer_ = kernel;
}

std::shared_ptr<mtl::Buffer> ArrayStorage::buffer() {
  const std::lock_guard lock(mutex_);
  if (isTemporary_ && readCount_ == 0)
    throw Error(std::string(owner_) +
                ": its readCount is 0 and its memory serves others; raise readCount before the last read");
  if (!buffer_)
    buffer_ = isTemporary_
                  ? std::make_shared<mtl::Buffer>(device_, heap_->allocate(bytes_), mtl::StorageMode::Private)
                  : device_->newBuffer(bytes_);
  return buffer_;
}

void ArrayStorage::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error(owner_, "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  commandBuffer->checkDevice(owner_, device_);
  const std::lock_guard lock(mutex_);
  if (buffer_ && buffer_->storageMode() == mtl::StorageMode::Managed) buffer_->synchronize(*commandBuffer);
}

void ArrayStorage::setReadCount(std::size_t readCount) {
  const std::lock_guard lock(mutex_);
  if (readCount_ == 0) throw Error(std::string(owner_) + ": readCount is set after it reached 0");
  readCount_ = readCount;
  if (readCount > 0) return;
  buffer_.reset();
  heap_.reset();
}

void ArrayStorage::check(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                         bool isRead) const {
  if (device_ != kernel.device())
    throw Error(kernel.describe(), argument, "of another device " + mtl::nameForMessages(*device_),
                "of the kernel's device " + mtl::nameForMessages(*kernel.device()));
  if (isTemporary_ && !commandBuffer.submission()->isOfScope(scope_))
    throw Error(kernel.describe(), argument, "a " + std::string(owner_) + " of another command buffer",
                "one of this buffer");
  if (isTemporary_ && readCount() == 0)
    throw Error(kernel.describe(), argument, "a " + std::string(owner_) + " whose readCount is 0",
                "one that still has reads left");
  const std::lock_guard lock(mutex_);
  if (!isRead || !buffer_) return;
  if (const std::string failure = buffer_->memory()->failure(); !failure.empty())
    throw Error(kernel.describe() + ": " + argument +
                " is invalid because an earlier command failed: " + failure);
}

void consumeRead(std::span<ArrayStorage* const> arrays) {
  for (auto array = arrays.begin(); array != arrays.end(); ++array)
    if (*array != nullptr && (*array)->isTemporary() && (*array)->readCount() > 0 &&
        std::find(arrays.begin(), array, *array) == array)
      (*array)->setReadCount((*array)->readCount() - 1);
}

}  // namespace mps::detail
