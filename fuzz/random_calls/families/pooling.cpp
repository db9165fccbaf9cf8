#include "mps/pooling/pooling.hpp"

#include <memory>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"

namespace unmetal::random_calls {
namespace {

struct PoolingKernels {
  std::shared_ptr<mps::CNNPooling> forward;
  std::shared_ptr<mps::CNNPoolingGradient> gradient;
};

PoolingKernels makePooling(Call& call) {
  RandomNumbers& random = call.random;
  const auto window = [&] { return random.size(1, random.chance(0.1) ? 20 : 5); };
  const std::size_t width = call.noted("width", window());
  const std::size_t height = call.noted("height", random.chance(0.5) ? width : window());
  const std::size_t strideX = call.noted("strideX", random.size(1, 4));
  const std::size_t strideY = call.noted("strideY", random.chance(0.6) ? strideX : random.size(1, 4));
  switch (call.noted("kind", random.integer(0, 3))) {
    case 0:
      return {mps::CNNPoolingMax::create(call.device, width, height, strideX, strideY),
              mps::CNNPoolingMaxGradient::create(call.device, width, height, strideX, strideY)};
    case 1: {
      const auto average = mps::CNNPoolingAverage::create(call.device, width, height, strideX, strideY);
      if (random.chance(0.3)) {
        average->setZeroPadSizeX(call.noted("zeroPadSizeX", random.size(0, 3)));
        average->setZeroPadSizeY(call.noted("zeroPadSizeY", random.size(0, 3)));
      }
      return {average, mps::CNNPoolingAverageGradient::create(call.device, width, height, strideX, strideY)};
    }
    case 2:
      return {mps::CNNPoolingL2Norm::create(call.device, width, height, strideX, strideY),
              mps::CNNPoolingL2NormGradient::create(call.device, width, height, strideX, strideY)};
    default: {
      const std::size_t dilationX = call.noted("dilationX", random.size(1, 4));
      const std::size_t dilationY = call.noted("dilationY", random.size(1, 4));
      return {mps::CNNDilatedPoolingMax::create(call.device, width, height, dilationX, dilationY, strideX,
                                                strideY),
              mps::CNNDilatedPoolingMaxGradient::create(call.device, width, height, dilationX, dilationY,
                                                        strideX, strideY)};
    }
  }
}

}  // namespace

void callPooling(Call& call) {
  const mps::ImageDescriptor source = call.imageSizes();
  const PoolingKernels kernels = makePooling(call);
  setProperties(call, *kernels.forward, source);
  LayerCall layer;
  layer.numbers = call.anyNumbers();
  const bool withGradient = call.random.chance(0.6);
  callLayer(call, *kernels.forward, withGradient ? kernels.gradient.get() : nullptr, source, layer);
}

}  // namespace unmetal::random_calls
