#pragma once

#include <memory>
#include <string>

#include "mps/core/node.hpp"
#include "mps/loss/loss_descriptor.hpp"

namespace mps {

/// Stands for the labels that the application gives to each encode (MPSNNLabelsNode); a source state of the
/// graph.
class NNLabelsNode : public NNStateNode {
 public:
  NNLabelsNode() = default;
};

/// Stands for CNNLoss (MPSCNNLossNode; spec/04 section 7.9). The result image IS the gradient of the
/// predictions: call trainingGraph(nullptr, ...) on this node.
class CNNLossNode : public NNFilterNode {
 public:
  /// @param source the predictions
  static std::shared_ptr<CNNLossNode> create(std::shared_ptr<NNImageNode> source,
                                             const CNNLossDescriptor& lossDescriptor);
  /// Where the labels come in; give it a handle when the graph has several source states.
  [[nodiscard]] const std::shared_ptr<NNLabelsNode>& inputLabels() const { return labels_; }
  [[nodiscard]] const CNNLossDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] std::string className() const override { return "CNNLossNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;
  [[nodiscard]] bool isItsOwnGradient() const override { return true; }

 protected:
  CNNLossNode(std::shared_ptr<NNImageNode> source, std::shared_ptr<NNLabelsNode> labels,
              const CNNLossDescriptor& lossDescriptor);

 private:
  std::shared_ptr<NNLabelsNode> labels_;
  CNNLossDescriptor descriptor_;
};

}  // namespace mps
