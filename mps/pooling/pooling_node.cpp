#include "mps/pooling/pooling_node.hpp"

#include "mps/pooling/pooling.hpp"

namespace mps {
namespace {

using NodeList = std::vector<std::shared_ptr<NNGradientFilterNode>>;

/// The edge mode that distinguishes nodes from bare kernels.
template <class KernelType>
std::shared_ptr<KernelType> clamped(std::shared_ptr<KernelType> kernel) {
  kernel->setEdgeMode(ImageEdgeMode::Clamp);
  return kernel;
}

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

std::shared_ptr<CNNPoolingMaxNode> CNNPoolingMaxNode::create(std::shared_ptr<NNImageNode> source,
                                                             std::size_t filterSize) {
  return create(std::move(source), filterSize, filterSize);
}
std::shared_ptr<CNNPoolingMaxNode> CNNPoolingMaxNode::create(std::shared_ptr<NNImageNode> source,
                                                             std::size_t filterSize, std::size_t stride) {
  return create(std::move(source), filterSize, filterSize, stride, stride);
}
std::shared_ptr<CNNPoolingMaxNode> CNNPoolingMaxNode::create(std::shared_ptr<NNImageNode> source,
                                                             std::size_t kernelWidth,
                                                             std::size_t kernelHeight,
                                                             std::size_t strideInPixelsX,
                                                             std::size_t strideInPixelsY) {
  return std::shared_ptr<CNNPoolingMaxNode>(
      new CNNPoolingMaxNode(std::move(source), kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY));
}
std::shared_ptr<Kernel> CNNPoolingMaxNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = clamped(
      CNNPoolingMax::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(), strideInPixelsY()));
  configure(*kernel);
  return kernel;
}
NodeList CNNPoolingMaxNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNPoolingMaxGradientNode::create(gradientImage, sources()[0], resultState(), kernelWidth(),
                                            kernelHeight(), strideInPixelsX(), strideInPixelsY())};
}

std::shared_ptr<CNNPoolingAverageNode> CNNPoolingAverageNode::create(std::shared_ptr<NNImageNode> source,
                                                                     std::size_t filterSize) {
  return create(std::move(source), filterSize, filterSize);
}
std::shared_ptr<CNNPoolingAverageNode> CNNPoolingAverageNode::create(std::shared_ptr<NNImageNode> source,
                                                                     std::size_t filterSize,
                                                                     std::size_t stride) {
  return create(std::move(source), filterSize, filterSize, stride, stride);
}
std::shared_ptr<CNNPoolingAverageNode> CNNPoolingAverageNode::create(std::shared_ptr<NNImageNode> source,
                                                                     std::size_t kernelWidth,
                                                                     std::size_t kernelHeight,
                                                                     std::size_t strideInPixelsX,
                                                                     std::size_t strideInPixelsY) {
  return std::shared_ptr<CNNPoolingAverageNode>(new CNNPoolingAverageNode(
      std::move(source), kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY));
}
std::shared_ptr<Kernel> CNNPoolingAverageNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = clamped(
      CNNPoolingAverage::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(), strideInPixelsY()));
  configure(*kernel);
  return kernel;
}
NodeList CNNPoolingAverageNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNPoolingAverageGradientNode::create(gradientImage, sources()[0], resultState(), kernelWidth(),
                                                kernelHeight(), strideInPixelsX(), strideInPixelsY())};
}

std::shared_ptr<CNNPoolingL2NormNode> CNNPoolingL2NormNode::create(std::shared_ptr<NNImageNode> source,
                                                                   std::size_t filterSize) {
  return create(std::move(source), filterSize, filterSize);
}
std::shared_ptr<CNNPoolingL2NormNode> CNNPoolingL2NormNode::create(std::shared_ptr<NNImageNode> source,
                                                                   std::size_t filterSize,
                                                                   std::size_t stride) {
  return create(std::move(source), filterSize, filterSize, stride, stride);
}
std::shared_ptr<CNNPoolingL2NormNode> CNNPoolingL2NormNode::create(std::shared_ptr<NNImageNode> source,
                                                                   std::size_t kernelWidth,
                                                                   std::size_t kernelHeight,
                                                                   std::size_t strideInPixelsX,
                                                                   std::size_t strideInPixelsY) {
  return std::shared_ptr<CNNPoolingL2NormNode>(new CNNPoolingL2NormNode(
      std::move(source), kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY));
}
std::shared_ptr<Kernel> CNNPoolingL2NormNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = clamped(
      CNNPoolingL2Norm::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(), strideInPixelsY()));
  configure(*kernel);
  return kernel;
}
NodeList CNNPoolingL2NormNode::makeGradientFilters(const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNPoolingL2NormGradientNode::create(gradientImage, sources()[0], resultState(), kernelWidth(),
                                               kernelHeight(), strideInPixelsX(), strideInPixelsY())};
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
  auto kernel = clamped(CNNDilatedPoolingMax::create(device, kernelWidth(), kernelHeight(), dilationRateX_,
                                                     dilationRateY_, strideInPixelsX(), strideInPixelsY()));
  configure(*kernel);
  return kernel;
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

std::shared_ptr<CNNPoolingMaxGradientNode> CNNPoolingMaxGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::shared_ptr<NNPadding> paddingPolicy) {
  return std::shared_ptr<CNNPoolingMaxGradientNode>(new CNNPoolingMaxGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), kernelWidth, kernelHeight,
      strideInPixelsX, strideInPixelsY, std::move(paddingPolicy)));
}
std::shared_ptr<Kernel> CNNPoolingMaxGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNPoolingMaxGradient::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(),
                                              strideInPixelsY());
  configure(*kernel);
  return kernel;
}

std::shared_ptr<CNNPoolingAverageGradientNode> CNNPoolingAverageGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::shared_ptr<NNPadding> paddingPolicy) {
  return std::shared_ptr<CNNPoolingAverageGradientNode>(new CNNPoolingAverageGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), kernelWidth, kernelHeight,
      strideInPixelsX, strideInPixelsY, std::move(paddingPolicy)));
}
std::shared_ptr<Kernel> CNNPoolingAverageGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNPoolingAverageGradient::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(),
                                                  strideInPixelsY());
  configure(*kernel);
  return kernel;
}

std::shared_ptr<CNNPoolingL2NormGradientNode> CNNPoolingL2NormGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::shared_ptr<NNPadding> paddingPolicy) {
  return std::shared_ptr<CNNPoolingL2NormGradientNode>(new CNNPoolingL2NormGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), kernelWidth, kernelHeight,
      strideInPixelsX, strideInPixelsY, std::move(paddingPolicy)));
}
std::shared_ptr<Kernel> CNNPoolingL2NormGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNPoolingL2NormGradient::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(),
                                                 strideInPixelsY());
  configure(*kernel);
  return kernel;
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
