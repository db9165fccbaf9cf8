#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/types/array_ref.hpp"
#include "mps/core/types/types.hpp"

namespace mps {
class NNNeuronDescriptor;
}

namespace mps::detail {

struct ChannelTraits;
struct DerivativeTraits;
struct KernelRoles;
struct SumTraits;

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

  /// @name The library's own
  /// What a compiled graph asks of any of them (mps/core/kernel/graph_traits.hpp). Classes override it among their protected members.
  /// @{
  [[nodiscard]] virtual DerivativeTraits derivativeTraits() const;
  [[nodiscard]] virtual SumTraits sumTraits() const;
  [[nodiscard]] virtual ChannelTraits channelTraits() const;
  [[nodiscard]] virtual KernelRoles roles();
  /// Of a gradient kernel: whether it is that of such a forward kernel.
  [[nodiscard]] virtual bool acceptsForward(const std::string& /*forwardClassName*/) const { return false; }
  /// The neuron that it is, each pixel staying where it was; null for what is none.
  [[nodiscard]] virtual const NNNeuronDescriptor* appliedNeuron() const { return nullptr; }
  /// Whether the destination may be the first source itself, element for element, while offset, clipRect.origin and the
  /// channel offsets say that pixel (x, y, c) becomes pixel (x, y, c).
  [[nodiscard]] virtual bool worksInPlace() const { return false; }
  /// Whether the encodes of steps with the same images, states and parameters record the same commands.
  [[nodiscard]] virtual bool repeatsCommands() const { return false; }
  /// From now on encodes are steps of a graph, whose gradients run under the same predicates.
  virtual void joinGraph() {}
  /// All that sizing and padding policies may change: offsets, clip rectangle, edge modes, ranges of channels.
  [[nodiscard]] virtual std::any geometry() const = 0;
  virtual void setGeometry(const std::any& geometry) = 0;
  /// Whether the state of another kernel, whose work it undoes, sizes the result.
  [[nodiscard]] virtual bool isSizedByState() const { return false; }
  /// Size and format of the destination by such a state. @param undone source of the kernel that made it
  /// @param placement of that kernel
  virtual ImageDescriptor sizeUndoing(const ImageDescriptor& source, const ImageDescriptor& undone,
                                      const Offset& placement);
  /// Whether a step may read that many images: more than sourceCount() where there are labels, say.
  [[nodiscard]] virtual bool takesSources(std::size_t count) const { return count == sourceCount(); }
  /// What sizing sets, for another encode: the offset, or what places an enlarged source.
  [[nodiscard]] virtual Offset placement() const { return {}; }
  virtual void setPlacement(const Offset& /*placement*/) {}
  /// The same of a kernel with several sources: where each of them is read.
  [[nodiscard]] virtual std::vector<Offset> sourceOffsets() const { return {}; }
  virtual void setSourceOffsets(std::span<const Offset> /*offsets*/) {}
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

/// While alive a kernel has the geometry that it is given then; afterwards its own again.
class GeometryScope {
 public:
  explicit GeometryScope(ImageKernel& kernel) : kernel_(kernel), before_(kernel.geometry()) {}
  ~GeometryScope() { kernel_.setGeometry(before_); }
  GeometryScope(const GeometryScope&) = delete;
  GeometryScope& operator=(const GeometryScope&) = delete;

 private:
  ImageKernel& kernel_;
  std::any before_;
};

}  // namespace mps::detail
