#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"
#include "mps/core/layer/convolution_data_source.hpp"

/// Graph nodes of the convolution family.
namespace mps {

/// Stands for a CNNConvolutionGradientState.
class CNNConvolutionGradientStateNode : public NNGradientStateNode {};
/// Stands for a CNNConvolutionTransposeGradientState.
class CNNConvolutionTransposeGradientStateNode : public CNNConvolutionGradientStateNode {};

/// Stands for CNNConvolution (MPSCNNConvolutionNode). For training the data source's descriptor holds no
/// neuron: put a neuron node behind, the graph fuses it where that is allowed.
class CNNConvolutionNode : public NNFilterNode, public NNTrainableNode {
 public:
  /// @param weights never null
  static std::shared_ptr<CNNConvolutionNode> create(std::shared_ptr<NNImageNode> source,
                                                    std::shared_ptr<CNNConvolutionDataSource> weights);
  [[nodiscard]] std::string className() const override { return "CNNConvolutionNode"; }
  [[nodiscard]] const std::shared_ptr<CNNConvolutionDataSource>& weights() const { return weights_; }
  [[nodiscard]] NNConvolutionAccumulatorPrecisionOption accumulatorPrecision() const { return precision_; }
  void setAccumulatorPrecision(NNConvolutionAccumulatorPrecisionOption option) { precision_ = option; }
  /// The state for the gradient.
  [[nodiscard]] std::shared_ptr<NNStateNode> convolutionGradientState() { return resultState(); }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNConvolutionNode(
      std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNConvolutionDataSource> weights,
      std::vector<std::shared_ptr<NNStateNode>> sourceStates = {},
      std::unique_ptr<NNStateNode> resultState = std::make_unique<CNNConvolutionGradientStateNode>());
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::shared_ptr<CNNConvolutionDataSource> weights_;
  NNConvolutionAccumulatorPrecisionOption precision_ = NNConvolutionAccumulatorPrecisionOption::Float;
};

/// Stands for CNNFullyConnected (MPSCNNFullyConnectedNode): valid-only padding, the kernel as large as the
/// source.
class CNNFullyConnectedNode : public CNNConvolutionNode {
 public:
  static std::shared_ptr<CNNFullyConnectedNode> create(std::shared_ptr<NNImageNode> source,
                                                       std::shared_ptr<CNNConvolutionDataSource> weights);
  [[nodiscard]] std::string className() const override { return "CNNFullyConnectedNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNFullyConnectedNode(std::shared_ptr<NNImageNode> source,
                        std::shared_ptr<CNNConvolutionDataSource> weights);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNConvolutionTranspose (MPSCNNConvolutionTransposeNode).
class CNNConvolutionTransposeNode : public CNNConvolutionNode {
 public:
  /// @param convolutionGradientState the state of the convolution node to undo: the result has the size of that node's
  ///                                 source; null: the padding policy decides
  /// @throws Error for the state of another kind of node.
  static std::shared_ptr<CNNConvolutionTransposeNode> create(
      std::shared_ptr<NNImageNode> source, std::shared_ptr<NNStateNode> convolutionGradientState,
      std::shared_ptr<CNNConvolutionDataSource> weights);
  static std::shared_ptr<CNNConvolutionTransposeNode> create(
      std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNConvolutionDataSource> weights);
  [[nodiscard]] std::string className() const override { return "CNNConvolutionTransposeNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;
  /// Its state undoes nothing: resultState().
  std::shared_ptr<NNStateNode> convolutionGradientState() = delete;

 protected:
  CNNConvolutionTransposeNode(std::shared_ptr<NNImageNode> source,
                              std::vector<std::shared_ptr<NNStateNode>> sourceStates,
                              std::shared_ptr<CNNConvolutionDataSource> weights);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNConvolutionGradient (MPSCNNConvolutionGradientNode). The graph decides which gradients are
/// computed: those that something needs.
class CNNConvolutionGradientNode : public NNGradientFilterNode, public NNTrainableNode {
 public:
  /// @param sourceImage the forward source
  /// @param weights     null: the data source of the forward node
  static std::shared_ptr<CNNConvolutionGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> convolutionGradientState,
      std::shared_ptr<CNNConvolutionDataSource> weights);
  [[nodiscard]] std::string className() const override { return "CNNConvolutionGradientNode"; }
  [[nodiscard]] const std::shared_ptr<CNNConvolutionDataSource>& weights() const { return weights_; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNConvolutionGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                             std::shared_ptr<NNImageNode> sourceImage,
                             std::shared_ptr<NNStateNode> convolutionGradientState,
                             std::shared_ptr<CNNConvolutionDataSource> weights);

 private:
  std::shared_ptr<CNNConvolutionDataSource> weights_;
};

/// Stands for CNNFullyConnectedGradient (MPSCNNFullyConnectedGradientNode).
class CNNFullyConnectedGradientNode : public CNNConvolutionGradientNode {
 public:
  static std::shared_ptr<CNNFullyConnectedGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> convolutionGradientState,
      std::shared_ptr<CNNConvolutionDataSource> weights);
  [[nodiscard]] std::string className() const override { return "CNNFullyConnectedGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNConvolutionGradientNode::CNNConvolutionGradientNode;
};

/// Stands for CNNConvolutionTransposeGradient (MPSCNNConvolutionTransposeGradientNode).
class CNNConvolutionTransposeGradientNode : public CNNConvolutionGradientNode {
 public:
  static std::shared_ptr<CNNConvolutionTransposeGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> convolutionTransposeGradientState,
      std::shared_ptr<CNNConvolutionDataSource> weights);
  [[nodiscard]] std::string className() const override { return "CNNConvolutionTransposeGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNConvolutionGradientNode::CNNConvolutionGradientNode;
};

}  // namespace mps
