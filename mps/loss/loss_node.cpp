#include "mps/loss/loss_node.hpp"

#include "mps/core/types/error.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"

namespace mps {

namespace {

using Sources = std::vector<std::shared_ptr<NNImageNode>>;

/// Labels, and weights if there are any.
Sources withWeights(Sources sources, std::shared_ptr<NNImageNode> weights) {
  if (weights) sources.push_back(std::move(weights));
  return sources;
}

/// @param least sources without weights
void checkNumber(const char* className, std::size_t found, std::size_t least, const char* expected) {
  if (found != least && found != least + 1)
    throw Error(className, "sources", std::to_string(found) + " images", expected);
}

}  // namespace

CNNLossNode::CNNLossNode(std::shared_ptr<NNImageNode> source, std::shared_ptr<NNLabelsNode> labels,
                         const CNNLossDescriptor& lossDescriptor)
    : NNFilterNode({std::move(source)}, {labels}), labels_(std::move(labels)), descriptor_(lossDescriptor) {}

std::shared_ptr<CNNLossNode> CNNLossNode::create(std::shared_ptr<NNImageNode> source,
                                                 const CNNLossDescriptor& lossDescriptor) {
  return std::shared_ptr<CNNLossNode>(
      new CNNLossNode(std::move(source), std::make_shared<NNLabelsNode>(), lossDescriptor));
}

std::shared_ptr<Kernel> CNNLossNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNLoss::create(device, descriptor_);
  configure(*kernel);
  return kernel;
}

NNForwardLossNode::NNForwardLossNode(Sources sources, const CNNLossDescriptor& lossDescriptor)
    : NNFilterNode(std::move(sources)), LossProperties(lossDescriptor) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<NNForwardLossNode> NNForwardLossNode::create(std::shared_ptr<NNImageNode> source,
                                                             std::shared_ptr<NNImageNode> labels,
                                                             std::shared_ptr<NNImageNode> weights,
                                                             const CNNLossDescriptor& lossDescriptor) {
  return create(withWeights({std::move(source), std::move(labels)}, std::move(weights)), lossDescriptor);
}

std::shared_ptr<NNForwardLossNode> NNForwardLossNode::create(std::shared_ptr<NNImageNode> source,
                                                             std::shared_ptr<NNImageNode> labels,
                                                             const CNNLossDescriptor& lossDescriptor) {
  return create(std::move(source), std::move(labels), nullptr, lossDescriptor);
}

std::shared_ptr<NNForwardLossNode> NNForwardLossNode::create(ArrayRef<std::shared_ptr<NNImageNode>> sources,
                                                             const CNNLossDescriptor& lossDescriptor) {
  checkNumber("NNForwardLossNode", sources.size(), 2, "2 or 3: predictions, labels and weights");
  return std::shared_ptr<NNForwardLossNode>(
      new NNForwardLossNode({sources.begin(), sources.end()}, lossDescriptor));
}

std::shared_ptr<Kernel> NNForwardLossNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNForwardLoss::create(device, descriptor_);
  kernel->setPropertyCallBack(callback_);
  configure(*kernel);
  return kernel;
}

bool NNForwardLossNode::buildsGradientOf(std::size_t source) const {
  return source == 0 || (sources()[source]->producer() != nullptr && !sources()[source]->stopGradient());
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNForwardLossNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  Sources images = {gradientImage};
  images.insert(images.end(), sources().begin(), sources().end());
  return {NNLossGradientNode::create(images, resultState(), descriptor_, false),
          NNLossGradientNode::create(images, resultState(), descriptor_, true)};
}

NNLossGradientNode::NNLossGradientNode(ArrayRef<std::shared_ptr<NNImageNode>> sources,
                                       std::shared_ptr<NNStateNode> gradientState,
                                       const CNNLossDescriptor& lossDescriptor, bool isLabelsGradientFilter)
    : NNGradientFilterNode(sources[0], sources[1], std::move(gradientState), sources.subspan(2)),
      LossProperties(lossDescriptor),
      isLabelsGradientFilter_(isLabelsGradientFilter) {}

std::shared_ptr<NNLossGradientNode> NNLossGradientNode::create(std::shared_ptr<NNImageNode> sourceGradient,
                                                               std::shared_ptr<NNImageNode> sourceImage,
                                                               std::shared_ptr<NNImageNode> labels,
                                                               std::shared_ptr<NNImageNode> weights,
                                                               std::shared_ptr<NNStateNode> gradientState,
                                                               const CNNLossDescriptor& lossDescriptor,
                                                               bool isLabelsGradientFilter) {
  return create(
      withWeights({std::move(sourceGradient), std::move(sourceImage), std::move(labels)}, std::move(weights)),
      std::move(gradientState), lossDescriptor, isLabelsGradientFilter);
}

std::shared_ptr<NNLossGradientNode> NNLossGradientNode::create(std::shared_ptr<NNImageNode> sourceGradient,
                                                               std::shared_ptr<NNImageNode> sourceImage,
                                                               std::shared_ptr<NNImageNode> labels,
                                                               std::shared_ptr<NNStateNode> gradientState,
                                                               const CNNLossDescriptor& lossDescriptor,
                                                               bool isLabelsGradientFilter) {
  return create(std::move(sourceGradient), std::move(sourceImage), std::move(labels), nullptr,
                std::move(gradientState), lossDescriptor, isLabelsGradientFilter);
}

std::shared_ptr<NNLossGradientNode> NNLossGradientNode::create(ArrayRef<std::shared_ptr<NNImageNode>> sources,
                                                               std::shared_ptr<NNStateNode> gradientState,
                                                               const CNNLossDescriptor& lossDescriptor,
                                                               bool isLabelsGradientFilter) {
  checkNumber("NNLossGradientNode", sources.size(), 3, "3 or 4: gradient, predictions, labels and weights");
  return std::shared_ptr<NNLossGradientNode>(
      new NNLossGradientNode(sources, std::move(gradientState), lossDescriptor, isLabelsGradientFilter));
}

std::shared_ptr<Kernel> NNLossGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNLossGradient::create(device, descriptor_);
  kernel->setComputeLabelGradients(isLabelsGradientFilter_);
  kernel->setPropertyCallBack(callback_);
  configure(*kernel);
  return kernel;
}

NNInitialGradientNode::NNInitialGradientNode(std::shared_ptr<NNImageNode> source)
    : NNFilterNode({std::move(source)}) {}

std::shared_ptr<NNInitialGradientNode> NNInitialGradientNode::create(std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<NNInitialGradientNode>(new NNInitialGradientNode(std::move(source)));
}

std::shared_ptr<Kernel> NNInitialGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNInitialGradient::create(device);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
