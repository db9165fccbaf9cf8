#include "mps/core/convolution_descriptor.hpp"

#include <cmath>

#include "mps/core/error.hpp"

namespace mps {

CNNConvolutionDescriptor::CNNConvolutionDescriptor(std::size_t kernelWidth, std::size_t kernelHeight,
                                                   std::size_t inputFeatureChannels,
                                                   std::size_t outputFeatureChannels,
                                                   std::size_t channelMultiplier)
    : kernelWidth_(kernelWidth),
      kernelHeight_(kernelHeight),
      inputFeatureChannels_(inputFeatureChannels),
      outputFeatureChannels_(outputFeatureChannels),
      channelMultiplier_(channelMultiplier) {
  check("CNNConvolutionDescriptor");
}

CNNConvolutionDescriptor CNNConvolutionDescriptor::cnnConvolutionDescriptor(
    std::size_t kernelWidth, std::size_t kernelHeight, std::size_t inputFeatureChannels,
    std::size_t outputFeatureChannels) {
  return {kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels, 0};
}

CNNDepthWiseConvolutionDescriptor CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(
    std::size_t kernelWidth, std::size_t kernelHeight, std::size_t inputFeatureChannels,
    std::size_t outputFeatureChannels) {
  if (inputFeatureChannels == 0 || outputFeatureChannels % inputFeatureChannels != 0)
    throw Error("CNNDepthWiseConvolutionDescriptor", "outputFeatureChannels",
                std::to_string(outputFeatureChannels),
                "a multiple of the " + std::to_string(inputFeatureChannels) + " input channels");
  return {kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels,
          outputFeatureChannels / inputFeatureChannels};
}

void CNNConvolutionDescriptor::setBatchNormalizationParametersForInference(std::span<const float> mean,
                                                                           std::span<const float> variance,
                                                                           std::span<const float> gamma,
                                                                           std::span<const float> beta,
                                                                           float epsilon) {
  const auto checkCount = [&](const char* name, std::span<const float> values) {
    if (!values.empty() && values.size() != outputFeatureChannels_)
      throw Error("CNNConvolutionDescriptor", name, std::to_string(values.size()) + " values",
                  std::to_string(outputFeatureChannels_) + " or none");
  };
  checkCount("mean", mean);
  checkCount("variance", variance);
  checkCount("gamma", gamma);
  checkCount("beta", beta);
  const auto at = [](std::span<const float> values, std::size_t k, float otherwise) {
    return values.empty() ? otherwise : values[k];
  };
  auto folding = std::make_shared<Folding>();
  for (std::size_t k = 0; k < outputFeatureChannels_; ++k) {
    const double scale = static_cast<double>(at(gamma, k, 1)) /
                         std::sqrt(static_cast<double>(at(variance, k, 1)) + static_cast<double>(epsilon));
    folding->scale.push_back(static_cast<float>(scale));
    folding->shift.push_back(static_cast<float>(at(beta, k, 0) - scale * at(mean, k, 0)));
  }
  folding_ = std::move(folding);
}

void CNNConvolutionDescriptor::check(const std::string& kernel) const {
  const auto positive = [&](const char* property, std::size_t value) {
    if (value == 0) throw Error(kernel, property, "0", "at least 1");
  };
  positive("kernelWidth", kernelWidth_);
  positive("kernelHeight", kernelHeight_);
  positive("inputFeatureChannels", inputFeatureChannels_);
  positive("outputFeatureChannels", outputFeatureChannels_);
  positive("strideInPixelsX", strideInPixelsX_);
  positive("strideInPixelsY", strideInPixelsY_);
  positive("dilationRateX", dilationRateX_);
  positive("dilationRateY", dilationRateY_);
  positive("groups", groups_);
  if (inputFeatureChannels_ % groups_ != 0 || outputFeatureChannels_ % groups_ != 0)
    throw Error(kernel, "groups", std::to_string(groups_),
                "a divisor of " + std::to_string(inputFeatureChannels_) + " input and " +
                    std::to_string(outputFeatureChannels_) + " output channels");
  if (channelMultiplier_ != 0 && groups_ != 1)
    throw Error(kernel, "groups", std::to_string(groups_), "1 for a depth-wise convolution");
}

std::string CNNConvolutionDescriptor::describe() const {
  std::string text = std::to_string(kernelWidth_) + "x" + std::to_string(kernelHeight_) + ", " +
                     std::to_string(inputFeatureChannels_) + " to " + std::to_string(outputFeatureChannels_) +
                     " channels";
  if (groups_ != 1) text += ", " + std::to_string(groups_) + " groups";
  if (channelMultiplier_ != 0) text += ", depth-wise";
  return text;
}

}  // namespace mps
