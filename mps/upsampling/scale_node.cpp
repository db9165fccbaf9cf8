#include "mps/upsampling/scale_node.hpp"

#include "mps/core/types/error.hpp"
#include "mps/upsampling/resize.hpp"

namespace mps {

NNScaleNode::NNScaleNode(const char* className, std::shared_ptr<NNImageNode> source,
                         std::shared_ptr<ImageTransformProvider> transformProvider,
                         const mtl::Size& outputSize)
    : NNFilterNode({std::move(source)}), outputSize_(outputSize), provider_(std::move(transformProvider)) {
  if (outputSize.depth != 1)
    throw Error(className, "outputSize", "depth " + std::to_string(outputSize.depth), "depth 1");
  addResultState(std::make_unique<NNGradientStateNode>());
}

void NNScaleNode::configureScale(ImageScale& kernel) const {
  configure(kernel);
  kernel.setTransformProvider(provider_, sources()[0]->handle());
}

NNBilinearScaleNode::NNBilinearScaleNode(std::shared_ptr<NNImageNode> source,
                                         std::shared_ptr<ImageTransformProvider> transformProvider,
                                         const mtl::Size& outputSize)
    : NNScaleNode("NNBilinearScaleNode", std::move(source), std::move(transformProvider), outputSize) {}

std::shared_ptr<NNBilinearScaleNode> NNBilinearScaleNode::create(std::shared_ptr<NNImageNode> source,
                                                                 const mtl::Size& outputSize) {
  return create(std::move(source), nullptr, outputSize);
}

std::shared_ptr<NNBilinearScaleNode> NNBilinearScaleNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<ImageTransformProvider> transformProvider,
    const mtl::Size& outputSize) {
  return std::shared_ptr<NNBilinearScaleNode>(
      new NNBilinearScaleNode(std::move(source), std::move(transformProvider), outputSize));
}

std::shared_ptr<Kernel> NNBilinearScaleNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  if (transformProvider()) {
    auto kernel = ImageBilinearScale::create(device, outputSize().width, outputSize().height);
    configureScale(*kernel);
    return kernel;
  }
  auto kernel = NNResizeBilinear::create(device, outputSize().width, outputSize().height);
  configure(*kernel);
  kernel->setHalfPixelCenters(true);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNBilinearScaleNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {NNBilinearScaleGradientNode::create(gradientImage, sources()[0], resultState())};
}

std::shared_ptr<NNLanczosScaleNode> NNLanczosScaleNode::create(std::shared_ptr<NNImageNode> source,
                                                               const mtl::Size& outputSize) {
  return create(std::move(source), nullptr, outputSize);
}

std::shared_ptr<NNLanczosScaleNode> NNLanczosScaleNode::create(
    std::shared_ptr<NNImageNode> source, std::shared_ptr<ImageTransformProvider> transformProvider,
    const mtl::Size& outputSize) {
  return std::shared_ptr<NNLanczosScaleNode>(new NNLanczosScaleNode(
      "NNLanczosScaleNode", std::move(source), std::move(transformProvider), outputSize));
}

std::shared_ptr<Kernel> NNLanczosScaleNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = ImageLanczosScale::create(device, outputSize().width, outputSize().height);
  configureScale(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNLanczosScaleNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {NNLanczosScaleGradientNode::create(gradientImage, sources()[0], resultState())};
}

std::shared_ptr<NNBilinearScaleGradientNode> NNBilinearScaleGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<NNBilinearScaleGradientNode>(new NNBilinearScaleGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> NNBilinearScaleGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  const auto make = [&]<class KernelType>(std::shared_ptr<KernelType> kernel) {
    configure(*kernel);
    return kernel;
  };
  const NNStateNode* const state = gradientState().get();
  const auto* forward = state ? dynamic_cast<const NNBilinearScaleNode*>(state->producer()) : nullptr;
  if (forward != nullptr && forward->transformProvider())
    return make(ImageBilinearScaleGradient::create(device));
  return make(NNResizeBilinearGradient::create(device));
}

std::shared_ptr<NNLanczosScaleGradientNode> NNLanczosScaleGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState) {
  return std::shared_ptr<NNLanczosScaleGradientNode>(new NNLanczosScaleGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)));
}

std::shared_ptr<Kernel> NNLanczosScaleGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = ImageLanczosScaleGradient::create(device);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
