#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"
#include "mps/instance_normalization/group_normalization.hpp"

/// Graph nodes of instance and group normalisation. In a training graph the gradients
/// of gamma and beta go to the data source, image by image.
namespace mps {

/// Stands for CNNInstanceNormalization (MPSCNNInstanceNormalizationNode).
class CNNInstanceNormalizationNode : public NNFilterNode, public NNTrainableNode {
 public:
  /// @param dataSource never null
  static std::shared_ptr<CNNInstanceNormalizationNode> create(
      std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource);
  [[nodiscard]] std::string className() const override { return "CNNInstanceNormalizationNode"; }
  [[nodiscard]] const std::shared_ptr<CNNInstanceNormalizationDataSource>& dataSource() const {
    return dataSource_;
  }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNInstanceNormalizationNode(std::shared_ptr<NNImageNode> source,
                               std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource_;
};

/// Stands for CNNInstanceNormalizationGradient (MPSCNNInstanceNormalizationGradientNode).
class CNNInstanceNormalizationGradientNode : public NNGradientFilterNode, public NNTrainableNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNInstanceNormalizationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "CNNInstanceNormalizationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNGradientFilterNode::NNGradientFilterNode;
};

/// Stands for CNNGroupNormalization (MPSCNNGroupNormalizationNode).
class CNNGroupNormalizationNode : public NNFilterNode, public NNTrainableNode {
 public:
  /// @param dataSource never null
  static std::shared_ptr<CNNGroupNormalizationNode> create(
      std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNGroupNormalizationDataSource> dataSource);
  [[nodiscard]] std::string className() const override { return "CNNGroupNormalizationNode"; }
  [[nodiscard]] const std::shared_ptr<CNNGroupNormalizationDataSource>& dataSource() const {
    return dataSource_;
  }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNGroupNormalizationNode(std::shared_ptr<NNImageNode> source,
                            std::shared_ptr<CNNGroupNormalizationDataSource> dataSource);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::shared_ptr<CNNGroupNormalizationDataSource> dataSource_;
};

/// Stands for CNNGroupNormalizationGradient (MPSCNNGroupNormalizationGradientNode).
class CNNGroupNormalizationGradientNode : public NNGradientFilterNode, public NNTrainableNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNGroupNormalizationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "CNNGroupNormalizationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNGradientFilterNode::NNGradientFilterNode;
};

}  // namespace mps
