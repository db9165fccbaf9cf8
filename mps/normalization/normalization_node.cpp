#include "mps/normalization/normalization_node.hpp"

#include "mps/normalization/normalization.hpp"

namespace mps {
namespace {

using NodeList = std::vector<std::shared_ptr<NNGradientFilterNode>>;

/// The parameters that all nodes share, from node to kernel or from node to node.
template <class From, class To>
void copyParameters(const From& from, To& to) {
  to.setAlpha(from.alpha());
  to.setBeta(from.beta());
  to.setDelta(from.delta());
}
template <class From, class To>
void copyContrastParameters(const From& from, To& to) {
  copyParameters(from, to);
  to.setP0(from.p0());
  to.setPm(from.pm());
  to.setPs(from.ps());
}

}  // namespace

CNNNormalizationNode::CNNNormalizationNode(std::shared_ptr<NNImageNode> source)
    : NNFilterNode({std::move(source)}) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

CNNSpatialNormalizationNode::CNNSpatialNormalizationNode(std::shared_ptr<NNImageNode> source,
                                                         std::size_t kernelSize)
    : CNNNormalizationNode(std::move(source)), kernelWidth_(kernelSize), kernelHeight_(kernelSize) {}
std::shared_ptr<CNNSpatialNormalizationNode> CNNSpatialNormalizationNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t kernelSize) {
  return std::shared_ptr<CNNSpatialNormalizationNode>(
      new CNNSpatialNormalizationNode(std::move(source), kernelSize));
}
std::shared_ptr<Kernel> CNNSpatialNormalizationNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNSpatialNormalization::create(device, kernelWidth_, kernelHeight_);
  configure(*kernel);
  copyParameters(*this, *kernel);
  return kernel;
}
NodeList CNNSpatialNormalizationNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  auto node =
      CNNSpatialNormalizationGradientNode::create(gradientImage, sources()[0], resultState(), kernelWidth_);
  node->setKernelHeight(kernelHeight_);
  copyParameters(*this, *node);
  return {std::move(node)};
}

CNNLocalContrastNormalizationNode::CNNLocalContrastNormalizationNode(std::shared_ptr<NNImageNode> source,
                                                                     std::size_t kernelSize)
    : CNNNormalizationNode(std::move(source)), kernelWidth_(kernelSize), kernelHeight_(kernelSize) {
  setBeta(0.5F);
  setDelta(1.0F / 1024);
}
std::shared_ptr<CNNLocalContrastNormalizationNode> CNNLocalContrastNormalizationNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t kernelSize) {
  return std::shared_ptr<CNNLocalContrastNormalizationNode>(
      new CNNLocalContrastNormalizationNode(std::move(source), kernelSize));
}
std::shared_ptr<Kernel> CNNLocalContrastNormalizationNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNLocalContrastNormalization::create(device, kernelWidth_, kernelHeight_);
  configure(*kernel);
  copyContrastParameters(*this, *kernel);
  return kernel;
}
NodeList CNNLocalContrastNormalizationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  auto node = CNNLocalContrastNormalizationGradientNode::create(gradientImage, sources()[0], resultState(),
                                                                kernelWidth_, kernelHeight_);
  copyContrastParameters(*this, *node);
  return {std::move(node)};
}

CNNCrossChannelNormalizationNode::CNNCrossChannelNormalizationNode(std::shared_ptr<NNImageNode> source,
                                                                   std::size_t kernelSize)
    : CNNNormalizationNode(std::move(source)), kernelSize_(kernelSize) {}
std::shared_ptr<CNNCrossChannelNormalizationNode> CNNCrossChannelNormalizationNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t kernelSize) {
  return std::shared_ptr<CNNCrossChannelNormalizationNode>(
      new CNNCrossChannelNormalizationNode(std::move(source), kernelSize));
}
std::shared_ptr<Kernel> CNNCrossChannelNormalizationNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNCrossChannelNormalization::create(device, kernelSize_);
  configure(*kernel);
  copyParameters(*this, *kernel);
  return kernel;
}
NodeList CNNCrossChannelNormalizationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNCrossChannelNormalizationGradientNode::create(gradientImage, sources()[0], resultState(),
                                                           kernelSize_)};
}

CNNSpatialNormalizationGradientNode::CNNSpatialNormalizationGradientNode(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelSize)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      kernelWidth_(kernelSize),
      kernelHeight_(kernelSize) {}
std::shared_ptr<CNNSpatialNormalizationGradientNode> CNNSpatialNormalizationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelSize) {
  return std::shared_ptr<CNNSpatialNormalizationGradientNode>(new CNNSpatialNormalizationGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), kernelSize));
}
std::shared_ptr<Kernel> CNNSpatialNormalizationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNSpatialNormalizationGradient::create(device, kernelWidth_, kernelHeight_);
  configure(*kernel);
  copyParameters(*this, *kernel);
  return kernel;
}

CNNLocalContrastNormalizationGradientNode::CNNLocalContrastNormalizationGradientNode(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      kernelWidth_(kernelWidth),
      kernelHeight_(kernelHeight) {}
std::shared_ptr<CNNLocalContrastNormalizationGradientNode> CNNLocalContrastNormalizationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight) {
  return std::shared_ptr<CNNLocalContrastNormalizationGradientNode>(
      new CNNLocalContrastNormalizationGradientNode(std::move(sourceGradient), std::move(sourceImage),
                                                    std::move(gradientState), kernelWidth, kernelHeight));
}
std::shared_ptr<Kernel> CNNLocalContrastNormalizationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNLocalContrastNormalizationGradient::create(device, kernelWidth_, kernelHeight_);
  configure(*kernel);
  copyContrastParameters(*this, *kernel);
  return kernel;
}

CNNCrossChannelNormalizationGradientNode::CNNCrossChannelNormalizationGradientNode(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelSize)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      kernelSize_(kernelSize) {}
std::shared_ptr<CNNCrossChannelNormalizationGradientNode> CNNCrossChannelNormalizationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelSize) {
  return std::shared_ptr<CNNCrossChannelNormalizationGradientNode>(
      new CNNCrossChannelNormalizationGradientNode(std::move(sourceGradient), std::move(sourceImage),
                                                   std::move(gradientState), kernelSize));
}
std::shared_ptr<Kernel> CNNCrossChannelNormalizationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNCrossChannelNormalizationGradient::create(device, kernelSize_);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
