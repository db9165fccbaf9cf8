#include "mps/conform/kernel_bench.hpp"
#include "mps/reduction/reduction.hpp"

namespace mps::detail {

void benchReduction(Bench& bench) {
  const auto& device = bench.device();
  const auto row = [&](std::shared_ptr<NNReduceUnary> forward, bool readsSource) {
    auto gradient = NNReduceUnaryGradient::create(device, forward->operation(), forward->axis());
    benchPair(bench, {.forward = std::move(forward),
                      .gradient = std::move(gradient),
                      .shape = "28x28x64",
                      .source = {ImageFeatureChannelFormat::Float32, 28, 28, 64},
                      .gradientReads = readsSource ? BenchPair::Input::Source : BenchPair::Input::Nothing});
  };
  row(NNReduceSpatialMean::create(device), false);
  row(NNReduceFeatureChannelsSum::create(device), false);
  row(NNReduceRowMax::create(device), true);
}

}  // namespace mps::detail
