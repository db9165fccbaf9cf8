#include "train/network/weight_values.hpp"

#include <algorithm>

#include "mps/core/layer/batch_normalization_data_source.hpp"
#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/layer/image_normalization_data_source.hpp"
#include "mps/core/layer/normalization_state.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace unmetal::train::detail {
namespace {

using Buffers = std::vector<std::shared_ptr<mtl::Buffer>>;

template <class Source>
void appendGammaAndBeta(Source& source, const std::shared_ptr<mtl::Device>& device, Buffers& buffers) {
  const auto state = source.deviceGammaAndBeta(device);
  buffers.insert(buffers.end(), {state->gamma(), state->beta()});
}

}  // namespace

Buffers buffersOf(mps::TrainableLayer& layer, const std::shared_ptr<mtl::Device>& device) {
  Buffers buffers;
  if (auto* convolution = dynamic_cast<mps::CNNConvolutionDataSource*>(&layer)) {
    const auto state = convolution->deviceWeightsAndBiases(device);
    buffers.push_back(state->weights());
    if (state->biases()) buffers.push_back(state->biases());
  } else if (auto* batch = dynamic_cast<mps::CNNBatchNormalizationDataSource*>(&layer)) {
    appendGammaAndBeta(*batch, device, buffers);
    const auto state = batch->deviceMeanAndVariance(device);
    buffers.insert(buffers.end(), {state->mean(), state->variance()});
  } else if (auto* instance = dynamic_cast<mps::CNNInstanceNormalizationDataSource*>(&layer)) {
    appendGammaAndBeta(*instance, device, buffers);
  } else if (auto* group = dynamic_cast<mps::CNNGroupNormalizationDataSource*>(&layer)) {
    appendGammaAndBeta(*group, device, buffers);
  }
  return buffers;
}

void synchronize(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                 const std::shared_ptr<mtl::Device>& device) {
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  for (const auto& layer : layers) layer->synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

WeightValues WeightValues::of(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                              const std::shared_ptr<mtl::Device>& device) {
  synchronize(layers, device);
  WeightValues values;
  for (const auto& layer : layers)
    for (const auto& buffer : buffersOf(*layer, device))
      values.arrays_.emplace_back(buffer->contents(), buffer->contents() + buffer->length());
  return values;
}

void WeightValues::giveTo(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                          const std::shared_ptr<mtl::Device>& device) const {
  auto array = arrays_.begin();
  for (const auto& layer : layers)
    for (const auto& buffer : buffersOf(*layer, device)) {
      std::ranges::copy(*array++, buffer->contents());
      buffer->didModifyRange(0, buffer->length());
    }
}

}  // namespace unmetal::train::detail
