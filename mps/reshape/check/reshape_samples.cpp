#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"

namespace mps::test {

void addReshapeSamples(KernelSamples& samples) {
  samples.addPair(
      [](const Device& d) {
        auto kernel = NNReshape::create(d);
        kernel->setReshapedSize(side * channels, 1, side);
        return kernel;
      },
      [](const Device& d) { return NNReshapeGradient::create(d); });
  samples.addPair(
      [](const Device& d) {
        return NNPad::create(d, {1, 2, 3}, {3, 1, 2}, Values{1, 2, 3, 4, 5, 6, 7, 8, 9});
      },
      [](const Device& d) { return NNPadGradient::create(d); });
  samples.add(NNSlice::create(samples.device()));
}

}  // namespace mps::test
