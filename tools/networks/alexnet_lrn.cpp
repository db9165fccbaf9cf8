#include <algorithm>

#include "tools/networks/network_definitions.hpp"

namespace unmetal {

/// Krizhevsky et al., 2012, on one device; the numbers of channels are those of its later "one weird trick".
train::Features alexnetLrn(const train::Features& pictures, const NetworkForm& form) {
  const train::PoolingOptions pooling{.stride = 2, .padding = train::Padding::Same};
  const bool shrinks = std::min(pictures.width(), pictures.height()) >= kLeastSideToShrink;
  const std::size_t channels = form.firstChannels;
  const std::size_t denseOutputs = (shrinks ? 64 : 16) * channels;

  auto x = shrinks ? pictures.convolution(channels, 11, {.stride = 4}, "conv1")
                   : pictures.convolution(channels, 3, {}, "conv1");
  x = x.relu().crossChannelNormalization().maxPool(3, pooling);
  x = x.convolution(3 * channels, 5, {}, "conv2").relu().crossChannelNormalization().maxPool(3, pooling);
  x = x.convolution(6 * channels, 3, {}, "conv3").relu();
  x = x.convolution(4 * channels, 3, {}, "conv4").relu();
  x = x.convolution(4 * channels, 3, {}, "conv5").relu().maxPool(3, pooling);
  x = x.dropout(0.5F).dense(denseOutputs, {}, "dense6").relu();
  x = x.dropout(0.5F).dense(denseOutputs, {}, "dense7").relu();
  return x.dense(form.classes, {.initialization = mps::WeightInitialization::Glorot}, "dense8");
}

}  // namespace unmetal
