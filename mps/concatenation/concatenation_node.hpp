#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"

/// Graph nodes of concatenation.
namespace mps {

/// Stands for NNConcatenation (MPSNNConcatenationNode): the feature channels of its sources side by side. All must have
/// one width and height. gradientFilters gives one node for each source, in their order.
class NNConcatenationNode : public NNFilterNode {
 public:
  /// @param sources at least one; the same image may come more than once
  /// @throws Error for none
  static std::shared_ptr<NNConcatenationNode> create(ArrayRef<std::shared_ptr<NNImageNode>> sources);
  /// NNConcatenation::channelAlignment of the kernel (docs/decisions.md, D18). 4: each source is padded with zeros to
  /// a multiple of four channels, and a convolution behind it must have as many input channels. With 1 nothing is
  /// padded.
  [[nodiscard]] std::size_t channelAlignment() const { return channelAlignment_; }
  /// @throws Error for another number than 1 and 4
  void setChannelAlignment(std::size_t channelAlignment);
  [[nodiscard]] std::string className() const override { return "NNConcatenationNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  explicit NNConcatenationNode(std::vector<std::shared_ptr<NNImageNode>> sources);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  std::size_t channelAlignment_ = 4;
};

/// Stands for NNConcatenationGradient (MPSNNConcatenationGradientNode).
class NNConcatenationGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage   the forward source whose slice this is
  /// @param gradientState of the concatenation node
  /// @param sourceIndex   which of its sources; without it the first one that is sourceImage
  /// @throws Error when gradientState is not that of a concatenation of sourceImage
  static std::shared_ptr<NNConcatenationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, std::optional<std::size_t> sourceIndex = std::nullopt);
  [[nodiscard]] std::size_t sourceIndex() const { return sourceIndex_; }
  [[nodiscard]] std::string className() const override { return "NNConcatenationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  NNConcatenationGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                              std::shared_ptr<NNImageNode> sourceImage,
                              std::shared_ptr<NNStateNode> gradientState, std::size_t sourceIndex);

 private:
  std::size_t sourceIndex_;
};

}  // namespace mps
