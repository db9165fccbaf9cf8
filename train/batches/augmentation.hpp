#pragma once

#include <string>
#include <string_view>

#include "train/data/shape.hpp"

namespace unmetal::train {

/// How each epoch changes the pictures that it learns from; nothing unless it is said here.
///
///     trainer = Trainer(network, {.augmentation = {.flip = true, .rotate = 10}});
///
/// What is drawn at random is a function of the trainer's seed, the epoch and the number of the picture in its data set: the
/// same in any batch, on any number of threads. Changes are made in the order of the table; where a picture is turned or
/// moved, what comes in from outside repeats its outermost pixels. Pictures of bytes are rounded to bytes again. v is drawn
/// evenly from the range.
///
/// | text | field | change |
/// |---|---|---|
/// | `crop`, `crop:S` | crop | a part at a random place, of the size that the network takes, of pictures that are larger: by the share S (an eighth unless given), to which they are stretched, or as the data set has them |
/// | `resized-crop:A` | resizedCrop | a part at a random place, with a share v of the picture's area from A to 1 and sides in proportions of 3:4 to 4:3, stretched to the size that the network takes |
/// | `flip` | flip | half of the pictures are mirrored, left and right |
/// | `shift:S` | shift | moved along each side by a share v of it, from -S to S |
/// | `rotate:D` | rotate | turned about the middle by v degrees, from -D to D |
/// | `brightness:X` | brightness | values times v, from 1 - X to 1 + X |
/// | `contrast:X` | contrast | v x + (1 - v) m of values x, with the picture's mean m; v as above |
/// | `saturation:X` | saturation | v x + (1 - v) g of values x, with the pixel's grey g; v as above |
/// | `mixup:A` | mixup | each picture is mixed with another one of the data set, and so are their labels: shares v and 1 - v, drawn from a beta distribution of (A, A) |
/// | `smooth:E` | labelSmoothing | labels are smoothed: 1 - E + E / classes of a picture's class, E / classes of the others |
struct Augmentation {
  double crop = 0;         ///< 0: none; at most 1
  double resizedCrop = 0;  ///< 0: none; at most 1
  bool flip = false;
  double shift = 0;           ///< at most 1
  double rotate = 0;          ///< at most 180
  double brightness = 0;      ///< at most 1
  double contrast = 0;        ///< at most 1
  double saturation = 0;      ///< at most 1; of pictures with three channels
  double mixup = 0;           ///< 0: none; from 0.01 to 1
  double labelSmoothing = 0;  ///< at most 0.99

  /// Of `crop` without a number.
  static constexpr double usualCrop = 0.125;

  bool operator==(const Augmentation&) const = default;
};

/// The texts of the table, joined by "+" in its order: "crop+flip+rotate:10"; or "none".
/// @throws mps::Error in one sentence for another text and numbers out of their ranges
Augmentation parseAugmentation(std::string_view text);
/// The text that makes it.
std::string nameOf(const Augmentation& augmentation);

/// @param pictures of the data set @param wanted by the network
/// @throws mps::Error for numbers out of their ranges, two kinds of crop, a part that is larger than the pictures, and a
/// saturation of pictures without colours
void checkAugmentation(const Augmentation& augmentation, const Shape& pictures, const Shape& wanted);

/// What a crop is cut out of.
Shape shapeForCrops(const Shape& pictures, double crop = Augmentation::usualCrop);

}  // namespace unmetal::train
