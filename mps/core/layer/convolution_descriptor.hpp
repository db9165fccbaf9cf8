#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/types/array_ref.hpp"

namespace mps {

class Coder;

/// Order of convolution weights: [out][kernel row][kernel column][in / groups], the only one.
enum class CNNConvolutionWeightsLayout : std::uint32_t { OHWI = 0 };

/// How 8-bit weights become numbers.
enum class CNNWeightsQuantizationType : std::uint32_t { None = 0, Linear = 1, LookupTable = 2 };

/// What the gradient kernel of a convolution computes.
enum class CNNConvolutionGradientOption : std::uint64_t {
  GradientWithData = 1,            ///< the gradient of the source image
  GradientWithWeightsAndBias = 2,  ///< the gradients of weights and bias
  All = 3
};
constexpr bool has(CNNConvolutionGradientOption options, CNNConvolutionGradientOption option) {
  return (static_cast<std::uint64_t>(options) & static_cast<std::uint64_t>(option)) != 0;
}

/// Shape of a convolution (MPSCNNConvolutionDescriptor). A value; kernels read it when
/// they are made. All numbers are 1 ... 2^31 - 1; setters throw Error for others.
class CNNConvolutionDescriptor {
 public:
  /// Stride 1, dilation 1, one group, no neuron.
  static CNNConvolutionDescriptor create(std::size_t kernelWidth, std::size_t kernelHeight,
                                         std::size_t inputFeatureChannels, std::size_t outputFeatureChannels);
  /// Apple's name of create.
  static CNNConvolutionDescriptor cnnConvolutionDescriptor(std::size_t kernelWidth, std::size_t kernelHeight,
                                                           std::size_t inputFeatureChannels,
                                                           std::size_t outputFeatureChannels) {
    return create(kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels);
  }

  [[nodiscard]] std::size_t kernelWidth() const { return kernelWidth_; }
  void setKernelWidth(std::size_t width) { kernelWidth_ = checked("kernelWidth", width); }
  [[nodiscard]] std::size_t kernelHeight() const { return kernelHeight_; }
  void setKernelHeight(std::size_t height) { kernelHeight_ = checked("kernelHeight", height); }
  [[nodiscard]] std::size_t inputFeatureChannels() const { return inputFeatureChannels_; }
  void setInputFeatureChannels(std::size_t channels) {
    inputFeatureChannels_ = checked("inputFeatureChannels", channels);
  }
  [[nodiscard]] std::size_t outputFeatureChannels() const { return outputFeatureChannels_; }
  void setOutputFeatureChannels(std::size_t channels) {
    outputFeatureChannels_ = checked("outputFeatureChannels", channels);
  }
  /// Step from window to window, in pixels. 1.
  [[nodiscard]] std::size_t strideInPixelsX() const { return strideInPixelsX_; }
  void setStrideInPixelsX(std::size_t stride) { strideInPixelsX_ = checked("strideInPixelsX", stride); }
  [[nodiscard]] std::size_t strideInPixelsY() const { return strideInPixelsY_; }
  void setStrideInPixelsY(std::size_t stride) { strideInPixelsY_ = checked("strideInPixelsY", stride); }
  /// Divides both channel counts; any divisor is taken (Apple wants multiples of 4 in each group). 1.
  [[nodiscard]] std::size_t groups() const { return groups_; }
  void setGroups(std::size_t groups) { groups_ = checked("groups", groups); }
  /// Pixels from tap to tap. 1.
  [[nodiscard]] std::size_t dilationRateX() const { return dilationRateX_; }
  void setDilationRateX(std::size_t rate) { dilationRateX_ = checked("dilationRateX", rate); }
  [[nodiscard]] std::size_t dilationRateY() const { return dilationRateY_; }
  void setDilationRateY(std::size_t rate) { dilationRateY_ = checked("dilationRateY", rate); }
  /// Applied to the result. None. Not for training: put a neuron of its own behind the convolution.
  [[nodiscard]] const NNNeuronDescriptor& fusedNeuronDescriptor() const { return neuron_; }
  void setFusedNeuronDescriptor(NNNeuronDescriptor neuron) { neuron_ = std::move(neuron); }
  /// Folds a batch normalisation into weights and bias, for inference:
  /// W' = W * gamma / sqrt(variance + epsilon), b' = (b - mean) * gamma / sqrt(variance + epsilon) + beta.
  /// Each list holds outputFeatureChannels values, or is nullptr or empty: mean 0, variance 1, gamma 1, beta 0.
  void setBatchNormalizationParametersForInference(ArrayRef<float> mean, ArrayRef<float> variance,
                                                   ArrayRef<float> gamma, ArrayRef<float> beta,
                                                   float epsilon);

  /// 0 for an ordinary convolution; of a depth-wise one, results per input channel.
  [[nodiscard]] std::size_t channelMultiplier() const {
    return depthWise_ ? outputFeatureChannels_ / inputFeatureChannels_ : 0;
  }
  /// Side of the block of pixels that each pixel of the result becomes; 1 but for sub-pixel convolutions.
  [[nodiscard]] std::size_t subPixelScaleFactor() const { return subPixelScaleFactor_; }
  /// Weights of the whole filter and of one output channel.
  [[nodiscard]] std::size_t weightCount() const { return outputFeatureChannels_ * weightsPerOutputChannel(); }
  [[nodiscard]] std::size_t weightsPerOutputChannel() const {
    return kernelWidth_ * kernelHeight_ * (depthWise_ ? 1 : inputFeatureChannels_ / groups_);
  }
  void encode(Coder& coder) const;
  /// A depth-wise or sub-pixel one stays one. @throws Error also for what check() refuses
  static CNNConvolutionDescriptor decode(Coder& coder);
  /// @throws Error naming `kernel` when groups do not divide the channels, or do not fit depth-wise filters
  /// or the folded normalisation, or when blocks of sub-pixels do not divide the output channels.
  void check(const std::string& kernel) const;
  /// "5x5, 1 to 32 channels, ...".
  [[nodiscard]] std::string describe() const;

  /// What folding a batch normalisation multiplies each output channel by and adds to it.
  struct Folding {
    std::vector<float> scale;
    std::vector<float> shift;
  };
  [[nodiscard]] const std::shared_ptr<const Folding>& folding() const { return folding_; }

 protected:
  CNNConvolutionDescriptor(std::size_t kernelWidth, std::size_t kernelHeight,
                           std::size_t inputFeatureChannels, std::size_t outputFeatureChannels,
                           bool depthWise);
  void setSubPixelScaleFactor(std::size_t factor) {
    subPixelScaleFactor_ = checked("subPixelScaleFactor", factor);
  }

 private:
  /// @throws Error when a value is out of range.
  static std::size_t checked(const char* property, std::size_t value);

  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
  std::size_t inputFeatureChannels_;
  std::size_t outputFeatureChannels_;
  bool depthWise_;
  std::size_t strideInPixelsX_ = 1;
  std::size_t strideInPixelsY_ = 1;
  std::size_t groups_ = 1;
  std::size_t dilationRateX_ = 1;
  std::size_t dilationRateY_ = 1;
  std::size_t subPixelScaleFactor_ = 1;
  NNNeuronDescriptor neuron_;
  std::shared_ptr<const Folding> folding_;
};

/// One filter per input channel, no mixing of channels (MPSCNNDepthWiseConvolutionDescriptor). channelMultiplier =
/// outputFeatureChannels / inputFeatureChannels; weights are [out][kernel row][column].
class CNNDepthWiseConvolutionDescriptor : public CNNConvolutionDescriptor {
 public:
  /// @throws Error when inputFeatureChannels does not divide outputFeatureChannels.
  static CNNDepthWiseConvolutionDescriptor create(std::size_t kernelWidth, std::size_t kernelHeight,
                                                  std::size_t inputFeatureChannels,
                                                  std::size_t outputFeatureChannels);
  /// Apple's name of create.
  static CNNDepthWiseConvolutionDescriptor cnnConvolutionDescriptor(std::size_t kernelWidth,
                                                                    std::size_t kernelHeight,
                                                                    std::size_t inputFeatureChannels,
                                                                    std::size_t outputFeatureChannels) {
    return create(kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels);
  }

 private:
  using CNNConvolutionDescriptor::CNNConvolutionDescriptor;
};

/// A convolution whose result is spread over more pixels (MPSCNNSubPixelConvolutionDescriptor).
/// With r = subPixelScaleFactor and C = outputFeatureChannels / r^2, each pixel of the result becomes r x r pixels of C
/// channels:
///
///     result[y][x][c] = convolution[floor(y / r)][floor(x / r)][C (r (y mod r) + x mod r) + c]
///
/// The block comes first in the order of channels, as in TensorFlow's depth_to_space; PyTorch's PixelShuffle has it last.
/// outputFeatureChannels stays the number of filters. For CNNConvolution alone, and forward only: gradient kernels, fully
/// connected and transposed layers throw.
class CNNSubPixelConvolutionDescriptor : public CNNConvolutionDescriptor {
 public:
  /// As CNNConvolutionDescriptor's, with subPixelScaleFactor 1.
  static CNNSubPixelConvolutionDescriptor create(std::size_t kernelWidth, std::size_t kernelHeight,
                                                 std::size_t inputFeatureChannels,
                                                 std::size_t outputFeatureChannels);
  /// Apple's name of create.
  static CNNSubPixelConvolutionDescriptor cnnConvolutionDescriptor(std::size_t kernelWidth,
                                                                   std::size_t kernelHeight,
                                                                   std::size_t inputFeatureChannels,
                                                                   std::size_t outputFeatureChannels) {
    return create(kernelWidth, kernelHeight, inputFeatureChannels, outputFeatureChannels);
  }
  /// Its square divides outputFeatureChannels: kernels throw otherwise when they are made.
  using CNNConvolutionDescriptor::setSubPixelScaleFactor;

 private:
  using CNNConvolutionDescriptor::CNNConvolutionDescriptor;
};

}  // namespace mps
