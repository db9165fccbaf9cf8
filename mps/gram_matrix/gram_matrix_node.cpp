#include "mps/gram_matrix/gram_matrix_node.hpp"

namespace mps {

NNGramMatrixCalculationNode::NNGramMatrixCalculationNode(std::shared_ptr<NNImageNode> source, float alpha)
    : NNFilterNode({std::move(source)}), alpha_(alpha) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<NNGramMatrixCalculationNode> NNGramMatrixCalculationNode::create(
    std::shared_ptr<NNImageNode> source, float alpha) {
  return std::shared_ptr<NNGramMatrixCalculationNode>(
      new NNGramMatrixCalculationNode(std::move(source), alpha));
}

std::shared_ptr<Kernel> NNGramMatrixCalculationNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNGramMatrixCalculation::create(device, alpha_);
  configure(*kernel);
  kernel->setPropertyCallBack(propertyCallBack_);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNGramMatrixCalculationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {NNGramMatrixCalculationGradientNode::create(gradientImage, sources()[0], resultState(), alpha_)};
}

NNGramMatrixCalculationGradientNode::NNGramMatrixCalculationGradientNode(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, float alpha)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      alpha_(alpha) {}

std::shared_ptr<NNGramMatrixCalculationGradientNode> NNGramMatrixCalculationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, float alpha) {
  return std::shared_ptr<NNGramMatrixCalculationGradientNode>(new NNGramMatrixCalculationGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), alpha));
}

std::shared_ptr<Kernel> NNGramMatrixCalculationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNGramMatrixCalculationGradient::create(device, alpha_);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
