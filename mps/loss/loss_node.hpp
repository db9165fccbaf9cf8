#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"
#include "mps/loss/loss_descriptor.hpp"

namespace mps {

/// Stands for the labels that the application gives to each encode (MPSNNLabelsNode); a source state of the
/// graph.
class NNLabelsNode : public NNStateNode {
 public:
  NNLabelsNode() = default;
};

/// Stands for CNNLoss (MPSCNNLossNode). The result image IS the gradient of the
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

 protected:
  CNNLossNode(std::shared_ptr<NNImageNode> source, std::shared_ptr<NNLabelsNode> labels,
              const CNNLossDescriptor& lossDescriptor);
  [[nodiscard]] bool isItsOwnGradient() const override { return true; }

 private:
  std::shared_ptr<NNLabelsNode> labels_;
  CNNLossDescriptor descriptor_;
};

/// Stands for NNForwardLoss (MPSNNForwardLossNode): predictions and labels, and weights if there
/// are any, are images of the graph. Make an NNInitialGradientNode of the result, or of what other nodes make of it, and
/// call trainingGraph on that.
///
/// gradientFilter gives the node of the predictions' gradient; gradientFilters those of predictions and labels.
/// trainingGraph builds that of the labels only where a filter of the graph makes them (and stopGradient is not set).
class NNForwardLossNode : public NNFilterNode, public detail::LossProperties {
 public:
  /// @param weights may be null
  static std::shared_ptr<NNForwardLossNode> create(std::shared_ptr<NNImageNode> source,
                                                   std::shared_ptr<NNImageNode> labels,
                                                   std::shared_ptr<NNImageNode> weights,
                                                   const CNNLossDescriptor& lossDescriptor);
  static std::shared_ptr<NNForwardLossNode> create(std::shared_ptr<NNImageNode> source,
                                                   std::shared_ptr<NNImageNode> labels,
                                                   const CNNLossDescriptor& lossDescriptor);
  /// @param sources predictions, labels and, if there are any, weights @throws Error for another number
  static std::shared_ptr<NNForwardLossNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources,
                                                   const CNNLossDescriptor& lossDescriptor);
  [[nodiscard]] std::string className() const override { return "NNForwardLossNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  NNForwardLossNode(std::vector<std::shared_ptr<NNImageNode>> sources,
                    const CNNLossDescriptor& lossDescriptor);
  [[nodiscard]] bool hasMainSource() const override { return true; }
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
  [[nodiscard]] bool buildsGradientOf(std::size_t source) const override;
};

/// Stands for NNLossGradient (MPSNNLossGradientNode).
class NNLossGradientNode : public NNGradientFilterNode, public detail::LossProperties {
 public:
  /// @param weights       may be null
  /// @param gradientState of the forward node, whose numbers then count; may be null
  static std::shared_ptr<NNLossGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                    std::shared_ptr<NNImageNode> sourceImage,
                                                    std::shared_ptr<NNImageNode> labels,
                                                    std::shared_ptr<NNImageNode> weights,
                                                    std::shared_ptr<NNStateNode> gradientState,
                                                    const CNNLossDescriptor& lossDescriptor,
                                                    bool isLabelsGradientFilter);
  static std::shared_ptr<NNLossGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                    std::shared_ptr<NNImageNode> sourceImage,
                                                    std::shared_ptr<NNImageNode> labels,
                                                    std::shared_ptr<NNStateNode> gradientState,
                                                    const CNNLossDescriptor& lossDescriptor,
                                                    bool isLabelsGradientFilter);
  /// @param sources gradient, predictions, labels and, if there are any, weights @throws Error for another number
  static std::shared_ptr<NNLossGradientNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources,
                                                    std::shared_ptr<NNStateNode> gradientState,
                                                    const CNNLossDescriptor& lossDescriptor,
                                                    bool isLabelsGradientFilter);
  /// Whether the result is the gradient of the labels.
  [[nodiscard]] bool isLabelsGradientFilter() const { return isLabelsGradientFilter_; }
  [[nodiscard]] std::string className() const override { return "NNLossGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  /// @param sources gradient, predictions and the rest
  NNLossGradientNode(ArrayRef<std::shared_ptr<NNImageNode>> sources,
                     std::shared_ptr<NNStateNode> gradientState, const CNNLossDescriptor& lossDescriptor,
                     bool isLabelsGradientFilter);

 private:
  bool isLabelsGradientFilter_;
};

/// Stands for NNInitialGradient (MPSNNInitialGradientNode): the result, ones, is the gradient of
/// the source with respect to itself. Call trainingGraph(nullptr, ...) on this node.
class NNInitialGradientNode : public NNFilterNode {
 public:
  static std::shared_ptr<NNInitialGradientNode> create(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] std::string className() const override { return "NNInitialGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  explicit NNInitialGradientNode(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] bool isItsOwnGradient() const override { return true; }
};

}  // namespace mps
