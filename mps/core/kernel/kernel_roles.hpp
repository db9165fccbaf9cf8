#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"

namespace mtl {
class CommandBuffer;
}

/// Small interfaces that some kernels have for a compiled graph, whatever their family (KernelRoles).
namespace mps::detail {

/// A kernel that can apply a neuron to what it computes.
class NeuronFusion {
 public:
  enum class Answer : std::uint8_t {
    No,
    GradientApart,     ///< the gradient of the neuron stays, and is computed from the result
    GradientIncluded,  ///< the gradient of this kernel takes that of the neuron along
  };
  virtual ~NeuronFusion() = default;
  /// @param isDifferentiated whether somebody computes the gradient of the neuron
  [[nodiscard]] virtual Answer canFuse(const NNNeuronDescriptor& neuron, bool isDifferentiated) const = 0;
  virtual void fuse(const NNNeuronDescriptor& neuron) = 0;

 protected:
  NeuronFusion() = default;
  NeuronFusion(const NeuronFusion&) = default;
  NeuronFusion& operator=(const NeuronFusion&) = default;
};

/// The gradient kernel of a neuron.
class NeuronGradientKernel {
 public:
  virtual ~NeuronGradientKernel() = default;
  [[nodiscard]] virtual const NNNeuronDescriptor& differentiatedNeuron() const = 0;
  /// Whether sourceImage is the result of the neuron. Then a third source is added to the source gradient.
  [[nodiscard]] virtual bool usesResult() const = 0;
  virtual void setUsesResult(bool usesResult) = 0;
  /// Whether sourceImage is read where the neuron was applied to whole images of this size. It is not where the neuron has
  /// saved all that its derivative needs.
  [[nodiscard]] virtual bool readsSource(const ImageDescriptor& source) const = 0;

 protected:
  NeuronGradientKernel() = default;
  NeuronGradientKernel(const NeuronGradientKernel&) = default;
  NeuronGradientKernel& operator=(const NeuronGradientKernel&) = default;
};

/// A kernel whose gradient can include that of a plain ReLU before it: maximum pooling, which then saves no index of what the
/// ReLU cut off.
class ReLUGradientFusion {
 public:
  virtual ~ReLUGradientFusion() = default;
  virtual void setAfterReLU(bool afterReLU) = 0;

 protected:
  ReLUGradientFusion() = default;
  ReLUGradientFusion(const ReLUGradientFusion&) = default;
  ReLUGradientFusion& operator=(const ReLUGradientFusion&) = default;
};

/// The gradient kernel of one of several sources that lie side by side in the result.
class SliceGradientKernel {
 public:
  virtual ~SliceGradientKernel() = default;
  [[nodiscard]] virtual std::size_t sourceIndex() const = 0;
  /// The gradients of this source and of the next one, in one pass. @param sourceImages, destinationGradients of both
  virtual void encodeBatchWithNext(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                   const ImageBatch& sourceGradients,
                                   std::span<const ImageBatch> sourceImages, const StateBatch& gradientStates,
                                   std::span<const ImageBatch> destinationGradients) = 0;

 protected:
  SliceGradientKernel() = default;
  SliceGradientKernel(const SliceGradientKernel&) = default;
  SliceGradientKernel& operator=(const SliceGradientKernel&) = default;
};

/// A kernel that draws random numbers: those of an encode follow from how many encodes came before.
class RandomKernel {
 public:
  virtual ~RandomKernel() = default;
  [[nodiscard]] virtual std::uint32_t encodeCount() const = 0;
  virtual void setEncodeCount(std::uint32_t count) = 0;

 protected:
  RandomKernel() = default;
  RandomKernel(const RandomKernel&) = default;
  RandomKernel& operator=(const RandomKernel&) = default;
};

}  // namespace mps::detail
