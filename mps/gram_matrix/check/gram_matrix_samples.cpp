#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"

namespace mps::test {

void addGramMatrixSamples(KernelSamples& samples) {
  samples.addPair([](const Device& d) { return NNGramMatrixCalculation::create(d, 0.5F); },
                  [](const Device& d) { return NNGramMatrixCalculationGradient::create(d, 2); });
}

}  // namespace mps::test
