#include "mps/core/image_storage.hpp"

#include <numeric>

#include "mps/core/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mps::detail {

ImageStorage::ImageStorage(std::shared_ptr<mtl::Device> device, const TensorShape& shape)
    : device_(std::move(device)), shape_(shape) {}

ImageStorage::ImageStorage(mtl::CommandBuffer& commandBuffer, const TensorShape& shape,
                           std::size_t countedImages)
    : device_(commandBuffer.device()),
      shape_(shape),
      heap_(commandBuffer.heap()),
      scope_(commandBuffer.submission()->scope()),
      log_(commandBuffer.submission()->log()),
      readCounts_(countedImages, 1),
      livingImages_(countedImages) {}

ImageStorage::ImageStorage(std::shared_ptr<mtl::Device> device, std::shared_ptr<mtl::Memory> memory,
                           std::size_t byteOffset, const TensorShape& shape)
    : device_(std::move(device)),
      shape_(shape),
      byteOffset_(byteOffset),
      ownsMemory_(false),
      memory_(std::move(memory)),
      written_(true) {}

ImageStorage::~ImageStorage() {
  if (!log_ || released_) return;
  log_->addUnread("temporary image (" + shape_.describe() + ")" +
                      (producer_.empty() ? std::string() : ", written by " + producer_ + ","),
                  std::accumulate(readCounts_.begin(), readCounts_.end(), std::size_t{0}));
}

bool ImageStorage::belongsTo(const mtl::CommandBuffer& commandBuffer) const {
  return commandBuffer.submission()->isOfScope(scope_);
}

std::size_t ImageStorage::resourceSize() const {
  return ownsMemory_ ? static_cast<std::size_t>(shape_.bytes()) : 0;
}

std::shared_ptr<mtl::Memory> ImageStorage::allocatedMemory() const {
  const std::lock_guard lock(mutex_);
  return memory_;
}

bool ImageStorage::isReleased() const {
  const std::lock_guard lock(mutex_);
  return released_;
}

std::shared_ptr<mtl::Memory> ImageStorage::allocateLocked() {
  if (released_)
    throw Error("temporary image" + (producer_.empty() ? std::string() : " written by " + producer_) +
                ": its readCount is 0" +
                (lastReader_.empty() ? std::string() : " since " + lastReader_ + " read it") +
                " and its memory serves another image; raise readCount before that read");
  if (!memory_) {
    const auto bytes = static_cast<std::size_t>(shape_.bytes());
    memory_ = heap_ ? heap_->allocate(bytes) : device_->allocate(bytes);
  }
  return memory_;
}

std::shared_ptr<mtl::Memory> ImageStorage::memory() {
  const std::lock_guard lock(mutex_);
  return allocateLocked();
}

std::shared_ptr<mtl::Memory> ImageStorage::memoryForReading() {
  return memoryForWriting(false);
}

std::shared_ptr<mtl::Memory> ImageStorage::memoryForWriting(bool whole) {
  const std::lock_guard lock(mutex_);
  auto memory = allocateLocked();
  // A temporary image starts undefined, and the host must not touch memory that earlier work may still use.
  if (!written_ && !whole && !heap_) memory->fillWithZeros();
  written_ = true;
  return memory;
}

void ImageStorage::setReadCount(std::size_t image, std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (readCounts_[image] == 0) throw Error("temporary image: readCount is set after it reached 0");
  readCounts_[image] = count;
  if (count == 0) releaseImage();
}

void ImageStorage::releaseRead(std::size_t image) noexcept {
  const std::lock_guard lock(mutex_);
  if (readCounts_[image] > 0 && --readCounts_[image] == 0) releaseImage();
}

void ImageStorage::releaseImage() noexcept {
  if (--livingImages_ > 0) return;
  memory_.reset();
  released_ = true;
}

std::byte* TensorView::address() const {
  return memory->address() + byteOffset;
}

}  // namespace mps::detail
