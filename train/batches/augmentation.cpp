#include "train/batches/augmentation.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "mps/core/types/error.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal::train {
namespace {

/// A change that has a number.
struct NumberedChange {
  std::string_view name;
  double Augmentation::*number;
  double most;
  const char* range;
  double least = 0;  ///< of those that are not 0
};

constexpr std::array numberedChanges{
    NumberedChange{"crop", &Augmentation::crop, 1, "a share of the sides above 0 and up to 1"},
    NumberedChange{"resized-crop", &Augmentation::resizedCrop, 1,
                   "a share of the picture's area above 0 and up to 1"},
    NumberedChange{"shift", &Augmentation::shift, 1, "a share of the sides above 0 and up to 1"},
    NumberedChange{"rotate", &Augmentation::rotate, 180, "degrees above 0 and up to 180"},
    NumberedChange{"brightness", &Augmentation::brightness, 1, "a share above 0 and up to 1"},
    NumberedChange{"contrast", &Augmentation::contrast, 1, "a share above 0 and up to 1"},
    NumberedChange{"saturation", &Augmentation::saturation, 1, "a share above 0 and up to 1"},
    NumberedChange{"mixup", &Augmentation::mixup, 1, "a number from 0.01 to 1", 0.01},
    NumberedChange{"smooth", &Augmentation::labelSmoothing, 0.99, "a share above 0 and up to 0.99"}};

bool isInRange(const NumberedChange& change, double value) {
  return value > 0 && value >= change.least && value <= change.most;
}
/// Behind which of them `flip` stands.
constexpr std::size_t changesBeforeFlip = 2;

mps::Error outOfRange(const NumberedChange& change, const std::string& number) {
  return {"augmentation", std::string(change.name), number, change.range};
}

mps::Error unknown(std::string_view text) {
  return mps::Error(
      "the augmentation \"" + std::string(text) +
      "\" is not known, expected none, or joined by + and in this order: crop[:SHARE], resized-crop:SHARE, "
      "flip, shift:SHARE, rotate:DEGREES, brightness:SHARE, contrast:SHARE, saturation:SHARE, mixup:NUMBER, "
      "smooth:SHARE");
}

/// Takes a part of the text where it is that change.
void take(const NumberedChange& change, std::string_view& part, Augmentation& augmentation) {
  if (!part.starts_with(change.name)) return;
  std::string_view number = part.substr(change.name.size());
  double& value = augmentation.*change.number;
  if (number.empty() && change.name == "crop") {
    value = Augmentation::usualCrop;
  } else {
    if (!number.starts_with(':')) return;
    number.remove_prefix(1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc{} || end != number.data() + number.size() || !isInRange(change, value))
      throw outOfRange(change, "\"" + std::string(part) + "\"");
  }
  part = {};
}

void checkOneCrop(const Augmentation& augmentation) {
  if (augmentation.crop > 0 && augmentation.resizedCrop > 0)
    throw mps::Error("augmentation: there is a crop and a resized-crop, expected one of them");
}

}  // namespace

Augmentation parseAugmentation(std::string_view text) {
  Augmentation augmentation;
  if (text == "none") return augmentation;
  std::string_view rest = text;
  std::string_view part;
  /// The next part, when the one before was taken.
  const auto advance = [&] {
    if (!part.empty() || rest.empty()) return;
    const std::size_t plus = rest.find('+');
    part = rest.substr(0, plus);
    if (part.empty() || plus + 1 == rest.size()) throw unknown(text);
    rest = plus == std::string_view::npos ? std::string_view() : rest.substr(plus + 1);
  };
  advance();
  if (part.empty()) throw unknown(text);
  for (std::size_t i = 0; i < numberedChanges.size(); ++i) {
    if (i == changesBeforeFlip && part == "flip") {
      augmentation.flip = true;
      part = {};
      advance();
    }
    take(numberedChanges[i], part, augmentation);
    advance();
  }
  if (!part.empty()) throw unknown(text);
  checkOneCrop(augmentation);
  return augmentation;
}

std::string nameOf(const Augmentation& augmentation) {
  std::string name;
  const auto append = [&](const std::string& part) { name += (name.empty() ? "" : "+") + part; };
  for (std::size_t i = 0; i < numberedChanges.size(); ++i) {
    if (i == changesBeforeFlip && augmentation.flip) append("flip");
    const NumberedChange& change = numberedChanges[i];
    const double value = augmentation.*change.number;
    if (value == 0) continue;
    const bool isUsual = change.name == "crop" && value == Augmentation::usualCrop;
    append(std::string(change.name) + (isUsual ? "" : ":" + textOf(value)));
  }
  return name.empty() ? "none" : name;
}

void checkAugmentation(const Augmentation& augmentation, const Shape& pictures, const Shape& wanted) {
  for (const NumberedChange& change : numberedChanges)
    if (const double value = augmentation.*change.number; value != 0 && !isInRange(change, value))
      throw outOfRange(change, textOf(value));
  checkOneCrop(augmentation);
  const bool crops = augmentation.crop > 0 || augmentation.resizedCrop > 0;
  if (crops && (wanted.height > pictures.height || wanted.width > pictures.width))
    throw mps::Error("augmentation: a crop of " + describe(wanted) + " is larger than the pictures of " +
                     describe(pictures));
  if (augmentation.saturation > 0 && pictures.channels != 3)
    throw mps::Error("augmentation: saturation needs pictures of 3 channels, these are " +
                     describe(pictures));
}

Shape shapeForCrops(const Shape& pictures, double crop) {
  const auto larger = [crop](std::size_t side) {
    return side + static_cast<std::size_t>(static_cast<double>(side) * crop);
  };
  return {larger(pictures.height), larger(pictures.width), pictures.channels};
}

}  // namespace unmetal::train
