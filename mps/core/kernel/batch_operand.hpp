#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/image_storage.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/types/tensor_shape.hpp"

/// What a kernel's call sees of images. The library's own.
namespace mps::detail {

/// Bytes of an element.
inline std::int64_t elementSize(const TensorShape& shape) {
  return static_cast<std::int64_t>(bytesPerChannel(shape.format));
}

/// The images of one argument, seen as one tensor. Loose images that are not evenly spaced are gathered
/// before the kernel runs (and scattered after it, when it writes them).
class BatchOperand {
 public:
  BatchOperand() = default;
  /// @param isWritten images that appear several times, or that share elements, are then written through copies, the
  ///                  last one wins
  explicit BatchOperand(const ImageBatch& batch, bool isWritten = false);
  /// A stand-in of a size without memory, for planning and for inputs of which only the size counts.
  static BatchOperand sizeOnly(const TensorShape& shape);
  /// Memory that is no image, such as class indices or a matrix.
  /// @param isPermanent not of the command buffer's heap: the command keeps it alive
  static BatchOperand ofMemory(const TensorShape& shape, std::shared_ptr<mtl::Memory> memory,
                               std::size_t byteOffset, bool isPermanent = true);
  /// Scratch memory of the command buffer's heap, kept alive by this object.
  static BatchOperand ofScratch(const TensorShape& shape, std::shared_ptr<mtl::Memory> memory);

  /// What the kernel sees. Dense for loose images.
  [[nodiscard]] TensorShape shape() const;
  [[nodiscard]] const ImageBatch& batch() const { return batch_; }
  [[nodiscard]] bool isLoose() const { return loose_; }
  /// Whether this is one Image that may hold several images: the z fields of offsets and clip rectangles
  /// count them.
  [[nodiscard]] bool isStack() const;

  /// Narrow the view; all arguments lie inside it.
  void selectChannels(std::int64_t first, std::int64_t count);
  void selectRegion(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height);
  void selectImages(std::int64_t first, std::int64_t count);

  /// Takes the memory (allocating it if need be), for a command that is about to be recorded. Only for operands that are
  /// not loose.
  [[nodiscard]] TensorView view(mtl::CommandBuffer& commandBuffer, bool forWriting) const;
  /// The same for each loose image.
  [[nodiscard]] std::vector<TensorView> looseViews(mtl::CommandBuffer& commandBuffer, bool forWriting) const;
  /// Of memory that is no image.
  [[nodiscard]] TensorView memoryView() const { return {shape_, scratch_, byteOffset(), memoryIsPermanent_}; }
  /// Identity of the memory, for saved fields. Null for loose images.
  [[nodiscard]] std::shared_ptr<ImageStorage> storage() const { return storage_; }
  [[nodiscard]] std::size_t byteOffset() const;
  /// The element of the batch that the view begins at.
  struct Position {
    std::int64_t image, y, x, channel;
  };
  /// How many images of a batch lie before those that this was made of; 0 where they are no range of its block.
  [[nodiscard]] std::size_t firstImageIn(const ImageBatch& whole) const;
  [[nodiscard]] Position first() const { return {firstImage_, firstY_, firstX_, firstChannel_}; }

 private:
  ImageBatch batch_;
  bool loose_ = false;
  TensorShape shape_;  ///< strides of one image when loose
  std::shared_ptr<ImageStorage> storage_;
  std::shared_ptr<mtl::Memory> scratch_;  ///< memory that is no image
  bool memoryIsPermanent_ = false;
  std::size_t baseByteOffset_ = 0;
  std::int64_t firstImage_ = 0;
  std::int64_t firstX_ = 0;
  std::int64_t firstY_ = 0;
  std::int64_t firstChannel_ = 0;
};

/// The place of an operand for a record; empty for loose images.
[[nodiscard]] ForwardRecord::Place placeOf(const BatchOperand& operand);

/// Where a source takes part with its images from `first` on; `property` names `first` in messages.
struct SourceImages {
  BatchOperand* operand = nullptr;
  std::int64_t first = 0;
  const char* property = "";
};

/// Selects the images of a call: from SourceImages::first on in each source, from
/// clip.origin.z on in the destination; sets clip.size.depth to their number. In a batch each image stands
/// for itself, so the z fields must be those of a single image. @throws Error when the stacks are too short.
void selectImages(const Kernel& kernel, std::span<const SourceImages> sources, BatchOperand& destination,
                  mtl::Region& clip);

}  // namespace mps::detail
