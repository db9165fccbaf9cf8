#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/layer/batch_normalization_data_source.hpp"

namespace mps::detail {

/// Parameters from vectors, for tests, conform and bench; everything that a data source may say can be set.
class FixedBatchNormalization : public CNNBatchNormalizationDataSource {
 public:
  explicit FixedBatchNormalization(std::size_t channelCount) : channels(channelCount) {}
  static std::shared_ptr<FixedBatchNormalization> create(std::size_t channels, float epsilon = 0.0625F) {
    auto source = std::make_shared<FixedBatchNormalization>(channels);
    source->epsilonValue = epsilon;
    return source;
  }

  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return channels; }
  [[nodiscard]] std::span<const float> gamma() const override { return gammas; }
  [[nodiscard]] std::span<const float> beta() const override { return betas; }
  [[nodiscard]] std::span<const float> mean() const override { return means; }
  [[nodiscard]] std::span<const float> variance() const override { return variances; }
  bool load() override {
    ++loads;
    return loadsWell;
  }
  void purge() override { ++purges; }
  [[nodiscard]] std::string label() const override { return name; }
  [[nodiscard]] float epsilon() const override { return epsilonValue; }
  std::shared_ptr<CNNBatchNormalizationDataSource> copy(const std::shared_ptr<mtl::Device>&) override {
    return copied;
  }
  std::shared_ptr<CNNNormalizationGammaAndBetaState> deviceGammaAndBeta(
      const std::shared_ptr<mtl::Device>& device) override {
    return liveGammaAndBeta && liveGammaAndBeta->device() == device ? liveGammaAndBeta : nullptr;
  }
  std::shared_ptr<CNNNormalizationMeanAndVarianceState> deviceMeanAndVariance(
      const std::shared_ptr<mtl::Device>& device) override {
    return liveMeanAndVariance && liveMeanAndVariance->device() == device ? liveMeanAndVariance : nullptr;
  }

  std::size_t channels;
  std::vector<float> gammas, betas, means, variances;
  float epsilonValue = FLT_MIN;
  std::string name;
  std::shared_ptr<CNNBatchNormalizationDataSource> copied;
  std::shared_ptr<CNNNormalizationGammaAndBetaState> liveGammaAndBeta;
  std::shared_ptr<CNNNormalizationMeanAndVarianceState> liveMeanAndVariance;
  bool loadsWell = true;
  int loads = 0;
  int purges = 0;
};

}  // namespace mps::detail
