#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::detail {
namespace {

template <class Forward, class Gradient>
void benchWindow(Bench& bench, const std::string& shape, std::size_t size, std::size_t channels,
                 std::size_t kernelSize, std::size_t stride, BenchPair::Input gradientReads,
                 double savedBytesPerValue, std::int64_t batch = 0) {
  const auto forward = Forward::create(bench.device(), kernelSize, kernelSize, stride, stride);
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  benchPair(bench, {.forward = forward,
                    .gradient = Gradient::create(bench.device(), kernelSize, kernelSize, stride, stride),
                    .shape = shape,
                    .source = {ImageFeatureChannelFormat::Float32, size, size, channels},
                    .gradientReads = gradientReads,
                    .savedBytesPerValue = savedBytesPerValue,
                    .batch = batch});
}

void benchDilated(Bench& bench, const std::string& shape, std::size_t size, std::int64_t batch = 0) {
  const auto forward = CNNDilatedPoolingMax::create(bench.device(), 3, 3, 2, 2, 1, 1);
  forward->setEdgeMode(ImageEdgeMode::Clamp);
  benchPair(bench, {.forward = forward,
                    .gradient = CNNDilatedPoolingMaxGradient::create(bench.device(), 3, 3, 2, 2, 1, 1),
                    .shape = shape,
                    .source = {ImageFeatureChannelFormat::Float32, size, size, 64},
                    .gradientReads = BenchPair::Input::Nothing,
                    .savedBytesPerValue = 1,
                    .batch = batch});
}

}  // namespace

/// The gradients of maxima read the saved indices and not the source.
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
  benchDilated(bench, "56x56x64 kernel 3x3 dilation 2", 56);
  benchWindow<CNNPoolingMax, CNNPoolingMaxGradient>(bench, "112x112x64 kernel 3x3 stride 2", 112, 64, 3, 2,
                                                    Nothing, 1, kLargeImageBatch);
  benchWindow<CNNPoolingAverage, CNNPoolingAverageGradient>(bench, "112x112x64 kernel 2x2 stride 2", 112, 64,
                                                            2, 2, Nothing, 0, kLargeImageBatch);
  benchWindow<CNNPoolingAverage, CNNPoolingAverageGradient>(bench, "112x112x64 kernel 3x3", 112, 64, 3, 1,
                                                            Nothing, 0, kLargeImageBatch);
  benchWindow<CNNPoolingL2Norm, CNNPoolingL2NormGradient>(bench, "112x112x64 kernel 2x2 stride 2", 112, 64, 2,
                                                          2, Source, 0, kLargeImageBatch);
  benchDilated(bench, "112x112x64 kernel 3x3 dilation 2", 112, kLargeImageBatch);
}

}  // namespace mps::detail
