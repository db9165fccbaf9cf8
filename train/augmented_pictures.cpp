#include "train/augmented_pictures.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>

#include "mps/core/error.hpp"
#include "mps/core/philox.hpp"
#include "train/pictures/resizing.hpp"

namespace unmetal::train::detail {
namespace {

/// Keeps these numbers apart from others that are drawn with the same seed.
constexpr std::uint32_t variationStream = 0x56415259;  // "VARY"

/// Where a picture is cut out, and whether it is mirrored.
struct Cut {
  std::size_t top = 0;
  std::size_t left = 0;
  bool isMirrored = false;
};

template <class Value>
std::vector<Value> cutOut(std::span<const Value> stored, const Shape& from, const Shape& part,
                          const Cut& cut) {
  std::vector<Value> result;
  result.reserve(part.count());
  for (std::size_t y = 0; y < part.height; ++y) {
    const std::size_t first = (cut.top + y) * from.width + cut.left;
    const auto row = stored.subspan(first * from.channels, part.width * from.channels);
    if (!cut.isMirrored) {
      result.insert(result.end(), row.begin(), row.end());
      continue;
    }
    for (std::size_t x = part.width; x-- > 0;) {
      const auto pixel = row.subspan(x * from.channels, from.channels);
      result.insert(result.end(), pixel.begin(), pixel.end());
    }
  }
  return result;
}

}  // namespace

AugmentedPictures::AugmentedPictures(const Dataset& data, const Shape& pictures,
                                     const Augmentation& augmentation, std::uint64_t seed)
    : data_(data), pictures_(pictures), augmentation_(augmentation), seed_(seed), stored_(data.shape()) {
  if (augmentation_.crop && stored_ == pictures_) stored_ = shapeForCrops(pictures_);
}

template <class Value>
std::uint32_t AugmentedPictures::loadStored(std::uint32_t number, std::vector<Value>& pixels) const {
  const Shape& shape = data_.shape();
  pixels.assign(shape.count(), Value(0));
  std::uint32_t label = 0;
  if constexpr (std::is_same_v<Value, float>) {
    label = data_.load(number, pixels);
    if (!std::ranges::all_of(pixels, [](float value) { return std::isfinite(value); }))
      throw mps::Error("data set: picture " + std::to_string(number) + " has a number that is not finite");
  } else {
    label = data_.loadBytes(number, pixels);
  }
  if (label >= data_.classCount())
    throw mps::Error("data set", "class of picture " + std::to_string(number), std::to_string(label),
                     "0 to " + std::to_string(data_.classCount() - 1));
  if (stored_ != shape)
    pixels = resized(std::span<const Value>(pixels), shape, stored_.height, stored_.width);
  return label;
}

template <class Value>
std::uint32_t AugmentedPictures::load(std::uint32_t number, std::uint64_t epoch,
                                      std::vector<Value>& pixels) const {
  const std::uint32_t label = loadStored(number, pixels);
  if (augmentation_ == Augmentation{}) return label;
  const mps::detail::PhiloxCounter random = mps::detail::philox(
      {number, static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32), variationStream},
      mps::detail::philoxKey(seed_));
  const Cut cut{random[0] % (stored_.height - pictures_.height + 1),
                random[1] % (stored_.width - pictures_.width + 1), augmentation_.flip && random[2] % 2 != 0};
  pixels = cutOut(std::span<const Value>(pixels), stored_, pictures_, cut);
  return label;
}

template std::uint32_t AugmentedPictures::load(std::uint32_t number, std::uint64_t epoch,
                                               std::vector<std::uint8_t>& pixels) const;
template std::uint32_t AugmentedPictures::load(std::uint32_t number, std::uint64_t epoch,
                                               std::vector<float>& pixels) const;

}  // namespace unmetal::train::detail
