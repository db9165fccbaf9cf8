#include "train/training/weight_average.hpp"

#include <algorithm>

#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/network/weight_values.hpp"

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
  for (const auto& layer : layers) {
    const std::vector<mps::SafetensorsTensor> tensors = layer->tensors(false);
    const auto buffers = buffersOf(*layer, device);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const auto floats = mps::VectorDescriptor::vectorDescriptor(buffers[i]->length() / sizeof(float),
                                                                  mps::DataType::Float32);
      arrays_.push_back({"average." + tensors[i].name, tensors[i].shape, buffers[i],
                         mps::Vector::create(buffers[i], floats), mps::Vector::create(device, floats)});
      write(arrays_.back(), {buffers[i]->contents(), buffers[i]->length()});
    }
  }
}

void WeightAverage::write(const Array& array, std::span<const std::byte> values) {
  mtl::Buffer& average = *array.average->data();
  std::ranges::copy(values, average.contents());
  average.didModifyRange(0, average.length());
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

std::vector<mps::SafetensorsTensor> WeightAverage::tensors() const {
  synchronize();
  std::vector<mps::SafetensorsTensor> tensors;
  for (const Array& array : arrays_) {
    const mtl::Buffer& average = *array.average->data();
    tensors.push_back(
        {array.name, mps::DataType::Float32, array.shape, {average.contents(), array.values->length()}});
  }
  return tensors;
}

void WeightAverage::read(const mps::SafetensorsFile& file, std::uint64_t steps) {
  for (const Array& array : arrays_)
    static_cast<void>(file.tensor(array.name, mps::DataType::Float32, array.shape));
  for (const Array& array : arrays_) write(array, file.tensor(array.name).bytes);
  steps_ = steps;
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
