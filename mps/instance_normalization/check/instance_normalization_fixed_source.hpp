#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/layer/image_normalization_data_source.hpp"

namespace mps::detail {

/// Parameters from vectors, for tests, conform and bench; everything that a data source may say can be set.
/// @param Source CNNInstanceNormalizationDataSource or CNNGroupNormalizationDataSource
template <class Source>
class FixedImageNormalization : public Source {
 public:
  explicit FixedImageNormalization(std::size_t channelCount, float epsilon)
      : channels(channelCount), epsilonValue(epsilon) {}

  [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return channels; }
  [[nodiscard]] std::span<const float> gamma() const override { return gammas; }
  [[nodiscard]] std::span<const float> beta() const override { return betas; }
  [[nodiscard]] std::string label() const override { return name; }
  [[nodiscard]] float epsilon() const override { return epsilonValue; }
  std::shared_ptr<Source> copy(const std::shared_ptr<mtl::Device>&) override { return copied; }
  std::shared_ptr<CNNNormalizationGammaAndBetaState> deviceGammaAndBeta(
      const std::shared_ptr<mtl::Device>& device) override {
    return liveGammaAndBeta && liveGammaAndBeta->device() == device ? liveGammaAndBeta : nullptr;
  }

  std::size_t channels;
  std::vector<float> gammas, betas;
  float epsilonValue;
  std::string name;
  std::shared_ptr<Source> copied;
  std::shared_ptr<CNNNormalizationGammaAndBetaState> liveGammaAndBeta;
};

class FixedInstanceNormalization : public FixedImageNormalization<CNNInstanceNormalizationDataSource> {
 public:
  using FixedImageNormalization::FixedImageNormalization;
  static std::shared_ptr<FixedInstanceNormalization> create(std::size_t channels, float epsilon = 0.0625F) {
    return std::make_shared<FixedInstanceNormalization>(channels, epsilon);
  }
  bool load() override {
    ++loads;
    return loadsWell;
  }
  void purge() override { ++purges; }

  bool loadsWell = true;
  int loads = 0;
  int purges = 0;
};

class FixedGroupNormalization : public FixedImageNormalization<CNNGroupNormalizationDataSource> {
 public:
  FixedGroupNormalization(std::size_t channelCount, std::size_t groupCount, float epsilon)
      : FixedImageNormalization(channelCount, epsilon), groups(groupCount) {}
  static std::shared_ptr<FixedGroupNormalization> create(std::size_t channels, std::size_t groups,
                                                         float epsilon = 0.0625F) {
    return std::make_shared<FixedGroupNormalization>(channels, groups, epsilon);
  }
  [[nodiscard]] std::size_t numberOfGroups() const override { return groups; }

  std::size_t groups;
};

}  // namespace mps::detail
