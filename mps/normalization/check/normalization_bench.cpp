#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/normalization/normalization.hpp"

namespace mps::detail {

void benchNormalization(Bench& bench) {
  const auto& device = bench.device();
  const auto row = [&](const std::shared_ptr<CNNNormalization>& forward,
                       const std::shared_ptr<CNNNormalizationGradient>& gradient, float beta,
                       std::size_t size, std::size_t channels, const std::string& window) {
    forward->setAlpha(1);
    forward->setBeta(beta);
    const std::string shape =
        std::to_string(size) + "x" + std::to_string(size) + "x" + std::to_string(channels);
    benchPair(bench, {.forward = forward,
                      .gradient = gradient,
                      .shape = shape + " " + window,
                      .source = {ImageFeatureChannelFormat::Float32, size, size, channels}});
  };
  struct Shape {
    std::size_t size, channels;
  };
  for (const Shape& shape : {Shape{56, 64}, Shape{28, 32}, Shape{56, 3}}) {
    row(CNNCrossChannelNormalization::create(device, 5),
        CNNCrossChannelNormalizationGradient::create(device, 5), 0.75F, shape.size, shape.channels,
        "window 5 beta 0.75");
    row(CNNSpatialNormalization::create(device, 5, 5), CNNSpatialNormalizationGradient::create(device, 5, 5),
        0.75F, shape.size, shape.channels, "kernel 5x5 beta 0.75");
    row(CNNLocalContrastNormalization::create(device, 5, 5),
        CNNLocalContrastNormalizationGradient::create(device, 5, 5), 0.5F, shape.size, shape.channels,
        "kernel 5x5 beta 0.5");
  }
  row(CNNCrossChannelNormalization::create(device, 5),
      CNNCrossChannelNormalizationGradient::create(device, 5), 0.7F, 56, 64, "window 5 beta 0.7");
}

}  // namespace mps::detail
