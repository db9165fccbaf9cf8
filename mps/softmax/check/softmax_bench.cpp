#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/softmax/matrix_softmax.hpp"
#include "mps/softmax/softmax.hpp"

namespace mps::detail {
namespace {

template <class Forward, class Gradient>
void benchMatrixSoftMax(Bench& bench) {
  const auto forward = Forward::create(bench.device());
  const auto gradient = Gradient::create(bench.device());
  benchMatrices(bench, *forward, Direction::Forward, "1000 columns", 1000, 2,
                [&](const auto& commandBuffer, const auto& matrices) {
                  forward->encode(commandBuffer, matrices[0], matrices[1]);
                });
  benchMatrices(bench, *gradient, Direction::Gradient, "1000 columns", 1000, 3,
                [&](const auto& commandBuffer, const auto& matrices) {
                  gradient->encode(commandBuffer, matrices[0], matrices[1], matrices[2]);
                });
}

}  // namespace

void benchSoftmax(Bench& bench) {
  const auto add = [&](const char* shape, std::size_t size, std::size_t channels, std::int64_t batch = 0) {
    const ImageDescriptor source{ImageFeatureChannelFormat::Float32, size, size, channels};
    benchPair(bench, {.forward = CNNSoftMax::create(bench.device()),
                      .gradient = CNNSoftMaxGradient::create(bench.device()),
                      .shape = shape,
                      .source = source,
                      .gradientReads = BenchPair::Input::Result,
                      .batch = batch});
    benchPair(bench, {.forward = CNNLogSoftMax::create(bench.device()),
                      .gradient = CNNLogSoftMaxGradient::create(bench.device()),
                      .shape = shape,
                      .source = source,
                      .gradientReads = BenchPair::Input::Result,
                      .batch = batch});
  };
  add("56x56x64", 56, 64);
  add("64x64x21", 64, 21);
  add("1x1x1000", 1, 1000);
  add("112x112x64", 112, 64, kLargeImageBatch);
  benchMatrixSoftMax<MatrixSoftMax, MatrixSoftMaxGradient>(bench);
  benchMatrixSoftMax<MatrixLogSoftMax, MatrixLogSoftMaxGradient>(bench);
}

}  // namespace mps::detail
