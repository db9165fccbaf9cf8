#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/conform/testing/kernel_samples.hpp"

namespace mps::test {

void addArithmeticSamples(KernelSamples& samples) {
  const auto addArithmetic = [&](auto make, auto makeGradient) {
    samples.addPair(make, makeGradient, ofTwo);
  };
  addArithmetic([](const Device& d) { return CNNAdd::create(d); },
                [](const Device& d) { return CNNAddGradient::create(d, true); });
  addArithmetic([](const Device& d) { return CNNSubtract::create(d); },
                [](const Device& d) { return CNNSubtractGradient::create(d, true); });
  addArithmetic([](const Device& d) { return CNNMultiply::create(d); },
                [](const Device& d) { return CNNMultiplyGradient::create(d, true); });
  addArithmetic([](const Device& d) { return CNNDivide::create(d); },
                [](const Device& d) { return CNNDivideGradient::create(d, true); });
  const auto compare = NNCompare::create(samples.device());
  compare->setComparisonType(NNComparisonType::Less);
  compare->setThreshold(0.5F);
  samples.add(compare, ofTwo);
}

}  // namespace mps::test
