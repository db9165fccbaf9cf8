#include <algorithm>

#include "tools/networks/network_builder.hpp"

namespace unmetal {

/// Krizhevsky et al., 2012, on one device; the numbers of channels are those of its later "one weird trick".
Features alexnetLrn(NetworkBuilder& builder, const Features& pictures) {
  const bool shrinks = std::min(pictures.width, pictures.height) >= kLeastSideToShrink;
  const std::size_t channels = builder.firstChannels();
  const ConvolutionShape first =
      shrinks ? ConvolutionShape{.kernelSize = 11, .outputChannels = channels, .stride = 4}
              : ConvolutionShape{.outputChannels = channels};
  const std::size_t denseOutputs = (shrinks ? 64 : 16) * channels;

  Features x = relu(builder.convolution(pictures, first, "conv1"));
  x = maxPool(builder.crossChannelNormalization(x), 3, 2);
  x = relu(builder.convolution(x, {.kernelSize = 5, .outputChannels = 3 * channels}, "conv2"));
  x = maxPool(builder.crossChannelNormalization(x), 3, 2);
  x = relu(builder.convolution(x, {.outputChannels = 6 * channels}, "conv3"));
  x = relu(builder.convolution(x, {.outputChannels = 4 * channels}, "conv4"));
  x = relu(builder.convolution(x, {.outputChannels = 4 * channels}, "conv5"));
  x = maxPool(x, 3, 2);
  x = relu(builder.dense(builder.dropout(x, 0.5F, 0), denseOutputs, "dense6"));
  x = relu(builder.dense(builder.dropout(x, 0.5F, 1), denseOutputs, "dense7"));
  return builder.dense(x, builder.options().classNames.size(), "dense8", mps::WeightInitialization::Glorot);
}

}  // namespace unmetal
