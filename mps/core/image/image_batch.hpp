#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/image/image.hpp"
#include "mps/core/types/batch_iterator.hpp"
#include "mps/core/types/element_range.hpp"

namespace mps {

/// Images of one size and format that are processed together (MPSImageBatch).
///
/// A batch that the library makes is one block of memory; its Image objects come into being when somebody
/// asks for one. A batch put together from loose images works too and costs a copy where the images are not
/// evenly spaced in memory. The same image may appear several times, and images may share memory: each is read and
/// written as if they were processed one after the other, so that of destinations the last one stays. A small value:
/// copies share images.
class ImageBatch {
 public:
  ImageBatch() = default;
  /// No images, where a batch may be absent.
  ImageBatch(std::nullptr_t) {}  // NOLINT
  /// Loose images; each has numberOfImages 1 and all have the same size, channels and format (checked when
  /// encoded).
  ImageBatch(std::vector<std::shared_ptr<Image>> images);            // NOLINT: a list is a batch
  ImageBatch(std::initializer_list<std::shared_ptr<Image>> images);  // NOLINT
  template <std::derived_from<Image> Derived>
  requires(!std::same_as<Derived, Image>)
      ImageBatch(const std::vector<std::shared_ptr<Derived>>& images)  // NOLINT
      : ImageBatch(std::vector<std::shared_ptr<Image>>(images.begin(), images.end())) {}
  /// A permanent batch in one block. @throws Error when a size of the descriptor is 0 or numberOfImages is
  /// not 1.
  static ImageBatch create(const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& descriptor,
                           std::size_t count);
  /// A temporary batch in one block of the command buffer's heap.
  static ImageBatch createTemporary(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const ImageDescriptor& descriptor, std::size_t count);

  [[nodiscard]] std::size_t count() const { return count_; }
  /// count() under the name that C++ gives it.
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  /// Image number `index`; the same object each time. @throws Error when index >= count().
  [[nodiscard]] std::shared_ptr<Image> operator[](std::size_t index) const { return element(index); }
  /// For `for (const auto& image : batch)`: all images, in order.
  using Iterator = detail::BatchIterator<ImageBatch, Image>;
  [[nodiscard]] Iterator begin() const { return {*this, 0}; }
  [[nodiscard]] Iterator end() const { return {*this, count_}; }
  /// Images [first, first + count) of the same memory. @throws Error when the range leaves the batch.
  [[nodiscard]] ImageBatch slice(std::size_t first, std::size_t count) const;

  /// All images in one copy, one after the other in `source`, tightly packed, in the images' own format.
  /// @throws Error when the span is shorter, the images are temporary, or loose ones differ in size or format.
  void writeBytes(std::span<const std::byte> source, DataLayout layout) const;
  void readBytes(std::span<std::byte> destination, DataLayout layout) const;
  /// The same with elements instead of bytes: a vector, an array or a span of floats, say. A vector must have its size
  /// before it is read into. @throws Error when an element has not the size of a channel.
  template <detail::ElementRange Elements>
  void writeBytes(const Elements& source, DataLayout layout) const {
    checkElementSize(sizeof(std::ranges::range_value_t<Elements>));
    writeBytes(std::as_bytes(std::span(source)), layout);
  }
  template <detail::WritableElementRange Elements>
  void readBytes(Elements&& destination, DataLayout layout) const {
    checkElementSize(sizeof(std::ranges::range_value_t<Elements>));
    readBytes(std::as_writable_bytes(std::span(destination)), layout);
  }
  [[nodiscard]] bool isTemporary() const;

  /// @name The library's own
  /// @{
  /// Size and format of each image. Needs a batch with images, or an empty slice of one.
  [[nodiscard]] const ImageDescriptor& descriptor() const;
  /// The block, when this is a range of one; null for loose images.
  [[nodiscard]] std::shared_ptr<detail::ImageStorage> blockStorage() const;
  [[nodiscard]] std::size_t firstInBlock() const { return first_; }
  /// The loose images; empty for a range of a block.
  [[nodiscard]] std::span<const std::shared_ptr<Image>> looseImages() const;
  /// A batch over storage that exists, e.g. planned by a graph.
  static ImageBatch over(std::shared_ptr<detail::ImageStorage> storage, const ImageDescriptor& descriptor);
  /// A batch of one loose image.
  static ImageBatch of(const std::shared_ptr<Image>& image) { return ImageBatch{image}; }
  /// @}

 private:
  friend Iterator;
  /// Where the batch keeps the image.
  [[nodiscard]] const std::shared_ptr<Image>& element(std::size_t index) const;
  /// Whether the elements are a whole block's, in the order of this layout.
  [[nodiscard]] bool isOneRun(DataLayout layout) const;
  void checkElementSize(std::size_t size) const;

  struct Block;
  std::shared_ptr<Block> block_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::shared_ptr<const std::vector<std::shared_ptr<Image>>> loose_;
};

/// Adds `amount`, which may be negative, to readCount once per distinct temporary image whose count is not 0;
/// a count never falls below 0. Returns the number of distinct images (MPSImageBatchIncrementReadCount).
std::size_t ImageBatchIncrementReadCount(const ImageBatch& batch,
                                         std::int64_t amount);  // NOLINT: Apple's name

/// Image::synchronize once per distinct image (MPSImageBatchSynchronize).
void ImageBatchSynchronize(const ImageBatch& batch,  // NOLINT: Apple's name
                           const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

/// Sum of resourceSize over distinct images (MPSImageBatchResourceSize); for a block, its share of the block.
std::size_t ImageBatchResourceSize(const ImageBatch& batch);  // NOLINT: Apple's name

/// Calls `function(image, index)` once per distinct image, index being its first position, and stops as soon
/// as the result is greater than INT64_MIN. Returns the last result; INT64_MIN for an empty batch
/// (MPSImageBatchIterate).
std::int64_t ImageBatchIterate(  // NOLINT: Apple's name
    const ImageBatch& batch,
    const std::function<std::int64_t(const std::shared_ptr<Image>&, std::size_t)>& function);

}  // namespace mps
