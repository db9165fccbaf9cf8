#include "mps/core/image/image_storage.hpp"

#include <numeric>

#include "mps/core/types/error.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mps::detail {

/// Lives with the record of a first write. Its end tells whether that will run.
class ImageStorage::PendingWrite {
 public:
  PendingWrite(std::weak_ptr<ImageStorage> storage, std::weak_ptr<const mtl::Submission> submission)
      : storage_(std::move(storage)), submission_(std::move(submission)) {}
  ~PendingWrite() {
    const auto submission = submission_.lock();  // null while it is destroyed uncommitted
    const auto storage = storage_.lock();
    if (!storage) return;
    const bool willRun = submission && submission->willRun();
    const std::lock_guard lock(storage->mutex_);
    if (storage->written_) return;  // by somebody else
    storage->pendingIn_ = nullptr;
    storage->written_ = willRun;
  }
  PendingWrite(const PendingWrite&) = delete;
  PendingWrite& operator=(const PendingWrite&) = delete;

 private:
  std::weak_ptr<ImageStorage> storage_;
  std::weak_ptr<const mtl::Submission> submission_;
};

namespace {

/// Memory comes with the first use. What no memory can ever hold is refused at once, before a kernel plans for it.
void checkFits(const mtl::Device& device, const TensorShape& shape) {
  const auto bytes = static_cast<std::size_t>(shape.bytes());
  const std::size_t most = device.recommendedMaxWorkingSetSize();
  if (bytes > most)
    throw Error("Image", "imageDescriptor", shape.describe() + " of " + std::to_string(bytes) + " bytes",
                "at most the " + std::to_string(most) + " bytes of memory of " + device.name());
}

}  // namespace

ImageStorage::ImageStorage(std::shared_ptr<mtl::Device> device, const TensorShape& shape)
    : device_(std::move(device)), shape_(shape) {
  checkFits(*device_, shape_);
}

ImageStorage::ImageStorage(mtl::CommandBuffer& commandBuffer, const TensorShape& shape,
                           std::size_t countedImages)
    : device_(commandBuffer.device()),
      shape_(shape),
      heap_(commandBuffer.heap()),
      scope_(commandBuffer.submission()->scope()),
      readCounts_(countedImages, 1),
      livingImages_(countedImages) {
  checkFits(*device_, shape_);
  watch_.begin(commandBuffer.submission()->log(), *this);
}

ImageStorage::ImageStorage(std::shared_ptr<mtl::Device> device, std::shared_ptr<mtl::Memory> memory,
                           std::size_t byteOffset, const TensorShape& shape)
    : device_(std::move(device)),
      shape_(shape),
      byteOffset_(byteOffset),
      ownsMemory_(false),
      memory_(std::move(memory)),
      written_(true) {}

ImageStorage::~ImageStorage() {
  watch_.end();
}

std::size_t ImageStorage::readsLeft() const {
  const std::lock_guard lock(mutex_);
  return released_ ? 0 : std::accumulate(readCounts_.begin(), readCounts_.end(), std::size_t{0});
}

std::string ImageStorage::describeUnread() const {
  const std::lock_guard lock(mutex_);
  return "temporary image" + (label_.empty() ? std::string() : " \"" + label_ + "\"") + " (" +
         shape_.describe() + ")" + (producer_.empty() ? std::string() : ", written by " + producer_ + ",");
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

std::shared_ptr<mtl::Memory> ImageStorage::memoryForReading(mtl::CommandBuffer& commandBuffer) {
  return memoryForWriting(commandBuffer, false);
}

std::shared_ptr<mtl::Memory> ImageStorage::memoryForWriting(bool whole) {
  const std::lock_guard lock(mutex_);
  auto memory = allocateLocked();
  if (!whole) defineLocked();
  written_ = true;
  return memory;
}

std::shared_ptr<mtl::Memory> ImageStorage::memoryForWriting(mtl::CommandBuffer& commandBuffer, bool whole) {
  std::shared_ptr<const PendingWrite> pending;  // should ifDropped throw, it ends after the lock
  const std::lock_guard lock(mutex_);
  auto memory = allocateLocked();
  const mtl::Submission* const submission = commandBuffer.submission().get();
  if (written_ || heap_ != nullptr || pendingIn_ == submission) return memory;
  if (!whole || commandBuffer.mayLeaveOut() || pendingIn_ != nullptr) {
    defineLocked();
    return memory;
  }
  pending = std::make_shared<const PendingWrite>(weak_from_this(), commandBuffer.submission());
  commandBuffer.ifDropped([pending](mtl::CommandBuffer& /*instead*/) {});
  pendingIn_ = submission;
  return memory;
}

void ImageStorage::defineLocked() {
  // A temporary image starts undefined, and the host must not touch memory that earlier work may still use.
  if (!written_ && !heap_) memory_->fillWithZeros();
  written_ = true;
}

std::size_t ImageStorage::readCount(std::size_t image) const {
  const std::lock_guard lock(mutex_);
  return readCounts_[image];
}

void ImageStorage::setProducer(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  producer_ = kernel;
}

void ImageStorage::setLabel(const std::string& label) {
  const std::lock_guard lock(mutex_);
  label_ = label;
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

mtl::ContentMark TensorView::mark() const {
  return isImage ? mtl::ContentMark(*memory, bytesOf(shape, byteOffset)) : mtl::ContentMark(memory);
}

mtl::ByteRegion bytesOf(const TensorShape& shape, std::size_t byteOffset) {
  const std::size_t size = bytesPerChannel(shape.format);
  const auto count = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  const auto bytes = [size](std::int64_t elements) { return static_cast<std::size_t>(elements) * size; };
  return mtl::ByteRegion(byteOffset, bytes(shape.channels))
      .repeated(count(shape.width), bytes(shape.pixelStride))
      .repeated(count(shape.height), bytes(shape.rowStride))
      .repeated(count(shape.images), bytes(shape.imageStride));
}

}  // namespace mps::detail
