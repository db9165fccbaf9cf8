#include "train/augmentation.hpp"

namespace unmetal::train {

std::optional<Augmentation> parseAugmentation(std::string_view text) {
  for (const bool crop : {false, true})
    for (const bool flip : {false, true})
      if (const Augmentation augmentation{crop, flip}; nameOf(augmentation) == text) return augmentation;
  return std::nullopt;
}

std::string nameOf(const Augmentation& augmentation) {
  if (augmentation.crop && augmentation.flip) return "crop+flip";
  if (augmentation.crop) return "crop";
  return augmentation.flip ? "flip" : "none";
}

Shape shapeForCrops(const Shape& pictures) {
  constexpr std::size_t divisor = 8;
  return {pictures.height + pictures.height / divisor, pictures.width + pictures.width / divisor,
          pictures.channels};
}

}  // namespace unmetal::train
