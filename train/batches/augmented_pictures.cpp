#include "train/batches/augmented_pictures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/philox.hpp"
#include "train/pictures/pixel_changes.hpp"
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

/// Random numbers of a picture in an epoch, each of its own purpose: what one change draws does not depend on the others.
class AugmentedPictures::Draws {
 public:
  enum Purpose : std::uint32_t {
    Top,
    Left,
    Flip,
    Area = 4,
    Proportions,
    PartTop,
    PartLeft,
    Right,
    Down,
    Angle,
    Brightness = 12,
    Contrast,
    Saturation,
    Other,
    Mixture,  ///< the first of many
  };

  Draws(std::uint64_t seed, std::uint64_t epoch, std::uint32_t number)
      : seed_(seed), epoch_(epoch), number_(number) {}

  [[nodiscard]] std::uint32_t word(Purpose purpose) const {
    constexpr std::uint32_t wordsOfABlock = 4;
    return mps::detail::philox(
        {number_, static_cast<std::uint32_t>(epoch_), static_cast<std::uint32_t>(epoch_ >> 32),
         variationStream + purpose / wordsOfABlock},
        mps::detail::philoxKey(seed_))[purpose % wordsOfABlock];
  }
  /// A whole number below `count`.
  [[nodiscard]] std::size_t below(Purpose purpose, std::size_t count) const { return word(purpose) % count; }
  /// Evenly from a range.
  [[nodiscard]] double from(Purpose purpose, double least, double most) const {
    return least + (most - least) * (static_cast<double>(word(purpose)) + 0.5) / 4294967296.0;
  }
  [[nodiscard]] float factor(Purpose purpose, double share) const {
    return static_cast<float>(from(purpose, 1 - share, 1 + share));
  }
  /// The smaller part of a mixture of two, from a beta distribution of (alpha, alpha): Johnk's method.
  [[nodiscard]] float mixture(double alpha) const {
    for (std::uint32_t i = Mixture;; i += 2) {
      const double x = std::pow(from(static_cast<Purpose>(i), 0, 1), 1 / alpha);
      const double y = std::pow(from(static_cast<Purpose>(i + 1), 0, 1), 1 / alpha);
      if (x + y > 0 && x + y <= 1) return static_cast<float>(std::min(x, y) / (x + y));
    }
  }

 private:
  std::uint64_t seed_;
  std::uint64_t epoch_;
  std::uint32_t number_;
};

AugmentedPictures::AugmentedPictures(const Dataset& data, const Shape& pictures,
                                     const Augmentation& augmentation, std::uint64_t seed)
    : data_(data), pictures_(pictures), augmentation_(augmentation), seed_(seed), stored_(data.shape()) {
  checkAugmentation(augmentation_, stored_, pictures_);
  const bool crops = augmentation_.crop > 0 || augmentation_.resizedCrop > 0;
  if (!crops && stored_ != pictures_)
    throw mps::Error("data set", "shape of a picture", describe(stored_), describe(pictures_));
  if (augmentation_.crop > 0 && stored_ == pictures_) stored_ = shapeForCrops(pictures_, augmentation_.crop);
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
    pixels =
        resized<Value>({pixels.data(), shape, shape.width * shape.channels}, stored_.height, stored_.width);
  return label;
}

template <class Value>
PictureClass AugmentedPictures::load(std::uint32_t number, std::uint64_t epoch,
                                     std::vector<Value>& pixels) const {
  const std::uint32_t label = loadOne(number, epoch, pixels);
  if (augmentation_.mixup == 0) return label;
  const Draws draws(seed_, epoch, number);
  const auto other = static_cast<std::uint32_t>(draws.below(Draws::Other, data_.size()));
  std::vector<Value> others;
  const std::uint32_t otherLabel = loadOne(other, epoch, others);
  const float share = draws.mixture(augmentation_.mixup);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const auto own = static_cast<float>(pixels[i]);
    const float mixed = own + share * (static_cast<float>(others[i]) - own);
    if constexpr (std::is_same_v<Value, std::uint8_t>)
      pixels[i] = static_cast<std::uint8_t>(std::lround(mixed));
    else
      pixels[i] = mixed;
  }
  return {label, {otherLabel, share}};
}

template <class Value>
std::uint32_t AugmentedPictures::loadOne(std::uint32_t number, std::uint64_t epoch,
                                         std::vector<Value>& pixels) const {
  const std::uint32_t label = loadStored(number, pixels);
  const Draws draws(seed_, epoch, number);
  if (stored_ != pictures_ || augmentation_.resizedCrop > 0 || augmentation_.flip)
    pixels = partOf(std::move(pixels), draws);
  const bool moves = augmentation_.shift > 0 || augmentation_.rotate > 0;
  const bool recolours =
      augmentation_.brightness > 0 || augmentation_.contrast > 0 || augmentation_.saturation > 0;
  if (!moves && !recolours) return label;
  std::vector<float> values(pixels.begin(), pixels.end());
  if (moves) {
    const double right = draws.from(Draws::Right, -augmentation_.shift, augmentation_.shift);
    const double down = draws.from(Draws::Down, -augmentation_.shift, augmentation_.shift);
    values =
        moved(values, pictures_, draws.from(Draws::Angle, -augmentation_.rotate, augmentation_.rotate),
              right * static_cast<double>(pictures_.width), down * static_cast<double>(pictures_.height));
  }
  constexpr bool isBytes = std::is_same_v<Value, std::uint8_t>;
  if (recolours) changeColours(values, draws, isBytes ? 255.0F : std::numeric_limits<float>::infinity());
  if constexpr (isBytes)
    std::ranges::transform(values, pixels.begin(),
                           [](float value) { return static_cast<std::uint8_t>(std::lround(value)); });
  else
    pixels = std::move(values);
  return label;
}

/// Of the size that is wanted, mirrored or not.
template <class Value>
std::vector<Value> AugmentedPictures::partOf(std::vector<Value> pixels, const Draws& draws) const {
  const bool isMirrored = augmentation_.flip && draws.word(Draws::Flip) % 2 != 0;
  if (augmentation_.resizedCrop == 0) {
    const Cut cut{draws.below(Draws::Top, stored_.height - pictures_.height + 1),
                  draws.below(Draws::Left, stored_.width - pictures_.width + 1), isMirrored};
    return cutOut(std::span<const Value>(pixels), stored_, pictures_, cut);
  }
  const auto height = static_cast<double>(stored_.height);
  const auto width = static_cast<double>(stored_.width);
  const double area = draws.from(Draws::Area, augmentation_.resizedCrop, 1) * height * width;
  const double proportions = std::exp(draws.from(Draws::Proportions, std::log(0.75), -std::log(0.75)));
  const auto side = [](double length, double most) {
    return static_cast<std::size_t>(std::clamp(std::round(length), 1.0, most));
  };
  const Shape part{side(std::sqrt(area / proportions), height), side(std::sqrt(area * proportions), width),
                   stored_.channels};
  const std::size_t top = draws.below(Draws::PartTop, stored_.height - part.height + 1);
  const std::size_t left = draws.below(Draws::PartLeft, stored_.width - part.width + 1);
  const Value* const first = &pixels[(top * stored_.width + left) * stored_.channels];
  pixels = resized<Value>({first, part, stored_.width * stored_.channels}, pictures_.height, pictures_.width);
  if (!isMirrored) return pixels;
  return cutOut(std::span<const Value>(pixels), pictures_, pictures_, {.isMirrored = true});
}

void AugmentedPictures::changeColours(std::vector<float>& values, const Draws& draws, float most) const {
  const double brightness = augmentation_.brightness;
  const double contrast = augmentation_.contrast;
  const double saturation = augmentation_.saturation;
  if (brightness > 0) changeBrightness(values, draws.factor(Draws::Brightness, brightness), most);
  if (contrast > 0) changeContrast(values, draws.factor(Draws::Contrast, contrast), most);
  if (saturation > 0) changeSaturation(values, draws.factor(Draws::Saturation, saturation), most);
}

template PictureClass AugmentedPictures::load(std::uint32_t number, std::uint64_t epoch,
                                              std::vector<std::uint8_t>& pixels) const;
template PictureClass AugmentedPictures::load(std::uint32_t number, std::uint64_t epoch,
                                              std::vector<float>& pixels) const;

}  // namespace unmetal::train::detail
