#include "train/dataset_batches.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "mps/core/error.hpp"
#include "mtl/device.hpp"
#include "train/augmented_pictures.hpp"

namespace unmetal::train::detail {
namespace {

using mps::ImageFeatureChannelFormat;

std::array<float, 256> makeFloatTable() {
  std::array<float, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 255.0F;
  return table;
}

void writeFloats(std::span<const std::uint8_t> pixels, std::byte* destination) {
  static const std::array<float, 256> table = makeFloatTable();
  for (std::size_t i = 0; i < pixels.size(); ++i)
    std::memcpy(destination + i * sizeof(float), &table[pixels[i]], sizeof(float));
}

}  // namespace

mps::ImageFeatureChannelFormat formatOf(const Dataset& data, const mtl::Device& device) {
  return data.hasBytes() ? pictureFormat(device) : ImageFeatureChannelFormat::Float32;
}

BatchSource sourceFrom(const Dataset& data, const BatchContents& contents) {
  const ImageFeatureChannelFormat format = contents.format;
  if (format != ImageFeatureChannelFormat::Unorm8 && format != ImageFeatureChannelFormat::Float32)
    throw mps::Error("pictures are handed out as unorm8 or float32 only");
  const AugmentedPictures pictures(data, contents.pictures, contents.augmentation, contents.seed);
  BatchSource source;
  source.pictureBytes = contents.pictures.count() * mps::bytesPerChannel(format);
  if (!data.hasBytes()) {
    source.write = [pictures](std::uint32_t number, std::uint64_t epoch, std::span<std::byte> picture) {
      std::vector<float> values;
      const std::uint32_t label = pictures.load(number, epoch, values);
      std::memcpy(picture.data(), values.data(), picture.size());
      return label;
    };
    return source;
  }
  source.write = [pictures, format](std::uint32_t number, std::uint64_t epoch, std::span<std::byte> picture) {
    std::vector<std::uint8_t> values;
    const std::uint32_t label = pictures.load(number, epoch, values);
    if (format == ImageFeatureChannelFormat::Float32)
      writeFloats(values, picture.data());
    else
      std::memcpy(picture.data(), values.data(), picture.size());
    return label;
  };
  return source;
}

void checkFits(const Dataset& data, const std::string& what, const Shape& pictures, std::size_t classes,
               const Augmentation& augmentation) {
  const bool crops = augmentation.crop > 0 || augmentation.resizedCrop > 0;
  const bool fits = data.shape() == pictures || (crops && data.shape().channels == pictures.channels);
  if (!fits)
    throw mps::Error(what, "shape of a picture", describe(data.shape()),
                     describe(pictures) + ", the network's");
  if (data.classCount() != classes)
    throw mps::Error(what, "number of classes", std::to_string(data.classCount()),
                     std::to_string(classes) + ", the network's scores");
}

}  // namespace unmetal::train::detail
