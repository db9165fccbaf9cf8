#pragma once

#include <memory>
#include <string>

#include "mps/loss/loss_node.hpp"
#include "mps/loss/yolo_loss_descriptor.hpp"

namespace mps {

/// Stands for CNNYOLOLoss (MPSCNNYOLOLossNode). The result image IS the gradient of the predictions:
/// call trainingGraph(nullptr, ...) on this node.
class CNNYOLOLossNode final : public NNFilterNode {
 public:
  /// @param source the predictions
  static std::shared_ptr<CNNYOLOLossNode> create(std::shared_ptr<NNImageNode> source,
                                                 const CNNYOLOLossDescriptor& lossDescriptor);
  /// Where the labels come in; give it a handle when the graph has several source states.
  [[nodiscard]] const std::shared_ptr<NNLabelsNode>& inputLabels() const { return labels_; }
  [[nodiscard]] const CNNYOLOLossDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] std::string className() const override { return "CNNYOLOLossNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  [[nodiscard]] bool isItsOwnGradient() const override { return true; }

 private:
  CNNYOLOLossNode(std::shared_ptr<NNImageNode> source, std::shared_ptr<NNLabelsNode> labels,
                  const CNNYOLOLossDescriptor& lossDescriptor);

  std::shared_ptr<NNLabelsNode> labels_;
  CNNYOLOLossDescriptor descriptor_;
};

}  // namespace mps
