// A residual network as an ONNX file. docs/onnx.md says what runs it.
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "unmetal_train.hpp"

namespace train = unmetal::train;

namespace {

train::Features block(const train::Features& x, std::size_t channels, std::size_t stride) {
  auto y = x.convolution(channels, 3, {.stride = stride, .biases = false}).batchNormalization().relu();
  y = y.convolution(channels, 3, {.biases = false}).batchNormalization();
  if (stride == 1 && x.channels() == channels) return (x + y).relu();
  const auto shortcut = x.convolution(channels, 1, {.stride = stride, .biases = false});
  return (shortcut.batchNormalization() + y).relu();
}

/// ResNet-18 for pictures of 32x32 pixels.
train::Network resnet18(std::size_t classes) {
  train::Network network({32, 32, 3});
  auto x = network.input().convolution(64, 3, {.biases = false}).batchNormalization().relu();
  for (const std::size_t channels : {64U, 128U, 256U, 512U})
    x = block(block(x, channels, channels == 64 ? 1 : 2), channels, 1);
  x.globalAveragePool().dense(classes);
  return network;
}

}  // namespace

int main() {
  const train::Network network = resnet18(2);
  unmetal::onnx::exportNetwork(network, "network.onnx", {.classNames = {"cat", "dog"}});
  std::printf("network.onnx has %ju bytes\n",
              static_cast<std::uintmax_t>(std::filesystem::file_size("network.onnx")));
}
