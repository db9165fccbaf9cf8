#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"

/// Graph nodes of the pooling kernels. Kernels made by these nodes have edge
/// mode Clamp; padding is Same, centred, remainder to the top left, unless paddingPolicy says otherwise.
namespace mps {

/// Base of the forward pooling nodes (MPSCNNPoolingNode).
class CNNPoolingNode : public NNFilterNode {
 public:
  [[nodiscard]] std::size_t kernelWidth() const { return kernelWidth_; }
  [[nodiscard]] std::size_t kernelHeight() const { return kernelHeight_; }
  [[nodiscard]] std::size_t strideInPixelsX() const { return strideInPixelsX_; }
  [[nodiscard]] std::size_t strideInPixelsY() const { return strideInPixelsY_; }

 protected:
  CNNPoolingNode(std::shared_ptr<NNImageNode> source, std::size_t kernelWidth, std::size_t kernelHeight,
                 std::size_t strideInPixelsX, std::size_t strideInPixelsY);

 private:
  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
  std::size_t strideInPixelsX_;
  std::size_t strideInPixelsY_;
};

/// Stands for CNNPoolingMax (MPSCNNPoolingMaxNode).
class CNNPoolingMaxNode : public CNNPoolingNode {
 public:
  /// Kernel and stride of the same size.
  static std::shared_ptr<CNNPoolingMaxNode> create(std::shared_ptr<NNImageNode> source,
                                                   std::size_t filterSize);
  static std::shared_ptr<CNNPoolingMaxNode> create(std::shared_ptr<NNImageNode> source,
                                                   std::size_t filterSize, std::size_t stride);
  static std::shared_ptr<CNNPoolingMaxNode> create(std::shared_ptr<NNImageNode> source,
                                                   std::size_t kernelWidth, std::size_t kernelHeight,
                                                   std::size_t strideInPixelsX, std::size_t strideInPixelsY);
  [[nodiscard]] std::string className() const override { return "CNNPoolingMaxNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNPoolingNode::CNNPoolingNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNPoolingAverage (MPSCNNPoolingAverageNode): with Clamp, pixels outside the image do not
/// count.
class CNNPoolingAverageNode : public CNNPoolingNode {
 public:
  static std::shared_ptr<CNNPoolingAverageNode> create(std::shared_ptr<NNImageNode> source,
                                                       std::size_t filterSize);
  static std::shared_ptr<CNNPoolingAverageNode> create(std::shared_ptr<NNImageNode> source,
                                                       std::size_t filterSize, std::size_t stride);
  static std::shared_ptr<CNNPoolingAverageNode> create(std::shared_ptr<NNImageNode> source,
                                                       std::size_t kernelWidth, std::size_t kernelHeight,
                                                       std::size_t strideInPixelsX,
                                                       std::size_t strideInPixelsY);
  [[nodiscard]] std::string className() const override { return "CNNPoolingAverageNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNPoolingNode::CNNPoolingNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNPoolingL2Norm (MPSCNNPoolingL2NormNode).
class CNNPoolingL2NormNode : public CNNPoolingNode {
 public:
  static std::shared_ptr<CNNPoolingL2NormNode> create(std::shared_ptr<NNImageNode> source,
                                                      std::size_t filterSize);
  static std::shared_ptr<CNNPoolingL2NormNode> create(std::shared_ptr<NNImageNode> source,
                                                      std::size_t filterSize, std::size_t stride);
  static std::shared_ptr<CNNPoolingL2NormNode> create(std::shared_ptr<NNImageNode> source,
                                                      std::size_t kernelWidth, std::size_t kernelHeight,
                                                      std::size_t strideInPixelsX,
                                                      std::size_t strideInPixelsY);
  [[nodiscard]] std::string className() const override { return "CNNPoolingL2NormNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNPoolingNode::CNNPoolingNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNDilatedPoolingMax (MPSCNNDilatedPoolingMaxNode).
class CNNDilatedPoolingMaxNode : public CNNPoolingNode {
 public:
  /// Kernel, stride and dilation of the same size.
  static std::shared_ptr<CNNDilatedPoolingMaxNode> create(std::shared_ptr<NNImageNode> source,
                                                          std::size_t filterSize);
  static std::shared_ptr<CNNDilatedPoolingMaxNode> create(std::shared_ptr<NNImageNode> source,
                                                          std::size_t filterSize, std::size_t stride,
                                                          std::size_t dilationRate);
  static std::shared_ptr<CNNDilatedPoolingMaxNode> create(std::shared_ptr<NNImageNode> source,
                                                          std::size_t kernelWidth, std::size_t kernelHeight,
                                                          std::size_t strideInPixelsX,
                                                          std::size_t strideInPixelsY,
                                                          std::size_t dilationRateX,
                                                          std::size_t dilationRateY);
  [[nodiscard]] std::size_t dilationRateX() const { return dilationRateX_; }
  [[nodiscard]] std::size_t dilationRateY() const { return dilationRateY_; }
  [[nodiscard]] std::string className() const override { return "CNNDilatedPoolingMaxNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNDilatedPoolingMaxNode(std::shared_ptr<NNImageNode> source, std::size_t kernelWidth,
                           std::size_t kernelHeight, std::size_t strideInPixelsX, std::size_t strideInPixelsY,
                           std::size_t dilationRateX, std::size_t dilationRateY);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::size_t dilationRateX_;
  std::size_t dilationRateY_;
};

/// Base of the pooling gradient nodes (MPSCNNPoolingGradientNode). Sizes are those of the forward node; the
/// geometry comes from the gradient state.
class CNNPoolingGradientNode : public NNGradientFilterNode {
 public:
  [[nodiscard]] std::size_t kernelWidth() const { return kernelWidth_; }
  [[nodiscard]] std::size_t kernelHeight() const { return kernelHeight_; }
  [[nodiscard]] std::size_t strideInPixelsX() const { return strideInPixelsX_; }
  [[nodiscard]] std::size_t strideInPixelsY() const { return strideInPixelsY_; }

 protected:
  /// @param paddingPolicy may be null: the default
  CNNPoolingGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                         std::shared_ptr<NNImageNode> sourceImage, std::shared_ptr<NNStateNode> gradientState,
                         std::size_t kernelWidth, std::size_t kernelHeight, std::size_t strideInPixelsX,
                         std::size_t strideInPixelsY, std::shared_ptr<NNPadding> paddingPolicy);

 private:
  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
  std::size_t strideInPixelsX_;
  std::size_t strideInPixelsY_;
};

/// Stands for CNNPoolingMaxGradient (MPSCNNPoolingMaxGradientNode).
class CNNPoolingMaxGradientNode : public CNNPoolingGradientNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNPoolingMaxGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
      std::size_t strideInPixelsX, std::size_t strideInPixelsY,
      std::shared_ptr<NNPadding> paddingPolicy = nullptr);
  [[nodiscard]] std::string className() const override { return "CNNPoolingMaxGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNPoolingGradientNode::CNNPoolingGradientNode;
};

/// Stands for CNNPoolingAverageGradient (MPSCNNPoolingAverageGradientNode).
class CNNPoolingAverageGradientNode : public CNNPoolingGradientNode {
 public:
  static std::shared_ptr<CNNPoolingAverageGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
      std::size_t strideInPixelsX, std::size_t strideInPixelsY,
      std::shared_ptr<NNPadding> paddingPolicy = nullptr);
  [[nodiscard]] std::string className() const override { return "CNNPoolingAverageGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNPoolingGradientNode::CNNPoolingGradientNode;
};

/// Stands for CNNPoolingL2NormGradient (MPSCNNPoolingL2NormGradientNode).
class CNNPoolingL2NormGradientNode : public CNNPoolingGradientNode {
 public:
  static std::shared_ptr<CNNPoolingL2NormGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
      std::size_t strideInPixelsX, std::size_t strideInPixelsY,
      std::shared_ptr<NNPadding> paddingPolicy = nullptr);
  [[nodiscard]] std::string className() const override { return "CNNPoolingL2NormGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNPoolingGradientNode::CNNPoolingGradientNode;
};

/// Stands for CNNDilatedPoolingMaxGradient (MPSCNNDilatedPoolingMaxGradientNode).
class CNNDilatedPoolingMaxGradientNode : public CNNPoolingGradientNode {
 public:
  static std::shared_ptr<CNNDilatedPoolingMaxGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth, std::size_t kernelHeight,
      std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::size_t dilationRateX,
      std::size_t dilationRateY);
  [[nodiscard]] std::size_t dilationRateX() const { return dilationRateX_; }
  [[nodiscard]] std::size_t dilationRateY() const { return dilationRateY_; }
  [[nodiscard]] std::string className() const override { return "CNNDilatedPoolingMaxGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNDilatedPoolingMaxGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                   std::shared_ptr<NNImageNode> sourceImage,
                                   std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth,
                                   std::size_t kernelHeight, std::size_t strideInPixelsX,
                                   std::size_t strideInPixelsY, std::size_t dilationRateX,
                                   std::size_t dilationRateY);

 private:
  std::size_t dilationRateX_;
  std::size_t dilationRateY_;
};

}  // namespace mps
