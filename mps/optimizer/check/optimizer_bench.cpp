#include "mps/conform/timing/bench.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace mps::detail {

/// One large vector; values and buffers are read and written, the gradient is read.
void benchOptimizer(Bench& bench) {
  constexpr std::size_t kLength = std::size_t{1} << 23U;
  const auto format = ImageFeatureChannelFormat::Float32;
  const auto key = [&](const char* kernel, const char* kind) {
    return BenchKey{kernel, Direction::Gradient, format, std::to_string(kLength) + " values " + kind, 1};
  };
  const BenchKey sgd = key("NNOptimizerStochasticGradientDescent", "momentum");
  const BenchKey rmsProp = key("NNOptimizerRMSProp", "RMSProp");
  const BenchKey adam = key("NNOptimizerAdam", "Adam");
  if (!bench.isSelected(sgd.describe()) && !bench.isSelected(rmsProp.describe()) &&
      !bench.isSelected(adam.describe()))
    return;
  const auto vector = [&](float value) {
    auto made =
        Vector::create(bench.device(), VectorDescriptor::vectorDescriptor(kLength, DataType::Float32));
    for (float& element : made->data()->contentsAs<float>()) element = value;
    made->data()->didModifyRange(0, made->data()->length());
    return made;
  };
  const auto gradient = vector(0.25F);
  const auto values = vector(1.0F);
  const auto momentum = vector(0.5F);
  const auto velocity = vector(0.5F);
  constexpr double kArray = static_cast<double>(kLength) * sizeof(float);
  const NNOptimizerDescriptor descriptor(1e-6F, 1.0F, NNRegularizationType::None, 0.0F);

  const auto withMomentum =
      NNOptimizerStochasticGradientDescent::create(bench.device(), 0.9F, false, descriptor);
  bench.kernel(sgd, {.bytes = 5 * kArray}, [&](const auto& commandBuffer) {
    withMomentum->encode(commandBuffer, gradient, values, momentum, values);
  });
  const auto squares = NNOptimizerRMSProp::create(bench.device(), 0.9, 1e-8F, descriptor);
  bench.kernel(rmsProp, {.bytes = 5 * kArray}, [&](const auto& commandBuffer) {
    squares->encode(commandBuffer, gradient, values, velocity, values);
  });
  const auto adamKernel = NNOptimizerAdam::create(bench.device(), 0.9, 0.999, 1e-8F, 0, descriptor);
  bench.kernel(adam, {.bytes = 7 * kArray}, [&](const auto& commandBuffer) {
    adamKernel->encode(commandBuffer, gradient, values, momentum, velocity, values);
  });
}

}  // namespace mps::detail
