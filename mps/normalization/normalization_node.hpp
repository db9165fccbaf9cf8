#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"

/// Graph nodes of the normalisations by what lies around a value. The kernels check parameters and sizes. A gradient node
/// that a forward node makes has its parameters at that moment, or takes them from the gradient state.
namespace mps {

/// Base of the forward nodes (MPSCNNNormalizationNode).
class CNNNormalizationNode : public NNFilterNode {
 public:
  /// 1, not negative.
  [[nodiscard]] float alpha() const { return alpha_; }
  void setAlpha(float alpha) { alpha_ = alpha; }
  /// 5.
  [[nodiscard]] float beta() const { return beta_; }
  void setBeta(float beta) { beta_ = beta; }
  /// 1.
  [[nodiscard]] float delta() const { return delta_; }
  void setDelta(float delta) { delta_ = delta; }

 protected:
  explicit CNNNormalizationNode(std::shared_ptr<NNImageNode> source);

 private:
  float alpha_ = 1;
  float beta_ = 5;
  float delta_ = 1;
};

/// Stands for CNNSpatialNormalization (MPSCNNSpatialNormalizationNode).
class CNNSpatialNormalizationNode : public CNNNormalizationNode {
 public:
  /// @param kernelSize width and height
  static std::shared_ptr<CNNSpatialNormalizationNode> create(std::shared_ptr<NNImageNode> source,
                                                             std::size_t kernelSize = 5);
  [[nodiscard]] std::size_t kernelWidth() const { return kernelWidth_; }
  void setKernelWidth(std::size_t kernelWidth) { kernelWidth_ = kernelWidth; }
  [[nodiscard]] std::size_t kernelHeight() const { return kernelHeight_; }
  void setKernelHeight(std::size_t kernelHeight) { kernelHeight_ = kernelHeight; }
  [[nodiscard]] std::string className() const override { return "CNNSpatialNormalizationNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNSpatialNormalizationNode(std::shared_ptr<NNImageNode> source, std::size_t kernelSize);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
};

/// Stands for CNNLocalContrastNormalization (MPSCNNLocalContrastNormalizationNode). alpha 1 (the bare kernel: 0), beta
/// 0.5, delta 1/1024.
class CNNLocalContrastNormalizationNode : public CNNNormalizationNode {
 public:
  /// @param kernelSize width and height
  static std::shared_ptr<CNNLocalContrastNormalizationNode> create(std::shared_ptr<NNImageNode> source,
                                                                   std::size_t kernelSize = 5);
  [[nodiscard]] std::size_t kernelWidth() const { return kernelWidth_; }
  void setKernelWidth(std::size_t kernelWidth) { kernelWidth_ = kernelWidth; }
  [[nodiscard]] std::size_t kernelHeight() const { return kernelHeight_; }
  void setKernelHeight(std::size_t kernelHeight) { kernelHeight_ = kernelHeight; }
  /// 1.
  [[nodiscard]] float p0() const { return p0_; }
  void setP0(float p0) { p0_ = p0; }
  /// 0.
  [[nodiscard]] float pm() const { return pm_; }
  void setPm(float pm) { pm_ = pm; }
  /// 1.
  [[nodiscard]] float ps() const { return ps_; }
  void setPs(float ps) { ps_ = ps; }
  [[nodiscard]] std::string className() const override { return "CNNLocalContrastNormalizationNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNLocalContrastNormalizationNode(std::shared_ptr<NNImageNode> source, std::size_t kernelSize);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
  float p0_ = 1;
  float pm_ = 0;
  float ps_ = 1;
};

/// Stands for CNNCrossChannelNormalization (MPSCNNCrossChannelNormalizationNode).
class CNNCrossChannelNormalizationNode : public CNNNormalizationNode {
 public:
  /// @param kernelSize channels of a window
  static std::shared_ptr<CNNCrossChannelNormalizationNode> create(std::shared_ptr<NNImageNode> source,
                                                                  std::size_t kernelSize = 5);
  [[nodiscard]] std::size_t kernelSizeInFeatureChannels() const { return kernelSize_; }
  void setKernelSizeInFeatureChannels(std::size_t kernelSize) { kernelSize_ = kernelSize; }
  [[nodiscard]] std::string className() const override { return "CNNCrossChannelNormalizationNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNCrossChannelNormalizationNode(std::shared_ptr<NNImageNode> source, std::size_t kernelSize);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::size_t kernelSize_;
};

/// Stands for CNNSpatialNormalizationGradient (MPSCNNSpatialNormalizationGradientNode). alpha 1, beta 5, delta 1.
class CNNSpatialNormalizationGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source  @param kernelSize width and height
  static std::shared_ptr<CNNSpatialNormalizationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelSize);
  [[nodiscard]] std::size_t kernelWidth() const { return kernelWidth_; }
  void setKernelWidth(std::size_t kernelWidth) { kernelWidth_ = kernelWidth; }
  [[nodiscard]] std::size_t kernelHeight() const { return kernelHeight_; }
  void setKernelHeight(std::size_t kernelHeight) { kernelHeight_ = kernelHeight; }
  [[nodiscard]] float alpha() const { return alpha_; }
  void setAlpha(float alpha) { alpha_ = alpha; }
  [[nodiscard]] float beta() const { return beta_; }
  void setBeta(float beta) { beta_ = beta; }
  [[nodiscard]] float delta() const { return delta_; }
  void setDelta(float delta) { delta_ = delta; }
  [[nodiscard]] std::string className() const override { return "CNNSpatialNormalizationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNSpatialNormalizationGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                      std::shared_ptr<NNImageNode> sourceImage,
                                      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelSize);

 private:
  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
  float alpha_ = 1;
  float beta_ = 5;
  float delta_ = 1;
};

/// Stands for CNNLocalContrastNormalizationGradient (MPSCNNLocalContrastNormalizationGradientNode). alpha 0, beta 0.5,
/// delta 1/1024, p0 1, pm 0, ps 1: of nodes that a forward node made, what that node has.
class CNNLocalContrastNormalizationGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNLocalContrastNormalizationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight);
  [[nodiscard]] std::size_t kernelWidth() const { return kernelWidth_; }
  [[nodiscard]] std::size_t kernelHeight() const { return kernelHeight_; }
  [[nodiscard]] float alpha() const { return alpha_; }
  void setAlpha(float alpha) { alpha_ = alpha; }
  [[nodiscard]] float beta() const { return beta_; }
  void setBeta(float beta) { beta_ = beta; }
  [[nodiscard]] float delta() const { return delta_; }
  void setDelta(float delta) { delta_ = delta; }
  [[nodiscard]] float p0() const { return p0_; }
  void setP0(float p0) { p0_ = p0; }
  [[nodiscard]] float pm() const { return pm_; }
  void setPm(float pm) { pm_ = pm; }
  [[nodiscard]] float ps() const { return ps_; }
  void setPs(float ps) { ps_ = ps; }
  [[nodiscard]] std::string className() const override { return "CNNLocalContrastNormalizationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNLocalContrastNormalizationGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                            std::shared_ptr<NNImageNode> sourceImage,
                                            std::shared_ptr<NNStateNode> gradientState,
                                            std::size_t kernelWidth, std::size_t kernelHeight);

 private:
  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
  float alpha_ = 0;
  float beta_ = 0.5F;
  float delta_ = 1.0F / 1024;
  float p0_ = 1;
  float pm_ = 0;
  float ps_ = 1;
};

/// Stands for CNNCrossChannelNormalizationGradient (MPSCNNCrossChannelNormalizationGradientNode); alpha, beta and delta
/// come from the gradient state.
class CNNCrossChannelNormalizationGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNCrossChannelNormalizationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelSize);
  [[nodiscard]] std::size_t kernelSizeInFeatureChannels() const { return kernelSize_; }
  [[nodiscard]] std::string className() const override { return "CNNCrossChannelNormalizationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNCrossChannelNormalizationGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                           std::shared_ptr<NNImageNode> sourceImage,
                                           std::shared_ptr<NNStateNode> gradientState,
                                           std::size_t kernelSize);

 private:
  std::size_t kernelSize_;
};

}  // namespace mps
