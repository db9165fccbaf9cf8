#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/node.hpp"
#include "mps/pooling/pooling.hpp"

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
  /// A kernel with the edge mode of nodes and what configure() sets.
  [[nodiscard]] std::shared_ptr<Kernel> configured(const std::shared_ptr<CNNPooling>& kernel) const;

 private:
  std::size_t kernelWidth_;
  std::size_t kernelHeight_;
  std::size_t strideInPixelsX_;
  std::size_t strideInPixelsY_;
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

namespace detail {
/// What a node of the gradient of one pooling function says of itself.
template <class Node, ClassName name, class Gradient>
class PoolingGradientNodeClass : public CNNPoolingGradientNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<Node> create(std::shared_ptr<NNImageNode> sourceGradient,
                                      std::shared_ptr<NNImageNode> sourceImage,
                                      std::shared_ptr<NNStateNode> gradientState, std::size_t kernelWidth,
                                      std::size_t kernelHeight, std::size_t strideInPixelsX,
                                      std::size_t strideInPixelsY,
                                      std::shared_ptr<NNPadding> paddingPolicy = nullptr) {
    return std::shared_ptr<Node>(new Node(std::move(sourceGradient), std::move(sourceImage),
                                          std::move(gradientState), kernelWidth, kernelHeight,
                                          strideInPixelsX, strideInPixelsY, std::move(paddingPolicy)));
  }
  [[nodiscard]] std::string className() const override { return name.characters; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& device) const override {
    auto kernel =
        Gradient::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(), strideInPixelsY());
    configure(*kernel);
    return kernel;
  }

 protected:
  using CNNPoolingGradientNode::CNNPoolingGradientNode;
};
}  // namespace detail

/// Stands for CNNPoolingMaxGradient (MPSCNNPoolingMaxGradientNode).
class CNNPoolingMaxGradientNode
    : public detail::PoolingGradientNodeClass<CNNPoolingMaxGradientNode, "CNNPoolingMaxGradientNode",
                                              CNNPoolingMaxGradient> {
 protected:
  friend PoolingGradientNodeClass;
  using PoolingGradientNodeClass::PoolingGradientNodeClass;
};

/// Stands for CNNPoolingAverageGradient (MPSCNNPoolingAverageGradientNode).
class CNNPoolingAverageGradientNode
    : public detail::PoolingGradientNodeClass<CNNPoolingAverageGradientNode, "CNNPoolingAverageGradientNode",
                                              CNNPoolingAverageGradient> {
 protected:
  friend PoolingGradientNodeClass;
  using PoolingGradientNodeClass::PoolingGradientNodeClass;
};

/// Stands for CNNPoolingL2NormGradient (MPSCNNPoolingL2NormGradientNode).
class CNNPoolingL2NormGradientNode
    : public detail::PoolingGradientNodeClass<CNNPoolingL2NormGradientNode, "CNNPoolingL2NormGradientNode",
                                              CNNPoolingL2NormGradient> {
 protected:
  friend PoolingGradientNodeClass;
  using PoolingGradientNodeClass::PoolingGradientNodeClass;
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

namespace detail {
/// What a node of one pooling function says of itself.
template <class Node, ClassName name, class Pooling, class GradientNode>
class PoolingNodeClass : public CNNPoolingNode {
 public:
  /// Kernel and stride of the same size.
  static std::shared_ptr<Node> create(std::shared_ptr<NNImageNode> source, std::size_t filterSize) {
    return create(std::move(source), filterSize, filterSize);
  }
  static std::shared_ptr<Node> create(std::shared_ptr<NNImageNode> source, std::size_t filterSize,
                                      std::size_t stride) {
    return create(std::move(source), filterSize, filterSize, stride, stride);
  }
  static std::shared_ptr<Node> create(std::shared_ptr<NNImageNode> source, std::size_t kernelWidth,
                                      std::size_t kernelHeight, std::size_t strideInPixelsX,
                                      std::size_t strideInPixelsY) {
    return std::shared_ptr<Node>(
        new Node(std::move(source), kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY));
  }
  [[nodiscard]] std::string className() const override { return name.characters; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& device) const override {
    return configured(
        Pooling::create(device, kernelWidth(), kernelHeight(), strideInPixelsX(), strideInPixelsY()));
  }

 protected:
  using CNNPoolingNode::CNNPoolingNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override {
    return {GradientNode::create(gradientImage, sources()[0], resultState(), kernelWidth(), kernelHeight(),
                                 strideInPixelsX(), strideInPixelsY())};
  }
};
}  // namespace detail

/// Stands for CNNPoolingMax (MPSCNNPoolingMaxNode).
class CNNPoolingMaxNode : public detail::PoolingNodeClass<CNNPoolingMaxNode, "CNNPoolingMaxNode",
                                                          CNNPoolingMax, CNNPoolingMaxGradientNode> {
 protected:
  friend PoolingNodeClass;
  using PoolingNodeClass::PoolingNodeClass;
};

/// Stands for CNNPoolingAverage (MPSCNNPoolingAverageNode): with Clamp, pixels outside the image do not
/// count.
class CNNPoolingAverageNode
    : public detail::PoolingNodeClass<CNNPoolingAverageNode, "CNNPoolingAverageNode", CNNPoolingAverage,
                                      CNNPoolingAverageGradientNode> {
 protected:
  friend PoolingNodeClass;
  using PoolingNodeClass::PoolingNodeClass;
};

/// Stands for CNNPoolingL2Norm (MPSCNNPoolingL2NormNode).
class CNNPoolingL2NormNode : public detail::PoolingNodeClass<CNNPoolingL2NormNode, "CNNPoolingL2NormNode",
                                                             CNNPoolingL2Norm, CNNPoolingL2NormGradientNode> {
 protected:
  friend PoolingNodeClass;
  using PoolingNodeClass::PoolingNodeClass;
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

}  // namespace mps
