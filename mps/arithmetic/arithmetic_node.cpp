#include "mps/arithmetic/arithmetic_node.hpp"

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/core/error.hpp"

namespace mps {
namespace {

std::vector<std::shared_ptr<NNImageNode>> twoSources(std::span<const std::shared_ptr<NNImageNode>> sources) {
  if (sources.size() != 2)
    throw Error("NNBinaryArithmeticNode", "sources", std::to_string(sources.size()) + " images",
                "exactly 2: left and right");
  return {sources.begin(), sources.end()};
}

}  // namespace

NNBinaryArithmeticNode::NNBinaryArithmeticNode(std::shared_ptr<NNImageNode> leftSource,
                                               std::shared_ptr<NNImageNode> rightSource)
    : NNFilterNode({std::move(leftSource), std::move(rightSource)}) {
  addResultState(std::make_unique<NNBinaryGradientStateNode>());
}

NNBinaryArithmeticNode::NNBinaryArithmeticNode(std::span<const std::shared_ptr<NNImageNode>> sources)
    : NNFilterNode(twoSources(sources)) {
  addResultState(std::make_unique<NNBinaryGradientStateNode>());
}

std::shared_ptr<Kernel> NNBinaryArithmeticNode::configured(
    const std::shared_ptr<CNNArithmetic>& kernel) const {
  configure(*kernel);
  kernel->setPrimaryScale(primaryScale_);
  kernel->setSecondaryScale(secondaryScale_);
  kernel->setBias(bias_);
  kernel->setPrimaryStrideInPixelsX(primaryStrideInPixelsX_);
  kernel->setPrimaryStrideInPixelsY(primaryStrideInPixelsY_);
  kernel->setPrimaryStrideInFeatureChannels(primaryStrideInFeatureChannels_);
  kernel->setSecondaryStrideInPixelsX(secondaryStrideInPixelsX_);
  kernel->setSecondaryStrideInPixelsY(secondaryStrideInPixelsY_);
  kernel->setSecondaryStrideInFeatureChannels(secondaryStrideInFeatureChannels_);
  kernel->setMinimumValue(minimumValue_);
  kernel->setMaximumValue(maximumValue_);
  return kernel;
}

std::shared_ptr<NNAdditionNode> NNAdditionNode::create(std::shared_ptr<NNImageNode> leftSource,
                                                       std::shared_ptr<NNImageNode> rightSource) {
  return std::shared_ptr<NNAdditionNode>(new NNAdditionNode(std::move(leftSource), std::move(rightSource)));
}
std::shared_ptr<NNAdditionNode> NNAdditionNode::create(
    std::span<const std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNAdditionNode>(new NNAdditionNode(sources));
}
std::shared_ptr<Kernel> NNAdditionNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNAdd::create(device));
}

std::shared_ptr<NNSubtractionNode> NNSubtractionNode::create(std::shared_ptr<NNImageNode> leftSource,
                                                             std::shared_ptr<NNImageNode> rightSource) {
  return std::shared_ptr<NNSubtractionNode>(
      new NNSubtractionNode(std::move(leftSource), std::move(rightSource)));
}
std::shared_ptr<NNSubtractionNode> NNSubtractionNode::create(
    std::span<const std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNSubtractionNode>(new NNSubtractionNode(sources));
}
std::shared_ptr<Kernel> NNSubtractionNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNSubtract::create(device));
}

std::shared_ptr<NNMultiplicationNode> NNMultiplicationNode::create(std::shared_ptr<NNImageNode> leftSource,
                                                                   std::shared_ptr<NNImageNode> rightSource) {
  return std::shared_ptr<NNMultiplicationNode>(
      new NNMultiplicationNode(std::move(leftSource), std::move(rightSource)));
}
std::shared_ptr<NNMultiplicationNode> NNMultiplicationNode::create(
    std::span<const std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNMultiplicationNode>(new NNMultiplicationNode(sources));
}
std::shared_ptr<Kernel> NNMultiplicationNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNMultiply::create(device));
}

std::shared_ptr<NNDivisionNode> NNDivisionNode::create(std::shared_ptr<NNImageNode> leftSource,
                                                       std::shared_ptr<NNImageNode> rightSource) {
  return std::shared_ptr<NNDivisionNode>(new NNDivisionNode(std::move(leftSource), std::move(rightSource)));
}
std::shared_ptr<NNDivisionNode> NNDivisionNode::create(
    std::span<const std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNDivisionNode>(new NNDivisionNode(sources));
}
std::shared_ptr<Kernel> NNDivisionNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNDivide::create(device));
}

}  // namespace mps
