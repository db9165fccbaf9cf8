#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"

/// Graph nodes of reshape and padding. Slices have none, as in Apple's graphs.
namespace mps {

/// Stands for NNReshape (MPSNNReshapeNode): an image of this shape, which has as many elements as the source.
class NNReshapeNode : public NNFilterNode {
 public:
  static std::shared_ptr<NNReshapeNode> create(std::shared_ptr<NNImageNode> source, std::size_t resultWidth,
                                               std::size_t resultHeight, std::size_t resultFeatureChannels);
  /// NNReshape::channelsFirst of the kernel. false.
  [[nodiscard]] bool channelsFirst() const { return channelsFirst_; }
  void setChannelsFirst(bool channelsFirst) { channelsFirst_ = channelsFirst; }
  [[nodiscard]] std::string className() const override { return "NNReshapeNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  NNReshapeNode(std::shared_ptr<NNImageNode> source, std::size_t resultWidth, std::size_t resultHeight,
                std::size_t resultFeatureChannels);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::size_t resultWidth_, resultHeight_, resultFeatureChannels_;
  bool channelsFirst_ = false;
};

/// Stands for NNReshapeGradient (MPSNNReshapeGradientNode).
class NNReshapeGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<NNReshapeGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                       std::shared_ptr<NNImageNode> sourceImage,
                                                       std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "NNReshapeGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNGradientFilterNode::NNGradientFilterNode;
};

/// Stands for NNPad (MPSNNPadNode). The result is larger by both paddings, whatever paddingPolicy says.
class NNPadNode : public NNFilterNode {
 public:
  static std::shared_ptr<NNPadNode> create(std::shared_ptr<NNImageNode> source,
                                           const ImageCoordinate& paddingSizeBefore,
                                           const ImageCoordinate& paddingSizeAfter, ImageEdgeMode edgeMode);
  /// NNPad::fillValue of the kernel. 0.
  [[nodiscard]] float fillValue() const { return fillValue_; }
  void setFillValue(float value) { fillValue_ = value; }
  [[nodiscard]] std::string className() const override { return "NNPadNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  NNPadNode(std::shared_ptr<NNImageNode> source, const ImageCoordinate& paddingSizeBefore,
            const ImageCoordinate& paddingSizeAfter, ImageEdgeMode edgeMode);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  ImageCoordinate before_, after_;
  ImageEdgeMode edgeMode_;
  float fillValue_ = 0;
};

/// Stands for NNPadGradient (MPSNNPadGradientNode).
class NNPadGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<NNPadGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                   std::shared_ptr<NNImageNode> sourceImage,
                                                   std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "NNPadGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNGradientFilterNode::NNGradientFilterNode;
};

}  // namespace mps
