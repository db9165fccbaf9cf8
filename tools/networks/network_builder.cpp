#include "tools/networks/network_builder.hpp"

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/convolution/convolution_node.hpp"
#include "mps/core/error.hpp"
#include "mps/core/padding.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/normalization/normalization_node.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/upsampling/upsampling_node.hpp"

namespace unmetal {
namespace {

/// Keeps seeds of layers and of dropout apart, and those of one training from the next one's.
constexpr std::uint64_t seedsOfANetwork = 1000;

std::shared_ptr<mps::NNPadding> validOnly() {
  return mps::NNDefaultPadding::padding(mps::NNPaddingMethod::SizeValidOnly);
}

std::size_t dividedUp(std::size_t size, std::size_t stride) {
  return (size + stride - 1) / stride;
}

}  // namespace

Features NetworkBuilder::begin(bool training) {
  training_ = training;
  trainingFlops_ = 0;
  pictures_ = mps::NNImageNode::create();
  return {pictures_, options_.width, options_.height, options_.channels};
}

void NetworkBuilder::checkSidesAreMultiplesOf(std::size_t factor) const {
  if (options_.width % factor == 0 && options_.height % factor == 0) return;
  throw mps::Error("network " + options_.name + ": give pictures whose sides are multiples of " +
                   std::to_string(factor) + ", not " + std::to_string(options_.height) + "x" +
                   std::to_string(options_.width));
}

std::shared_ptr<mps::TrainableConvolution> NetworkBuilder::weights(
    const Features& source, std::size_t kernelWidth, std::size_t kernelHeight, std::size_t outputs,
    std::size_t stride, const std::string& label, mps::WeightInitialization initialization,
    mps::LayerBiases biases) {
  auto& layer = convolutions_[label];
  if (layer) return layer;
  auto descriptor = mps::CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernelWidth, kernelHeight,
                                                                            source.channels, outputs);
  descriptor.setStrideInPixelsX(stride);
  descriptor.setStrideInPixelsY(stride);
  expectTensor(label + ".weight", {outputs, kernelHeight, kernelWidth, source.channels});
  layer = mps::TrainableConvolution::create(device_, descriptor, label,
                                            options_.seed * seedsOfANetwork + layers_.size(),
                                            options_.optimizer, initialization, options_.adamForm, biases);
  layers_.push_back(layer);
  parameterCount_ += descriptor.weightCount() + (biases == mps::LayerBiases::Trained ? outputs : 0);
  return layer;
}

void NetworkBuilder::expectTensor(const std::string& tensor,
                                  std::initializer_list<std::uint64_t> shape) const {
  if (options_.expectTensor) options_.expectTensor(tensor, std::span(shape.begin(), shape.size()));
}

void NetworkBuilder::countFlops(const Features& source, const Features& result, std::size_t weightCount) {
  const double forward =
      2 * static_cast<double>(result.width * result.height) * static_cast<double>(weightCount);
  // Nobody needs the gradient of the pictures.
  trainingFlops_ += source.image == pictures_ ? 2 * forward : 3 * forward;
}

std::size_t NetworkBuilder::validSize(std::size_t size, const ConvolutionShape& shape) const {
  if (size < shape.kernelSize)
    throw mps::Error("network " + options_.name + ": pictures of " + std::to_string(options_.height) + "x" +
                     std::to_string(options_.width) + " pixels are too small");
  return (size - shape.kernelSize) / shape.stride + 1;
}

Features NetworkBuilder::convolve(const Features& source, const ConvolutionShape& shape,
                                  const std::string& label, mps::LayerBiases biases) {
  const auto layer = weights(source, shape.kernelSize, shape.kernelSize, shape.outputChannels, shape.stride,
                             label, mps::WeightInitialization::He, biases);
  const auto node = mps::CNNConvolutionNode::create(source.image, layer);
  node->setLabel(label);
  Features result{node->resultImage(), dividedUp(source.width, shape.stride),
                  dividedUp(source.height, shape.stride), shape.outputChannels};
  if (!shape.same) {
    node->setPaddingPolicy(validOnly());
    result.width = validSize(source.width, shape);
    result.height = validSize(source.height, shape);
  }
  countFlops(source, result, layer->descriptor().weightCount());
  return result;
}

Features NetworkBuilder::convolution(const Features& source, const ConvolutionShape& shape,
                                     const std::string& label) {
  return convolve(source, shape, label, mps::LayerBiases::Trained);
}

Features NetworkBuilder::plainConvolution(const Features& source, const ConvolutionShape& shape,
                                          const std::string& label) {
  return convolve(source, shape, label, mps::LayerBiases::None);
}

Features NetworkBuilder::dense(const Features& source, std::size_t outputs, const std::string& label,
                               mps::WeightInitialization initialization) {
  const auto layer = weights(source, source.width, source.height, outputs, 1, label, initialization,
                             mps::LayerBiases::Trained);
  const auto node = mps::CNNFullyConnectedNode::create(source.image, layer);
  node->setLabel(label);
  Features result{node->resultImage(), 1, 1, outputs};
  countFlops(source, result, layer->descriptor().weightCount());
  return result;
}

Features NetworkBuilder::batchNormalization(const Features& source, const std::string& label) {
  constexpr float momentum = 0.9F;
  constexpr float epsilon = 1e-5F;
  auto& layer = normalizations_[label];
  if (!layer) {
    expectTensor(label + ".weight", {source.channels});
    layer = mps::TrainableBatchNormalization::create(device_, source.channels, label, options_.optimizer,
                                                     momentum, epsilon, options_.adamForm);
    layers_.push_back(layer);
    parameterCount_ += 2 * source.channels;
  }
  const auto node = mps::CNNBatchNormalizationNode::create(source.image, layer);
  node->setLabel(label);
  return {node->resultImage(), source.width, source.height, source.channels};
}

Features NetworkBuilder::instanceNormalization(const Features& source, const std::string& label) {
  constexpr float epsilon = 1e-5F;
  auto& layer = imageNormalizations_[label];
  if (!layer) {
    expectTensor(label + ".weight", {source.channels});
    layer = mps::TrainableInstanceNormalization::create(device_, source.channels, label, options_.optimizer,
                                                        epsilon, options_.adamForm);
    layers_.push_back(layer);
    parameterCount_ += 2 * source.channels;
  }
  const auto node = mps::CNNInstanceNormalizationNode::create(source.image, layer);
  node->setLabel(label);
  return {node->resultImage(), source.width, source.height, source.channels};
}

Features NetworkBuilder::crossChannelNormalization(const Features& source) const {
  constexpr std::size_t channels = 5;
  const auto node = mps::CNNCrossChannelNormalizationNode::create(source.image, channels);
  node->setAlpha(1e-4F);
  node->setBeta(0.75F);
  node->setDelta(2);
  return {node->resultImage(), source.width, source.height, source.channels};
}

Features NetworkBuilder::dropout(const Features& source, float keepProbability, std::uint64_t number) const {
  if (!training_) return source;
  const std::uint64_t seed = (options_.seed + 1) * seedsOfANetwork - 1 - number;
  return {mps::CNNDropoutNode::create(source.image, keepProbability, seed)->resultImage(), source.width,
          source.height, source.channels};
}

Features relu(const Features& source) {
  return {mps::CNNNeuronReLUNode::create(source.image)->resultImage(), source.width, source.height,
          source.channels};
}

Features tanh(const Features& source) {
  return {mps::CNNNeuronTanHNode::create(source.image)->resultImage(), source.width, source.height,
          source.channels};
}

Features add(const Features& left, const Features& right) {
  return {mps::NNAdditionNode::create(left.image, right.image)->resultImage(), left.width, left.height,
          left.channels};
}

Features maxPool(const Features& source, std::size_t kernelSize, std::size_t stride) {
  return {mps::CNNPoolingMaxNode::create(source.image, kernelSize, stride)->resultImage(),
          dividedUp(source.width, stride), dividedUp(source.height, stride), source.channels};
}

Features averagePool(const Features& source, std::size_t kernelSize) {
  return {mps::CNNPoolingAverageNode::create(source.image, kernelSize)->resultImage(),
          dividedUp(source.width, kernelSize), dividedUp(source.height, kernelSize), source.channels};
}

Features globalAveragePool(const Features& source) {
  const auto node = mps::CNNPoolingAverageNode::create(source.image, source.width, source.height,
                                                       source.width, source.height);
  node->setPaddingPolicy(validOnly());
  return {node->resultImage(), 1, 1, source.channels};
}

Features concatenate(const Features& left, const Features& right) {
  const auto node = mps::NNConcatenationNode::create({left.image, right.image});
  node->setChannelAlignment(1);
  return {node->resultImage(), left.width, left.height, left.channels + right.channels};
}

Features doubled(const Features& source) {
  const auto node = mps::CNNUpsamplingBilinearNode::create(source.image, 2, 2);
  node->setHalfPixelCenters(true);
  return {node->resultImage(), 2 * source.width, 2 * source.height, source.channels};
}

Features repeated(const Features& source) {
  return {mps::CNNUpsamplingNearestNode::create(source.image, 2, 2)->resultImage(), 2 * source.width,
          2 * source.height, source.channels};
}

}  // namespace unmetal
