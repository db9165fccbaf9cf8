#include "train/weight_average.hpp"

#include <algorithm>

#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/weight_values.hpp"

namespace unmetal::train::detail {
namespace {

/// Average + (1 - decay) (value - average), as plain gradient descent: the gradient is the value, the regularisation takes the
/// average off it.
std::shared_ptr<mps::NNOptimizerStochasticGradientDescent> meanOf(
    const std::shared_ptr<mtl::Device>& device) {
  return mps::NNOptimizerStochasticGradientDescent::create(
      device, 0, false, mps::NNOptimizerDescriptor(-1, 1, mps::NNRegularizationType::L2, -1));
}

}  // namespace

WeightAverage::WeightAverage(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                             const std::shared_ptr<mtl::Device>& device, double decay)
    : device_(device), decay_(decay), mean_(meanOf(device)) {
  detail::synchronize(layers, device);
  for (const auto& layer : layers)
    for (const auto& buffer : buffersOf(*layer, device)) {
      const auto floats =
          mps::VectorDescriptor::vectorDescriptor(buffer->length() / sizeof(float), mps::DataType::Float32);
      arrays_.push_back({buffer, mps::Vector::create(buffer, floats), mps::Vector::create(device, floats)});
      mtl::Buffer& average = *arrays_.back().average->data();
      std::copy_n(buffer->contents(), buffer->length(), average.contents());
      average.didModifyRange(0, average.length());
    }
}

void WeightAverage::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  const auto step = static_cast<double>(++steps_);
  const double decay = std::min(decay_, (1 + step) / (10 + step));
  mean_->setLearningRate(static_cast<float>(decay - 1));
  for (const Array& array : arrays_)
    mean_->encode(commandBuffer, array.valuesVector, array.average, std::shared_ptr<mps::Vector>(),
                  array.average);
}

void WeightAverage::synchronize() const {
  const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
  for (const Array& array : arrays_) {
    array.values->synchronize(*commandBuffer);
    array.average->synchronize(commandBuffer);
  }
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

void WeightAverage::use(bool forEvaluation) {
  if (forEvaluation == areExchanged_) return;
  synchronize();
  for (const Array& array : arrays_) {
    mtl::Buffer& average = *array.average->data();
    std::swap_ranges(array.values->contents(), array.values->contents() + array.values->length(),
                     average.contents());
    array.values->didModifyRange(0, array.values->length());
    average.didModifyRange(0, average.length());
  }
  areExchanged_ = forEvaluation;
}

}  // namespace unmetal::train::detail
