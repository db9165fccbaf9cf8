#include "mps/convolution/convolution_node.hpp"

#include "mps/convolution/convolution.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/error.hpp"

namespace mps {
namespace {

using NodeList = std::vector<std::shared_ptr<NNGradientFilterNode>>;

/// A gradient node may leave its data source to the forward node that made its state.
std::shared_ptr<CNNConvolutionDataSource> sourceFor(std::shared_ptr<CNNConvolutionDataSource> weights,
                                                    const std::shared_ptr<NNStateNode>& state) {
  if (weights) return weights;
  const auto* forward = state ? dynamic_cast<const CNNConvolutionNode*>(state->producer()) : nullptr;
  if (forward == nullptr)
    throw Error("CNNConvolutionGradientNode", "weights", "null, and the state is of no convolution node",
                "a data source");
  return forward->weights();
}

}  // namespace

CNNConvolutionNode::CNNConvolutionNode(std::shared_ptr<NNImageNode> source,
                                       std::shared_ptr<CNNConvolutionDataSource> weights)
    : NNFilterNode({std::move(source)}), weights_(std::move(weights)) {
  if (!weights_) throw Error("CNNConvolutionNode", "weights", "null", "a data source");
  addResultState(std::make_unique<CNNConvolutionGradientStateNode>());
}

std::shared_ptr<CNNConvolutionNode> CNNConvolutionNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionNode>(new CNNConvolutionNode(std::move(source), std::move(weights)));
}

std::shared_ptr<Kernel> CNNConvolutionNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNConvolution::create(device, weights_);
  configure(*kernel);
  kernel->setAccumulatorPrecisionOption(precision_);
  return kernel;
}

NodeList CNNConvolutionNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  auto gradient = CNNConvolutionGradientNode::create(gradientImage, sources()[0], resultState(), weights_);
  gradient->setTrainingStyle(trainingStyle());
  return {gradient};
}

CNNFullyConnectedNode::CNNFullyConnectedNode(std::shared_ptr<NNImageNode> source,
                                             std::shared_ptr<CNNConvolutionDataSource> weights)
    : CNNConvolutionNode(std::move(source), std::move(weights)) {
  setDefaultPaddingPolicy(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
}

std::shared_ptr<CNNFullyConnectedNode> CNNFullyConnectedNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNFullyConnectedNode>(
      new CNNFullyConnectedNode(std::move(source), std::move(weights)));
}

std::shared_ptr<Kernel> CNNFullyConnectedNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNFullyConnected::create(device, weights());
  configure(*kernel);
  kernel->setAccumulatorPrecisionOption(accumulatorPrecision());
  return kernel;
}

NodeList CNNFullyConnectedNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  auto gradient =
      CNNFullyConnectedGradientNode::create(gradientImage, sources()[0], resultState(), weights());
  gradient->setTrainingStyle(trainingStyle());
  return {gradient};
}

CNNConvolutionGradientNode::CNNConvolutionGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                                       std::shared_ptr<NNImageNode> sourceImage,
                                                       std::shared_ptr<NNStateNode> convolutionGradientState,
                                                       std::shared_ptr<CNNConvolutionDataSource> weights)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage),
                           std::move(convolutionGradientState)),
      weights_(sourceFor(std::move(weights), gradientState())) {}

std::shared_ptr<CNNConvolutionGradientNode> CNNConvolutionGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> convolutionGradientState,
    std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionGradientNode>(
      new CNNConvolutionGradientNode(std::move(sourceGradient), std::move(sourceImage),
                                     std::move(convolutionGradientState), std::move(weights)));
}

std::shared_ptr<Kernel> CNNConvolutionGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNConvolutionGradient::create(device, weights_);
  configure(*kernel);
  return kernel;
}

std::shared_ptr<CNNFullyConnectedGradientNode> CNNFullyConnectedGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> convolutionGradientState,
    std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNFullyConnectedGradientNode>(
      new CNNFullyConnectedGradientNode(std::move(sourceGradient), std::move(sourceImage),
                                        std::move(convolutionGradientState), std::move(weights)));
}

std::shared_ptr<Kernel> CNNFullyConnectedGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNFullyConnectedGradient::create(device, weights());
  configure(*kernel);
  return kernel;
}

}  // namespace mps
