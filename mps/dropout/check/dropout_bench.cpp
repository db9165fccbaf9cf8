#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/dropout/dropout.hpp"

namespace mps::detail {

void benchDropout(Bench& bench) {
  const auto add = [&](const char* shape, std::size_t size, std::size_t channels,
                       const mtl::Size& maskStrides, std::int64_t batch = 0) {
    benchPair(bench, {.forward = CNNDropout::create(bench.device(), 0.5F, 1, maskStrides),
                      .gradient = CNNDropoutGradient::create(bench.device(), 0.5F, 1, maskStrides),
                      .shape = shape,
                      .source = {ImageFeatureChannelFormat::Float32, size, size, channels},
                      .gradientReads = BenchPair::Input::Nothing,
                      .batch = batch});
  };
  add("56x56x64", 56, 64, {1, 1, 1});
  add("56x56x64 whole channels", 56, 64, {0, 0, 1});
  add("1x1x1024", 1, 1024, {1, 1, 1});
  add("112x112x64", 112, 64, {1, 1, 1}, kLargeImageBatch);
}

}  // namespace mps::detail
