#include <string>

#include "tools/networks/network_definitions.hpp"

namespace unmetal {
namespace {

using train::Features;

/// Two convolutions with batch normalisation and ReLU.
Features twoLayers(const Features& source, std::size_t channels, const std::string& label) {
  auto x = source.convolution(channels, 3, {.biases = false}, label + "conv1");
  x = x.batchNormalization({}, label + "bn1").relu();
  x = x.convolution(channels, 3, {.biases = false}, label + "conv2");
  return x.batchNormalization({}, label + "bn2").relu();
}

}  // namespace

/// After Ronneberger et al., 2015, with two halvings and padded convolutions. Its classes for each pixel become one
/// vote for the picture.
Features unetSmall(const Features& pictures, const NetworkForm& form) {
  using train::UpsamplingMode;
  const std::size_t channels = form.firstChannels;
  const train::PoolingOptions pooling{.padding = train::Padding::Same};
  const auto whole = twoLayers(pictures, channels, "down1.");
  const auto half = twoLayers(whole.maxPool(2, pooling), 2 * channels, "down2.");
  auto x = twoLayers(half.maxPool(2, pooling), 4 * channels, "bottom.");
  x = twoLayers(half.concatenate(x.upsample(2, UpsamplingMode::Bilinear)), 2 * channels, "up2.");
  x = twoLayers(whole.concatenate(x.upsample(2, UpsamplingMode::Bilinear)), channels, "up1.");
  return x.convolution(form.classes, 1, {}, "pixels").globalAveragePool();
}

}  // namespace unmetal
