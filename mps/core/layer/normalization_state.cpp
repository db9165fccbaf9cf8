#include "mps/core/layer/normalization_state.hpp"

#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"

namespace mps {
namespace {

std::vector<std::shared_ptr<mtl::Buffer>> checkedPair(const char* className, const char* firstName,
                                                      std::shared_ptr<mtl::Buffer> first,
                                                      const char* secondName,
                                                      std::shared_ptr<mtl::Buffer> second) {
  if (!first) throw Error(className, firstName, "null", "a buffer");
  if (!second) throw Error(className, secondName, "null", "a buffer");
  if (first->length() != second->length())
    throw Error(className, secondName, std::to_string(second->length()) + " bytes",
                std::to_string(first->length()) + ", as " + firstName);
  return {std::move(first), std::move(second)};
}

StateResourceList pairOf(std::size_t channels) {
  return {channels * sizeof(float), channels * sizeof(float)};
}

}  // namespace

std::shared_ptr<CNNNormalizationGammaAndBetaState> CNNNormalizationGammaAndBetaState::create(
    std::shared_ptr<mtl::Buffer> gamma, std::shared_ptr<mtl::Buffer> beta) {
  return std::shared_ptr<CNNNormalizationGammaAndBetaState>(new CNNNormalizationGammaAndBetaState(
      checkedPair("CNNNormalizationGammaAndBetaState", "gamma", std::move(gamma), "beta", std::move(beta))));
}

std::shared_ptr<CNNNormalizationGammaAndBetaState> CNNNormalizationGammaAndBetaState::createTemporary(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, std::size_t numberOfFeatureChannels) {
  return std::shared_ptr<CNNNormalizationGammaAndBetaState>(
      new CNNNormalizationGammaAndBetaState(commandBuffer, pairOf(numberOfFeatureChannels)));
}

std::shared_ptr<CNNNormalizationMeanAndVarianceState> CNNNormalizationMeanAndVarianceState::create(
    std::shared_ptr<mtl::Buffer> mean, std::shared_ptr<mtl::Buffer> variance) {
  return std::shared_ptr<CNNNormalizationMeanAndVarianceState>(
      new CNNNormalizationMeanAndVarianceState(checkedPair(
          "CNNNormalizationMeanAndVarianceState", "mean", std::move(mean), "variance", std::move(variance))));
}

std::shared_ptr<CNNNormalizationMeanAndVarianceState> CNNNormalizationMeanAndVarianceState::createTemporary(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, std::size_t numberOfFeatureChannels) {
  return std::shared_ptr<CNNNormalizationMeanAndVarianceState>(
      new CNNNormalizationMeanAndVarianceState(commandBuffer, pairOf(numberOfFeatureChannels)));
}

}  // namespace mps
