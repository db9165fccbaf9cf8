#include "mps/loss/loss_node.hpp"

#include "mps/loss/loss.hpp"

namespace mps {

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

}  // namespace mps
