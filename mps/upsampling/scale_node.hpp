#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "mtl/types.hpp"

/// Graph nodes that resize images.
namespace mps {

/// Base of the nodes that give an image another size (MPSNNScaleNode). The source fills the result, or lies where the
/// transform provider says, which is asked at each encode of the graph for each image.
class NNScaleNode : public NNFilterNode {
 public:
  /// Width and height of the result, whatever paddingPolicy says; depth 1.
  [[nodiscard]] const mtl::Size& outputSize() const { return outputSize_; }
  /// null: the source fills the result.
  [[nodiscard]] const std::shared_ptr<ImageTransformProvider>& transformProvider() const { return provider_; }

 protected:
  /// @throws Error for another depth than 1
  NNScaleNode(const char* className, std::shared_ptr<NNImageNode> source,
              std::shared_ptr<ImageTransformProvider> transformProvider, const mtl::Size& outputSize);
  /// Label, padding policy and provider.
  void configureScale(ImageScale& kernel) const;

 private:
  mtl::Size outputSize_;
  std::shared_ptr<ImageTransformProvider> provider_;
};

/// Stands for NNResizeBilinear with halfPixelCenters: pixels are sampled at their centres (MPSNNBilinearScaleNode). With a
/// provider it stands for ImageBilinearScale. Its gradient is an extension (docs/decisions.md, D6).
class NNBilinearScaleNode final : public NNScaleNode {
 public:
  static std::shared_ptr<NNBilinearScaleNode> create(std::shared_ptr<NNImageNode> source,
                                                     const mtl::Size& outputSize);
  /// @param transformProvider may be null
  static std::shared_ptr<NNBilinearScaleNode> create(
      std::shared_ptr<NNImageNode> source, std::shared_ptr<ImageTransformProvider> transformProvider,
      const mtl::Size& outputSize);
  [[nodiscard]] std::string className() const override { return "NNBilinearScaleNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  NNBilinearScaleNode(std::shared_ptr<NNImageNode> source,
                      std::shared_ptr<ImageTransformProvider> transformProvider, const mtl::Size& outputSize);
};

/// Stands for ImageLanczosScale (MPSNNLanczosScaleNode). Its gradient is an extension (docs/decisions.md, D6).
class NNLanczosScaleNode final : public NNScaleNode {
 public:
  static std::shared_ptr<NNLanczosScaleNode> create(std::shared_ptr<NNImageNode> source,
                                                    const mtl::Size& outputSize);
  /// @param transformProvider may be null
  static std::shared_ptr<NNLanczosScaleNode> create(std::shared_ptr<NNImageNode> source,
                                                    std::shared_ptr<ImageTransformProvider> transformProvider,
                                                    const mtl::Size& outputSize);
  [[nodiscard]] std::string className() const override { return "NNLanczosScaleNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  using NNScaleNode::NNScaleNode;
};

/// Stands for NNResizeBilinearGradient, or for ImageBilinearScaleGradient where the forward node has a transform provider.
class NNBilinearScaleGradientNode final : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<NNBilinearScaleGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                             std::shared_ptr<NNImageNode> sourceImage,
                                                             std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "NNBilinearScaleGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 private:
  using NNGradientFilterNode::NNGradientFilterNode;
};

/// Stands for ImageLanczosScaleGradient.
class NNLanczosScaleGradientNode final : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<NNLanczosScaleGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                            std::shared_ptr<NNImageNode> sourceImage,
                                                            std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "NNLanczosScaleGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 private:
  using NNGradientFilterNode::NNGradientFilterNode;
};

}  // namespace mps
