#include "mps/upsampling/upsampling.hpp"

#include <memory>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"

namespace unmetal::random_calls {

void callUpsampling(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 16);
  const std::size_t factorX = call.noted("factorX", random.size(1, 5));
  const std::size_t factorY = call.noted("factorY", random.chance(0.5) ? factorX : random.size(1, 5));
  std::shared_ptr<mps::CNNUpsampling> kernel;
  std::shared_ptr<mps::CNNUpsamplingGradient> gradient;
  if (call.noted("nearest", random.chance(0.4))) {
    kernel = mps::CNNUpsamplingNearest::create(call.device, factorX, factorY);
    gradient = mps::CNNUpsamplingNearestGradient::create(call.device, factorX, factorY);
  } else {
    const bool alignCorners = call.noted("alignCorners", random.chance(0.4));
    const auto bilinear = mps::CNNUpsamplingBilinear::create(call.device, factorX, factorY, alignCorners);
    if (!alignCorners) bilinear->setHalfPixelCenters(call.noted("halfPixelCenters", random.chance(0.5)));
    kernel = bilinear;
    gradient = mps::CNNUpsamplingBilinearGradient::create(call.device, factorX, factorY);
  }
  setProperties(call, *kernel, source);
  callLayer(call, *kernel, random.chance(0.6) ? gradient.get() : nullptr, source, {});
}

}  // namespace unmetal::random_calls
