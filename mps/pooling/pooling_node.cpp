#include "mps/pooling/pooling_node.hpp"

#include "mps/pooling/pooling.hpp"

namespace mps {
namespace {

using NodeList = std::vector<std::shared_ptr<NNGradientFilterNode>>;

}  // namespace

CNNPoolingNode::CNNPoolingNode(std::shared_ptr<NNImageNode> source, std::size_t kernelWidth,
                               std::size_t kernelHeight, std::size_t strideInPixelsX,
                               std::size_t strideInPixelsY)
    : NNFilterNode({std::move(source)}),
      kernelWidth_(kernelWidth),
      kernelHeight_(kernelHeight),
      strideInPixelsX_(strideInPixelsX),
      strideInPixelsY_(strideInPixelsY) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<Kernel> CNNPoolingNode::configured(const std::shared_ptr<CNNPooling>& kernel) const {
  kernel->setEdgeMode(ImageEdgeMode::Clamp);
  configure(*kernel);
  return kernel;
}

CNNDilatedPoolingMaxNode::CNNDilatedPoolingMaxNode(std::shared_ptr<NNImageNode> source,
                                                   std::size_t kernelWidth, std::size_t kernelHeight,
                                                   std::size_t strideInPixelsX, std::size_t strideInPixelsY,
                                                   std::size_t dilationRateX, std::size_t dilationRateY)
    : CNNPoolingNode(std::move(source), kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY),
      dilationRateX_(dilationRateX),
      dilationRateY_(dilationRateY) {}
std::shared_ptr<CNNDilatedPoolingMaxNode> CNNDilatedPoolingMaxNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t filterSize) {
  return create(std::move(source), filterSize, filterSize, filterSize);
}
std::shared_ptr<CNNDilatedPoolingMaxNode> CNNDilatedPoolingMaxNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t filterSize, std::size_t stride,
    std::size_t dilationRate) {
  return create(std::move(source), filterSize, filterSize, stride, stride, dilationRate, dilationRate);
}
std::shared_ptr<CNNDilatedPoolingMaxNode> CNNDilatedPoolingMaxNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::size_t dilationRateX,
    std::size_t dilationRateY) {
  return std::shared_ptr<CNNDilatedPoolingMaxNode>(
      new CNNDilatedPoolingMaxNode(std::move(source), kernelWidth, kernelHeight, strideInPixelsX,
                                   strideInPixelsY, dilationRateX, dilationRateY));
}
std::shared_ptr<Kernel> CNNDilatedPoolingMaxNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  return configured(CNNDilatedPoolingMax::create(device, kernelWidth(), kernelHeight(), dilationRateX_,
                                                 dilationRateY_, strideInPixelsX(), strideInPixelsY()));
}
NodeList CNNDilatedPoolingMaxNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNDilatedPoolingMaxGradientNode::create(gradientImage, sources()[0], resultState(), kernelWidth(),
                                                   kernelHeight(), strideInPixelsX(), strideInPixelsY(),
                                                   dilationRateX_, dilationRateY_)};
}

CNNPoolingGradientNode::CNNPoolingGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                               std::shared_ptr<NNImageNode> sourceImage,
                                               std::shared_ptr<NNStateNode> gradientState,
                                               std::size_t kernelWidth, std::size_t kernelHeight,
                                               std::size_t strideInPixelsX, std::size_t strideInPixelsY,
                                               std::shared_ptr<NNPadding> paddingPolicy)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      kernelWidth_(kernelWidth),
      kernelHeight_(kernelHeight),
      strideInPixelsX_(strideInPixelsX),
      strideInPixelsY_(strideInPixelsY) {
  if (paddingPolicy) setPaddingPolicy(std::move(paddingPolicy));
}

CNNDilatedPoolingMaxGradientNode::CNNDilatedPoolingMaxGradientNode(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::size_t dilationRateX,
    std::size_t dilationRateY)
    : CNNPoolingGradientNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState),
                             kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY, nullptr),
      dilationRateX_(dilationRateX),
      dilationRateY_(dilationRateY) {}
std::shared_ptr<CNNDilatedPoolingMaxGradientNode> CNNDilatedPoolingMaxGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::size_t dilationRateX,
    std::size_t dilationRateY) {
  return std::shared_ptr<CNNDilatedPoolingMaxGradientNode>(new CNNDilatedPoolingMaxGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), kernelWidth, kernelHeight,
      strideInPixelsX, strideInPixelsY, dilationRateX, dilationRateY));
}
std::shared_ptr<Kernel> CNNDilatedPoolingMaxGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNDilatedPoolingMaxGradient::create(device, kernelWidth(), kernelHeight(), dilationRateX_,
                                                     dilationRateY_, strideInPixelsX(), strideInPixelsY());
  configure(*kernel);
  return kernel;
}

}  // namespace mps
