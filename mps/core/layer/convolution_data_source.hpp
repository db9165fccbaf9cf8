#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/layer/convolution_descriptor.hpp"
#include "mps/core/layer/convolution_state.hpp"
#include "mps/core/layer/update_counter.hpp"

namespace mps {

/// Where a convolution's weights come from and how they are updated (protocol MPSCNNConvolutionDataSource). Derive
/// from it, or use TrainableConvolution.
///
/// The library calls load(), reads, copies, calls purge(), when a kernel is made and when it is reloaded. It
/// may do so from any thread. What these throw reaches whoever makes or reloads the kernel.
class CNNConvolutionDataSource : public SecureCoding {
 public:
  /// Type of weights(): Float32, Float16 or UInt8.
  [[nodiscard]] virtual DataType dataType() const = 0;
  [[nodiscard]] virtual CNNConvolutionDescriptor descriptor() const = 0;
  /// outputFeatureChannels * kernelHeight * kernelWidth * inputFeatureChannels / groups elements, in this
  /// order.
  [[nodiscard]] virtual std::span<const std::byte> weights() const = 0;
  /// outputFeatureChannels values, always float32; empty for none. A layer without biases never gets any: no update trains
  /// them, whatever memory its states have (docs/decisions.md, D26).
  [[nodiscard]] virtual std::span<const float> biasTerms() const = 0;
  /// The data is needed soon. false makes the construction of the kernel throw.
  virtual bool load() = 0;
  /// The data is not needed any more; balances each load().
  virtual void purge() = 0;
  /// Name for the kernel; a node's label goes before.
  [[nodiscard]] virtual std::string label() const { return {}; }

  /// For UInt8: how a byte becomes a weight. Linear: byte / 255 * (max - min) + min of its output channel.
  /// LookupTable: table[byte].
  [[nodiscard]] virtual CNNWeightsQuantizationType weightsQuantizationType() const {
    return CNNWeightsQuantizationType::None;
  }
  /// {min, max} of each output channel.
  [[nodiscard]] virtual std::span<const std::array<float, 2>> rangesForUInt8Kernel() const { return {}; }
  /// 256 values.
  [[nodiscard]] virtual std::span<const float> lookupTableForUInt8Kernel() const { return {}; }
  /// A hint in which precision kernels keep the weights, which they do not take: they keep float32.
  [[nodiscard]] virtual DataType kernelWeightsDataType() const { return DataType::Float32; }
  /// OHWI, the default, is the only one there is; kernels refuse another.
  [[nodiscard]] virtual CNNConvolutionWeightsLayout weightsLayout() const {
    return CNNConvolutionWeightsLayout::OHWI;
  }

  // A class that overrides one form of update means to hide the other one: GCC need not warn of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
  /// Update on the device. NNGraph calls it right after it has encoded the gradient pass (style UpdateDeviceGPU).
  ///
  /// Encode an optimiser that reads gradientState (+dL/dW) and sourceState (the weights in use, and biases where the
  /// layer has any), and return the state with the new weights. Forward and gradient kernel are reloaded from it. null,
  /// the default, means no update. Optimiser encodes take the reads off temporary states; count them yourself
  /// otherwise. The command buffer cannot be committed here: that throws until the graph's encode has returned.
  virtual std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const std::shared_ptr<CNNConvolutionGradientState>& /*gradientState*/,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& /*sourceState*/) {
    return nullptr;
  }
  /// Host-side update, called by NNGraph in the completion handler (style UpdateDeviceCPU), the states
  /// readable: change weights() and return true; both kernels are reloaded from this source. The default
  /// returns false.
  virtual bool update(const std::shared_ptr<CNNConvolutionGradientState>& /*gradientState*/,
                      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& /*sourceState*/) {
    return false;
  }
#pragma GCC diagnostic pop

  /// For a copy of the kernel, or of a graph, on that device, which may be this source's: a copy that is to train by itself
  /// needs one. null, the default: the copy shares this source.
  virtual std::shared_ptr<CNNConvolutionDataSource> copy(const std::shared_ptr<mtl::Device>& /*device*/) {
    return nullptr;
  }

  /// Weights that live on the device and that update() changes in place. When not null, kernels on that
  /// device use these very buffers: nothing is copied, and reloads have nothing to do. null by default.
  /// Where they have no biases, a graph that updates on the device writes no gradientForBiases, unless the
  /// gradient state is exported.
  virtual std::shared_ptr<CNNConvolutionWeightsAndBiasesState> deviceWeightsAndBiases(
      const std::shared_ptr<mtl::Device>& /*device*/) {
    return nullptr;
  }
  /// @name The library's own
  /// @{
  /// What counts the updates, or null.
  [[nodiscard]] virtual detail::UpdateCounter* updateCounter() {
    return nullptr;
  }
  /// @}
};

}  // namespace mps
