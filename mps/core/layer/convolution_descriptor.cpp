#include "mps/core/layer/convolution_descriptor.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"

namespace mps {

CNNConvolutionDescriptor::CNNConvolutionDescriptor(std::size_t kernelWidth, std::size_t kernelHeight,
                                                   std::size_t inputFeatureChannels,
                                                   std::size_t outputFeatureChannels, bool depthWise)
    : kernelWidth_(checked("kernelWidth", kernelWidth)),
      kernelHeight_(checked("kernelHeight", kernelHeight)),
      inputFeatureChannels_(checked("inputFeatureChannels", inputFeatureChannels)),
      outputFeatureChannels_(checked("outputFeatureChannels", outputFeatureChannels)),
      depthWise_(depthWise) {
  check("CNNConvolutionDescriptor");
}

CNNConvolutionDescriptor CNNConvolutionDescriptor::create(std::size_t kernelWidth, std::size_t kernelHeight,
                                                          std::size_t inputFeatureChannels,
                                                          std::size_t outputFeatureChannels) {
  return {kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels, false};
}

CNNDepthWiseConvolutionDescriptor CNNDepthWiseConvolutionDescriptor::create(
    std::size_t kernelWidth, std::size_t kernelHeight, std::size_t inputFeatureChannels,
    std::size_t outputFeatureChannels) {
  return {kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels, true};
}

CNNSubPixelConvolutionDescriptor CNNSubPixelConvolutionDescriptor::create(std::size_t kernelWidth,
                                                                          std::size_t kernelHeight,
                                                                          std::size_t inputFeatureChannels,
                                                                          std::size_t outputFeatureChannels) {
  return {kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels, false};
}

void CNNConvolutionDescriptor::setBatchNormalizationParametersForInference(ArrayRef<float> mean,
                                                                           ArrayRef<float> variance,
                                                                           ArrayRef<float> gamma,
                                                                           ArrayRef<float> beta,
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

std::size_t CNNConvolutionDescriptor::checked(const char* property, std::size_t value) {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
  if (value == 0 || value > most)
    throw Error("CNNConvolutionDescriptor", property, std::to_string(value), "1 to " + std::to_string(most));
  return value;
}

void CNNConvolutionDescriptor::check(const std::string& kernel) const {
  if (inputFeatureChannels_ % groups_ != 0 || outputFeatureChannels_ % groups_ != 0)
    throw Error(kernel, "groups", std::to_string(groups_),
                "a divisor of " + std::to_string(inputFeatureChannels_) + " input and " +
                    std::to_string(outputFeatureChannels_) + " output channels");
  if (depthWise_ && groups_ != 1)
    throw Error(kernel, "groups", std::to_string(groups_), "1 for a depth-wise convolution");
  if (depthWise_ && outputFeatureChannels_ % inputFeatureChannels_ != 0)
    throw Error(kernel, "outputFeatureChannels", std::to_string(outputFeatureChannels_),
                "a multiple of the " + std::to_string(inputFeatureChannels_) + " input channels");
  if (outputFeatureChannels_ % (subPixelScaleFactor_ * subPixelScaleFactor_) != 0)
    throw Error(
        kernel, "subPixelScaleFactor", std::to_string(subPixelScaleFactor_),
        "a number whose square divides the " + std::to_string(outputFeatureChannels_) + " output channels");
  const double weights = static_cast<double>(kernelWidth_) * static_cast<double>(kernelHeight_) *
                         static_cast<double>(inputFeatureChannels_) *
                         static_cast<double>(outputFeatureChannels_);
  if (weights > 0x1p60) throw Error(kernel, "weights", "more than 2^60", "fewer");
  if (folding_ && folding_->scale.size() != outputFeatureChannels_)
    throw Error(kernel, "outputFeatureChannels", std::to_string(outputFeatureChannels_),
                std::to_string(folding_->scale.size()) + ", those of the folded normalisation");
  neuron_.check(kernel, "fusedNeuronDescriptor", outputFeatureChannels_);
}

std::string CNNConvolutionDescriptor::describe() const {
  std::string text = std::to_string(kernelWidth_) + "x" + std::to_string(kernelHeight_) + ", " +
                     std::to_string(inputFeatureChannels_) + " to " + std::to_string(outputFeatureChannels_) +
                     " channels";
  if (groups_ != 1) text += ", " + std::to_string(groups_) + " groups";
  if (depthWise_) text += ", depth-wise";
  if (subPixelScaleFactor_ != 1) text += ", sub-pixel scale factor " + std::to_string(subPixelScaleFactor_);
  return text;
}

void CNNConvolutionDescriptor::encode(Coder& coder) const {
  coder.codeClass("CNNConvolutionDescriptor");
  coder.encode("kernelWidth", kernelWidth_);
  coder.encode("kernelHeight", kernelHeight_);
  coder.encode("inputFeatureChannels", inputFeatureChannels_);
  coder.encode("outputFeatureChannels", outputFeatureChannels_);
  coder.encode("isDepthWise", depthWise_);
  coder.encode("strideInPixelsX", strideInPixelsX_);
  coder.encode("strideInPixelsY", strideInPixelsY_);
  coder.encode("groups", groups_);
  coder.encode("dilationRateX", dilationRateX_);
  coder.encode("dilationRateY", dilationRateY_);
  if (subPixelScaleFactor_ != 1) coder.encode("subPixelScaleFactor", subPixelScaleFactor_);
  coder.encode("fusedNeuronDescriptor", neuron_);
  coder.encode("folds", folding_ != nullptr);
  if (!folding_) return;
  coder.encode("foldedScale", folding_->scale);
  coder.encode("foldedShift", folding_->shift);
}

CNNConvolutionDescriptor CNNConvolutionDescriptor::decode(Coder& coder) {
  coder.codeClass("CNNConvolutionDescriptor");
  const auto number = [&](const char* key) {
    std::size_t value = 0;
    coder.codeSize(key, value);
    return value;
  };
  bool depthWise = false;
  coder.decode("isDepthWise", depthWise);
  CNNConvolutionDescriptor descriptor(number("kernelWidth"), number("kernelHeight"),
                                      number("inputFeatureChannels"), number("outputFeatureChannels"),
                                      depthWise);
  descriptor.setStrideInPixelsX(number("strideInPixelsX"));
  descriptor.setStrideInPixelsY(number("strideInPixelsY"));
  descriptor.setGroups(number("groups"));
  descriptor.setDilationRateX(number("dilationRateX"));
  descriptor.setDilationRateY(number("dilationRateY"));
  if (coder.contains("subPixelScaleFactor")) descriptor.setSubPixelScaleFactor(number("subPixelScaleFactor"));
  coder.decode("fusedNeuronDescriptor", descriptor.neuron_);
  bool folds = false;
  coder.decode("folds", folds);
  if (folds) {
    auto folding = std::make_shared<Folding>();
    coder.decode("foldedScale", folding->scale);
    coder.decode("foldedShift", folding->shift);
    if (folding->shift.size() != folding->scale.size())
      coder.refuse("foldedShift", std::to_string(folding->shift.size()) + " values",
                   "as many as foldedScale");
    descriptor.folding_ = std::move(folding);
  }
  descriptor.check("CNNConvolutionDescriptor");
  return descriptor;
}

}  // namespace mps
