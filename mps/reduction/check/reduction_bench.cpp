#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/reduction/reduce_binary.hpp"
#include "mps/reduction/reduction.hpp"

namespace mps::detail {

namespace {

void benchWeighted(Bench& bench, const std::shared_ptr<NNReduceBinary>& kernel) {
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    const ImageDescriptor image(format, 28, 28, 64);
    const ImageDescriptor result(format, 28, 28, 1);
    const std::size_t bytes = 2 * bytesOf(image) + bytesOf(result);
    const std::int64_t batch = bench.batchFor(bytes);
    const BenchKey key{kernel->className(), Direction::Forward, format, "28x28x64", batch};
    if (!bench.isSelected(key.describe())) continue;
    const auto count = static_cast<std::size_t>(batch);
    const ImageBatch x = benchImages(bench.device(), image, count);
    const ImageBatch weights = benchImages(bench.device(), image, count);
    const ImageBatch results = ImageBatch::create(bench.device(), result, count);
    bench.kernel(key, {.bytes = static_cast<double>(batch) * static_cast<double>(bytes)},
                 [&](const auto& buffer) { kernel->encodeBatch(buffer, x, weights, results); });
  }
}

}  // namespace

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
  benchWeighted(bench, NNReduceFeatureChannelsAndWeightsSum::create(device, true));
}

}  // namespace mps::detail
