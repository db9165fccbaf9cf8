#include "train/dataset_batches.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "mps/core/error.hpp"
#include "mtl/device.hpp"

namespace unmetal::train::detail {
namespace {

std::uint32_t checkedLabel(const Dataset& data, std::uint32_t number, std::uint32_t label) {
  if (label >= data.classCount())
    throw mps::Error("data set", "class of picture " + std::to_string(number), std::to_string(label),
                     "0 to " + std::to_string(data.classCount() - 1));
  return label;
}

const MemoryDataset* withBytes(const Dataset& data) {
  const auto* memory = dynamic_cast<const MemoryDataset*>(&data);
  return memory != nullptr && !memory->bytes().empty() ? memory : nullptr;
}

}  // namespace

mps::ImageFeatureChannelFormat formatOf(const Dataset& data, const mtl::Device& device) {
  return withBytes(data) != nullptr ? pictureFormat(device) : mps::ImageFeatureChannelFormat::Float32;
}

BatchFill fillFrom(const Dataset& data, mps::ImageFeatureChannelFormat format) {
  const std::size_t count = data.shape().count();
  if (format == mps::ImageFeatureChannelFormat::Unorm8)
    return [&memory = *withBytes(data), count](std::span<const std::uint32_t> numbers, Batch& batch) {
      batch.images.resize(numbers.size() * count);
      batch.labels.resize(numbers.size());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::memcpy(batch.images.data() + i * count, memory.bytes().data() + numbers[i] * count, count);
        batch.labels[i] = memory.labels()[numbers[i]];
      }
    };
  return [&data, count](std::span<const std::uint32_t> numbers, Batch& batch) {
    batch.images.resize(numbers.size() * count * sizeof(float));
    batch.labels.resize(numbers.size());
    std::vector<float> pixels(count);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::ranges::fill(pixels, 0.0F);
      batch.labels[i] = checkedLabel(data, numbers[i], data.load(numbers[i], pixels));
      if (!std::ranges::all_of(pixels, [](float value) { return std::isfinite(value); }))
        throw mps::Error("data set: picture " + std::to_string(numbers[i]) +
                         " has a number that is not finite");
      std::memcpy(batch.images.data() + i * count * sizeof(float), pixels.data(), count * sizeof(float));
    }
  };
}

void checkFits(const Dataset& data, const std::string& what, const Shape& pictures, std::size_t classes) {
  if (data.shape() != pictures)
    throw mps::Error(what, "shape of a picture", describe(data.shape()),
                     describe(pictures) + ", the network's");
  if (data.classCount() != classes)
    throw mps::Error(what, "number of classes", std::to_string(data.classCount()),
                     std::to_string(classes) + ", the network's scores");
}

}  // namespace unmetal::train::detail
