#include "mps/neuron/neuron_node.hpp"

#include "mps/neuron/neuron.hpp"

namespace mps {

CNNNeuronNode::CNNNeuronNode(std::shared_ptr<NNImageNode> source, NNNeuronDescriptor descriptor)
    : NNFilterNode({std::move(source)}), descriptor_(std::move(descriptor)) {
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<Kernel> CNNNeuronNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNNeuron::create(device, descriptor_);
  configure(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> CNNNeuronNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNNeuronGradientNode::create(gradientImage, sources()[0], resultState(), descriptor_)};
}

std::shared_ptr<CNNNeuronLinearNode> CNNNeuronLinearNode::create(std::shared_ptr<NNImageNode> source, float a,
                                                                 float b) {
  return std::shared_ptr<CNNNeuronLinearNode>(new CNNNeuronLinearNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Linear, a, b)));
}

std::shared_ptr<CNNNeuronReLUNode> CNNNeuronReLUNode::create(std::shared_ptr<NNImageNode> source, float a) {
  return std::shared_ptr<CNNNeuronReLUNode>(new CNNNeuronReLUNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, a)));
}

std::shared_ptr<CNNNeuronSigmoidNode> CNNNeuronSigmoidNode::create(std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<CNNNeuronSigmoidNode>(new CNNNeuronSigmoidNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Sigmoid)));
}

std::shared_ptr<CNNNeuronHardSigmoidNode> CNNNeuronHardSigmoidNode::create(
    std::shared_ptr<NNImageNode> source, float a, float b) {
  return std::shared_ptr<CNNNeuronHardSigmoidNode>(new CNNNeuronHardSigmoidNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::HardSigmoid, a, b)));
}

std::shared_ptr<CNNNeuronTanHNode> CNNNeuronTanHNode::create(std::shared_ptr<NNImageNode> source, float a,
                                                             float b) {
  return std::shared_ptr<CNNNeuronTanHNode>(new CNNNeuronTanHNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::TanH, a, b)));
}

std::shared_ptr<CNNNeuronAbsoluteNode> CNNNeuronAbsoluteNode::create(std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<CNNNeuronAbsoluteNode>(new CNNNeuronAbsoluteNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Absolute)));
}

std::shared_ptr<CNNNeuronSoftPlusNode> CNNNeuronSoftPlusNode::create(std::shared_ptr<NNImageNode> source,
                                                                     float a, float b) {
  return std::shared_ptr<CNNNeuronSoftPlusNode>(new CNNNeuronSoftPlusNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::SoftPlus, a, b)));
}

std::shared_ptr<CNNNeuronSoftSignNode> CNNNeuronSoftSignNode::create(std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<CNNNeuronSoftSignNode>(new CNNNeuronSoftSignNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::SoftSign)));
}

std::shared_ptr<CNNNeuronELUNode> CNNNeuronELUNode::create(std::shared_ptr<NNImageNode> source, float a) {
  return std::shared_ptr<CNNNeuronELUNode>(new CNNNeuronELUNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ELU, a)));
}

std::shared_ptr<CNNNeuronReLUNNode> CNNNeuronReLUNNode::create(std::shared_ptr<NNImageNode> source, float a,
                                                               float b) {
  return std::shared_ptr<CNNNeuronReLUNNode>(new CNNNeuronReLUNNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLUN, a, b)));
}

std::shared_ptr<CNNNeuronPowerNode> CNNNeuronPowerNode::create(std::shared_ptr<NNImageNode> source, float a,
                                                               float b, float c) {
  return std::shared_ptr<CNNNeuronPowerNode>(new CNNNeuronPowerNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Power, a, b, c)));
}

std::shared_ptr<CNNNeuronExponentialNode> CNNNeuronExponentialNode::create(
    std::shared_ptr<NNImageNode> source, float a, float b, float c) {
  return std::shared_ptr<CNNNeuronExponentialNode>(new CNNNeuronExponentialNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Exponential, a, b, c)));
}

std::shared_ptr<CNNNeuronLogarithmNode> CNNNeuronLogarithmNode::create(std::shared_ptr<NNImageNode> source,
                                                                       float a, float b, float c) {
  return std::shared_ptr<CNNNeuronLogarithmNode>(new CNNNeuronLogarithmNode(
      std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Logarithm, a, b, c)));
}

std::shared_ptr<CNNNeuronGeLUNode> CNNNeuronGeLUNode::create(std::shared_ptr<NNImageNode> source) {
  return std::shared_ptr<CNNNeuronGeLUNode>(
      new CNNNeuronGeLUNode(std::move(source), NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::GeLU)));
}

std::shared_ptr<CNNNeuronPReLUNode> CNNNeuronPReLUNode::create(std::shared_ptr<NNImageNode> source,
                                                               std::span<const float> aData) {
  return std::shared_ptr<CNNNeuronPReLUNode>(
      new CNNNeuronPReLUNode(std::move(source), NNNeuronDescriptor::cnnNeuronPReLUDescriptor(aData)));
}

std::shared_ptr<CNNNeuronNode> CNNNeuronNode::create(std::shared_ptr<NNImageNode> source,
                                                     const NNNeuronDescriptor& descriptor) {
  switch (descriptor.neuronType()) {
    case CNNNeuronType::Linear:
      return CNNNeuronLinearNode::create(std::move(source), descriptor.a(), descriptor.b());
    case CNNNeuronType::ReLU:
      return CNNNeuronReLUNode::create(std::move(source), descriptor.a());
    case CNNNeuronType::Sigmoid:
      return CNNNeuronSigmoidNode::create(std::move(source));
    case CNNNeuronType::HardSigmoid:
      return CNNNeuronHardSigmoidNode::create(std::move(source), descriptor.a(), descriptor.b());
    case CNNNeuronType::TanH:
      return CNNNeuronTanHNode::create(std::move(source), descriptor.a(), descriptor.b());
    case CNNNeuronType::Absolute:
      return CNNNeuronAbsoluteNode::create(std::move(source));
    case CNNNeuronType::SoftPlus:
      return CNNNeuronSoftPlusNode::create(std::move(source), descriptor.a(), descriptor.b());
    case CNNNeuronType::SoftSign:
      return CNNNeuronSoftSignNode::create(std::move(source));
    case CNNNeuronType::ELU:
      return CNNNeuronELUNode::create(std::move(source), descriptor.a());
    case CNNNeuronType::ReLUN:
      return CNNNeuronReLUNNode::create(std::move(source), descriptor.a(), descriptor.b());
    case CNNNeuronType::Power:
      return CNNNeuronPowerNode::create(std::move(source), descriptor.a(), descriptor.b(), descriptor.c());
    case CNNNeuronType::Exponential:
      return CNNNeuronExponentialNode::create(std::move(source), descriptor.a(), descriptor.b(),
                                              descriptor.c());
    case CNNNeuronType::Logarithm:
      return CNNNeuronLogarithmNode::create(std::move(source), descriptor.a(), descriptor.b(),
                                            descriptor.c());
    case CNNNeuronType::GeLU:
      return CNNNeuronGeLUNode::create(std::move(source));
    case CNNNeuronType::PReLU:
      return CNNNeuronPReLUNode::create(std::move(source), descriptor.data());
    default:
      return std::shared_ptr<CNNNeuronNode>(new CNNNeuronNode(std::move(source), descriptor));
  }
}

CNNNeuronGradientNode::CNNNeuronGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                             std::shared_ptr<NNImageNode> sourceImage,
                                             std::shared_ptr<NNStateNode> gradientState,
                                             NNNeuronDescriptor descriptor)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      descriptor_(std::move(descriptor)) {}

std::shared_ptr<CNNNeuronGradientNode> CNNNeuronGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, const NNNeuronDescriptor& descriptor) {
  return std::shared_ptr<CNNNeuronGradientNode>(new CNNNeuronGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), descriptor));
}

std::shared_ptr<Kernel> CNNNeuronGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNNeuronGradient::create(device, descriptor_);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
