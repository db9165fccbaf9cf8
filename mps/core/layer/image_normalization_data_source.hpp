#pragma once

#include <cfloat>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/layer/image_normalization_state.hpp"
#include "mps/core/layer/update_counter.hpp"

namespace mps {

namespace detail {

/// What the data sources of instance and group normalisation have in common.
class ImageNormalizationDataSource : public SecureCoding {
 public:
  /// Feature channels of the images to normalise.
  [[nodiscard]] virtual std::size_t numberOfFeatureChannels() const = 0;
  /// @name One value per feature channel, or empty for the default
  /// @{
  [[nodiscard]] virtual std::span<const float> gamma() const = 0;  ///< scale factors; 1
  [[nodiscard]] virtual std::span<const float> beta() const = 0;   ///< biases; 0
  /// @}
  /// Name for the kernel; a node's label goes before.
  [[nodiscard]] virtual std::string label() const { return {}; }
  /// Added to the variance under the root. FLT_MIN, which only avoids a division by 0: with it the gradient of
  /// an image without variance is huge; 1e-3 and 1e-5 are usual.
  [[nodiscard]] virtual float epsilon() const { return FLT_MIN; }

  // A class that overrides one form of updateGammaAndBeta means to hide the other one: GCC need not warn of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
  /// Update on the device. NNGraph calls it right after it has encoded the gradient pass (style UpdateDeviceGPU).
  ///
  /// Encode work that sums the gradients over the batch, and return a state with the new values. The kernel is
  /// reloaded from it. null, the default, means no update. The optimisers' encodes with a batch of states sum, and take
  /// one read off each temporary state; other work must do both itself.
  virtual std::shared_ptr<CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/, const StateBatch& /*gradientStates*/) {
    return nullptr;
  }
  /// Host-side update, called by NNGraph in the completion handler (style UpdateDeviceCPU), the states readable:
  /// sum the gradients over the batch, change the arrays and return true; the kernel is reloaded from this
  /// source. The default returns false.
  virtual bool updateGammaAndBeta(const StateBatch& /*gradientStates*/) {
    return false;
  }
#pragma GCC diagnostic pop

  /// Parameters that live on the device and that updates change in place: when not null, kernels on that device
  /// use these very buffers: nothing is copied, and reloads have nothing to do. null by default.
  virtual std::shared_ptr<CNNNormalizationGammaAndBetaState> deviceGammaAndBeta(
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

}  // namespace detail

/// Where the parameters of an instance normalisation come from and how they are updated (protocol
/// MPSCNNInstanceNormalizationDataSource). Derive from it, or use
/// TrainableInstanceNormalization. The library calls load(), reads, copies, calls purge(), when a kernel is made and
/// when it is reloaded. It may do so from any thread. What these throw reaches whoever makes or reloads the kernel.
class CNNInstanceNormalizationDataSource : public detail::ImageNormalizationDataSource {
 public:
  /// The data is needed soon. false makes the construction of the kernel throw. true.
  virtual bool load() { return true; }
  /// The data is not needed any more; balances each load().
  virtual void purge() {}
  /// For a copy of the kernel, or of a graph, on that device, which may be this source's: a copy that is to train by itself
  /// needs one. null, the default: the copy shares this source.
  virtual std::shared_ptr<CNNInstanceNormalizationDataSource> copy(
      const std::shared_ptr<mtl::Device>& /*device*/) {
    return nullptr;
  }
};

/// Where the parameters of a group normalisation come from and how they are updated (protocol
/// MPSCNNGroupNormalizationDataSource). Derive from it, or use TrainableGroupNormalization.
/// Read when a kernel is made and when it is reloaded, from any thread.
class CNNGroupNormalizationDataSource : public detail::ImageNormalizationDataSource {
 public:
  /// Groups of adjacent channels that have mean and variance in common; divides numberOfFeatureChannels. Read when
  /// the kernel is made.
  [[nodiscard]] virtual std::size_t numberOfGroups() const = 0;
  /// For a copy of the kernel, or of a graph, on that device, which may be this source's: a copy that is to train by itself
  /// needs one. null, the default: the copy shares this source.
  virtual std::shared_ptr<CNNGroupNormalizationDataSource> copy(
      const std::shared_ptr<mtl::Device>& /*device*/) {
    return nullptr;
  }
};

}  // namespace mps
