#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/dataset.hpp"

namespace unmetal {

/// How each epoch changes the pictures that it learns from.
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

/// Of a data set; a checkpoint stores their names.
inline constexpr std::size_t mostClasses = 65536;

/// Labelled pictures, all of one size, in memory.
struct Dataset {
  std::string name;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;
  /// One picture after the other, each storedHeight() x storedWidth() x channels, 0 is black and 255 is 1.0.
  std::vector<std::uint8_t> images;
  /// Class of each picture, an index into classNames.
  std::vector<std::uint32_t> labels;
  std::vector<std::string> classNames;
  /// Rows and columns beyond height and width: each epoch cuts the picture out at another place.
  std::size_t moreRows = 0;
  std::size_t moreColumns = 0;
  /// Whether half of the pictures of an epoch are mirrored, left and right.
  bool mirrors = false;
  /// Whether it was made up, for benchmarks and tests of any network.
  bool isGenerated = false;
  /// A sentence for each file that was left out.
  std::vector<std::string> leftOut = {};

  /// Sets moreRows and moreColumns to an eighth, before there are images.
  void makeRoomForCrops();
  std::size_t count() const { return labels.size(); }
  std::size_t imageSize() const { return height * width * channels; }
  std::size_t storedHeight() const { return height + moreRows; }
  std::size_t storedWidth() const { return width + moreColumns; }
  std::size_t storedSize() const { return storedHeight() * storedWidth() * channels; }
  std::span<const std::uint8_t> image(std::size_t index) const {
    return std::span(images).subspan(index * storedSize(), storedSize());
  }
};

using train::Split;

/// Extent of a picture.
struct PictureSize {
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;
};

/// "HxWxC", e.g. "224x224x3": sides from 8 to 1024, 1 to 4 channels; nothing for another text.
std::optional<PictureSize> parsePictureSize(std::string_view text);
/// What it takes, for messages.
inline constexpr std::string_view expectedPictureSize =
    "HEIGHTxWIDTHxCHANNELS, sides from 8 to 1024 and 1 to 4 channels";

/// How pictures are read: all but `augmentation` is about folders.
struct PictureFolderOptions {
  PictureSize size{64, 64, 3};  ///< 1 channel (grey) or 3
  double validation = 0.2;      ///< share of each class that is not learned from, above 0 and below 1
  bool skipBad = false;         ///< whether what cannot be used is left out, not an error
  Augmentation augmentation;    ///< of training pictures, whatever data set they are of
};

/// Makes or reads the data set that `specification` names:
///
/// | specification | data |
/// |---|---|
/// | `fashion-mnist` | Fashion-MNIST from the folder of Debian's package dataset-fashion-mnist |
/// | `fashion-mnist:FOLDER` | the same, or MNIST itself, from another folder |
/// | `folder:FOLDER` | pictures in one folder for each class, see loadPictureFolder() |
/// | `synthetic` | generated pictures of the same size as Fashion-MNIST's, for benchmarks and tests |
/// | `synthetic:HxWxC` | generated pictures of that size, see parsePictureSize() |
///
/// With augmentation, training pictures are a random part of larger ones or mirrored, in each epoch in another way
/// (fillFrom()). Pictures of a folder are made to cover the larger size, those of the others are stretched to it.
///
/// Throws mps::Error with one sentence that names the file or the argument.
Dataset loadDataset(std::string_view specification, Split split, const PictureFolderOptions& options = {});
/// Whether it names a folder of pictures.
bool isPictureFolder(std::string_view specification);

/// The first class whose name is another one, as `class 1 is "dog", not "wolf"` or `number of classes is 2, not 3`;
/// nothing when all are alike.
std::optional<std::string> firstOtherClass(std::span<const std::string> names,
                                           std::span<const std::string> others);

}  // namespace unmetal
