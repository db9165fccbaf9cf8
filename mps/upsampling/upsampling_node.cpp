#include "mps/upsampling/upsampling_node.hpp"

#include <cmath>

#include "mps/core/types/error.hpp"
#include "mps/upsampling/upsampling.hpp"

namespace mps {
namespace {

/// The kernel checks how large it may be.
std::size_t wholeFactor(const NNFilterNode& node, const char* property, double factor) {
  constexpr double most = 0x1p53;
  if (!(factor >= 1 && factor <= most) || std::floor(factor) != factor)
    throw Error(node.describe(), property, std::to_string(factor), "a whole number, at least 1");
  return static_cast<std::size_t>(factor);
}

}  // namespace

CNNUpsamplingNode::CNNUpsamplingNode(std::shared_ptr<NNImageNode> source, std::size_t integerScaleFactorX,
                                     std::size_t integerScaleFactorY)
    : NNFilterNode({std::move(source)}),
      scaleFactorX_(integerScaleFactorX),
      scaleFactorY_(integerScaleFactorY) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<CNNUpsamplingNearestNode> CNNUpsamplingNearestNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t integerScaleFactorX, std::size_t integerScaleFactorY) {
  return std::shared_ptr<CNNUpsamplingNearestNode>(
      new CNNUpsamplingNearestNode(std::move(source), integerScaleFactorX, integerScaleFactorY));
}
std::shared_ptr<Kernel> CNNUpsamplingNearestNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNUpsamplingNearest::create(device, integerScaleFactorX(), integerScaleFactorY());
  configure(*kernel);
  return kernel;
}
std::vector<std::shared_ptr<NNGradientFilterNode>> CNNUpsamplingNearestNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNUpsamplingNearestGradientNode::create(gradientImage, sources()[0], resultState(), scaleFactorX(),
                                                   scaleFactorY())};
}

CNNUpsamplingBilinearNode::CNNUpsamplingBilinearNode(std::shared_ptr<NNImageNode> source,
                                                     std::size_t integerScaleFactorX,
                                                     std::size_t integerScaleFactorY, bool alignCorners)
    : CNNUpsamplingNode(std::move(source), integerScaleFactorX, integerScaleFactorY),
      alignCorners_(alignCorners) {}
std::shared_ptr<CNNUpsamplingBilinearNode> CNNUpsamplingBilinearNode::create(
    std::shared_ptr<NNImageNode> source, std::size_t integerScaleFactorX, std::size_t integerScaleFactorY,
    bool alignCorners) {
  return std::shared_ptr<CNNUpsamplingBilinearNode>(new CNNUpsamplingBilinearNode(
      std::move(source), integerScaleFactorX, integerScaleFactorY, alignCorners));
}
std::shared_ptr<Kernel> CNNUpsamplingBilinearNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel =
      CNNUpsamplingBilinear::create(device, integerScaleFactorX(), integerScaleFactorY(), alignCorners_);
  configure(*kernel);
  kernel->setHalfPixelCenters(halfPixelCenters_);
  return kernel;
}
std::vector<std::shared_ptr<NNGradientFilterNode>> CNNUpsamplingBilinearNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNUpsamplingBilinearGradientNode::create(gradientImage, sources()[0], resultState(),
                                                    scaleFactorX(), scaleFactorY())};
}

CNNUpsamplingGradientNode::CNNUpsamplingGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                                     std::shared_ptr<NNImageNode> sourceImage,
                                                     std::shared_ptr<NNStateNode> gradientState,
                                                     double scaleFactorX, double scaleFactorY)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      scaleFactorX_(scaleFactorX),
      scaleFactorY_(scaleFactorY) {}
std::size_t CNNUpsamplingGradientNode::integerScaleFactorX() const {
  return wholeFactor(*this, "scaleFactorX", scaleFactorX_);
}
std::size_t CNNUpsamplingGradientNode::integerScaleFactorY() const {
  return wholeFactor(*this, "scaleFactorY", scaleFactorY_);
}

std::shared_ptr<CNNUpsamplingNearestGradientNode> CNNUpsamplingNearestGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, double scaleFactorX, double scaleFactorY) {
  return std::shared_ptr<CNNUpsamplingNearestGradientNode>(
      new CNNUpsamplingNearestGradientNode(std::move(sourceGradient), std::move(sourceImage),
                                           std::move(gradientState), scaleFactorX, scaleFactorY));
}
std::shared_ptr<Kernel> CNNUpsamplingNearestGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNUpsamplingNearestGradient::create(device, integerScaleFactorX(), integerScaleFactorY());
  configure(*kernel);
  return kernel;
}

std::shared_ptr<CNNUpsamplingBilinearGradientNode> CNNUpsamplingBilinearGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, double scaleFactorX, double scaleFactorY) {
  return std::shared_ptr<CNNUpsamplingBilinearGradientNode>(
      new CNNUpsamplingBilinearGradientNode(std::move(sourceGradient), std::move(sourceImage),
                                            std::move(gradientState), scaleFactorX, scaleFactorY));
}
std::shared_ptr<Kernel> CNNUpsamplingBilinearGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNUpsamplingBilinearGradient::create(device, integerScaleFactorX(), integerScaleFactorY());
  configure(*kernel);
  return kernel;
}

}  // namespace mps
