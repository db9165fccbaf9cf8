#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/plan/reference_tensor.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// How the images of a batch lie in memory. Kernels must not care.
enum class BatchForm {
  Block,         ///< one block, as the library makes it
  Slice,         ///< the middle of a larger block
  Loose,         ///< images of their own
  Reversed,      ///< a block, last image first
  ChannelRange,  ///< channels from 4 on of wider images
  StackedImage,  ///< one image with numberOfImages, for encode()
};
/// All forms that encodeBatch takes.
std::span<const BatchForm> batchForms();

/// A batch for a kernel under test, and the memory around it.
class TestImages {
 public:
  /// @param descriptor of one image; its numberOfImages is 1
  TestImages(const std::shared_ptr<mtl::Device>& device, BatchForm form, const ImageDescriptor& descriptor,
             std::size_t count);

  /// The images one by one; for StackedImage its batch representation.
  [[nodiscard]] const ImageBatch& batch() const;
  /// The only image: a batch of one, or the stack. @throws Error otherwise.
  [[nodiscard]] std::shared_ptr<Image> image() const;
  [[nodiscard]] ImageFeatureChannelFormat format() const { return descriptor_.channelFormat(); }
  /// Of the values that write and read take and give: dense.
  [[nodiscard]] TensorShape shape() const;

  /// Rounds the values (order image, y, x, channel) to the format. Everything around them is poisoned.
  void write(std::span<const double> values);
  /// Poisons the images for use as a destination, everything around them with another pattern.
  void poison();
  /// What is stored now; waits for the device.
  [[nodiscard]] std::vector<double> read() const;
  /// What the last write() stored, as the input of a reference; a kernel that changes its source cannot hide.
  [[nodiscard]] ReferenceTensor reference() const;
  /// Whether the batch is as the last write() or poison() left it: sources are only read.
  [[nodiscard]] bool isUnchanged() const;
  /// Whether neighbouring images and channels are as the last write() or poison() left them.
  [[nodiscard]] bool surroundingsIntact() const;

 private:
  static std::size_t storedBytes(const ImageBatch& batch);
  std::vector<bool> markElements();
  void store(void (*fillSurroundings)(std::span<std::byte>), std::vector<std::byte> elements);
  [[nodiscard]] std::vector<std::byte> readStored(const ImageBatch& batch) const;

  ImageDescriptor descriptor_;
  std::size_t count_ = 0;
  ImageBatch batch_;
  ImageBatch whole_;  ///< all memory that the batch is a part of
  std::shared_ptr<Image> single_;
  std::vector<bool> belongs_;            ///< for each stored byte of whole_: is it an element of the batch
  std::vector<std::byte> written_;       ///< bytes of the batch
  std::vector<std::byte> surroundings_;  ///< bytes of whole_, where the batch's do not count
};

}  // namespace mps::detail
