#include <algorithm>
#include <array>
#include <string>

#include "tools/networks/network_definitions.hpp"

/// Residual networks (He et al., 2015), their layers named as torchvision's.
namespace unmetal {
namespace {

using train::Features;

constexpr std::size_t stages = 4;

/// A block of two or three convolutions beside its shortcut.
struct Block {
  std::string label;  ///< e.g. "layer1.0."
  std::size_t channels;
  std::size_t stride;
};

/// Without biases: batch normalisation comes behind it.
Features normalizedConvolution(const Features& source, std::size_t channels, std::size_t kernelSize,
                               std::size_t stride, const std::string& convolution,
                               const std::string& normalization) {
  return source.convolution(channels, kernelSize, {.stride = stride, .biases = false}, convolution)
      .batchNormalization({}, normalization);
}

/// The source itself where its size is the block's.
Features shortcut(const Features& source, const Block& block, std::size_t outputs) {
  if (block.stride == 1 && source.channels() == outputs) return source;
  return normalizedConvolution(source, outputs, 1, block.stride, block.label + "downsample.0",
                               block.label + "downsample.1");
}

struct BasicBlock {
  static Features build(const Features& source, const Block& block) {
    const auto& [label, channels, stride] = block;
    auto x = normalizedConvolution(source, channels, 3, stride, label + "conv1", label + "bn1").relu();
    x = normalizedConvolution(x, channels, 3, 1, label + "conv2", label + "bn2");
    return x.add(shortcut(source, block, channels)).relu();
  }
};

/// The stride is in the 3x3 convolution.
struct Bottleneck {
  static constexpr std::size_t expansion = 4;

  static Features build(const Features& source, const Block& block) {
    const auto& [label, channels, stride] = block;
    const std::size_t outputs = expansion * channels;
    auto x = normalizedConvolution(source, channels, 1, 1, label + "conv1", label + "bn1").relu();
    x = normalizedConvolution(x, channels, 3, stride, label + "conv2", label + "bn2").relu();
    x = normalizedConvolution(x, outputs, 1, 1, label + "conv3", label + "bn3");
    return x.add(shortcut(source, block, outputs)).relu();
  }
};

Features firstLayer(const Features& pictures, std::size_t channels) {
  if (std::min(pictures.width(), pictures.height()) < kLeastSideToShrink)
    return normalizedConvolution(pictures, channels, 3, 1, "conv1", "bn1").relu();
  return normalizedConvolution(pictures, channels, 7, 2, "conv1", "bn1")
      .relu()
      .maxPool(3, {.stride = 2, .padding = train::Padding::Same});
}

template <class BlockKind>
Features resnet(const Features& pictures, const NetworkForm& form,
                const std::array<std::size_t, stages>& blocks) {
  std::size_t channels = form.firstChannels;
  auto x = firstLayer(pictures, channels);
  for (std::size_t stage = 0; stage < stages; ++stage, channels *= 2)
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      const std::string label = "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      x = BlockKind::build(x, {label, channels, stage > 0 && block == 0 ? 2U : 1U});
    }
  return x.globalAveragePool().dense(form.classes, {.initialization = mps::WeightInitialization::Glorot},
                                     "fc");
}

}  // namespace

Features resnet18(const Features& pictures, const NetworkForm& form) {
  return resnet<BasicBlock>(pictures, form, {2, 2, 2, 2});
}

Features resnet50(const Features& pictures, const NetworkForm& form) {
  return resnet<Bottleneck>(pictures, form, {3, 4, 6, 3});
}

}  // namespace unmetal
