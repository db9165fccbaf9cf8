#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/core/kernel/node.hpp"

/// Graph nodes of batch normalisation.
namespace mps {

/// Stands for CNNBatchNormalization (MPSCNNBatchNormalizationNode), in training with
/// CNNBatchNormalizationStatistics before it. The same nodes in a graph without gradients use the data source's
/// running statistics.
class CNNBatchNormalizationNode : public NNFilterNode, public NNTrainableNode {
 public:
  /// @param dataSource never null
  static std::shared_ptr<CNNBatchNormalizationNode> create(
      std::shared_ptr<NNImageNode> source, std::shared_ptr<CNNBatchNormalizationDataSource> dataSource);
  [[nodiscard]] std::string className() const override { return "CNNBatchNormalizationNode"; }
  [[nodiscard]] const std::shared_ptr<CNNBatchNormalizationDataSource>& dataSource() const {
    return dataSource_;
  }
  /// Default: statistics of the batch in training, the data source's otherwise.
  [[nodiscard]] CNNBatchNormalizationFlags flags() const { return flags_; }
  void setFlags(CNNBatchNormalizationFlags flags) { flags_ = flags; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNBatchNormalizationNode(std::shared_ptr<NNImageNode> source,
                            std::shared_ptr<CNNBatchNormalizationDataSource> dataSource);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::shared_ptr<CNNBatchNormalizationDataSource> dataSource_;
  CNNBatchNormalizationFlags flags_ = CNNBatchNormalizationFlags::Default;
};

/// Stands for CNNBatchNormalizationStatisticsGradient and CNNBatchNormalizationGradient behind it
/// (MPSCNNBatchNormalizationGradientNode); the latter only where somebody reads the result.
class CNNBatchNormalizationGradientNode : public NNGradientFilterNode, public NNTrainableNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNBatchNormalizationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "CNNBatchNormalizationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNGradientFilterNode::NNGradientFilterNode;
};

}  // namespace mps
