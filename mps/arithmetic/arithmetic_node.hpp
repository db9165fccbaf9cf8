#pragma once

#include <cfloat>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/arithmetic/compare.hpp"
#include "mps/core/kernel/node.hpp"

/// Graph nodes of the arithmetic kernels.
namespace mps {

class CNNArithmetic;
class CNNArithmeticGradient;
class NNArithmeticGradientNode;

/// Stands for a CNNArithmeticGradientState (MPSNNArithmeticGradientStateNode).
class NNArithmeticGradientStateNode final : public NNBinaryGradientStateNode {};

/// Base of the nodes with a left and a right source (MPSNNBinaryArithmeticNode); left is x, the primary
/// source of the kernel, right is y. Two gradient nodes: [0] of the left source, [1] of the right one; they
/// copy the properties when they are made.
class NNBinaryArithmeticNode : public NNFilterNode {
 public:
  /// Factor on x, factor on y, and what is added to the result of the operation. 1, 1, 0.
  [[nodiscard]] float primaryScale() const { return primaryScale_; }
  void setPrimaryScale(float scale) { primaryScale_ = scale; }
  [[nodiscard]] float secondaryScale() const { return secondaryScale_; }
  void setSecondaryScale(float scale) { secondaryScale_ = scale; }
  [[nodiscard]] float bias() const { return bias_; }
  void setBias(float bias) { bias_ = bias; }
  /// 0 repeats a column, a row, a channel of that source; else 1. 1.
  [[nodiscard]] std::size_t primaryStrideInPixelsX() const { return primaryStrideInPixelsX_; }
  void setPrimaryStrideInPixelsX(std::size_t stride) { primaryStrideInPixelsX_ = stride; }
  [[nodiscard]] std::size_t primaryStrideInPixelsY() const { return primaryStrideInPixelsY_; }
  void setPrimaryStrideInPixelsY(std::size_t stride) { primaryStrideInPixelsY_ = stride; }
  [[nodiscard]] std::size_t primaryStrideInFeatureChannels() const { return primaryStrideInFeatureChannels_; }
  void setPrimaryStrideInFeatureChannels(std::size_t stride) { primaryStrideInFeatureChannels_ = stride; }
  [[nodiscard]] std::size_t secondaryStrideInPixelsX() const { return secondaryStrideInPixelsX_; }
  void setSecondaryStrideInPixelsX(std::size_t stride) { secondaryStrideInPixelsX_ = stride; }
  [[nodiscard]] std::size_t secondaryStrideInPixelsY() const { return secondaryStrideInPixelsY_; }
  void setSecondaryStrideInPixelsY(std::size_t stride) { secondaryStrideInPixelsY_ = stride; }
  [[nodiscard]] std::size_t secondaryStrideInFeatureChannels() const {
    return secondaryStrideInFeatureChannels_;
  }
  void setSecondaryStrideInFeatureChannels(std::size_t stride) { secondaryStrideInFeatureChannels_ = stride; }
  /// Limits of the result. -FLT_MAX, FLT_MAX, which mean none.
  [[nodiscard]] float minimumValue() const { return minimumValue_; }
  void setMinimumValue(float value) { minimumValue_ = value; }
  [[nodiscard]] float maximumValue() const { return maximumValue_; }
  void setMaximumValue(float value) { maximumValue_ = value; }
  /// Class name of the gradient nodes, e.g. "NNAdditionGradientNode".
  [[nodiscard]] virtual std::string gradientClass() const = 0;

 protected:
  NNBinaryArithmeticNode(std::shared_ptr<NNImageNode> leftSource, std::shared_ptr<NNImageNode> rightSource);
  /// @throws Error unless there are exactly two.
  explicit NNBinaryArithmeticNode(ArrayRef<std::shared_ptr<NNImageNode>> sources);
  /// Gives a kernel all that the node says.
  std::shared_ptr<Kernel> configured(const std::shared_ptr<CNNArithmetic>& kernel) const;
  /// What tells the two gradient nodes apart.
  struct GradientSettings {
    std::size_t sourceImage = 0;  ///< 0 is the left source, 1 the right one
    float primaryScale = 1;
    float secondaryScale = 1;
  };
  template <class GradientNode>
  std::vector<std::shared_ptr<NNGradientFilterNode>> gradientNodes(
      const std::shared_ptr<NNImageNode>& gradientImage, const GradientSettings& left,
      const GradientSettings& right);

 private:
  float primaryScale_ = 1;
  float secondaryScale_ = 1;
  float bias_ = 0;
  std::size_t primaryStrideInPixelsX_ = 1;
  std::size_t primaryStrideInPixelsY_ = 1;
  std::size_t primaryStrideInFeatureChannels_ = 1;
  std::size_t secondaryStrideInPixelsX_ = 1;
  std::size_t secondaryStrideInPixelsY_ = 1;
  std::size_t secondaryStrideInFeatureChannels_ = 1;
  float minimumValue_ = -FLT_MAX;
  float maximumValue_ = FLT_MAX;
};

/// clamp(a x + b y + bias) (MPSNNAdditionNode).
class NNAdditionNode : public NNBinaryArithmeticNode {
 public:
  static std::shared_ptr<NNAdditionNode> create(std::shared_ptr<NNImageNode> leftSource,
                                                std::shared_ptr<NNImageNode> rightSource);
  static std::shared_ptr<NNAdditionNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources);
  [[nodiscard]] std::string className() const override { return "NNAdditionNode"; }
  [[nodiscard]] std::string gradientClass() const override { return "NNAdditionGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNBinaryArithmeticNode::NNBinaryArithmeticNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// clamp(a x - b y + bias) (MPSNNSubtractionNode).
class NNSubtractionNode : public NNBinaryArithmeticNode {
 public:
  static std::shared_ptr<NNSubtractionNode> create(std::shared_ptr<NNImageNode> leftSource,
                                                   std::shared_ptr<NNImageNode> rightSource);
  static std::shared_ptr<NNSubtractionNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources);
  [[nodiscard]] std::string className() const override { return "NNSubtractionNode"; }
  [[nodiscard]] std::string gradientClass() const override { return "NNSubtractionGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNBinaryArithmeticNode::NNBinaryArithmeticNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// clamp(a x * b y + bias) (MPSNNMultiplicationNode).
class NNMultiplicationNode : public NNBinaryArithmeticNode {
 public:
  static std::shared_ptr<NNMultiplicationNode> create(std::shared_ptr<NNImageNode> leftSource,
                                                      std::shared_ptr<NNImageNode> rightSource);
  static std::shared_ptr<NNMultiplicationNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources);
  [[nodiscard]] std::string className() const override { return "NNMultiplicationNode"; }
  [[nodiscard]] std::string gradientClass() const override { return "NNMultiplicationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNBinaryArithmeticNode::NNBinaryArithmeticNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// clamp(a x / (b y) + bias) (MPSNNDivisionNode).
class NNDivisionNode : public NNBinaryArithmeticNode {
 public:
  static std::shared_ptr<NNDivisionNode> create(std::shared_ptr<NNImageNode> leftSource,
                                                std::shared_ptr<NNImageNode> rightSource);
  static std::shared_ptr<NNDivisionNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources);
  [[nodiscard]] std::string className() const override { return "NNDivisionNode"; }
  [[nodiscard]] std::string gradientClass() const override { return "NNDivisionGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNBinaryArithmeticNode::NNBinaryArithmeticNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// 1 where a comparison of x with y holds, else 0 (MPSNNComparisonNode); of the base's properties only the strides are
/// used. It has no gradient: trainingGraph through it throws.
class NNComparisonNode : public NNBinaryArithmeticNode {
 public:
  static std::shared_ptr<NNComparisonNode> create(std::shared_ptr<NNImageNode> leftSource,
                                                  std::shared_ptr<NNImageNode> rightSource);
  static std::shared_ptr<NNComparisonNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources);
  /// Equal.
  [[nodiscard]] NNComparisonType comparisonType() const { return comparisonType_; }
  void setComparisonType(NNComparisonType type) { comparisonType_ = type; }
  [[nodiscard]] std::string className() const override { return "NNComparisonNode"; }
  /// Empty: there is none.
  [[nodiscard]] std::string gradientClass() const override { return {}; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNBinaryArithmeticNode::NNBinaryArithmeticNode;

 private:
  NNComparisonType comparisonType_ = NNComparisonType::Equal;
};

/// Base of the gradient nodes (MPSNNArithmeticGradientNode). Properties as of
/// CNNArithmeticGradient, whose table says which image sourceImage is. The nodes that a forward node makes
/// have the scales that give its exact gradient.
class NNArithmeticGradientNode : public NNGradientFilterNode {
 public:
  [[nodiscard]] float primaryScale() const { return primaryScale_; }
  void setPrimaryScale(float scale) { primaryScale_ = scale; }
  [[nodiscard]] float secondaryScale() const { return secondaryScale_; }
  void setSecondaryScale(float scale) { secondaryScale_ = scale; }
  [[nodiscard]] float bias() const { return bias_; }
  void setBias(float bias) { bias_ = bias; }
  /// Of sourceImage. 1 on a node made by hand; what is not set is taken from the state.
  [[nodiscard]] std::size_t secondaryStrideInPixelsX() const { return secondaryStrideInPixelsX_.value_or(1); }
  void setSecondaryStrideInPixelsX(std::size_t stride) { secondaryStrideInPixelsX_ = stride; }
  [[nodiscard]] std::size_t secondaryStrideInPixelsY() const { return secondaryStrideInPixelsY_.value_or(1); }
  void setSecondaryStrideInPixelsY(std::size_t stride) { secondaryStrideInPixelsY_ = stride; }
  [[nodiscard]] std::size_t secondaryStrideInFeatureChannels() const {
    return secondaryStrideInFeatureChannels_.value_or(1);
  }
  void setSecondaryStrideInFeatureChannels(std::size_t stride) { secondaryStrideInFeatureChannels_ = stride; }
  [[nodiscard]] float minimumValue() const { return minimumValue_; }
  void setMinimumValue(float value) { minimumValue_ = value; }
  [[nodiscard]] float maximumValue() const { return maximumValue_; }
  void setMaximumValue(float value) { maximumValue_ = value; }
  /// Whether the result is the gradient of the right source.
  [[nodiscard]] bool isSecondarySourceFilter() const { return isSecondarySourceFilter_; }

 protected:
  NNArithmeticGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                           std::shared_ptr<NNImageNode> sourceImage,
                           std::shared_ptr<NNStateNode> gradientState, bool isSecondarySourceFilter);
  /// @param gradientImages {gradient of the result, forward image} @throws Error unless there are exactly two
  NNArithmeticGradientNode(ArrayRef<std::shared_ptr<NNImageNode>> gradientImages,
                           const std::shared_ptr<NNFilterNode>& forwardFilter, bool isSecondarySourceFilter);
  /// Gives a kernel all that the node says.
  std::shared_ptr<Kernel> configured(const std::shared_ptr<CNNArithmeticGradient>& kernel) const;

 private:
  bool isSecondarySourceFilter_;
  float primaryScale_ = 1;
  float secondaryScale_ = 1;
  float bias_ = 0;
  std::optional<std::size_t> secondaryStrideInPixelsX_;
  std::optional<std::size_t> secondaryStrideInPixelsY_;
  std::optional<std::size_t> secondaryStrideInFeatureChannels_;
  float minimumValue_ = -FLT_MAX;
  float maximumValue_ = FLT_MAX;
};

/// Stands for CNNAddGradient (MPSNNAdditionGradientNode).
class NNAdditionGradientNode : public NNArithmeticGradientNode {
 public:
  static std::shared_ptr<NNAdditionGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                        std::shared_ptr<NNImageNode> sourceImage,
                                                        std::shared_ptr<NNStateNode> gradientState,
                                                        bool isSecondarySourceFilter);
  static std::shared_ptr<NNAdditionGradientNode> create(ArrayRef<std::shared_ptr<NNImageNode>> gradientImages,
                                                        const std::shared_ptr<NNFilterNode>& forwardFilter,
                                                        bool isSecondarySourceFilter);
  [[nodiscard]] std::string className() const override { return "NNAdditionGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNArithmeticGradientNode::NNArithmeticGradientNode;
};

/// Stands for CNNSubtractGradient (MPSNNSubtractionGradientNode).
class NNSubtractionGradientNode : public NNArithmeticGradientNode {
 public:
  static std::shared_ptr<NNSubtractionGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                           std::shared_ptr<NNImageNode> sourceImage,
                                                           std::shared_ptr<NNStateNode> gradientState,
                                                           bool isSecondarySourceFilter);
  static std::shared_ptr<NNSubtractionGradientNode> create(
      ArrayRef<std::shared_ptr<NNImageNode>> gradientImages,
      const std::shared_ptr<NNFilterNode>& forwardFilter, bool isSecondarySourceFilter);
  [[nodiscard]] std::string className() const override { return "NNSubtractionGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNArithmeticGradientNode::NNArithmeticGradientNode;
};

/// Stands for CNNMultiplyGradient (MPSNNMultiplicationGradientNode).
class NNMultiplicationGradientNode : public NNArithmeticGradientNode {
 public:
  static std::shared_ptr<NNMultiplicationGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                              std::shared_ptr<NNImageNode> sourceImage,
                                                              std::shared_ptr<NNStateNode> gradientState,
                                                              bool isSecondarySourceFilter);
  static std::shared_ptr<NNMultiplicationGradientNode> create(
      ArrayRef<std::shared_ptr<NNImageNode>> gradientImages,
      const std::shared_ptr<NNFilterNode>& forwardFilter, bool isSecondarySourceFilter);
  [[nodiscard]] std::string className() const override { return "NNMultiplicationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNArithmeticGradientNode::NNArithmeticGradientNode;
};

/// Stands for CNNDivideGradient. An extension (docs/decisions.md, D6).
class NNDivisionGradientNode : public NNArithmeticGradientNode {
 public:
  static std::shared_ptr<NNDivisionGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                        std::shared_ptr<NNImageNode> sourceImage,
                                                        std::shared_ptr<NNStateNode> gradientState,
                                                        bool isSecondarySourceFilter);
  static std::shared_ptr<NNDivisionGradientNode> create(ArrayRef<std::shared_ptr<NNImageNode>> gradientImages,
                                                        const std::shared_ptr<NNFilterNode>& forwardFilter,
                                                        bool isSecondarySourceFilter);
  [[nodiscard]] std::string className() const override { return "NNDivisionGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNArithmeticGradientNode::NNArithmeticGradientNode;
};

}  // namespace mps
