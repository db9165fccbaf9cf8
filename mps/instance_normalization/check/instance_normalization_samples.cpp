#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"

namespace mps::test {

void addInstanceNormalizationSamples(KernelSamples& samples) {
  samples.addPair(
      [](const Device& d) {
        return CNNInstanceNormalization::create(d, detail::FixedInstanceNormalization::create(channels));
      },
      [](const Device& d) { return CNNInstanceNormalizationGradient::create(d); });
  samples.addPair(
      [](const Device& d) {
        return CNNGroupNormalization::create(d, detail::FixedGroupNormalization::create(channels, 2));
      },
      [](const Device& d) { return CNNGroupNormalizationGradient::create(d); });
}

}  // namespace mps::test
