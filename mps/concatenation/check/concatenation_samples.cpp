#include "mps/concatenation/concatenation.hpp"
#include "mps/conform/testing/kernel_samples.hpp"

namespace mps::test {

void addConcatenationSamples(KernelSamples& samples) {
  samples.addPair([](const Device& d) { return NNConcatenation::create(d, 2); },
                  [](const Device& d) { return NNConcatenationGradient::create(d, 0); }, ofSeveral);
}

}  // namespace mps::test
