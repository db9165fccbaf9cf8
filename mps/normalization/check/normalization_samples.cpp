#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/normalization/normalization.hpp"

namespace mps::test {

void addNormalizationSamples(KernelSamples& samples) {
  samples.addPair([](const Device& d) { return CNNSpatialNormalization::create(d, 3, 2); },
                  [](const Device& d) { return CNNSpatialNormalizationGradient::create(d, 3, 2); });
  samples.addPair(
      [](const Device& d) {
        auto kernel = CNNLocalContrastNormalization::create(d, 2, 3);
        kernel->setAlpha(0.5F);
        return kernel;
      },
      [](const Device& d) { return CNNLocalContrastNormalizationGradient::create(d, 2, 3); });
  samples.addPair([](const Device& d) { return CNNCrossChannelNormalization::create(d, 3); },
                  [](const Device& d) { return CNNCrossChannelNormalizationGradient::create(d, 3); });
}

}  // namespace mps::test
