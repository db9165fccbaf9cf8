#include "mps/conform/kernel_bench.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::detail {
namespace {

template <class Forward, class Gradient>
void benchWindow(Bench& bench, const std::string& shape, std::size_t size, std::size_t channels,
                 std::size_t kernelSize, std::size_t stride, BenchPair::Input gradientReads,
                 double savedBytesPerValue) {
  const auto forward = Forward::create(bench.device(), kernelSize, kernelSize, stride, stride);
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  benchPair(bench, {.forward = forward,
                    .gradient = Gradient::create(bench.device(), kernelSize, kernelSize, stride, stride),
                    .shape = shape,
                    .source = {ImageFeatureChannelFormat::Float32, size, size, channels},
                    .gradientReads = gradientReads,
                    .savedBytesPerValue = savedBytesPerValue});
}

void benchDilated(Bench& bench) {
  const auto forward = CNNDilatedPoolingMax::create(bench.device(), 3, 3, 2, 2, 1, 1);
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  benchPair(bench, {.forward = forward,
                    .gradient = CNNDilatedPoolingMaxGradient::create(bench.device(), 3, 3, 2, 2, 1, 1),
                    .shape = "56x56x64 kernel 3x3 dilation 2",
                    .source = {ImageFeatureChannelFormat::Float32, 56, 56, 64},
                    .gradientReads = BenchPair::Input::Nothing,
                    .savedBytesPerValue = 1});
}

}  // namespace

/// The gradients of maxima read the saved places and not the source.
void benchPooling(Bench& bench) {
  using enum BenchPair::Input;
  benchWindow<CNNPoolingMax, CNNPoolingMaxGradient>(bench, "56x56x64 kernel 2x2 stride 2", 56, 64, 2, 2,
                                                    Nothing, 1);
  benchWindow<CNNPoolingMax, CNNPoolingMaxGradient>(bench, "56x56x64 kernel 3x3 stride 2", 56, 64, 3, 2,
                                                    Nothing, 1);
  benchWindow<CNNPoolingMax, CNNPoolingMaxGradient>(bench, "28x28x32 kernel 2x2 stride 2", 28, 32, 2, 2,
                                                    Nothing, 1);
  benchWindow<CNNPoolingAverage, CNNPoolingAverageGradient>(bench, "56x56x64 kernel 2x2 stride 2", 56, 64, 2,
                                                            2, Nothing, 0);
  benchWindow<CNNPoolingAverage, CNNPoolingAverageGradient>(bench, "56x56x64 kernel 3x3", 56, 64, 3, 1,
                                                            Nothing, 0);
  benchWindow<CNNPoolingL2Norm, CNNPoolingL2NormGradient>(bench, "56x56x64 kernel 2x2 stride 2", 56, 64, 2, 2,
                                                          Source, 0);
  benchDilated(bench);
}

}  // namespace mps::detail
