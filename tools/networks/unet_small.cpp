#include <string>

#include "tools/networks/network_builder.hpp"

namespace unmetal {
namespace {

/// Two convolutions with batch normalisation and ReLU.
Features twoLayers(NetworkBuilder& builder, const Features& source, std::size_t channels,
                   const std::string& label) {
  Features x = builder.plainConvolution(source, {.outputChannels = channels}, label + "conv1");
  x = relu(builder.batchNormalization(x, label + "bn1"));
  x = builder.plainConvolution(x, {.outputChannels = channels}, label + "conv2");
  return relu(builder.batchNormalization(x, label + "bn2"));
}

}  // namespace

/// After Ronneberger et al., 2015, with two halvings and padded convolutions. Its classes for each pixel become one
/// vote for the picture.
Features unetSmall(NetworkBuilder& builder, const Features& pictures) {
  builder.checkSidesAreMultiplesOf(4);
  const std::size_t channels = builder.firstChannels();
  const Features whole = twoLayers(builder, pictures, channels, "down1.");
  const Features half = twoLayers(builder, maxPool(whole, 2, 2), 2 * channels, "down2.");
  Features x = twoLayers(builder, maxPool(half, 2, 2), 4 * channels, "bottom.");
  x = twoLayers(builder, concatenate(half, doubled(x)), 2 * channels, "up2.");
  x = twoLayers(builder, concatenate(whole, doubled(x)), channels, "up1.");
  x = builder.convolution(x, {.kernelSize = 1, .outputChannels = builder.options().classNames.size()},
                          "pixels");
  return globalAveragePool(x);
}

}  // namespace unmetal
