#include "mps/loss/yolo_loss_node.hpp"

#include "mps/loss/yolo_loss.hpp"

namespace mps {

CNNYOLOLossNode::CNNYOLOLossNode(std::shared_ptr<NNImageNode> source, std::shared_ptr<NNLabelsNode> labels,
                                 const CNNYOLOLossDescriptor& lossDescriptor)
    : NNFilterNode({std::move(source)}, {labels}), labels_(std::move(labels)), descriptor_(lossDescriptor) {}

std::shared_ptr<CNNYOLOLossNode> CNNYOLOLossNode::create(std::shared_ptr<NNImageNode> source,
                                                         const CNNYOLOLossDescriptor& lossDescriptor) {
  return std::shared_ptr<CNNYOLOLossNode>(
      new CNNYOLOLossNode(std::move(source), std::make_shared<NNLabelsNode>(), lossDescriptor));
}

std::shared_ptr<Kernel> CNNYOLOLossNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNYOLOLoss::create(device, descriptor_);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
