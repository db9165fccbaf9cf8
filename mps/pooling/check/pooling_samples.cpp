#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/pooling/pooling_classes.hpp"

namespace mps::test {
namespace {

template <class Kernel>
std::shared_ptr<Kernel> makePooling(const Device& device) {
  if constexpr (requires { Kernel::create(device, 2, 2, 2, 1, 1, 2); })
    return Kernel::create(device, 2, 2, 2, 1, 1, 2);
  else
    return Kernel::create(device, 3, 2, 2, 1);
}

template <class Kernel>
std::shared_ptr<Kernel> makeForwardPooling(const Device& device) {
  auto kernel = makePooling<Kernel>(device);
  if constexpr (requires { kernel->setZeroPadSizeX(1); }) {
    kernel->setEdgeMode(ImageEdgeMode::Clamp);
    kernel->setZeroPadSizeX(1);
  }
  return kernel;
}

}  // namespace

void addPoolingSamples(KernelSamples& samples) {
  detail::PoolingPairs::forEach([&](auto pair) {
    using Pair = decltype(pair);
    samples.addPair(makeForwardPooling<typename Pair::Forward>, makePooling<typename Pair::Gradient>);
  });
}

}  // namespace mps::test
