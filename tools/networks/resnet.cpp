#include <algorithm>
#include <array>

#include "tools/networks/network_builder.hpp"

/// Residual networks (He et al., 2015), their layers named as torchvision's.
namespace unmetal {
namespace {

constexpr std::size_t stages = 4;

/// A block of two or three convolutions beside its shortcut.
struct Block {
  std::string label;  ///< e.g. "layer1.0."
  std::size_t channels;
  std::size_t stride;
};

Features normalizedConvolution(NetworkBuilder& builder, const Features& source, const ConvolutionShape& shape,
                               const std::string& convolution, const std::string& normalization) {
  return builder.batchNormalization(builder.plainConvolution(source, shape, convolution), normalization);
}

/// The source itself where its size is the block's.
Features shortcut(NetworkBuilder& builder, const Features& source, const Block& block, std::size_t outputs) {
  if (block.stride == 1 && source.channels == outputs) return source;
  return normalizedConvolution(builder, source,
                               {.kernelSize = 1, .outputChannels = outputs, .stride = block.stride},
                               block.label + "downsample.0", block.label + "downsample.1");
}

struct BasicBlock {
  static Features build(NetworkBuilder& builder, const Features& source, const Block& block) {
    Features x = relu(normalizedConvolution(builder, source,
                                            {.outputChannels = block.channels, .stride = block.stride},
                                            block.label + "conv1", block.label + "bn1"));
    x = normalizedConvolution(builder, x, {.outputChannels = block.channels}, block.label + "conv2",
                              block.label + "bn2");
    return relu(add(x, shortcut(builder, source, block, block.channels)));
  }
};

/// The stride is in the 3x3 convolution.
struct Bottleneck {
  static constexpr std::size_t expansion = 4;

  static Features build(NetworkBuilder& builder, const Features& source, const Block& block) {
    const std::size_t outputs = expansion * block.channels;
    Features x =
        relu(normalizedConvolution(builder, source, {.kernelSize = 1, .outputChannels = block.channels},
                                   block.label + "conv1", block.label + "bn1"));
    x = relu(normalizedConvolution(builder, x, {.outputChannels = block.channels, .stride = block.stride},
                                   block.label + "conv2", block.label + "bn2"));
    x = normalizedConvolution(builder, x, {.kernelSize = 1, .outputChannels = outputs}, block.label + "conv3",
                              block.label + "bn3");
    return relu(add(x, shortcut(builder, source, block, outputs)));
  }
};

Features firstLayer(NetworkBuilder& builder, const Features& pictures, std::size_t channels) {
  const bool shrinks = std::min(pictures.width, pictures.height) >= kLeastSideToShrink;
  const ConvolutionShape shape =
      shrinks ? ConvolutionShape{.kernelSize = 7, .outputChannels = channels, .stride = 2}
              : ConvolutionShape{.outputChannels = channels};
  const Features x = relu(normalizedConvolution(builder, pictures, shape, "conv1", "bn1"));
  return shrinks ? maxPool(x, 3, 2) : x;
}

template <class BlockKind>
Features resnet(NetworkBuilder& builder, const Features& pictures,
                const std::array<std::size_t, stages>& blocks) {
  std::size_t channels = builder.firstChannels();
  Features x = firstLayer(builder, pictures, channels);
  for (std::size_t stage = 0; stage < stages; ++stage, channels *= 2)
    for (std::size_t block = 0; block < blocks[stage]; ++block) {
      const std::string label = "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      x = BlockKind::build(builder, x, {label, channels, stage > 0 && block == 0 ? 2U : 1U});
    }
  return builder.dense(globalAveragePool(x), builder.options().classNames.size(), "fc",
                       mps::WeightInitialization::Glorot);
}

}  // namespace

Features resnet18(NetworkBuilder& builder, const Features& pictures) {
  return resnet<BasicBlock>(builder, pictures, {2, 2, 2, 2});
}

Features resnet50(NetworkBuilder& builder, const Features& pictures) {
  return resnet<Bottleneck>(builder, pictures, {3, 4, 6, 3});
}

}  // namespace unmetal
