#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/types/element_range.hpp"
#include "mps/core/types/types.hpp"
#include "mtl/types.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
}  // namespace mtl

namespace mps {

class ImageAllocator;
class ImageBatch;
class TextureView;
namespace detail {
class ImageStorage;
struct TensorShape;
struct TensorView;
}  // namespace detail

/// Distances between elements of the user's memory, in bytes; 0 means tightly packed.
struct DataStrides {
  std::size_t bytesPerColumn = 0;  ///< from x to x + 1, in both layouts
  std::size_t bytesPerRow = 0;     ///< from y to y + 1
  std::size_t bytesPerImage = 0;   ///< from one image to the next
};

/// Distances between elements of memory that an image is laid over, in elements; channels are adjacent.
struct ImageStrides {
  std::size_t pixel = 0;
  std::size_t row = 0;
  std::size_t image = 0;
};

/// Whether memory may be taken away (MPSPurgeableState).
enum class PurgeableState : std::uint64_t {
  AllocationDeferred = 0,  ///< there is no memory yet
  KeepCurrent = 1,
  NonVolatile = 2,
  Volatile = 3,
  Empty = 4
};

/// A picture or activation of width x height pixels with any number of feature channels; optionally several
/// of them stacked (MPSImage).
///
/// Values are stored [image][y][x][channel] without gaps. Memory is taken at first use; an image that was never written
/// (or only by what did not run) reads as zeros. All properties but the label are fixed. Reading properties is thread safe.
///
///     auto image = mps::Image::create(device, {mps::ImageFeatureChannelFormat::Float32, 28, 28, 1});
///     image->writeBytes(std::span<const float>(pixels), mps::DataLayout::HeightxWidthxFeatureChannels);
class Image : public std::enable_shared_from_this<Image> {
 public:
  virtual ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  /// A permanent image. @throws Error when a size of the descriptor is 0, or the image larger than the device's memory.
  static std::shared_ptr<Image> create(const std::shared_ptr<mtl::Device>& device,
                                       const ImageDescriptor& descriptor);

  /// An image over memory that a buffer holds already, for instance a NumPy array; nothing is copied and both
  /// see each other's writes. @param byteOffset of the first element, a multiple of the element size
  /// @param strides 0 means dense; in any order, but each at least what the smaller ones span, so that no elements share
  /// memory. Private where the buffer is. @throws Error for other strides, and when an element would lie outside it.
  static std::shared_ptr<Image> create(const std::shared_ptr<mtl::Buffer>& buffer, std::size_t byteOffset,
                                       const ImageDescriptor& descriptor, const ImageStrides& strides = {});

  /// A view of slices [firstSlice, firstSlice + sliceCount) of Metal's texture of an image, which has ceil(C / 4) slices
  /// of 4 channels for each of its images. The view has sliceCount / ceil(featureChannels / 4) images. A channel range
  /// (subImageWithFeatureChannelRange) and batchRepresentation say the same more simply.
  ///
  /// Values lie by pixels, not by slices. So the slices must be some channels of one image, or the first
  /// featureChannels of several.
  /// @throws Error for other slices, and for those that the parent lacks or that make no whole number of images
  static std::shared_ptr<Image> create(const std::shared_ptr<Image>& parentImage, std::size_t firstSlice,
                                       std::size_t sliceCount, std::size_t featureChannels);

  /// Makes permanent images.
  static std::shared_ptr<ImageAllocator> defaultAllocator();

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const;
  [[nodiscard]] std::size_t width() const;
  [[nodiscard]] std::size_t height() const;
  [[nodiscard]] std::size_t featureChannels() const;
  [[nodiscard]] std::size_t numberOfImages() const;
  [[nodiscard]] ImageFeatureChannelFormat featureChannelFormat() const;
  [[nodiscard]] PixelFormat pixelFormat() const { return descriptor_.pixelFormat(); }
  /// Type2D for one image of up to four channels, else Type2DArray.
  [[nodiscard]] TextureType textureType() const;
  [[nodiscard]] TextureUsage usage() const { return descriptor_.usage(); }
  /// Size and format as a descriptor.
  [[nodiscard]] const ImageDescriptor& descriptor() const { return descriptor_; }
  /// Significant bits of a channel: float32 24, float16 11, unorm8 8, unorm16 16.
  [[nodiscard]] std::size_t precision() const;
  /// Bytes of one texel of Apple's storage: up to 4 channels, 3 count as 4.
  [[nodiscard]] std::size_t pixelSize() const;
  /// Bytes of backing storage; does not allocate; 0 for views and for memory of others.
  [[nodiscard]] std::size_t resourceSize() const;
  /// A hint without effect: memory is never taken away. Returns the state that it was in: NonVolatile, or
  /// AllocationDeferred before memory is taken.
  PurgeableState setPurgeableState(PurgeableState state);
  [[nodiscard]] const std::string& label() const { return label_; }
  void setLabel(std::string label);
  /// The image that this one is a view of, or null.
  [[nodiscard]] const std::shared_ptr<Image>& parent() const { return parent_; }
  [[nodiscard]] virtual bool isTemporary() const { return false; }

  /// One image per stacked image, sharing storage.
  [[nodiscard]] ImageBatch batchRepresentation();
  /// The same for images [first, first + count). @throws Error when the range leaves the stack.
  [[nodiscard]] ImageBatch batchRepresentation(std::size_t first, std::size_t count);
  /// A view of channels [location, location + length); too long a length is cut to fit.
  /// @throws Error when location is not a multiple of 4 or not below featureChannels, or when length is 0 or
  /// neither a multiple of 4 nor up to the last channel.
  [[nodiscard]] std::shared_ptr<Image> subImageWithFeatureChannelRange(std::size_t location,
                                                                       std::size_t length);

  /// Copies elements out of the image, in its own format, without conversion. Does not wait for the device:
  /// synchronize(), commit and wait first.
  /// @param destination at least the bytes of the last element touched
  /// @param strides     of `destination`, in bytes
  /// @param region      in pixels; origin.z and size.depth count images from imageIndex on (depth 0 means 1)
  /// @param channels    window of feature channels
  /// @throws Error for a region or channel window outside the image, a short span, strides with which elements would lie
  /// on one another, temporary or private storage, and elements that a failed command should have written
  void readBytes(std::span<std::byte> destination, DataLayout layout, const DataStrides& strides,
                 const mtl::Region& region, const ImageReadWriteParams& channels,
                 std::size_t imageIndex = 0) const;
  /// The whole of one stacked image, tightly packed, all channels.
  void readBytes(std::span<std::byte> destination, DataLayout layout, std::size_t imageIndex = 0) const;
  /// Copies elements into the image; the mirror of readBytes. The caller's memory is free afterwards. What is written is
  /// valid again after a failed command; other elements are not, nor are other images over the same buffer.
  void writeBytes(std::span<const std::byte> source, DataLayout layout, const DataStrides& strides,
                  const mtl::Region& region, const ImageReadWriteParams& channels,
                  std::size_t imageIndex = 0);
  void writeBytes(std::span<const std::byte> source, DataLayout layout, std::size_t imageIndex = 0);

  /// @name The same with elements instead of bytes: a vector, an array or a span of floats, say
  /// A vector must have its size before it is read into. @throws Error when an element has not the size of a channel.
  /// @{
  template <detail::WritableElementRange Elements>
  void readBytes(Elements&& destination, DataLayout layout, const DataStrides& strides,
                 const mtl::Region& region, const ImageReadWriteParams& channels,
                 std::size_t imageIndex = 0) const {
    readBytes(writableBytesOf(destination), layout, strides, region, channels, imageIndex);
  }
  template <detail::WritableElementRange Elements>
  void readBytes(Elements&& destination, DataLayout layout, std::size_t imageIndex = 0) const {
    readBytes(writableBytesOf(destination), layout, imageIndex);
  }
  template <detail::ElementRange Elements>
  void writeBytes(const Elements& source, DataLayout layout, const DataStrides& strides,
                  const mtl::Region& region, const ImageReadWriteParams& channels,
                  std::size_t imageIndex = 0) {
    writeBytes(bytesOf(source), layout, strides, region, channels, imageIndex);
  }
  template <detail::ElementRange Elements>
  void writeBytes(const Elements& source, DataLayout layout, std::size_t imageIndex = 0) {
    writeBytes(bytesOf(source), layout, imageIndex);
  }
  /// @}

  /// Metal's texture of this image: slices of four channels.
  [[nodiscard]] TextureView texture();

  /// Records the copy that makes device results visible to readBytes. Nothing to do for private, temporary or
  /// unallocated images. @throws Error after commit, and for a command buffer of another device.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
  /// "image \"label\" (float32 28x28x1)".
  [[nodiscard]] std::string describe() const;

  /// @name The library's own
  /// @{
  [[nodiscard]] const std::shared_ptr<detail::ImageStorage>& storage() const { return storage_; }
  [[nodiscard]] const detail::TensorShape& shape() const { return *shape_; }
  /// Offset of the first element from the start of the storage's memory, in bytes.
  [[nodiscard]] std::size_t byteOffset() const { return byteOffset_; }
  /// @}

 protected:
  friend class ImageBatch;
  Image(std::shared_ptr<detail::ImageStorage> storage, const detail::TensorShape& shape,
        std::size_t byteOffset, ImageDescriptor descriptor);
  /// A view of the kind of this image: temporary views of temporary images.
  virtual std::shared_ptr<Image> makeView(const detail::TensorShape& shape, std::size_t byteOffset);

  std::shared_ptr<Image> parent_;

 private:
  struct Transfer;
  void checkElementSize(std::size_t size) const;
  template <class Elements>
  std::span<const std::byte> bytesOf(const Elements& elements) const {
    checkElementSize(sizeof(std::ranges::range_value_t<Elements>));
    return std::as_bytes(std::span(elements));
  }
  template <class Elements>
  std::span<std::byte> writableBytesOf(Elements& elements) const {
    checkElementSize(sizeof(std::ranges::range_value_t<Elements>));
    return std::as_writable_bytes(std::span(elements));
  }
  Transfer transfer(std::size_t available, DataLayout layout, const DataStrides& strides,
                    const mtl::Region& region, const ImageReadWriteParams& channels,
                    std::size_t imageIndex) const;
  void checkHostAccess(const char* method) const;

  std::shared_ptr<detail::ImageStorage> storage_;
  std::unique_ptr<detail::TensorShape> shape_;
  std::size_t byteOffset_;
  ImageDescriptor descriptor_;
  std::string label_;
};

/// Scratch image of one command buffer; its memory serves the next one as soon as readCount is 0
/// (MPSTemporaryImage).
///
/// Each encode call that reads it takes 1 off readCount, at encode time. Its content starts undefined, and
/// the host cannot read or write it. It is accepted wherever an Image is, on its own command buffer.
class TemporaryImage : public Image {
 public:
  ~TemporaryImage() override;

  /// @throws Error as Image::create does, and when the command buffer was committed.
  static std::shared_ptr<TemporaryImage> create(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                const ImageDescriptor& descriptor);
  /// Makes temporary images.
  static std::shared_ptr<ImageAllocator> defaultAllocator();
  /// A hint that these images will be needed; nothing is done, the heap keeps its memory anyway.
  static void prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              std::span<const ImageDescriptor> descriptors);

  /// Reads that are still to come; starts at 1.
  [[nodiscard]] std::size_t readCount() const;
  /// 0 frees the memory now. @throws Error when it was 0 already.
  void setReadCount(std::size_t readCount);
  [[nodiscard]] bool isTemporary() const override { return true; }

 protected:
  friend class ImageBatch;
  TemporaryImage(std::shared_ptr<detail::ImageStorage> storage, const detail::TensorShape& shape,
                 std::size_t byteOffset, ImageDescriptor descriptor, std::size_t countIndex);
  std::shared_ptr<Image> makeView(const detail::TensorShape& shape, std::size_t byteOffset) override;

 private:
  void releaseRead() noexcept;

  std::size_t countIndex_;
  std::size_t viewReadCount_ = 0;  ///< of a view; it holds one read of its parent while this is positive
};

}  // namespace mps
