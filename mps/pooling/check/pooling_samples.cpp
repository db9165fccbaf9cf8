#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::test {

void addPoolingSamples(KernelSamples& samples) {
  samples.addPair([](const Device& d) { return CNNPoolingMax::create(d, 3, 2, 2, 1); },
                  [](const Device& d) { return CNNPoolingMaxGradient::create(d, 3, 2, 2, 1); });
  samples.addPair(
      [](const Device& d) {
        auto kernel = CNNPoolingAverage::create(d, 3, 2, 1, 2);
        kernel->setEdgeMode(ImageEdgeMode::Clamp);
        kernel->setZeroPadSizeX(1);
        return kernel;
      },
      [](const Device& d) { return CNNPoolingAverageGradient::create(d, 3, 2, 1, 2); });
  samples.addPair([](const Device& d) { return CNNPoolingL2Norm::create(d, 2, 3, 1, 2); },
                  [](const Device& d) { return CNNPoolingL2NormGradient::create(d, 2, 3, 1, 2); });
  samples.addPair([](const Device& d) { return CNNDilatedPoolingMax::create(d, 2, 2, 2, 1, 1, 2); },
                  [](const Device& d) { return CNNDilatedPoolingMaxGradient::create(d, 2, 2, 2, 1, 1, 2); });
}

}  // namespace mps::test
