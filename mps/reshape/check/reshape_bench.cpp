#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"

namespace mps::detail {

void benchReshape(Bench& bench) {
  const auto& device = bench.device();
  const ImageDescriptor source{ImageFeatureChannelFormat::Float32, 28, 28, 64};
  const auto reshape = NNReshape::create(device);
  reshape->setReshapedSize(1, 1, std::size_t{28} * 28 * 64);
  benchPair(bench, {.forward = reshape,
                    .gradient = NNReshapeGradient::create(device),
                    .shape = "28x28x64 to 1x1x50176",
                    .source = source,
                    .gradientReads = BenchPair::Input::Nothing});
  const auto pad = [&](ImageEdgeMode edgeMode, const std::string& name) {
    auto kernel = NNPad::create(device, {2, 2, 0}, {2, 2, 0});
    kernel->setEdgeMode(edgeMode);
    benchPair(bench, {.forward = kernel,
                      .gradient = NNPadGradient::create(device),
                      .shape = "28x28x64 to 32x32x64 " + name,
                      .source = source,
                      .gradientReads = BenchPair::Input::Nothing});
  };
  pad(ImageEdgeMode::Zero, "zero");
  pad(ImageEdgeMode::Mirror, "mirror");
}

}  // namespace mps::detail
