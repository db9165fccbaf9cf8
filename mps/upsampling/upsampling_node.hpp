#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"

/// Graph nodes of the upsampling kernels. The result is scaleFactorX times as wide and
/// scaleFactorY times as high as the source, whatever paddingPolicy says.
namespace mps {

/// Base of the forward upsampling nodes.
class CNNUpsamplingNode : public NNFilterNode {
 public:
  [[nodiscard]] double scaleFactorX() const { return static_cast<double>(scaleFactorX_); }
  [[nodiscard]] double scaleFactorY() const { return static_cast<double>(scaleFactorY_); }

 protected:
  CNNUpsamplingNode(std::shared_ptr<NNImageNode> source, std::size_t integerScaleFactorX,
                    std::size_t integerScaleFactorY);
  [[nodiscard]] std::size_t integerScaleFactorX() const { return scaleFactorX_; }
  [[nodiscard]] std::size_t integerScaleFactorY() const { return scaleFactorY_; }

 private:
  std::size_t scaleFactorX_;
  std::size_t scaleFactorY_;
};

/// Stands for CNNUpsamplingNearest (MPSCNNUpsamplingNearestNode).
class CNNUpsamplingNearestNode : public CNNUpsamplingNode {
 public:
  static std::shared_ptr<CNNUpsamplingNearestNode> create(std::shared_ptr<NNImageNode> source,
                                                          std::size_t integerScaleFactorX,
                                                          std::size_t integerScaleFactorY);
  [[nodiscard]] std::string className() const override { return "CNNUpsamplingNearestNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNUpsamplingNode::CNNUpsamplingNode;
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNUpsamplingBilinear (MPSCNNUpsamplingBilinearNode).
class CNNUpsamplingBilinearNode : public CNNUpsamplingNode {
 public:
  static std::shared_ptr<CNNUpsamplingBilinearNode> create(std::shared_ptr<NNImageNode> source,
                                                           std::size_t integerScaleFactorX,
                                                           std::size_t integerScaleFactorY,
                                                           bool alignCorners = false);
  [[nodiscard]] bool alignCorners() const { return alignCorners_; }
  /// CNNUpsamplingBilinear::halfPixelCenters of the kernel. false.
  [[nodiscard]] bool halfPixelCenters() const { return halfPixelCenters_; }
  void setHalfPixelCenters(bool halfPixelCenters) { halfPixelCenters_ = halfPixelCenters; }
  [[nodiscard]] std::string className() const override { return "CNNUpsamplingBilinearNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNUpsamplingBilinearNode(std::shared_ptr<NNImageNode> source, std::size_t integerScaleFactorX,
                            std::size_t integerScaleFactorY, bool alignCorners);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  bool alignCorners_;
  bool halfPixelCenters_ = false;
};

/// Base of the upsampling gradient nodes. The factors are those of the forward node; how it aligned its samples
/// comes from the gradient state.
class CNNUpsamplingGradientNode : public NNGradientFilterNode {
 public:
  [[nodiscard]] double scaleFactorX() const { return scaleFactorX_; }
  [[nodiscard]] double scaleFactorY() const { return scaleFactorY_; }

 protected:
  CNNUpsamplingGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                            std::shared_ptr<NNImageNode> sourceImage,
                            std::shared_ptr<NNStateNode> gradientState, double scaleFactorX,
                            double scaleFactorY);
  /// @throws Error when the factor is no whole number from 1 on
  [[nodiscard]] std::size_t integerScaleFactorX() const;
  [[nodiscard]] std::size_t integerScaleFactorY() const;

 private:
  double scaleFactorX_;
  double scaleFactorY_;
};

/// Stands for CNNUpsamplingNearestGradient (MPSCNNUpsamplingNearestGradientNode).
class CNNUpsamplingNearestGradientNode : public CNNUpsamplingGradientNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNUpsamplingNearestGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                                  std::shared_ptr<NNImageNode> sourceImage,
                                                                  std::shared_ptr<NNStateNode> gradientState,
                                                                  double scaleFactorX, double scaleFactorY);
  [[nodiscard]] std::string className() const override { return "CNNUpsamplingNearestGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNUpsamplingGradientNode::CNNUpsamplingGradientNode;
};

/// Stands for CNNUpsamplingBilinearGradient (MPSCNNUpsamplingBilinearGradientNode).
class CNNUpsamplingBilinearGradientNode : public CNNUpsamplingGradientNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNUpsamplingBilinearGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, double scaleFactorX, double scaleFactorY);
  [[nodiscard]] std::string className() const override { return "CNNUpsamplingBilinearGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using CNNUpsamplingGradientNode::CNNUpsamplingGradientNode;
};

}  // namespace mps
