#include "mps/core/image/image.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/image_storage.hpp"
#include "mps/core/image/texture_view.hpp"
#include "mps/core/types/error.hpp"
#include "mps/core/types/strides.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::ImageStorage;
using detail::TensorShape;

namespace {

/// Sums and products of sizes that come from users; too large ones stay at the largest number.
constexpr std::size_t largestSize = std::numeric_limits<std::size_t>::max();
std::size_t product(std::size_t a, std::size_t b) {
  return b != 0 && a > largestSize / b ? largestSize : a * b;
}
std::size_t sum(std::initializer_list<std::size_t> terms) {
  std::size_t total = 0;
  for (const std::size_t term : terms) total = term > largestSize - total ? largestSize : total + term;
  return total;
}

TensorShape denseShape(const ImageDescriptor& descriptor) {
  return TensorShape::dense(
      static_cast<std::int64_t>(descriptor.numberOfImages()), static_cast<std::int64_t>(descriptor.height()),
      static_cast<std::int64_t>(descriptor.width()), static_cast<std::int64_t>(descriptor.featureChannels()),
      descriptor.channelFormat());
}

/// Has no properties to code: which of the two it is is all.
class LibraryAllocator : public ImageAllocator {
 public:
  void encode(Coder& coder) const override { coder.codeClass(className()); }
};

class DefaultImageAllocator final : public LibraryAllocator {
 public:
  [[nodiscard]] std::string className() const override { return "DefaultImageAllocator"; }
  std::shared_ptr<Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const ImageDescriptor& descriptor, const Kernel& /*kernel*/) override {
    return Image::create(commandBuffer->device(), descriptor);
  }
  ImageBatch imageBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const ImageDescriptor& descriptor, const Kernel& /*kernel*/,
                        std::size_t count) override {
    return ImageBatch::create(commandBuffer->device(), descriptor, count);
  }
};

class TemporaryImageAllocator final : public LibraryAllocator {
 public:
  [[nodiscard]] std::string className() const override { return "TemporaryImageAllocator"; }
  std::shared_ptr<Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const ImageDescriptor& descriptor, const Kernel& /*kernel*/) override {
    return TemporaryImage::create(commandBuffer, descriptor);
  }
  ImageBatch imageBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const ImageDescriptor& descriptor, const Kernel& /*kernel*/,
                        std::size_t count) override {
    return ImageBatch::createTemporary(commandBuffer, descriptor, count);
  }
};

}  // namespace

Image::Image(std::shared_ptr<ImageStorage> storage, const TensorShape& shape, std::size_t byteOffset,
             ImageDescriptor descriptor)
    : storage_(std::move(storage)),
      shape_(std::make_unique<TensorShape>(shape)),
      byteOffset_(byteOffset),
      descriptor_(descriptor) {}

Image::~Image() = default;

std::shared_ptr<Image> Image::create(const std::shared_ptr<mtl::Device>& device,
                                     const ImageDescriptor& descriptor) {
  if (!device) throw Error("Image", "device", "null", "a device");
  const ImageDescriptor whole = detail::resolvedDescriptor("Image", descriptor);
  const TensorShape shape = denseShape(whole);
  return std::shared_ptr<Image>(new Image(std::make_shared<ImageStorage>(device, shape), shape, 0, whole));
}

std::shared_ptr<Image> Image::create(const std::shared_ptr<mtl::Buffer>& buffer, std::size_t byteOffset,
                                     const ImageDescriptor& descriptor, const ImageStrides& strides) {
  if (!buffer) throw Error("Image", "buffer", "null", "a buffer");
  ImageDescriptor whole = detail::resolvedDescriptor("Image", descriptor);
  if (buffer->storageMode() == mtl::StorageMode::Private) whole.setStorageMode(mtl::StorageMode::Private);
  TensorShape shape = denseShape(whole);
  const std::size_t size = bytesPerChannel(whole.channelFormat());
  const auto stride = [&](std::size_t given, std::int64_t extent, std::int64_t packed) {
    if (given == 0 || extent == 1) return packed;
    if (given > buffer->length() / size)
      throw Error("Image", "strides", std::to_string(given) + " elements",
                  "at most the buffer's " + std::to_string(buffer->length() / size));
    return static_cast<std::int64_t>(given);
  };
  const auto packed = [](std::int64_t count, std::int64_t step) {
    const std::size_t length = product(static_cast<std::size_t>(count), static_cast<std::size_t>(step));
    return static_cast<std::int64_t>(std::min(length, largestSize / 2));
  };
  shape.pixelStride = stride(strides.pixel, shape.width, shape.channels);
  shape.rowStride = stride(strides.row, shape.height, packed(shape.width, shape.pixelStride));
  shape.imageStride = stride(strides.image, shape.images, packed(shape.height, shape.rowStride));
  if (byteOffset % size != 0)
    throw Error("Image", "byteOffset", std::to_string(byteOffset), "a multiple of " + std::to_string(size));
  const auto extent = [](std::size_t count, std::int64_t step) {
    return product(count - 1, static_cast<std::size_t>(step));
  };
  const std::size_t elements =
      sum({extent(whole.numberOfImages(), shape.imageStride), extent(whole.height(), shape.rowStride),
           extent(whole.width(), shape.pixelStride), whole.featureChannels()});
  const std::size_t needed = sum({byteOffset, product(elements, size)});
  if (needed > buffer->length())
    throw Error("Image", "buffer", std::to_string(buffer->length()) + " bytes",
                "at least " + std::to_string(needed) + " for " + whole.describe());
  if (!detail::elementsAreApart(shape))
    throw Error("Image", "strides",
                std::to_string(shape.pixelStride) + " for pixels, " + std::to_string(shape.rowStride) +
                    " for rows and " + std::to_string(shape.imageStride) + " for images",
                "strides that keep the elements apart: each at least what the smaller ones span, of " +
                    whole.describe());
  auto storage = std::make_shared<ImageStorage>(buffer->device(), buffer->memory(), byteOffset, shape);
  return std::shared_ptr<Image>(new Image(std::move(storage), shape, byteOffset, whole));
}

std::shared_ptr<Image> Image::create(const std::shared_ptr<Image>& parentImage, std::size_t firstSlice,
                                     std::size_t sliceCount, std::size_t featureChannels) {
  if (!parentImage) throw Error("Image", "parentImage", "null", "an image");
  const auto slicesOf = [](std::size_t channels) { return channels / 4 + (channels % 4 != 0 ? 1 : 0); };
  const std::size_t ofParent = slicesOf(parentImage->featureChannels());
  const std::size_t all = ofParent * parentImage->numberOfImages();
  const auto range = [&] { return std::to_string(firstSlice) + " + " + std::to_string(sliceCount); };
  if (sliceCount == 0 || firstSlice >= all || sliceCount > all - firstSlice)
    throw Error("Image", "sliceRange", range(),
                "within the " + std::to_string(all) + " slices of the parent");
  const std::size_t ofImage = slicesOf(featureChannels);
  if (ofImage == 0 || sliceCount % ofImage != 0)
    throw Error("Image", "featureChannels", std::to_string(featureChannels),
                "a number whose slices divide " + std::to_string(sliceCount));
  const std::size_t firstImage = firstSlice / ofParent;
  const std::size_t firstChannel = firstSlice % ofParent * 4;
  const std::size_t images = sliceCount / ofImage;
  const bool isOneImage = images == 1 && firstChannel + featureChannels <= parentImage->featureChannels();
  const bool areWhole =
      firstChannel == 0 && ofImage == ofParent && featureChannels <= parentImage->featureChannels();
  if (!isOneImage && !areWhole)
    throw Error("Image", "sliceRange",
                range() + " for " + std::to_string(images) + " images of " + std::to_string(featureChannels) +
                    " feature channels",
                "some channels of one image, or whole images, of " + parentImage->describe());
  TensorShape shape = parentImage->shape();
  shape.images = static_cast<std::int64_t>(images);
  shape.channels = static_cast<std::int64_t>(featureChannels);
  const std::size_t elements = firstImage * static_cast<std::size_t>(shape.imageStride) + firstChannel;
  return parentImage->makeView(
      shape, parentImage->byteOffset() + elements * bytesPerChannel(parentImage->featureChannelFormat()));
}

std::shared_ptr<ImageAllocator> Image::defaultAllocator() {
  static const auto allocator = std::make_shared<DefaultImageAllocator>();
  return allocator;
}

const std::shared_ptr<mtl::Device>& Image::device() const {
  return storage_->device();
}
std::size_t Image::width() const {
  return descriptor_.width();
}
std::size_t Image::height() const {
  return descriptor_.height();
}
std::size_t Image::featureChannels() const {
  return descriptor_.featureChannels();
}
std::size_t Image::numberOfImages() const {
  return descriptor_.numberOfImages();
}
ImageFeatureChannelFormat Image::featureChannelFormat() const {
  return descriptor_.channelFormat();
}

std::size_t Image::precision() const {
  switch (featureChannelFormat()) {
    case ImageFeatureChannelFormat::Unorm8:
      return 8;
    case ImageFeatureChannelFormat::Unorm16:
      return 16;
    case ImageFeatureChannelFormat::Float16:
      return 11;
    case ImageFeatureChannelFormat::Float32:
      return 24;
    case ImageFeatureChannelFormat::None:
      return 0;
  }
  return 0;
}

TextureType Image::textureType() const {
  return featureChannels() <= 4 && numberOfImages() == 1 ? TextureType::Type2D : TextureType::Type2DArray;
}

std::size_t Image::pixelSize() const {
  const std::size_t lanes = featureChannels() > 2 ? 4 : featureChannels();
  return lanes * bytesPerChannel(featureChannelFormat());
}

std::size_t Image::resourceSize() const {
  return parent_ ? 0 : storage_->resourceSize();
}

PurgeableState Image::setPurgeableState(PurgeableState /*state*/) {
  return storage_->allocatedMemory() ? PurgeableState::NonVolatile : PurgeableState::AllocationDeferred;
}

void Image::setLabel(std::string label) {
  label_ = std::move(label);
  if (storage_->isTemporary()) storage_->setLabel(label_);
}

std::string Image::describe() const {
  return (label_.empty() ? std::string("image") : "image \"" + label_ + "\"") + " (" +
         descriptor_.describe() + ")";
}

std::shared_ptr<Image> Image::makeView(const TensorShape& shape, std::size_t byteOffset) {
  ImageDescriptor descriptor = descriptor_;
  descriptor.setFeatureChannels(static_cast<std::size_t>(shape.channels));
  descriptor.setNumberOfImages(static_cast<std::size_t>(shape.images));
  auto view = std::shared_ptr<Image>(new Image(storage_, shape, byteOffset, descriptor));
  view->parent_ = shared_from_this();
  return view;
}

ImageBatch Image::batchRepresentation() {
  return batchRepresentation(0, numberOfImages());
}

ImageBatch Image::batchRepresentation(std::size_t first, std::size_t count) {
  if (first > numberOfImages() || count > numberOfImages() - first)
    throw Error("Image", "subRange", std::to_string(first) + " + " + std::to_string(count),
                "within the " + std::to_string(numberOfImages()) + " stacked images");
  std::vector<std::shared_ptr<Image>> images;
  images.reserve(count);
  TensorShape shape = *shape_;
  shape.images = 1;
  const auto step = static_cast<std::size_t>(shape.imageStride) * bytesPerChannel(featureChannelFormat());
  for (std::size_t i = first; i < first + count; ++i)
    images.push_back(makeView(shape, byteOffset_ + i * step));
  return ImageBatch(std::move(images));
}

std::shared_ptr<Image> Image::subImageWithFeatureChannelRange(std::size_t location, std::size_t length) {
  const std::size_t channels = featureChannels();
  const std::size_t available = location < channels ? channels - location : 0;
  const std::size_t used = std::min(length, available);
  if (location % 4 != 0 || used == 0 || (used % 4 != 0 && used != available))
    throw Error("Image", "featureChannelRange", std::to_string(location) + " + " + std::to_string(length),
                "multiples of 4 that begin within the " + std::to_string(channels) + " channels");
  TensorShape shape = *shape_;
  shape.channels = static_cast<std::int64_t>(used);
  return makeView(shape, byteOffset_ + location * bytesPerChannel(featureChannelFormat()));
}

TextureView Image::texture() {
  return TextureView(shared_from_this());
}

void Image::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error("Image", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  commandBuffer->checkDevice("Image", device());
  if (isTemporary() || descriptor_.storageMode() == mtl::StorageMode::Private || !storage_->allocatedMemory())
    return;
  storage_->memory()->synchronize(*commandBuffer);
}

void Image::checkElementSize(std::size_t size) const {
  detail::checkElementSize("Image", featureChannelFormat(), size);
}

/// A checked copy between an image and the user's memory, with all strides in bytes.
struct Image::Transfer {
  std::size_t images, height, width, channels, bytesPerChannel;
  std::size_t imageOffset;                       ///< of the first element, from the storage's start
  std::size_t imageImage, imageRow, imagePixel;  ///< strides of the image
  std::size_t userImage, userRow, userColumn, userChannel;  ///< strides of the user's memory

  /// @throws Error unless all elements have places of their own in the user's memory: what is read must not be written
  /// over what was read before
  void checkApart(bool planes) const;
  /// The bytes of the image's side.
  [[nodiscard]] mtl::ByteRegion regionOfImage() const {
    return mtl::ByteRegion(imageOffset, channels * bytesPerChannel)
        .repeated(width, imagePixel)
        .repeated(height, imageRow)
        .repeated(images, imageImage);
  }
  /// Calls copy(offset in the image, offset in the user's memory, bytes) for runs adjacent on both sides.
  template <class Copy>
  void run(Copy&& copy) const {
    const bool adjacent = userChannel == bytesPerChannel;
    for (std::size_t n = 0; n < images; ++n) {
      for (std::size_t y = 0; y < height; ++y) {
        const std::size_t imageAt = imageOffset + n * imageImage + y * imageRow;
        const std::size_t userAt = n * userImage + y * userRow;
        if (adjacent && userColumn == imagePixel && userColumn == channels * bytesPerChannel) {
          copy(imageAt, userAt, width * channels * bytesPerChannel);
          continue;
        }
        for (std::size_t x = 0; x < width; ++x) {
          if (adjacent) {
            copy(imageAt + x * imagePixel, userAt + x * userColumn, channels * bytesPerChannel);
            continue;
          }
          for (std::size_t c = 0; c < channels; ++c)
            copy(imageAt + x * imagePixel + c * bytesPerChannel, userAt + x * userColumn + c * userChannel,
                 bytesPerChannel);
        }
      }
    }
  }
};

void Image::checkHostAccess(const char* method) const {
  if (isTemporary())
    throw Error(
        "Image", method, "called on a temporary " + describe(),
        "a permanent image: of a kernel by setDestinationImageAllocator(Image::defaultAllocator()), of a "
        "graph by setExportFromGraph(true), setSynchronizeResource(true) and "
        "setImageAllocator(Image::defaultAllocator()) on the image node");
  if (descriptor_.storageMode() == mtl::StorageMode::Private)
    throw Error("Image", method, "called on a private " + describe(), "storage that the host can see");
}

void Image::Transfer::checkApart(bool planes) const {
  const auto check = [](const char* argument, std::size_t stride, std::size_t smaller, std::size_t count) {
    if (count > 1 && stride < smaller)
      throw Error(
          "Image", argument, std::to_string(stride),
          "at least " + std::to_string(smaller) + ", or 0, so that nothing is read over something else");
  };
  const std::size_t pixel = planes ? bytesPerChannel : channels * bytesPerChannel;
  const std::size_t row = sum({product(width - 1, userColumn), pixel});
  const std::size_t image =
      sum({product(planes ? channels - 1 : 0, userChannel), product(height - 1, userRow), row});
  check("bytesPerColumn", userColumn, pixel, width);
  check("bytesPerRow", userRow, row, height);
  check("bytesPerImage", userImage, image, images);
}

Image::Transfer Image::transfer(std::size_t available, DataLayout layout, const DataStrides& strides,
                                const mtl::Region& region, const ImageReadWriteParams& window,
                                std::size_t imageIndex) const {
  const std::size_t depth = region.size.depth == 0 ? 1 : region.size.depth;
  const auto inside = [](std::size_t origin, std::size_t size, std::size_t limit) {
    return size > 0 && origin < limit && size <= limit - origin;
  };
  const auto regionText = [](std::size_t origin, std::size_t size) {
    return std::to_string(origin) + " + " + std::to_string(size);
  };
  if (!inside(region.origin.x, region.size.width, width()) ||
      !inside(region.origin.y, region.size.height, height()))
    throw Error("Image", "region",
                "x " + regionText(region.origin.x, region.size.width) + ", y " +
                    regionText(region.origin.y, region.size.height),
                "within " + describe());
  const std::size_t first = imageIndex + region.origin.z;
  if (first < imageIndex || !inside(first, depth, numberOfImages()))
    throw Error("Image", "imageIndex", regionText(first, depth), "within " + describe());
  const std::size_t c0 = window.featureChannelOffset;
  const std::size_t count = window.numberOfFeatureChannelsToReadWrite;
  if (c0 % 4 != 0 || !inside(c0, count, featureChannels()) ||
      (c0 != 0 && count % 4 != 0 && c0 + count != featureChannels()))
    throw Error("Image", "featureChannelInfo", regionText(c0, count),
                "an offset that is a multiple of 4 and channels within " + describe());

  Transfer t{};
  t.images = depth;
  t.height = region.size.height;
  t.width = region.size.width;
  t.channels = count;
  t.bytesPerChannel = bytesPerChannel(featureChannelFormat());
  t.imageImage = static_cast<std::size_t>(shape_->imageStride) * t.bytesPerChannel;
  t.imageRow = static_cast<std::size_t>(shape_->rowStride) * t.bytesPerChannel;
  t.imagePixel = static_cast<std::size_t>(shape_->pixelStride) * t.bytesPerChannel;
  t.imageOffset = byteOffset_ + first * t.imageImage + region.origin.y * t.imageRow +
                  region.origin.x * t.imagePixel + c0 * t.bytesPerChannel;
  const bool planes = layout == DataLayout::FeatureChannelsxHeightxWidth;
  const auto orPacked = [](std::size_t given, std::size_t packed) { return given == 0 ? packed : given; };
  t.userColumn = orPacked(strides.bytesPerColumn, planes ? t.bytesPerChannel : count * t.bytesPerChannel);
  t.userRow = orPacked(strides.bytesPerRow, product(t.width, t.userColumn));
  t.userChannel = planes ? product(t.height, t.userRow) : t.bytesPerChannel;
  t.userImage = orPacked(strides.bytesPerImage, product((planes ? count : 1) * t.height, t.userRow));
  const std::size_t needed =
      sum({product(t.images - 1, t.userImage), product(t.height - 1, t.userRow),
           product(t.width - 1, t.userColumn), product(count - 1, t.userChannel), t.bytesPerChannel});
  if (available < needed)
    throw Error("Image", "bytes", std::to_string(available) + " bytes", "at least " + std::to_string(needed));
  return t;
}

void Image::readBytes(std::span<std::byte> destination, DataLayout layout, const DataStrides& strides,
                      const mtl::Region& region, const ImageReadWriteParams& channels,
                      std::size_t imageIndex) const {
  checkHostAccess("readBytes");
  const Transfer t = transfer(destination.size(), layout, strides, region, channels, imageIndex);
  t.checkApart(layout == DataLayout::FeatureChannelsxHeightxWidth);
  const auto memory = storage_->memoryForReading();
  if (const auto failure = memory->failure(t.regionOfImage()); !failure.empty())
    throw Error(describe() + " is invalid: " + failure);
  const std::byte* from = memory->contents();
  t.run([&](std::size_t image, std::size_t user, std::size_t bytes) {
    std::memcpy(destination.data() + user, from + image, bytes);
  });
}

void Image::writeBytes(std::span<const std::byte> source, DataLayout layout, const DataStrides& strides,
                       const mtl::Region& region, const ImageReadWriteParams& channels,
                       std::size_t imageIndex) {
  checkHostAccess("writeBytes");
  const Transfer t = transfer(source.size(), layout, strides, region, channels, imageIndex);
  const auto bytes =
      static_cast<std::int64_t>(t.images * t.height * t.width * t.channels * t.bytesPerChannel);
  const bool whole = bytes == storage_->shape().bytes();
  const auto memory = storage_->memoryForWriting(whole);
  std::byte* to = memory->contents();
  t.run([&](std::size_t image, std::size_t user, std::size_t size) {
    std::memcpy(to + image, source.data() + user, size);
  });
  memory->clearFailure(t.regionOfImage());
  const std::size_t end = t.imageOffset + (t.images - 1) * t.imageImage + (t.height - 1) * t.imageRow +
                          (t.width - 1) * t.imagePixel + t.channels * t.bytesPerChannel;
  memory->didModifyRange(t.imageOffset, end - t.imageOffset);
}

void Image::readBytes(std::span<std::byte> destination, DataLayout layout, std::size_t imageIndex) const {
  readBytes(destination, layout, {}, {{0, 0, 0}, {width(), height(), 1}}, {0, featureChannels()}, imageIndex);
}

void Image::writeBytes(std::span<const std::byte> source, DataLayout layout, std::size_t imageIndex) {
  writeBytes(source, layout, {}, {{0, 0, 0}, {width(), height(), 1}}, {0, featureChannels()}, imageIndex);
}

TemporaryImage::TemporaryImage(std::shared_ptr<ImageStorage> storage, const TensorShape& shape,
                               std::size_t byteOffset, ImageDescriptor descriptor, std::size_t countIndex)
    : Image(std::move(storage), shape, byteOffset, descriptor), countIndex_(countIndex) {}

TemporaryImage::~TemporaryImage() {
  if (parent_ && viewReadCount_ > 0) static_cast<TemporaryImage&>(*parent_).releaseRead();
}

void TemporaryImage::releaseRead() noexcept {
  if (!parent_)
    storage()->releaseRead(countIndex_);
  else if (viewReadCount_ > 0 && --viewReadCount_ == 0)
    static_cast<TemporaryImage&>(*parent_).releaseRead();
}

std::shared_ptr<TemporaryImage> TemporaryImage::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageDescriptor& descriptor) {
  if (!commandBuffer) throw Error("TemporaryImage", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  ImageDescriptor whole = detail::resolvedDescriptor("TemporaryImage", descriptor);
  whole.setStorageMode(mtl::StorageMode::Private);
  const TensorShape shape = denseShape(whole);
  auto storage = std::make_shared<ImageStorage>(*commandBuffer, shape, 1);
  return std::shared_ptr<TemporaryImage>(new TemporaryImage(std::move(storage), shape, 0, whole, 0));
}

std::shared_ptr<ImageAllocator> TemporaryImage::defaultAllocator() {
  static const auto allocator = std::make_shared<TemporaryImageAllocator>();
  return allocator;
}

void TemporaryImage::prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                     std::span<const ImageDescriptor> /*descriptors*/) {}

std::size_t TemporaryImage::readCount() const {
  return parent_ ? viewReadCount_ : storage()->readCount(countIndex_);
}

void TemporaryImage::setReadCount(std::size_t readCount) {
  if (!parent_) {
    storage()->setReadCount(countIndex_, readCount);
    return;
  }
  if (viewReadCount_ == 0) throw Error("temporary image: readCount is set after it reached 0");
  viewReadCount_ = readCount;
  if (readCount == 0) static_cast<TemporaryImage&>(*parent_).releaseRead();
}

std::shared_ptr<Image> TemporaryImage::makeView(const TensorShape& shape, std::size_t byteOffset) {
  ImageDescriptor descriptor = this->descriptor();
  descriptor.setFeatureChannels(static_cast<std::size_t>(shape.channels));
  descriptor.setNumberOfImages(static_cast<std::size_t>(shape.images));
  setReadCount(readCount() + 1);  // the view holds one read of its parent
  auto view = std::shared_ptr<TemporaryImage>(
      new TemporaryImage(storage(), shape, byteOffset, descriptor, countIndex_));
  view->parent_ = shared_from_this();
  view->viewReadCount_ = 1;
  return view;
}

}  // namespace mps
