#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/types/array_ref.hpp"
#include "mps/core/types/types.hpp"

namespace mps::detail {

/// One encode of a graph, as any kernel over images takes it.
struct GraphStep {
  std::span<const ImageBatch> sources;
  std::span<const StateBatch> sourceStates;
  StateBatch resultStates;  ///< empty: none
  ImageBatch result;
  bool accumulates = false;  ///< adds to the result
};

/// What the base classes of the kernels over images have in common: CNNKernel, CNNBinaryKernel, CNNMultiaryKernel.
class ImageKernel : public Kernel {
 public:
  /// First destination channel written, a multiple of 4. 0. Writing side by side concatenates without a copy.
  [[nodiscard]] std::size_t destinationFeatureChannelOffset() const {
    return destinationFeatureChannelOffset_;
  }
  void setDestinationFeatureChannelOffset(std::size_t offset) { destinationFeatureChannelOffset_ = offset; }
  /// Never null. Same size, centred, remainder to the top left, unless a class says otherwise.
  [[nodiscard]] const std::shared_ptr<NNPadding>& padding() const { return padding_; }
  void setPadding(std::shared_ptr<NNPadding> padding);
  /// Never null. TemporaryImage::defaultAllocator().
  [[nodiscard]] const std::shared_ptr<ImageAllocator>& destinationImageAllocator() const {
    return allocator_;
  }
  void setDestinationImageAllocator(std::shared_ptr<ImageAllocator> allocator);

  /// Whether strides enlarge (convolution transpose).
  [[nodiscard]] virtual bool isBackwards() const { return false; }
  /// Whether encoding changes a state that it accepts.
  [[nodiscard]] virtual bool isStateModified() const { return false; }
  /// Whether the states of a batch are one object.
  [[nodiscard]] virtual bool isResultStateReusedAcrossBatch() const { return false; }
  /// Whether dependent kernels must wait for the whole batch.
  [[nodiscard]] virtual bool appendBatchBarrier() const { return false; }

  /// Size and format of the destination by the padding policy; sets the offsets.
  /// @param sourceImages sourceCount() images
  virtual ImageDescriptor destinationImageDescriptor(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                                     ArrayRef<std::shared_ptr<State>> sourceStates = {}) = 0;
  /// Images that each encode reads.
  [[nodiscard]] virtual std::size_t sourceCount() const = 0;

  /// @name The library's own: what a compiled graph asks of any of them.
  /// @{
  /// Whether a step may read that many images: more than sourceCount() where there are labels, say.
  [[nodiscard]] virtual bool takesSources(std::size_t count) const { return count == sourceCount(); }
  /// What sizing sets, for another encode: the offset, or what places an enlarged source.
  [[nodiscard]] virtual Offset placement() const { return {}; }
  virtual void setPlacement(const Offset& /*placement*/) {}
  /// States for a step to fill. @param commandBuffer of temporary ones; null: permanent
  [[nodiscard]] virtual StateBatch makeStepStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                  std::span<const ImageBatch> sources,
                                                  std::span<const StateBatch> sourceStates) const = 0;
  virtual void encodeGraphStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const GraphStep& step) = 0;
  /// @}

 protected:
  using Kernel::Kernel;
  ImageKernel(const ImageKernel&) = default;
  void codeProperties(Coder& coder) override;

 private:
  std::size_t destinationFeatureChannelOffset_ = 0;
  std::shared_ptr<NNPadding> padding_ = defaultPadding();
  std::shared_ptr<ImageAllocator> allocator_ = TemporaryImage::defaultAllocator();
};

}  // namespace mps::detail
