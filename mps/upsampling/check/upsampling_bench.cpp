#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/grid_sample.hpp"
#include "mps/upsampling/image_scale.hpp"
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

/// Four regions of each image, each a quarter of it.
void benchCrops(Bench& bench) {
  const NormalizedRegion regions[] = {
      {0, 0, 0.5, 0.5}, {0.5, 0, 0.5, 0.5}, {0, 0.5, 0.5, 0.5}, {0.5, 0.5, 0.5, 0.5}};
  const auto kernel = NNCropAndResizeBilinear::create(bench.device(), 28, 28, regions);
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    const ImageDescriptor source(format, 56, 56, 64);
    const ImageDescriptor result(format, 28, 28, 64);
    const std::size_t bytes = bytesOf(source) + std::size(regions) * bytesOf(result);
    const std::int64_t batch = bench.batchFor(bytes);
    const BenchKey key{kernel->className(), Direction::Forward, format, "56x56x64, 4 regions to 28x28",
                       batch};
    if (!bench.isSelected(key.describe())) continue;
    const auto count = static_cast<std::size_t>(batch);
    const ImageBatch sources = benchImages(bench.device(), source, count);
    const ImageBatch results = ImageBatch::create(bench.device(), result, std::size(regions) * count);
    bench.kernel(key, {.bytes = static_cast<double>(batch) * static_cast<double>(bytes)},
                 [&](const auto& commandBuffer) { kernel->encodeBatch(commandBuffer, sources, results); });
  }
}

/// The grid's values are positions from 0 to 1 in the image: neighbours read any pixel.
void benchGridSample(Bench& bench) {
  const auto kernel = NNGridSample::create(bench.device());
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    const ImageDescriptor image(format, 56, 56, 64);
    const ImageDescriptor grid(format, 56, 56, 2);
    const std::size_t bytes = 2 * bytesOf(image) + bytesOf(grid);
    const std::int64_t batch = bench.batchFor(bytes);
    const BenchKey key{kernel->className(), Direction::Forward, format, "56x56x64", batch};
    if (!bench.isSelected(key.describe())) continue;
    const auto count = static_cast<std::size_t>(batch);
    const ImageBatch sources = benchImages(bench.device(), image, count);
    const ImageBatch grids = benchImages(bench.device(), grid, count);
    const ImageBatch results = ImageBatch::create(bench.device(), image, count);
    bench.kernel(
        key, {.bytes = static_cast<double>(batch) * static_cast<double>(bytes)},
        [&](const auto& commandBuffer) { kernel->encodeBatch(commandBuffer, sources, grids, results); });
  }
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
  const auto scale = [&](std::shared_ptr<CNNKernel> forward, std::shared_ptr<CNNGradientKernel> gradient,
                         const std::string& shape) {
    benchPair(bench, {.forward = std::move(forward),
                      .gradient = std::move(gradient),
                      .shape = shape,
                      .source = {ImageFeatureChannelFormat::Float32, 56, 56, 64},
                      .gradientReads = BenchPair::Input::Nothing});
  };
  scale(ImageBilinearScale::create(device, 40, 40), ImageBilinearScaleGradient::create(device),
        "56x56x64 to 40x40");
  for (const std::size_t size : {std::size_t{40}, std::size_t{28}, std::size_t{112}})
    scale(ImageLanczosScale::create(device, size, size), ImageLanczosScaleGradient::create(device),
          "56x56x64 to " + std::to_string(size) + "x" + std::to_string(size));
  benchCrops(bench);
  benchGridSample(bench);
}

}  // namespace mps::detail
