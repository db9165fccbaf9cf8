#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "train/layers.hpp"

namespace unmetal::train {

/// How each epoch changes the pictures that it learns from: by seed, epoch and number of the picture alone.
struct Augmentation {
  /// A part at a random place of pictures that are an eighth larger than it.
  bool crop = false;
  /// Half of the pictures are mirrored, left and right.
  bool flip = false;

  bool operator==(const Augmentation&) const = default;
};

/// "none", "crop", "flip" or "crop+flip"; nothing for another text.
std::optional<Augmentation> parseAugmentation(std::string_view text);
std::string nameOf(const Augmentation& augmentation);

/// What a crop is cut out of: pictures that are larger by an eighth.
Shape shapeForCrops(const Shape& pictures);

}  // namespace unmetal::train
