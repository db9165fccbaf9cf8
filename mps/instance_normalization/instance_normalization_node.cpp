#include "mps/instance_normalization/instance_normalization_node.hpp"

#include <utility>

#include "mps/core/types/error.hpp"

namespace mps {

CNNInstanceNormalizationNode::CNNInstanceNormalizationNode(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource)
    : NNFilterNode({std::move(source)}), dataSource_(std::move(dataSource)) {
  if (!dataSource_) throw Error("CNNInstanceNormalizationNode", "dataSource", "null", "a data source");
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<CNNInstanceNormalizationNode> CNNInstanceNormalizationNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource) {
  return std::shared_ptr<CNNInstanceNormalizationNode>(
      new CNNInstanceNormalizationNode(std::move(source), std::move(dataSource)));
}

std::shared_ptr<Kernel> CNNInstanceNormalizationNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNInstanceNormalization::create(device, dataSource_);
  configure(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> CNNInstanceNormalizationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  auto gradient = CNNInstanceNormalizationGradientNode::create(gradientImage, sources()[0], resultState());
  gradient->setTrainingStyle(trainingStyle());
  return {gradient};
}

std::shared_ptr<CNNInstanceNormalizationGradientNode> CNNInstanceNormalizationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<CNNInstanceNormalizationGradientNode>(new CNNInstanceNormalizationGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> CNNInstanceNormalizationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNInstanceNormalizationGradient::create(device);
  configure(*kernel);
  return kernel;
}

CNNGroupNormalizationNode::CNNGroupNormalizationNode(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNGroupNormalizationDataSource> dataSource)
    : NNFilterNode({std::move(source)}), dataSource_(std::move(dataSource)) {
  if (!dataSource_) throw Error("CNNGroupNormalizationNode", "dataSource", "null", "a data source");
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<CNNGroupNormalizationNode> CNNGroupNormalizationNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNGroupNormalizationDataSource> dataSource) {
  return std::shared_ptr<CNNGroupNormalizationNode>(
      new CNNGroupNormalizationNode(std::move(source), std::move(dataSource)));
}

std::shared_ptr<Kernel> CNNGroupNormalizationNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNGroupNormalization::create(device, dataSource_);
  configure(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> CNNGroupNormalizationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  auto gradient = CNNGroupNormalizationGradientNode::create(gradientImage, sources()[0], resultState());
  gradient->setTrainingStyle(trainingStyle());
  return {gradient};
}

std::shared_ptr<CNNGroupNormalizationGradientNode> CNNGroupNormalizationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<CNNGroupNormalizationGradientNode>(new CNNGroupNormalizationGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> CNNGroupNormalizationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNGroupNormalizationGradient::create(device);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
