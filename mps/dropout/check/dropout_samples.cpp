#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/dropout/dropout.hpp"

namespace mps::test {

void addDropoutSamples(KernelSamples& samples) {
  samples.addPair(
      [](const Device& d) {
        auto kernel = CNNDropout::create(d, 0.5F, 77);
        kernel->setEncodeCount(5);
        return kernel;
      },
      [](const Device& d) { return CNNDropoutGradient::create(d, 0.5F, 77); });
}

}  // namespace mps::test
