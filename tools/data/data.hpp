#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/batches/augmentation.hpp"
#include "train/data/dataset.hpp"
#include "train/pictures/picture_folder.hpp"

namespace unmetal {

using train::Split;

/// The data set that a specification names.
struct NamedData {
  std::string name;
  std::unique_ptr<train::Dataset> pictures;
  /// Whether it was made up, for benchmarks and tests of any network.
  bool isGenerated = false;
  /// A sentence for each file that was left out.
  std::vector<std::string> leftOut = {};
  std::size_t threads = 0;  ///< that load them; 0: as many as there are processors
};

/// "HxWxC", e.g. "224x224x3": sides from 8 to 1024, 1 to 4 channels; nothing for another text.
std::optional<train::Shape> parsePictureSize(std::string_view text);
/// What it takes, for messages.
inline constexpr std::string_view expectedPictureSize =
    "HEIGHTxWIDTHxCHANNELS, sides from 8 to 1024 and 1 to 4 channels";

/// How pictures are read: all but `threads` and `augmentation` is about folders.
struct DataOptions {
  train::Shape size{64, 64, 3};                        ///< 1 channel (grey) or 3
  double validation = 0.2;                             ///< share of each class that is not learned from
  std::optional<std::uint64_t> memory = std::nullopt;  ///< of decoded pictures; unset: PictureFolder's own
  bool skipBad = false;     ///< whether what cannot be used is left out, not an error
  std::size_t threads = 0;  ///< that load pictures of any data set; 0: as many as there are processors
  train::Augmentation augmentation = {};  ///< of training pictures, whatever data set they are of
};

/// Makes or reads the data set that `specification` names; a path may have a slash at its end:
///
/// | specification | data |
/// |---|---|
/// | `fashion-mnist` | Fashion-MNIST from the folder of Debian's package dataset-fashion-mnist |
/// | `fashion-mnist:FOLDER` | the same, or MNIST itself, from another folder |
/// | `cifar-10:FOLDER` | CIFAR-10 from the files of its binary version |
/// | `folder:FOLDER` | pictures in one folder for each class, see train::PictureFolder |
/// | `synthetic` | generated pictures of the same size as Fashion-MNIST's, for benchmarks and tests |
/// | `synthetic:HxWxC` | generated pictures of that size, see parsePictureSize() |
///
/// For an augmentation that crops, training pictures of a folder are larger.
///
/// Throws mps::Error with one sentence that names the file or the argument.
NamedData loadDataset(std::string_view specification, Split split, const DataOptions& options = {});
/// Whether it names a folder of pictures.
bool isPictureFolder(std::string_view specification);

/// The first class whose name is another one, as `class 1 is "dog", not "wolf"` or `number of classes is 2, not 3`;
/// nothing when all are alike.
std::optional<std::string> firstOtherClass(std::span<const std::string> names,
                                           std::span<const std::string> others);

}  // namespace unmetal
