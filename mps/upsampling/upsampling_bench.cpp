#include "mps/conform/kernel_bench.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/upsampling.hpp"

namespace mps::detail {
namespace {

void benchUpsampling(Bench& bench, std::shared_ptr<CNNUpsampling> forward,
                     std::shared_ptr<CNNUpsamplingGradient> gradient, const std::string& shape,
                     std::size_t channels) {
  benchPair(bench, {.forward = std::move(forward),
                    .gradient = std::move(gradient),
                    .shape = shape,
                    .source = {ImageFeatureChannelFormat::Float32, 28, 28, channels},
                    .gradientReads = BenchPair::Input::Nothing});
}

}  // namespace

void benchUpsampling(Bench& bench) {
  const auto& device = bench.device();
  for (const std::size_t channels : {std::size_t{64}, std::size_t{3}}) {
    const std::string shape = "28x28x" + std::to_string(channels) + " scale 2";
    benchUpsampling(bench, CNNUpsamplingNearest::create(device, 2, 2),
                    CNNUpsamplingNearestGradient::create(device, 2, 2), shape, channels);
    benchUpsampling(bench, CNNUpsamplingBilinear::create(device, 2, 2),
                    CNNUpsamplingBilinearGradient::create(device, 2, 2), shape, channels);
    const auto halfPixel = CNNUpsamplingBilinear::create(device, 2, 2);
    halfPixel->setHalfPixelCenters(true);
    benchUpsampling(bench, halfPixel, CNNUpsamplingBilinearGradient::create(device, 2, 2),
                    shape + " half-pixel", channels);
    benchUpsampling(bench, CNNUpsamplingBilinear::create(device, 2, 2, true),
                    CNNUpsamplingBilinearGradient::create(device, 2, 2), shape + " align corners", channels);
  }
  benchPair(bench, {.forward = NNResizeBilinear::create(device, 40, 40),
                    .gradient = NNResizeBilinearGradient::create(device),
                    .shape = "56x56x64 to 40x40",
                    .source = {ImageFeatureChannelFormat::Float32, 56, 56, 64},
                    .gradientReads = BenchPair::Input::Nothing});
}

}  // namespace mps::detail
