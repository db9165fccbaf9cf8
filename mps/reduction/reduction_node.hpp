#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"
#include "mps/reduction/reduction.hpp"

/// Graph nodes of the reductions.
namespace mps {

/// Base of the nodes of one source (MPSNNUnaryReductionNode). NNReduceUnary says what each computes. All but the
/// arguments of minimum and maximum have a gradient; Apple's only the spatial mean (docs/decisions.md, D6).
class NNUnaryReductionNode : public NNFilterNode {
 public:
  /// NNReduceUnary::clipRectSource of the kernel. RectNoClip.
  [[nodiscard]] const mtl::Region& clipRectSource() const { return clipRectSource_; }
  void setClipRectSource(const mtl::Region& region) { clipRectSource_ = region; }
  [[nodiscard]] std::string className() const override;
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  NNUnaryReductionNode(std::shared_ptr<NNImageNode> source, ReductionOperation operation, ReductionAxis axis);
  [[nodiscard]] virtual std::shared_ptr<NNReduceUnary> makeReduction(
      const std::shared_ptr<mtl::Device>& device) const = 0;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  ReductionOperation operation_;
  ReductionAxis axis_;
  mtl::Region clipRectSource_ = RectNoClip;
};

/// The nodes of NNReduce's classes.
template <ReductionOperation Operation, ReductionAxis Axis>
class NNReductionNode final : public NNUnaryReductionNode {
 public:
  static std::shared_ptr<NNReductionNode> create(std::shared_ptr<NNImageNode> source) {
    return std::shared_ptr<NNReductionNode>(new NNReductionNode(std::move(source)));
  }

 private:
  explicit NNReductionNode(std::shared_ptr<NNImageNode> source)
      : NNUnaryReductionNode(std::move(source), Operation, Axis) {}
  [[nodiscard]] std::shared_ptr<NNReduceUnary> makeReduction(
      const std::shared_ptr<mtl::Device>& device) const override {
    return NNReduce<Operation, Axis>::create(device);
  }
};

using NNReductionRowMinNode = NNReductionNode<ReductionOperation::Min, ReductionAxis::Row>;
using NNReductionRowMaxNode = NNReductionNode<ReductionOperation::Max, ReductionAxis::Row>;
using NNReductionRowSumNode = NNReductionNode<ReductionOperation::Sum, ReductionAxis::Row>;
using NNReductionRowMeanNode = NNReductionNode<ReductionOperation::Mean, ReductionAxis::Row>;
using NNReductionColumnMinNode = NNReductionNode<ReductionOperation::Min, ReductionAxis::Column>;
using NNReductionColumnMaxNode = NNReductionNode<ReductionOperation::Max, ReductionAxis::Column>;
using NNReductionColumnSumNode = NNReductionNode<ReductionOperation::Sum, ReductionAxis::Column>;
using NNReductionColumnMeanNode = NNReductionNode<ReductionOperation::Mean, ReductionAxis::Column>;
using NNReductionFeatureChannelsMinNode =
    NNReductionNode<ReductionOperation::Min, ReductionAxis::FeatureChannels>;
using NNReductionFeatureChannelsMaxNode =
    NNReductionNode<ReductionOperation::Max, ReductionAxis::FeatureChannels>;
using NNReductionFeatureChannelsMeanNode =
    NNReductionNode<ReductionOperation::Mean, ReductionAxis::FeatureChannels>;
using NNReductionFeatureChannelsArgumentMinNode =
    NNReductionNode<ReductionOperation::ArgumentMin, ReductionAxis::FeatureChannels>;
using NNReductionFeatureChannelsArgumentMaxNode =
    NNReductionNode<ReductionOperation::ArgumentMax, ReductionAxis::FeatureChannels>;
/// Global average pooling: 1 x 1 x C.
using NNReductionSpatialMeanNode = NNReductionNode<ReductionOperation::Mean, ReductionAxis::Spatial>;

/// weight * the sum over the channels (MPSNNReductionFeatureChannelsSumNode).
class NNReductionFeatureChannelsSumNode final : public NNUnaryReductionNode {
 public:
  static std::shared_ptr<NNReductionFeatureChannelsSumNode> create(std::shared_ptr<NNImageNode> source);
  /// 1.
  [[nodiscard]] float weight() const { return weight_; }
  void setWeight(float weight) { weight_ = weight; }

 private:
  explicit NNReductionFeatureChannelsSumNode(std::shared_ptr<NNImageNode> source)
      : NNUnaryReductionNode(std::move(source), ReductionOperation::Sum, ReductionAxis::FeatureChannels) {}
  [[nodiscard]] std::shared_ptr<NNReduceUnary> makeReduction(
      const std::shared_ptr<mtl::Device>& device) const override;

  float weight_ = 1;
};

/// Stands for NNReduceUnaryGradient.
class NNUnaryReductionGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<NNUnaryReductionGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                              std::shared_ptr<NNImageNode> sourceImage,
                                                              std::shared_ptr<NNStateNode> gradientState,
                                                              ReductionOperation operation,
                                                              ReductionAxis axis);
  [[nodiscard]] std::string className() const override { return "NNUnaryReductionGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  NNUnaryReductionGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                               std::shared_ptr<NNImageNode> sourceImage,
                               std::shared_ptr<NNStateNode> gradientState, ReductionOperation operation,
                               ReductionAxis axis);

 private:
  ReductionOperation operation_;
  ReductionAxis axis_;
};

/// That of the spatial mean, g / number of pixels (MPSNNReductionSpatialMeanGradientNode).
class NNReductionSpatialMeanGradientNode final : public NNUnaryReductionGradientNode {
 public:
  static std::shared_ptr<NNReductionSpatialMeanGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "NNReductionSpatialMeanGradientNode"; }

 private:
  NNReductionSpatialMeanGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                     std::shared_ptr<NNImageNode> sourceImage,
                                     std::shared_ptr<NNStateNode> gradientState);
};

}  // namespace mps
