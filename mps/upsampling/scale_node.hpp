#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/node.hpp"
#include "mtl/types.hpp"

/// Graph nodes that resize images (spec/04 section 7.7).
namespace mps {

/// Base of the nodes that give an image another size (MPSNNScaleNode): the source fills the result.
class NNScaleNode : public NNFilterNode {
 public:
  /// Width and height of the result, whatever paddingPolicy says; depth 1.
  [[nodiscard]] const mtl::Size& outputSize() const { return outputSize_; }

 protected:
  /// @throws Error for another depth than 1
  NNScaleNode(const char* className, std::shared_ptr<NNImageNode> source, const mtl::Size& outputSize);

 private:
  mtl::Size outputSize_;
};

/// Stands for NNResizeBilinear with halfPixelCenters: pixels are sampled at their centres (MPSNNBilinearScaleNode).
/// Apple's has no gradient (spec/00 D6).
class NNBilinearScaleNode final : public NNScaleNode {
 public:
  static std::shared_ptr<NNBilinearScaleNode> create(std::shared_ptr<NNImageNode> source,
                                                     const mtl::Size& outputSize);
  [[nodiscard]] std::string className() const override { return "NNBilinearScaleNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  NNBilinearScaleNode(std::shared_ptr<NNImageNode> source, const mtl::Size& outputSize);
};

/// Stands for NNResizeBilinearGradient.
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

}  // namespace mps
