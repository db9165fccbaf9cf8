#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"

namespace mps::detail {

void benchGramMatrix(Bench& bench) {
  constexpr double pixels = 64.0 * 64;
  constexpr double channels = 128;
  benchPair(bench, {.forward = NNGramMatrixCalculation::create(bench.device(), 0.5F),
                    .gradient = NNGramMatrixCalculationGradient::create(bench.device()),
                    .shape = "64x64x128",
                    .source = {ImageFeatureChannelFormat::Float32, 64, 64, 128},
                    .gradientReads = BenchPair::Input::Source,
                    .flops = pixels * channels * channels,  // of one triangle; the other one is the same
                    .batch = 8});
}

}  // namespace mps::detail
