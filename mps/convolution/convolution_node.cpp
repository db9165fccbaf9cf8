#include "mps/convolution/convolution_node.hpp"

#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/types/error.hpp"

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
                                       std::shared_ptr<CNNConvolutionDataSource> weights,
                                       std::vector<std::shared_ptr<NNStateNode>> sourceStates,
                                       std::unique_ptr<NNStateNode> resultState)
    : NNFilterNode({std::move(source)}, std::move(sourceStates)), weights_(std::move(weights)) {
  if (!weights_) throw Error("CNNConvolutionNode", "weights", "null", "a data source");
  addResultState(std::move(resultState));
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

CNNConvolutionTransposeNode::CNNConvolutionTransposeNode(
    std::shared_ptr<NNImageNode> source, std::vector<std::shared_ptr<NNStateNode>> sourceStates,
    std::shared_ptr<CNNConvolutionDataSource> weights)
    : CNNConvolutionNode(std::move(source), std::move(weights), std::move(sourceStates),
                         std::make_unique<CNNConvolutionTransposeGradientStateNode>()) {}

std::shared_ptr<CNNConvolutionTransposeNode> CNNConvolutionTransposeNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<NNStateNode> convolutionGradientState,
    std::shared_ptr<CNNConvolutionDataSource> weights) {
  if (!convolutionGradientState) return create(std::move(source), std::move(weights));
  const auto* undone = convolutionGradientState->producer();
  if (undone == nullptr || undone->className() != "CNNConvolutionNode")
    throw Error("CNNConvolutionTransposeNode", "convolutionGradientState",
                undone == nullptr ? "a state without a node" : "of " + undone->describe(),
                "the state of a CNNConvolutionNode");
  return std::shared_ptr<CNNConvolutionTransposeNode>(new CNNConvolutionTransposeNode(
      std::move(source), {std::move(convolutionGradientState)}, std::move(weights)));
}

std::shared_ptr<CNNConvolutionTransposeNode> CNNConvolutionTransposeNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionTransposeNode>(
      new CNNConvolutionTransposeNode(std::move(source), {}, std::move(weights)));
}

std::shared_ptr<Kernel> CNNConvolutionTransposeNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNConvolutionTranspose::create(device, weights());
  configure(*kernel);
  kernel->setAccumulatorPrecisionOption(accumulatorPrecision());
  return kernel;
}

NodeList CNNConvolutionTransposeNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  auto gradient =
      CNNConvolutionTransposeGradientNode::create(gradientImage, sources()[0], resultState(), weights());
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

std::shared_ptr<CNNConvolutionTransposeGradientNode> CNNConvolutionTransposeGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> convolutionTransposeGradientState,
    std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionTransposeGradientNode>(new CNNConvolutionTransposeGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(convolutionTransposeGradientState),
      std::move(weights)));
}

std::shared_ptr<Kernel> CNNConvolutionTransposeGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNConvolutionTransposeGradient::create(device, weights());
  configure(*kernel);
  return kernel;
}

}  // namespace mps
