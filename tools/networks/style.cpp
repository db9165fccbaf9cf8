#include <string>

#include "tools/networks/network_builder.hpp"

namespace unmetal {
namespace {

constexpr std::size_t kWideKernel = 9;  ///< of the first and last layer
constexpr std::size_t kResidualBlocks = 5;

/// Convolution, instance normalisation and ReLU. @param number of the normalisation, from 1
Features layer(NetworkBuilder& builder, const Features& source, const ConvolutionShape& shape,
               const std::string& label, int number) {
  const Features x = builder.plainConvolution(source, shape, label);
  return relu(builder.instanceNormalization(x, "in" + std::to_string(number)));
}

/// Two of them beside the source, without a ReLU behind the sum.
Features residual(NetworkBuilder& builder, const Features& source, const std::string& label) {
  const ConvolutionShape shape{.outputChannels = source.channels};
  Features x = builder.plainConvolution(source, shape, label + "conv1");
  x = relu(builder.instanceNormalization(x, label + "in1"));
  x = builder.plainConvolution(x, shape, label + "conv2");
  return add(builder.instanceNormalization(x, label + "in2"), source);
}

}  // namespace

/// The generator of Johnson et al., 2016, with instance normalisation (Ulyanov et al., 2016) and with repeated pixels and
/// a convolution where it had transposed ones. Its last layer makes a plane for each class in place of each colour; their
/// means are votes for the picture.
Features style(NetworkBuilder& builder, const Features& pictures) {
  builder.checkSidesAreMultiplesOf(4);
  const std::size_t channels = builder.firstChannels();
  Features x = layer(builder, pictures, {.kernelSize = kWideKernel, .outputChannels = channels}, "conv1", 1);
  x = layer(builder, x, {.outputChannels = 2 * channels, .stride = 2}, "conv2", 2);
  x = layer(builder, x, {.outputChannels = 4 * channels, .stride = 2}, "conv3", 3);
  for (std::size_t block = 1; block <= kResidualBlocks; ++block)
    x = residual(builder, x, "res" + std::to_string(block) + ".");
  x = layer(builder, repeated(x), {.outputChannels = 2 * channels}, "deconv1", 4);
  x = layer(builder, repeated(x), {.outputChannels = channels}, "deconv2", 5);
  x = builder.convolution(
      x, {.kernelSize = kWideKernel, .outputChannels = builder.options().classNames.size()}, "deconv3");
  return globalAveragePool(x);
}

}  // namespace unmetal
