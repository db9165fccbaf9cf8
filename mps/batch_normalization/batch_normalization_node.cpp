#include "mps/batch_normalization/batch_normalization_node.hpp"

#include <utility>

#include "mps/core/types/error.hpp"

namespace mps {

CNNBatchNormalizationNode::CNNBatchNormalizationNode(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNBatchNormalizationDataSource> dataSource)
    : NNFilterNode({std::move(source)}), dataSource_(std::move(dataSource)) {
  if (!dataSource_) throw Error("CNNBatchNormalizationNode", "dataSource", "null", "a data source");
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<CNNBatchNormalizationNode> CNNBatchNormalizationNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNBatchNormalizationDataSource> dataSource) {
  return std::shared_ptr<CNNBatchNormalizationNode>(
      new CNNBatchNormalizationNode(std::move(source), std::move(dataSource)));
}

std::shared_ptr<Kernel> CNNBatchNormalizationNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNBatchNormalization::create(device, dataSource_);
  configure(*kernel);
  kernel->setFlags(flags_);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> CNNBatchNormalizationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  auto gradient = CNNBatchNormalizationGradientNode::create(gradientImage, sources()[0], resultState());
  gradient->setTrainingStyle(trainingStyle());
  return {gradient};
}

std::shared_ptr<CNNBatchNormalizationGradientNode> CNNBatchNormalizationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<CNNBatchNormalizationGradientNode>(new CNNBatchNormalizationGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> CNNBatchNormalizationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNBatchNormalizationStatisticsGradient::create(device);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
