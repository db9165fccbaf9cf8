#include "mps/conform/kernel_bench.hpp"
#include "mps/softmax/softmax.hpp"

namespace mps::detail {

void benchSoftmax(Bench& bench) {
  const auto add = [&](const char* shape, std::size_t size, std::size_t channels) {
    const ImageDescriptor source{ImageFeatureChannelFormat::Float32, size, size, channels};
    benchPair(bench, {.forward = CNNSoftMax::create(bench.device()),
                      .gradient = CNNSoftMaxGradient::create(bench.device()),
                      .shape = shape,
                      .source = source,
                      .gradientReads = BenchPair::Input::Result});
    benchPair(bench, {.forward = CNNLogSoftMax::create(bench.device()),
                      .gradient = CNNLogSoftMaxGradient::create(bench.device()),
                      .shape = shape,
                      .source = source,
                      .gradientReads = BenchPair::Input::Result});
  };
  add("56x56x64", 56, 64);
  add("64x64x21", 64, 21);
  add("1x1x1000", 1, 1000);
}

}  // namespace mps::detail
