#include "mps/reshape/reshape_node.hpp"

#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"

namespace mps {

NNReshapeNode::NNReshapeNode(std::shared_ptr<NNImageNode> source, std::size_t resultWidth,
                             std::size_t resultHeight, std::size_t resultFeatureChannels)
    : NNFilterNode({std::move(source)}),
      resultWidth_(resultWidth),
      resultHeight_(resultHeight),
      resultFeatureChannels_(resultFeatureChannels) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<NNReshapeNode> NNReshapeNode::create(std::shared_ptr<NNImageNode> source,
                                                     std::size_t resultWidth, std::size_t resultHeight,
                                                     std::size_t resultFeatureChannels) {
  return std::shared_ptr<NNReshapeNode>(
      new NNReshapeNode(std::move(source), resultWidth, resultHeight, resultFeatureChannels));
}

std::shared_ptr<Kernel> NNReshapeNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNReshape::create(device);
  configure(*kernel);
  kernel->setReshapedSize(resultWidth_, resultHeight_, resultFeatureChannels_);
  kernel->setChannelsFirst(channelsFirst_);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNReshapeNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {NNReshapeGradientNode::create(gradientImage, sources()[0], resultState())};
}

std::shared_ptr<NNReshapeGradientNode> NNReshapeGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<NNReshapeGradientNode>(
      new NNReshapeGradientNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> NNReshapeGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNReshapeGradient::create(device);
  configure(*kernel);
  return kernel;
}

NNPadNode::NNPadNode(std::shared_ptr<NNImageNode> source, const ImageCoordinate& paddingSizeBefore,
                     const ImageCoordinate& paddingSizeAfter, ImageEdgeMode edgeMode)
    : NNFilterNode({std::move(source)}),
      before_(paddingSizeBefore),
      after_(paddingSizeAfter),
      edgeMode_(edgeMode) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<NNPadNode> NNPadNode::create(std::shared_ptr<NNImageNode> source,
                                             const ImageCoordinate& paddingSizeBefore,
                                             const ImageCoordinate& paddingSizeAfter,
                                             ImageEdgeMode edgeMode) {
  return std::shared_ptr<NNPadNode>(
      new NNPadNode(std::move(source), paddingSizeBefore, paddingSizeAfter, edgeMode));
}

std::shared_ptr<Kernel> NNPadNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNPad::create(device, before_, after_);
  configure(*kernel);
  kernel->setEdgeMode(edgeMode_);
  kernel->setFillValue(fillValue_);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNPadNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {NNPadGradientNode::create(gradientImage, sources()[0], resultState())};
}

std::shared_ptr<NNPadGradientNode> NNPadGradientNode::create(std::shared_ptr<NNImageNode> sourceGradient,
                                                             std::shared_ptr<NNImageNode> sourceImage,
                                                             std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<NNPadGradientNode>(
      new NNPadGradientNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> NNPadGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNPadGradient::create(device);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
