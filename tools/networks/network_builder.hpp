#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/node.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_convolution.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"
#include "tools/networks.hpp"

namespace unmetal {

/// Smaller pictures keep their size in the first layers of networks for large ones.
inline constexpr std::size_t kLeastSideToShrink = 64;

/// An image of a network while it is built: its node and its size.
struct Features {
  std::shared_ptr<mps::NNImageNode> image;
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t channels = 0;
};

/// How a convolution is set in its source.
struct ConvolutionShape {
  std::size_t kernelSize = 3;
  std::size_t outputChannels = 0;
  std::size_t stride = 1;
  /// Same: ceil(size / stride) pixels, centred, as PyTorch's padding of (kernelSize - 1) / 2. Otherwise none.
  bool same = true;
};

/// Puts nodes of the public graph API together. Layers are made when their label is met first, in the training graph,
/// and found again by it for the inference graph; labels are the names of their tensors in files.
class NetworkBuilder {
 public:
  /// @param firstChannels what the network's name says, see firstChannels()
  NetworkBuilder(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options,
                 std::size_t firstChannels)
      : device_(device), options_(options), firstChannels_(firstChannels) {}

  /// Begins a graph. @param training whether dropout is part of it
  Features begin(bool training);

  [[nodiscard]] const NetworkOptions& options() const { return options_; }
  /// @throws mps::Error unless the pictures can be halved so often
  void checkSidesAreMultiplesOf(std::size_t factor) const;
  /// Channels of the first layer, of networks that can be made narrow.
  [[nodiscard]] std::size_t firstChannels() const { return firstChannels_; }

  /// With biases.
  Features convolution(const Features& source, const ConvolutionShape& shape, const std::string& label);
  /// Without biases: batch normalisation comes behind it.
  Features plainConvolution(const Features& source, const ConvolutionShape& shape, const std::string& label);
  /// Over the whole source. Sums of the last one go to a softmax.
  Features dense(const Features& source, std::size_t outputs, const std::string& label,
                 mps::WeightInitialization initialization = mps::WeightInitialization::He);
  /// With PyTorch's momentum (0.9 in our terms) and epsilon, 1e-5.
  Features batchNormalization(const Features& source, const std::string& label);
  /// With PyTorch's epsilon, 1e-5.
  Features instanceNormalization(const Features& source, const std::string& label);
  /// Across five channels, as AlexNet has it: 2 + 1e-4 mean of squares, to the power of 0.75.
  [[nodiscard]] Features crossChannelNormalization(const Features& source) const;

  /// Keeps `keepProbability` of the values in training. @param number of this dropout in the network, from 0
  [[nodiscard]] Features dropout(const Features& source, float keepProbability,
                                 std::uint64_t number = 0) const;

  [[nodiscard]] const std::vector<std::shared_ptr<mps::TrainableLayer>>& layers() const { return layers_; }
  [[nodiscard]] std::size_t parameterCount() const { return parameterCount_; }
  /// Of the graph since begin().
  [[nodiscard]] double trainingFlops() const { return trainingFlops_; }

 private:
  std::shared_ptr<mps::TrainableConvolution> weights(const Features& source, std::size_t kernelWidth,
                                                     std::size_t kernelHeight, std::size_t outputs,
                                                     std::size_t stride, const std::string& label,
                                                     mps::WeightInitialization initialization,
                                                     mps::LayerBiases biases);
  Features convolve(const Features& source, const ConvolutionShape& shape, const std::string& label,
                    mps::LayerBiases biases);
  void expectTensor(const std::string& tensor, std::initializer_list<std::uint64_t> shape) const;
  void countFlops(const Features& source, const Features& result, std::size_t weightCount);
  [[nodiscard]] std::size_t validSize(std::size_t size, const ConvolutionShape& shape) const;

  std::shared_ptr<mtl::Device> device_;
  const NetworkOptions& options_;
  std::size_t firstChannels_;
  bool training_ = false;
  std::shared_ptr<mps::NNImageNode> pictures_;
  std::vector<std::shared_ptr<mps::TrainableLayer>> layers_;
  std::map<std::string, std::shared_ptr<mps::TrainableConvolution>> convolutions_;
  std::map<std::string, std::shared_ptr<mps::TrainableBatchNormalization>> normalizations_;
  std::map<std::string, std::shared_ptr<mps::TrainableInstanceNormalization>> imageNormalizations_;
  std::size_t parameterCount_ = 0;
  double trainingFlops_ = 0;
};

Features relu(const Features& source);
Features tanh(const Features& source);
/// Both of one size.
Features add(const Features& left, const Features& right);
/// ceil(size / stride) pixels, windows centred: 3 by 2 is PyTorch's with a padding of 1.
Features maxPool(const Features& source, std::size_t kernelSize, std::size_t stride);
/// Pixels outside do not count.
Features averagePool(const Features& source, std::size_t kernelSize);
/// One pixel: the mean of each channel.
Features globalAveragePool(const Features& source);

/// Both of one width and height: the channels of the left one, then those of the right one.
Features concatenate(const Features& left, const Features& right);
/// Twice as wide and high, bilinear between the centres of pixels.
Features doubled(const Features& source);
/// Twice as wide and high, each pixel as four.
Features repeated(const Features& source);

/// @name The networks: from pictures to one number for each class. networks.hpp says what they are.
/// @{
Features lenet(NetworkBuilder& builder, const Features& pictures);
Features mnistCnn(NetworkBuilder& builder, const Features& pictures);
Features resnet18(NetworkBuilder& builder, const Features& pictures);
Features resnet50(NetworkBuilder& builder, const Features& pictures);
Features alexnetLrn(NetworkBuilder& builder, const Features& pictures);
Features unetSmall(NetworkBuilder& builder, const Features& pictures);
Features style(NetworkBuilder& builder, const Features& pictures);
/// @}

}  // namespace unmetal
