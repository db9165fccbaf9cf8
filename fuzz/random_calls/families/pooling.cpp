#include "mps/pooling/pooling_classes.hpp"

#include <cstddef>
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

struct Window {
  std::size_t width, height, strideX, strideY;
};

template <class Kernel>
constexpr bool isDilated = requires(Call& call) {
  Kernel::create(call.device, 1, 1, 1, 1, 1, 1);
};

template <class Pair>
PoolingKernels makePair(Call& call, const Window& window) {
  using Forward = typename Pair::Forward;
  using Gradient = typename Pair::Gradient;
  const auto& [width, height, strideX, strideY] = window;
  RandomNumbers& random = call.random;
  if constexpr (isDilated<Forward>) {
    const std::size_t dilationX = call.noted("dilationX", random.size(1, 4));
    const std::size_t dilationY = call.noted("dilationY", random.size(1, 4));
    return {Forward::create(call.device, width, height, dilationX, dilationY, strideX, strideY),
            Gradient::create(call.device, width, height, dilationX, dilationY, strideX, strideY)};
  } else {
    const auto forward = Forward::create(call.device, width, height, strideX, strideY);
    if constexpr (requires { forward->setZeroPadSizeX(1); }) {
      if (random.chance(0.3)) {
        forward->setZeroPadSizeX(call.noted("zeroPadSizeX", random.size(0, 3)));
        forward->setZeroPadSizeY(call.noted("zeroPadSizeY", random.size(0, 3)));
      }
    }
    return {forward, Gradient::create(call.device, width, height, strideX, strideY)};
  }
}

PoolingKernels makePooling(Call& call) {
  RandomNumbers& random = call.random;
  const auto side = [&] { return random.size(1, random.chance(0.1) ? 20 : 5); };
  Window window;
  window.width = call.noted("width", side());
  window.height = call.noted("height", random.chance(0.5) ? window.width : side());
  window.strideX = call.noted("strideX", random.size(1, 4));
  window.strideY = call.noted("strideY", random.chance(0.6) ? window.strideX : random.size(1, 4));
  using Pairs = mps::detail::PoolingPairs;
  const std::size_t kind = call.noted("kind", random.size(0, Pairs::size - 1));
  PoolingKernels kernels;
  std::size_t index = 0;
  Pairs::forEach([&](auto pair) {
    if (index++ == kind) kernels = makePair<decltype(pair)>(call, window);
  });
  return kernels;
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
