#include "tools/data/batches.hpp"

#include <array>
#include <cstring>

#include "mps/core/error.hpp"
#include "mps/core/philox.hpp"

namespace unmetal {
namespace {

/// Keeps these numbers apart from others that are drawn with the same seed.
constexpr std::uint32_t variationStream = 0x56415259;  // "VARY"

std::array<float, 256> makeFloatTable() {
  std::array<float, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 255.0F;
  return table;
}

void appendFloats(std::span<const std::uint8_t> pixels, std::byte* destination) {
  static const std::array<float, 256> table = makeFloatTable();
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    std::memcpy(destination + i * sizeof(float), &table[pixels[i]], sizeof(float));
  }
}

/// How an epoch sees a picture.
struct Variation {
  std::size_t top = 0;
  std::size_t left = 0;
  bool mirrored = false;
};

Variation variationOf(const Dataset& data, std::uint32_t number, std::uint64_t epoch, std::uint64_t seed) {
  const mps::detail::PhiloxCounter random = mps::detail::philox(
      {number, static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32), variationStream},
      mps::detail::philoxKey(seed));
  return {random[0] % (data.moreRows + 1), random[1] % (data.moreColumns + 1),
          data.mirrors && random[2] % 2 != 0};
}

/// @param stored the picture as the data set keeps it
void cutOut(const Dataset& data, std::span<const std::uint8_t> stored, const Variation& variation,
            std::vector<std::uint8_t>& result) {
  result.clear();
  for (std::size_t y = 0; y < data.height; ++y) {
    const std::size_t first = (variation.top + y) * data.storedWidth() + variation.left;
    const auto row = stored.subspan(first * data.channels, data.width * data.channels);
    if (!variation.mirrored) {
      result.insert(result.end(), row.begin(), row.end());
      continue;
    }
    for (std::size_t x = data.width; x-- > 0;) {
      const auto pixel = row.subspan(x * data.channels, data.channels);
      result.insert(result.end(), pixel.begin(), pixel.end());
    }
  }
}

}  // namespace

BatchFill fillFrom(const Dataset& data, mps::ImageFeatureChannelFormat format, std::uint64_t seed) {
  using mps::ImageFeatureChannelFormat;
  if (format != ImageFeatureChannelFormat::Unorm8 && format != ImageFeatureChannelFormat::Float32) {
    throw mps::Error("pictures are handed out as unorm8 or float32 only");
  }
  const bool isVaried = data.moreRows > 0 || data.moreColumns > 0 || data.mirrors;
  return [&data, format, seed, isVaried](std::span<const std::uint32_t> numbers, Batch& batch) {
    const std::size_t imageBytes = data.imageSize() * mps::bytesPerChannel(format);
    batch.images.resize(numbers.size() * imageBytes);
    batch.labels.resize(numbers.size());
    std::vector<std::uint8_t> varied;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::span<const std::uint8_t> image = data.image(numbers[i]);
      if (isVaried) {
        cutOut(data, image, variationOf(data, numbers[i], batch.epoch, seed), varied);
        image = varied;
      }
      std::byte* destination = batch.images.data() + i * imageBytes;
      if (format == ImageFeatureChannelFormat::Float32) {
        appendFloats(image, destination);
      } else {
        std::memcpy(destination, image.data(), image.size());
      }
      batch.labels[i] = data.labels[numbers[i]];
    }
  };
}

}  // namespace unmetal
