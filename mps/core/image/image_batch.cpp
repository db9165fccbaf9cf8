#include "mps/core/image/image_batch.hpp"

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_set>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_storage.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/memory.hpp"

namespace mps {

/// One block of memory and the Image objects that somebody asked for.
struct ImageBatch::Block {
  ImageDescriptor descriptor;  ///< of one image
  std::shared_ptr<detail::ImageStorage> storage;
  std::mutex mutex;
  std::vector<std::shared_ptr<Image>> images;

  /// Stays where it is.
  const std::shared_ptr<Image>& image(std::size_t index) {
    const std::lock_guard lock(mutex);
    if (images.empty()) images.resize(static_cast<std::size_t>(storage->shape().images));
    std::shared_ptr<Image>& image = images[index];
    if (image) return image;
    detail::TensorShape shape = storage->shape();
    const auto bytes = static_cast<std::size_t>(shape.imageStride) * bytesPerChannel(shape.format);
    shape.images = 1;
    if (storage->isTemporary())
      image.reset(new TemporaryImage(storage, shape, index * bytes, descriptor, index));
    else
      image.reset(new Image(storage, shape, storage->byteOffset() + index * bytes, descriptor));
    return image;
  }
};

namespace {

/// The stack that holds `count` images of this descriptor, checked through Image's own rules.
detail::TensorShape blockShape(ImageDescriptor& descriptor, std::size_t count) {
  if (descriptor.numberOfImages() != 1)
    throw Error("ImageBatch", "numberOfImages", std::to_string(descriptor.numberOfImages()), "1");
  ImageDescriptor stack = descriptor;
  stack.setNumberOfImages(std::max<std::size_t>(1, count));
  descriptor.setChannelFormat(detail::resolvedDescriptor("ImageBatch", stack).channelFormat());
  return detail::TensorShape::dense(
      static_cast<std::int64_t>(count), static_cast<std::int64_t>(descriptor.height()),
      static_cast<std::int64_t>(descriptor.width()), static_cast<std::int64_t>(descriptor.featureChannels()),
      descriptor.channelFormat());
}

std::size_t bytesPerImage(const ImageDescriptor& descriptor) {
  return descriptor.width() * descriptor.height() * descriptor.featureChannels() *
         bytesPerChannel(descriptor.channelFormat());
}

/// Of loose images: @throws Error unless each is one image of the first one's size and format.
void checkAlike(std::span<const std::shared_ptr<Image>> images) {
  for (const auto& image : images) {
    const ImageDescriptor& found = image->descriptor();
    const ImageDescriptor& first = images.front()->descriptor();
    if (found.numberOfImages() != 1 || found.width() != first.width() || found.height() != first.height() ||
        found.featureChannels() != first.featureChannels() || found.channelFormat() != first.channelFormat())
      throw Error("ImageBatch", "image", image->describe(),
                  "one image like the first, " + images.front()->describe());
  }
}

/// Calls function(image, index) for the first occurrence of each image; stops when it returns false.
template <class Function>
void forEachDistinct(const ImageBatch& batch, Function&& function) {
  std::unordered_set<const Image*> seen;
  for (std::size_t i = 0; i < batch.count(); ++i) {
    const auto image = batch[i];
    if (seen.insert(image.get()).second && !function(image, i)) return;
  }
}

}  // namespace

ImageBatch::ImageBatch(std::vector<std::shared_ptr<Image>> images) : count_(images.size()) {
  for (const auto& image : images)
    if (!image) throw Error("ImageBatch", "image", "null", "an image");
  loose_ = std::make_shared<const std::vector<std::shared_ptr<Image>>>(std::move(images));
}

ImageBatch::ImageBatch(std::initializer_list<std::shared_ptr<Image>> images)
    : ImageBatch(std::vector<std::shared_ptr<Image>>(images)) {}

ImageBatch ImageBatch::create(const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& descriptor,
                              std::size_t count) {
  if (!device) throw Error("ImageBatch", "device", "null", "a device");
  ImageBatch batch;
  batch.block_ = std::make_shared<Block>();
  batch.block_->descriptor = descriptor;
  const auto shape = blockShape(batch.block_->descriptor, count);
  batch.block_->storage = std::make_shared<detail::ImageStorage>(device, shape);
  batch.count_ = count;
  return batch;
}

ImageBatch ImageBatch::createTemporary(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const ImageDescriptor& descriptor, std::size_t count) {
  if (!commandBuffer) throw Error("ImageBatch", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  ImageBatch batch;
  batch.block_ = std::make_shared<Block>();
  batch.block_->descriptor = descriptor;
  batch.block_->descriptor.setStorageMode(mtl::StorageMode::Private);
  const auto shape = blockShape(batch.block_->descriptor, count);
  batch.block_->storage = std::make_shared<detail::ImageStorage>(*commandBuffer, shape, count);
  batch.count_ = count;
  return batch;
}

ImageBatch ImageBatch::over(std::shared_ptr<detail::ImageStorage> storage,
                            const ImageDescriptor& descriptor) {
  ImageBatch batch;
  batch.count_ = static_cast<std::size_t>(storage->shape().images);
  batch.block_ = std::make_shared<Block>();
  batch.block_->descriptor = descriptor;
  batch.block_->storage = std::move(storage);
  return batch;
}

const std::shared_ptr<Image>& ImageBatch::element(std::size_t index) const {
  if (index >= count_)
    throw Error("ImageBatch", "index", std::to_string(index), "less than " + std::to_string(count_));
  return block_ ? block_->image(first_ + index) : (*loose_)[first_ + index];
}

ImageBatch ImageBatch::slice(std::size_t first, std::size_t count) const {
  if (first > count_ || count > count_ - first)
    throw Error("ImageBatch", "slice", std::to_string(first) + " + " + std::to_string(count),
                "within " + std::to_string(count_) + " images");
  ImageBatch part = *this;
  part.first_ += first;
  part.count_ = count;
  return part;
}

bool ImageBatch::isOneRun(DataLayout layout) const {
  if (!block_ || isTemporary() || descriptor().storageMode() == mtl::StorageMode::Private ||
      layout != DataLayout::HeightxWidthxFeatureChannels)
    return false;
  const detail::ImageStorage& storage = *block_->storage;
  return count_ == static_cast<std::size_t>(storage.shape().images) && storage.byteOffset() == 0 &&
         storage.shape().isDense();
}

void ImageBatch::checkElementSize(std::size_t size) const {
  if (!empty()) detail::checkElementSize("ImageBatch", descriptor().channelFormat(), size);
}

void ImageBatch::writeBytes(std::span<const std::byte> source, DataLayout layout) const {
  if (empty()) return;
  checkAlike(looseImages());
  const std::size_t bytes = bytesPerImage(descriptor());
  if (source.size() < bytes * count_)
    throw Error("ImageBatch", "bytes", std::to_string(source.size()) + " bytes",
                "at least " + std::to_string(bytes * count_));
  if (isOneRun(layout)) {
    const auto memory = block_->storage->memoryForWriting(true);
    memory->clearFailure({0, bytes * count_});
    memory->write(0, source.first(bytes * count_));
    return;
  }
  for (std::size_t i = 0; i < count_; ++i) (*this)[i]->writeBytes(source.subspan(i * bytes, bytes), layout);
}

void ImageBatch::readBytes(std::span<std::byte> destination, DataLayout layout) const {
  if (empty()) return;
  checkAlike(looseImages());
  const std::size_t bytes = bytesPerImage(descriptor());
  if (destination.size() < bytes * count_)
    throw Error("ImageBatch", "bytes", std::to_string(destination.size()) + " bytes",
                "at least " + std::to_string(bytes * count_));
  if (isOneRun(layout)) {
    const auto memory = block_->storage->memoryForReading();
    if (memory->failure({0, bytes * count_}).empty()) {  // else the first image says what is wrong
      std::memcpy(destination.data(), memory->contents(), bytes * count_);
      return;
    }
  }
  for (std::size_t i = 0; i < count_; ++i)
    (*this)[i]->readBytes(destination.subspan(i * bytes, bytes), layout);
}

const ImageDescriptor& ImageBatch::descriptor() const {
  if (block_) return block_->descriptor;
  if (!loose_ || loose_->empty()) throw Error("ImageBatch", "count", "0", "at least one image");
  return (*loose_)[empty() ? 0 : first_]->descriptor();
}

bool ImageBatch::isTemporary() const {
  if (empty()) return false;
  return block_ ? block_->storage->isTemporary() : (*loose_)[first_]->isTemporary();
}

std::shared_ptr<detail::ImageStorage> ImageBatch::blockStorage() const {
  return block_ ? block_->storage : nullptr;
}

std::span<const std::shared_ptr<Image>> ImageBatch::looseImages() const {
  if (!loose_) return {};
  return std::span(*loose_).subspan(first_, count_);
}

ImageBatch ImageAllocator::imageBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      const ImageDescriptor& descriptor, const Kernel& kernel,
                                      std::size_t count) {
  std::vector<std::shared_ptr<Image>> images;
  images.reserve(count);
  for (std::size_t i = 0; i < count; ++i) images.push_back(image(commandBuffer, descriptor, kernel));
  return ImageBatch(std::move(images));
}

std::size_t ImageBatchIncrementReadCount(const ImageBatch& batch, std::int64_t amount) {
  const auto changed = [amount](std::size_t count) -> std::size_t {
    if (amount >= 0) return count + static_cast<std::size_t>(amount);
    const std::size_t less = 0 - static_cast<std::size_t>(amount);  // -amount need not be an int64
    return less >= count ? 0 : count - less;
  };
  if (const auto block = batch.blockStorage()) {
    if (block->isTemporary() && amount != 0) {
      for (std::size_t i = batch.firstInBlock(); i < batch.firstInBlock() + batch.count(); ++i)
        if (block->readCount(i) > 0) block->setReadCount(i, changed(block->readCount(i)));
    }
    return batch.count();
  }
  std::size_t distinct = 0;
  forEachDistinct(batch, [&](const std::shared_ptr<Image>& image, std::size_t) {
    ++distinct;
    if (auto* temporary = dynamic_cast<TemporaryImage*>(image.get()); temporary != nullptr && amount != 0)
      if (temporary->readCount() > 0) temporary->setReadCount(changed(temporary->readCount()));
    return true;
  });
  return distinct;
}

void ImageBatchSynchronize(const ImageBatch& batch,
                           const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (batch.blockStorage() && !batch.empty()) {  // one block is one copy
    if (!commandBuffer) throw Error("ImageBatch", "commandBuffer", "null", "a command buffer");
    commandBuffer->checkOpen();
    commandBuffer->checkDevice("ImageBatch", batch.blockStorage()->device());
    if (!batch.isTemporary() && batch.descriptor().storageMode() != mtl::StorageMode::Private &&
        batch.blockStorage()->allocatedMemory())
      batch.blockStorage()->memory()->synchronize(*commandBuffer);
    return;
  }
  forEachDistinct(batch, [&](const std::shared_ptr<Image>& image, std::size_t) {
    image->synchronize(commandBuffer);
    return true;
  });
}

std::size_t ImageBatchResourceSize(const ImageBatch& batch) {
  if (batch.blockStorage()) return batch.empty() ? 0 : bytesPerImage(batch.descriptor()) * batch.count();
  std::size_t bytes = 0;
  forEachDistinct(batch, [&](const std::shared_ptr<Image>& image, std::size_t) {
    bytes += image->resourceSize();
    return true;
  });
  return bytes;
}

std::int64_t ImageBatchIterate(
    const ImageBatch& batch,
    const std::function<std::int64_t(const std::shared_ptr<Image>&, std::size_t)>& function) {
  constexpr std::int64_t goOn = std::numeric_limits<std::int64_t>::min();
  std::int64_t last = goOn;
  forEachDistinct(batch, [&](const std::shared_ptr<Image>& image, std::size_t index) {
    last = function(image, index);
    return last == goOn;
  });
  return last;
}

}  // namespace mps
