#include "train/batches/dataset_batches.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"
#include "train/batches/augmented_pictures.hpp"

namespace unmetal::train::detail {
namespace {

using mps::ImageFeatureChannelFormat;

/// What each byte becomes, for each channel.
std::vector<std::array<float, 256>> tablesOf(std::size_t channels,
                                             const std::optional<Normalization>& normalization) {
  std::vector<std::array<float, 256>> tables(channels);
  for (std::size_t value = 0; value < 256; ++value) {
    std::vector<float> pixel(channels, static_cast<float>(value) / 255.0F);
    if (normalization) normalize(pixel, *normalization);
    for (std::size_t channel = 0; channel < channels; ++channel) tables[channel][value] = pixel[channel];
  }
  return tables;
}

void writeFloats(std::span<const std::uint8_t> pixels, const std::vector<std::array<float, 256>>& tables,
                 std::byte* destination) {
  for (std::size_t i = 0; i < pixels.size(); i += tables.size())
    for (std::size_t channel = 0; channel < tables.size(); ++channel) {
      std::memcpy(destination, &tables[channel][pixels[i + channel]], sizeof(float));
      destination += sizeof(float);
    }
}

}  // namespace

ImageFeatureChannelFormat formatOf(const Dataset& data, const mtl::Device& device,
                                   const std::optional<Normalization>& normalization) {
  return data.hasBytes() && !normalization ? pictureFormat(device) : ImageFeatureChannelFormat::Float32;
}

BatchSource sourceFrom(const Dataset& data, const BatchContents& contents) {
  const ImageFeatureChannelFormat format = contents.format;
  if (format != ImageFeatureChannelFormat::Unorm8 && format != ImageFeatureChannelFormat::Float32)
    throw mps::Error("pictures are handed out as unorm8 or float32 only");
  const AugmentedPictures pictures(data, contents.pictures, contents.augmentation, contents.seed);
  const std::optional<Normalization>& normalization = contents.normalization;
  if (normalization) checkNormalization(*normalization, contents.pictures);
  BatchSource source;
  source.pictureBytes = contents.pictures.count() * mps::bytesPerChannel(format);
  source.mixes = contents.augmentation.mixup > 0;
  if (!data.hasBytes()) {
    source.write = [pictures, normalization](std::uint32_t number, std::uint64_t epoch,
                                             std::span<std::byte> picture) {
      std::vector<float> values;
      const PictureClass found = pictures.load(number, epoch, values);
      if (normalization) normalize(values, *normalization);
      std::memcpy(picture.data(), values.data(), picture.size());
      return found;
    };
  } else if (format == ImageFeatureChannelFormat::Float32) {
    source.write = [pictures, tables = tablesOf(contents.pictures.channels, normalization)](
                       std::uint32_t number, std::uint64_t epoch, std::span<std::byte> picture) {
      std::vector<std::uint8_t> values;
      const PictureClass found = pictures.load(number, epoch, values);
      writeFloats(values, tables, picture.data());
      return found;
    };
  } else {
    source.write = [pictures](std::uint32_t number, std::uint64_t epoch, std::span<std::byte> picture) {
      std::vector<std::uint8_t> values;
      const PictureClass found = pictures.load(number, epoch, values);
      std::memcpy(picture.data(), values.data(), picture.size());
      return found;
    };
  }
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

void checkHasEachClass(const Dataset& data, const std::string& what) {
  const auto* const known = dynamic_cast<const MemoryDataset*>(&data);
  if (known == nullptr || known->hasGivenClasses()) return;
  std::vector<bool> hasPictures(known->classCount());
  for (const std::uint32_t label : known->labels()) hasPictures[label] = true;
  const auto missing = std::ranges::find(hasPictures, false);
  if (missing != hasPictures.end())
    throw mps::Error(what, "number of pictures of class " + std::to_string(missing - hasPictures.begin()),
                     "0", "some, unless classNames are given; labels begin with 0");
}

}  // namespace unmetal::train::detail
