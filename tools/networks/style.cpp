#include <string>

#include "tools/networks/network_definitions.hpp"

namespace unmetal {
namespace {

using train::Features;

constexpr std::size_t kWideKernel = 9;  ///< of the first and last layer
constexpr std::size_t kResidualBlocks = 5;

/// Convolution and instance normalisation.
Features instanceNormalized(const Features& source, std::size_t channels, std::size_t kernelSize,
                            std::size_t stride, const std::string& convolution,
                            const std::string& normalization) {
  return source.convolution(channels, kernelSize, {.stride = stride, .biases = false}, convolution)
      .instanceNormalization(1e-5F, normalization);
}

/// Two of them beside the source, without a ReLU behind the sum.
Features residual(const Features& source, const std::string& label) {
  const std::size_t channels = source.channels();
  const auto x = instanceNormalized(source, channels, 3, 1, label + "conv1", label + "in1").relu();
  return instanceNormalized(x, channels, 3, 1, label + "conv2", label + "in2").add(source);
}

}  // namespace

/// The generator of Johnson et al., 2016, with instance normalisation (Ulyanov et al., 2016) and with repeated pixels and
/// a convolution where it had transposed ones. Its last layer makes a plane for each class in place of each colour; their
/// means are votes for the picture.
Features style(const Features& pictures, const NetworkForm& form) {
  const std::size_t channels = form.firstChannels;
  auto x = instanceNormalized(pictures, channels, kWideKernel, 1, "conv1", "in1").relu();
  x = instanceNormalized(x, 2 * channels, 3, 2, "conv2", "in2").relu();
  x = instanceNormalized(x, 4 * channels, 3, 2, "conv3", "in3").relu();
  for (std::size_t block = 1; block <= kResidualBlocks; ++block)
    x = residual(x, "res" + std::to_string(block) + ".");
  x = instanceNormalized(x.upsample(), 2 * channels, 3, 1, "deconv1", "in4").relu();
  x = instanceNormalized(x.upsample(), channels, 3, 1, "deconv2", "in5").relu();
  return x.convolution(form.classes, kWideKernel, {}, "deconv3").globalAveragePool();
}

}  // namespace unmetal
