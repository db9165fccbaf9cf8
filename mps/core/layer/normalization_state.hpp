#pragma once

#include <cstddef>
#include <memory>

#include "mps/core/image/state.hpp"

namespace mps {

/// New scale factors and biases of a normalisation, on their way into a kernel
/// (MPSCNNNormalizationGammaAndBetaState): what an optimiser writes and a reload reads.
/// float32, one value per feature channel.
class CNNNormalizationGammaAndBetaState : public State {
 public:
  /// Around buffers of the caller, of the same length. An optimiser may read and write the same state.
  /// @throws Error when a buffer is null or the lengths differ
  static std::shared_ptr<CNNNormalizationGammaAndBetaState> create(std::shared_ptr<mtl::Buffer> gamma,
                                                                   std::shared_ptr<mtl::Buffer> beta);
  /// Temporary, undefined content.
  static std::shared_ptr<CNNNormalizationGammaAndBetaState> createTemporary(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, std::size_t numberOfFeatureChannels);

  [[nodiscard]] std::shared_ptr<mtl::Buffer> gamma() { return resource(0); }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> beta() { return resource(1); }
  [[nodiscard]] std::size_t numberOfFeatureChannels() const { return bufferSize(0) / sizeof(float); }

 protected:
  using State::State;
};

/// New running statistics on their way into a kernel (MPSCNNNormalizationMeanAndVarianceState). float32, one value
/// per feature channel; the variance without epsilon.
class CNNNormalizationMeanAndVarianceState : public State {
 public:
  /// As CNNNormalizationGammaAndBetaState.
  static std::shared_ptr<CNNNormalizationMeanAndVarianceState> create(std::shared_ptr<mtl::Buffer> mean,
                                                                      std::shared_ptr<mtl::Buffer> variance);
  static std::shared_ptr<CNNNormalizationMeanAndVarianceState> createTemporary(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, std::size_t numberOfFeatureChannels);

  [[nodiscard]] std::shared_ptr<mtl::Buffer> mean() { return resource(0); }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> variance() { return resource(1); }
  [[nodiscard]] std::size_t numberOfFeatureChannels() const { return bufferSize(0) / sizeof(float); }

 protected:
  using State::State;
};

}  // namespace mps
