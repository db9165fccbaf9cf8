#include <memory>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/normalization/normalization.hpp"

namespace unmetal::random_calls {
namespace {

struct LocalNormalizationKernels {
  std::shared_ptr<mps::CNNNormalization> forward;
  std::shared_ptr<mps::CNNNormalizationGradient> gradient;
};

LocalNormalizationKernels makeContrastNormalization(Call& call, std::size_t width, std::size_t height) {
  RandomNumbers& random = call.random;
  const auto kernel = mps::CNNLocalContrastNormalization::create(call.device, width, height);
  if (random.chance(0.7)) {
    kernel->setP0(call.noted("p0", random.real32(0, 1.5)));
    kernel->setPm(call.noted("pm", random.real32(-1, 1)));
    kernel->setPs(call.noted("ps", random.real32(0.5, 2)));
  }
  return {kernel, mps::CNNLocalContrastNormalizationGradient::create(call.device, width, height)};
}

LocalNormalizationKernels makeLocalNormalization(Call& call) {
  RandomNumbers& random = call.random;
  const std::int64_t kind = call.noted("kind", random.integer(0, 2));
  if (kind == 2) {
    const std::size_t size = call.noted("size", random.size(1, random.chance(0.2) ? 80 : 9));
    return {mps::CNNCrossChannelNormalization::create(call.device, size),
            mps::CNNCrossChannelNormalizationGradient::create(call.device, size)};
  }
  const std::size_t width = call.noted("width", random.size(1, random.chance(0.1) ? 15 : 6));
  const std::size_t height = call.noted("height", random.chance(0.5) ? width : random.size(1, 6));
  if (kind == 1) return makeContrastNormalization(call, width, height);
  return {mps::CNNSpatialNormalization::create(call.device, width, height),
          mps::CNNSpatialNormalizationGradient::create(call.device, width, height)};
}

}  // namespace

void callLocalNormalization(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 4);
  const LocalNormalizationKernels kernels = makeLocalNormalization(call);
  if (random.chance(0.9)) {
    kernels.forward->setAlpha(call.noted("alpha", random.real32(0, 2)));
    kernels.forward->setBeta(
        call.noted("beta", random.oneOf({0.5F, 0.75F, 1.0F, 5.0F, -1.0F, 0.37F, 2.25F, 0.0F})));
    kernels.forward->setDelta(call.noted("delta", random.real32(0.5, 2)));
  }
  setProperties(call, *kernels.forward, source);
  LayerCall layer;
  layer.result.factor = 3;  // a power of a sum
  layer.gradient.factor = 6;
  const bool withGradient = random.chance(0.6);
  callLayer(call, *kernels.forward, withGradient ? kernels.gradient.get() : nullptr, source, layer);
}

}  // namespace unmetal::random_calls
