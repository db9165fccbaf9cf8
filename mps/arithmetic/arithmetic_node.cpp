#include "mps/arithmetic/arithmetic_node.hpp"

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

std::vector<std::shared_ptr<NNImageNode>> twoImages(ArrayRef<std::shared_ptr<NNImageNode>> images) {
  if (images.size() != 2)
    throw Error("NNBinaryArithmeticNode", "sources", std::to_string(images.size()) + " images", "exactly 2");
  return {images.begin(), images.end()};
}

/// One of the two images of a gradient. Checked for each: the order in which arguments are evaluated is open.
std::shared_ptr<NNImageNode> imageOf(std::span<const std::shared_ptr<NNImageNode>> gradientImages,
                                     std::size_t index) {
  if (gradientImages.size() != 2)
    throw Error("NNArithmeticGradientNode", "gradientImages",
                std::to_string(gradientImages.size()) + " images", "exactly 2");
  return gradientImages[index];
}

std::shared_ptr<NNStateNode> stateOf(const std::shared_ptr<NNFilterNode>& forwardFilter) {
  if (!forwardFilter) throw Error("NNArithmeticGradientNode", "forwardFilter", "null", "the forward node");
  return forwardFilter->resultState();
}

}  // namespace

NNBinaryArithmeticNode::NNBinaryArithmeticNode(std::shared_ptr<NNImageNode> leftSource,
                                               std::shared_ptr<NNImageNode> rightSource)
    : NNFilterNode({std::move(leftSource), std::move(rightSource)}) {
  addResultState(std::make_unique<NNArithmeticGradientStateNode>());
}

NNBinaryArithmeticNode::NNBinaryArithmeticNode(ArrayRef<std::shared_ptr<NNImageNode>> sources)
    : NNFilterNode(twoImages(sources)) {
  addResultState(std::make_unique<NNArithmeticGradientStateNode>());
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

template <class GradientNode>
std::vector<std::shared_ptr<NNGradientFilterNode>> NNBinaryArithmeticNode::gradientNodes(
    const std::shared_ptr<NNImageNode>& gradientImage, const GradientSettings& left,
    const GradientSettings& right) {
  std::vector<std::shared_ptr<NNGradientFilterNode>> nodes;
  for (const bool isSecondary : {false, true}) {
    const GradientSettings& settings = isSecondary ? right : left;
    const bool isRight = settings.sourceImage == 1;
    auto node =
        GradientNode::create(gradientImage, sources()[settings.sourceImage], resultState(), isSecondary);
    node->setPrimaryScale(settings.primaryScale);
    node->setSecondaryScale(settings.secondaryScale);
    node->setSecondaryStrideInPixelsX(isRight ? secondaryStrideInPixelsX_ : primaryStrideInPixelsX_);
    node->setSecondaryStrideInPixelsY(isRight ? secondaryStrideInPixelsY_ : primaryStrideInPixelsY_);
    node->setSecondaryStrideInFeatureChannels(isRight ? secondaryStrideInFeatureChannels_
                                                      : primaryStrideInFeatureChannels_);
    node->setMinimumValue(minimumValue_);
    node->setMaximumValue(maximumValue_);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::shared_ptr<NNAdditionNode> NNAdditionNode::create(std::shared_ptr<NNImageNode> leftSource,
                                                       std::shared_ptr<NNImageNode> rightSource) {
  return std::shared_ptr<NNAdditionNode>(new NNAdditionNode(std::move(leftSource), std::move(rightSource)));
}
std::shared_ptr<NNAdditionNode> NNAdditionNode::create(ArrayRef<std::shared_ptr<NNImageNode>> sources) {
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
std::shared_ptr<NNSubtractionNode> NNSubtractionNode::create(ArrayRef<std::shared_ptr<NNImageNode>> sources) {
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
    ArrayRef<std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNMultiplicationNode>(new NNMultiplicationNode(sources));
}
std::shared_ptr<Kernel> NNMultiplicationNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNMultiply::create(device));
}

std::shared_ptr<NNDivisionNode> NNDivisionNode::create(std::shared_ptr<NNImageNode> leftSource,
                                                       std::shared_ptr<NNImageNode> rightSource) {
  return std::shared_ptr<NNDivisionNode>(new NNDivisionNode(std::move(leftSource), std::move(rightSource)));
}
std::shared_ptr<NNDivisionNode> NNDivisionNode::create(ArrayRef<std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNDivisionNode>(new NNDivisionNode(sources));
}
std::shared_ptr<Kernel> NNDivisionNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNDivide::create(device));
}

std::shared_ptr<NNComparisonNode> NNComparisonNode::create(std::shared_ptr<NNImageNode> leftSource,
                                                           std::shared_ptr<NNImageNode> rightSource) {
  return std::shared_ptr<NNComparisonNode>(
      new NNComparisonNode(std::move(leftSource), std::move(rightSource)));
}
std::shared_ptr<NNComparisonNode> NNComparisonNode::create(ArrayRef<std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNComparisonNode>(new NNComparisonNode(sources));
}
std::shared_ptr<Kernel> NNComparisonNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNCompare::create(device);
  kernel->setComparisonType(comparisonType_);
  return configured(kernel);
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNAdditionNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return gradientNodes<NNAdditionGradientNode>(gradientImage, {0, primaryScale()}, {1, secondaryScale()});
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNSubtractionNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return gradientNodes<NNSubtractionGradientNode>(gradientImage, {0, primaryScale()}, {1, -secondaryScale()});
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNMultiplicationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return gradientNodes<NNMultiplicationGradientNode>(gradientImage, {1, primaryScale(), secondaryScale()},
                                                     {0, secondaryScale(), primaryScale()});
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNDivisionNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return gradientNodes<NNDivisionGradientNode>(gradientImage, {1, primaryScale(), secondaryScale()},
                                               {1, primaryScale(), secondaryScale()});
}

NNArithmeticGradientNode::NNArithmeticGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                                   std::shared_ptr<NNImageNode> sourceImage,
                                                   std::shared_ptr<NNStateNode> gradientState,
                                                   bool isSecondarySourceFilter)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      isSecondarySourceFilter_(isSecondarySourceFilter) {}

NNArithmeticGradientNode::NNArithmeticGradientNode(ArrayRef<std::shared_ptr<NNImageNode>> gradientImages,
                                                   const std::shared_ptr<NNFilterNode>& forwardFilter,
                                                   bool isSecondarySourceFilter)
    : NNArithmeticGradientNode(imageOf(gradientImages, 0), imageOf(gradientImages, 1), stateOf(forwardFilter),
                               isSecondarySourceFilter) {}

std::shared_ptr<Kernel> NNArithmeticGradientNode::configured(
    const std::shared_ptr<CNNArithmeticGradient>& kernel) const {
  configure(*kernel);
  kernel->setPrimaryScale(primaryScale_);
  kernel->setSecondaryScale(secondaryScale_);
  kernel->setBias(bias_);
  if (secondaryStrideInPixelsX_) kernel->setSecondaryStrideInPixelsX(*secondaryStrideInPixelsX_);
  if (secondaryStrideInPixelsY_) kernel->setSecondaryStrideInPixelsY(*secondaryStrideInPixelsY_);
  if (secondaryStrideInFeatureChannels_)
    kernel->setSecondaryStrideInFeatureChannels(*secondaryStrideInFeatureChannels_);
  kernel->setMinimumValue(minimumValue_);
  kernel->setMaximumValue(maximumValue_);
  return kernel;
}

std::shared_ptr<NNAdditionGradientNode> NNAdditionGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, bool isSecondarySourceFilter) {
  return std::shared_ptr<NNAdditionGradientNode>(new NNAdditionGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), isSecondarySourceFilter));
}
std::shared_ptr<NNAdditionGradientNode> NNAdditionGradientNode::create(
    ArrayRef<std::shared_ptr<NNImageNode>> gradientImages, const std::shared_ptr<NNFilterNode>& forwardFilter,
    bool isSecondarySourceFilter) {
  return std::shared_ptr<NNAdditionGradientNode>(
      new NNAdditionGradientNode(gradientImages, forwardFilter, isSecondarySourceFilter));
}
std::shared_ptr<Kernel> NNAdditionGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNAddGradient::create(device, isSecondarySourceFilter()));
}

std::shared_ptr<NNSubtractionGradientNode> NNSubtractionGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, bool isSecondarySourceFilter) {
  return std::shared_ptr<NNSubtractionGradientNode>(new NNSubtractionGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), isSecondarySourceFilter));
}
std::shared_ptr<NNSubtractionGradientNode> NNSubtractionGradientNode::create(
    ArrayRef<std::shared_ptr<NNImageNode>> gradientImages, const std::shared_ptr<NNFilterNode>& forwardFilter,
    bool isSecondarySourceFilter) {
  return std::shared_ptr<NNSubtractionGradientNode>(
      new NNSubtractionGradientNode(gradientImages, forwardFilter, isSecondarySourceFilter));
}
std::shared_ptr<Kernel> NNSubtractionGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNSubtractGradient::create(device, isSecondarySourceFilter()));
}

std::shared_ptr<NNMultiplicationGradientNode> NNMultiplicationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, bool isSecondarySourceFilter) {
  return std::shared_ptr<NNMultiplicationGradientNode>(new NNMultiplicationGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), isSecondarySourceFilter));
}
std::shared_ptr<NNMultiplicationGradientNode> NNMultiplicationGradientNode::create(
    ArrayRef<std::shared_ptr<NNImageNode>> gradientImages, const std::shared_ptr<NNFilterNode>& forwardFilter,
    bool isSecondarySourceFilter) {
  return std::shared_ptr<NNMultiplicationGradientNode>(
      new NNMultiplicationGradientNode(gradientImages, forwardFilter, isSecondarySourceFilter));
}
std::shared_ptr<Kernel> NNMultiplicationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNMultiplyGradient::create(device, isSecondarySourceFilter()));
}

std::shared_ptr<NNDivisionGradientNode> NNDivisionGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, bool isSecondarySourceFilter) {
  return std::shared_ptr<NNDivisionGradientNode>(new NNDivisionGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), isSecondarySourceFilter));
}
std::shared_ptr<NNDivisionGradientNode> NNDivisionGradientNode::create(
    ArrayRef<std::shared_ptr<NNImageNode>> gradientImages, const std::shared_ptr<NNFilterNode>& forwardFilter,
    bool isSecondarySourceFilter) {
  return std::shared_ptr<NNDivisionGradientNode>(
      new NNDivisionGradientNode(gradientImages, forwardFilter, isSecondarySourceFilter));
}
std::shared_ptr<Kernel> NNDivisionGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNDivideGradient::create(device, isSecondarySourceFilter()));
}

}  // namespace mps
