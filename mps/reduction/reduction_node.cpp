#include "mps/reduction/reduction_node.hpp"

#include "mps/core/types/error.hpp"
#include "mps/reduction/reduction_problem.hpp"

namespace mps {

NNUnaryReductionNode::NNUnaryReductionNode(std::shared_ptr<NNImageNode> source, ReductionOperation operation,
                                           ReductionAxis axis)
    : NNFilterNode({std::move(source)}), operation_(operation), axis_(axis) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

/// "NNReduceRowMin" is the kernel of "NNReductionRowMinNode".
std::string NNUnaryReductionNode::className() const {
  const std::string reduction = detail::reductionClassName(operation_, axis_);
  return "NNReduction" + reduction.substr(std::string("NNReduce").size()) + "Node";
}

std::shared_ptr<Kernel> NNUnaryReductionNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = makeReduction(device);
  configure(*kernel);
  kernel->setClipRectSource(clipRectSource_);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNUnaryReductionNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  if (detail::traitsOf(operation_).isArgument) return NNFilterNode::makeGradientFilters(gradientImage);
  if (operation_ == ReductionOperation::Mean && axis_ == ReductionAxis::Spatial)
    return {NNReductionSpatialMeanGradientNode::create(gradientImage, sources()[0], resultState())};
  return {
      NNUnaryReductionGradientNode::create(gradientImage, sources()[0], resultState(), operation_, axis_)};
}

std::shared_ptr<NNReductionFeatureChannelsSumNode> NNReductionFeatureChannelsSumNode::create(
    std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<NNReductionFeatureChannelsSumNode>(
      new NNReductionFeatureChannelsSumNode(std::move(source)));
}

std::shared_ptr<NNReduceUnary> NNReductionFeatureChannelsSumNode::makeReduction(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNReduceFeatureChannelsSum::create(device);
  kernel->setWeight(weight_);
  return kernel;
}

NNUnaryReductionGradientNode::NNUnaryReductionGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                                           std::shared_ptr<NNImageNode> sourceImage,
                                                           std::shared_ptr<NNStateNode> gradientState,
                                                           ReductionOperation operation, ReductionAxis axis)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      operation_(operation),
      axis_(axis) {}

std::shared_ptr<NNUnaryReductionGradientNode> NNUnaryReductionGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, ReductionOperation operation, ReductionAxis axis) {
  return std::shared_ptr<NNUnaryReductionGradientNode>(new NNUnaryReductionGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), operation, axis));
}

std::shared_ptr<Kernel> NNUnaryReductionGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNReduceUnaryGradient::create(device, operation_, axis_);
  configure(*kernel);
  return kernel;
}

NNReductionSpatialMeanGradientNode::NNReductionSpatialMeanGradientNode(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState)
    : NNUnaryReductionGradientNode(std::move(sourceGradient), std::move(sourceImage),
                                   std::move(gradientState), ReductionOperation::Mean,
                                   ReductionAxis::Spatial) {}

std::shared_ptr<NNReductionSpatialMeanGradientNode> NNReductionSpatialMeanGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<NNReductionSpatialMeanGradientNode>(new NNReductionSpatialMeanGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

}  // namespace mps
