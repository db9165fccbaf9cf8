#include <vector>

#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/grid_sample.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/upsampling.hpp"

namespace mps::test {
namespace {

Values ofRegions(Kernel& kernel, int seed) {
  auto& crop = dynamic_cast<NNCropAndResizeBilinear&>(kernel);
  crop.setDestinationImageAllocator(Image::defaultAllocator());
  return valuesOf(
      *ran(kernel, [&](const auto& buffer) { return crop.encode(buffer, source(kernel, seed)); }));
}

}  // namespace

void addUpsamplingSamples(KernelSamples& samples) {
  const Device& device = samples.device();
  samples.addPair([](const Device& d) { return CNNUpsamplingNearest::create(d, 2, 3); },
                  [](const Device& d) { return CNNUpsamplingNearestGradient::create(d, 2, 3); });
  samples.addPair(
      [](const Device& d) {
        auto kernel = CNNUpsamplingBilinear::create(d, 3, 2);
        kernel->setHalfPixelCenters(true);
        return kernel;
      },
      [](const Device& d) { return CNNUpsamplingBilinearGradient::create(d, 3, 2); });
  samples.addPair(
      [](const Device& d) {
        auto kernel = NNResizeBilinear::create(d, 7, 3);
        kernel->setHalfPixelCenters(true);
        return kernel;
      },
      [](const Device& d) { return NNResizeBilinearGradient::create(d); });
  const auto scaled = [](auto kernel) {
    kernel->setScaleTransform(ScaleTransform{1.5, 0.5, -0.25, 1});
    return kernel;
  };
  samples.addPair([&](const Device& d) { return scaled(ImageBilinearScale::create(d, 5, 3)); },
                  [](const Device& d) { return ImageBilinearScaleGradient::create(d); });
  samples.addPair([&](const Device& d) { return scaled(ImageLanczosScale::create(d, 3, 5)); },
                  [](const Device& d) { return ImageLanczosScaleGradient::create(d); });
  const auto gridSample = NNGridSample::create(device);
  gridSample->setUseGridValueAsInputCoordinate(false);
  gridSample->setPrimaryEdgeMode(ImageEdgeMode::Clamp);
  samples.add(gridSample, ofTwo);
  const std::vector<NormalizedRegion> regions{{0.25, 0.5, 0.5, -0.25}, {}};
  samples.add(NNCropAndResizeBilinear::create(device, 3, 2, regions), ofRegions);
}

}  // namespace mps::test
