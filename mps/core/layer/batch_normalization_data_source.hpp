#pragma once

#include <cfloat>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/layer/batch_normalization_state.hpp"
#include "mps/core/layer/update_counter.hpp"

namespace mps {

/// Where the parameters of a batch normalisation come from and how they are updated (protocol
/// MPSCNNBatchNormalizationDataSource). Derive from it, or use TrainableBatchNormalization.
///
/// The library calls load(), reads, copies, calls purge(), when a kernel is made and when it is reloaded. It may
/// do so from any thread. What these throw reaches whoever makes or reloads the kernel. Running statistics are the data source's business: the library applies no momentum
/// and no correction of the variance.
class CNNBatchNormalizationDataSource : public SecureCoding {
 public:
  /// Feature channels of the images to normalise.
  [[nodiscard]] virtual std::size_t numberOfFeatureChannels() const = 0;
  /// @name One value per feature channel, or empty for the default
  /// @{
  [[nodiscard]] virtual std::span<const float> gamma() const = 0;     ///< scale factors; 1
  [[nodiscard]] virtual std::span<const float> beta() const = 0;      ///< biases; 0
  [[nodiscard]] virtual std::span<const float> mean() const = 0;      ///< running mean; 0
  [[nodiscard]] virtual std::span<const float> variance() const = 0;  ///< running variance, no epsilon; 1
  /// @}
  /// The data is needed soon. false makes the construction of the kernel throw.
  virtual bool load() = 0;
  /// The data is not needed any more; balances each load().
  virtual void purge() = 0;
  /// Name for the kernel; a node's label goes before.
  [[nodiscard]] virtual std::string label() const { return {}; }
  /// Added to the variance under the root. FLT_MIN, which only avoids a division by 0: with it the gradient of
  /// a constant channel is huge; 1e-3 and 1e-5 are usual.
  [[nodiscard]] virtual float epsilon() const { return FLT_MIN; }

  // A class that overrides one form of an update means to hide the other one: GCC need not warn of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
  /// @name Device-side updates
  /// NNGraph calls them right after it has encoded the gradient pass (style UpdateDeviceGPU), the statistics first.
  /// Encode work that reads the state and return a state with the new values. The kernel is reloaded from it. null,
  /// the default, means no update. Take one read off a temporary state each (optimiser encodes do).
  /// @{
  virtual std::shared_ptr<CNNNormalizationMeanAndVarianceState> updateMeanAndVariance(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const std::shared_ptr<CNNBatchNormalizationState>& /*batchNormalizationState*/) {
    return nullptr;
  }
  virtual std::shared_ptr<CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const std::shared_ptr<CNNBatchNormalizationState>& /*batchNormalizationState*/) {
    return nullptr;
  }
  /// @}
  /// @name Host-side updates
  /// Called by NNGraph in the completion handler (style UpdateDeviceCPU), the state readable: change the arrays
  /// and return true; the kernel is reloaded from this source. The default returns false.
  /// @{
  virtual bool updateMeanAndVariance(
      const std::shared_ptr<CNNBatchNormalizationState>& /*batchNormalizationState*/) {
    return false;
  }
  virtual bool updateGammaAndBeta(
      const std::shared_ptr<CNNBatchNormalizationState>& /*batchNormalizationState*/) {
    return false;
  }
  /// @}
#pragma GCC diagnostic pop

  /// For a copy of the kernel, or of a graph, on that device, which may be this source's: a copy that is to train by itself
  /// needs one. null, the default: the copy shares this source.
  virtual std::shared_ptr<CNNBatchNormalizationDataSource> copy(
      const std::shared_ptr<mtl::Device>& /*device*/) {
    return nullptr;
  }

  /// @name Parameters that live on the device and that updates change in place
  /// When not null, kernels on that device use these very buffers: nothing is copied, and reloads have nothing
  /// to do. null by default.
  /// @{
  virtual std::shared_ptr<CNNNormalizationGammaAndBetaState> deviceGammaAndBeta(
      const std::shared_ptr<mtl::Device>& /*device*/) {
    return nullptr;
  }
  virtual std::shared_ptr<CNNNormalizationMeanAndVarianceState> deviceMeanAndVariance(
      const std::shared_ptr<mtl::Device>& /*device*/) {
    return nullptr;
  }
  /// @}
  /// @name The library's own
  /// @{
  /// What counts the updates, or null.
  [[nodiscard]] virtual detail::UpdateCounter* updateCounter() {
    return nullptr;
  }
  /// @}
};

}  // namespace mps
