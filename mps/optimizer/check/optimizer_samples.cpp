#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/conform/testing/matrix_samples.hpp"
#include "mps/optimizer/optimizer.hpp"

namespace mps::test {
namespace {

NNOptimizerDescriptor optimizerDescriptor() {
  return {0.125F, 2, true, 3, -1, NNRegularizationType::L1, 0.25F};
}

}  // namespace

void addOptimizerSamples(KernelSamples& samples) {
  const Device& device = samples.device();
  // With one vector of what the optimiser keeps.
  const auto withOne = [](auto& kernel, const auto& buffer, int seed, const auto& result) {
    const auto numbers = [&](int which) { return vector(kernel.device(), seed + which); };
    kernel.encode(buffer, numbers(1), numbers(2), numbers(3), result);
  };
  samples.add(vectorSample(
      NNOptimizerStochasticGradientDescent::create(device, 0.5F, true, optimizerDescriptor()), withOne));
  samples.add(vectorSample(NNOptimizerRMSProp::create(device, 0.75, 0.125F, optimizerDescriptor()), withOne));
  samples.add(vectorSample(NNOptimizerAdam::create(device, 0.5, 0.75, 0.125F, 6, optimizerDescriptor()),
                           [](auto& kernel, const auto& buffer, int seed, const auto& result) {
                             const auto numbers = [&](int which) {
                               return vector(kernel.device(), seed + which);
                             };
                             kernel.encode(buffer, numbers(1), numbers(2), numbers(3), numbers(4), result);
                           }));
}

}  // namespace mps::test
