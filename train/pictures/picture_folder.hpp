#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/data/dataset.hpp"

namespace unmetal::train {

namespace detail {
class DecodedPictures;
}

/// How pictures of a folder are read.
struct PictureFolderOptions {
  Shape size{64, 64, 3};    ///< sides from 1 to 4096 and 1 channel (grey) or 3
  double validation = 0.2;  ///< share of each class that is not learned from, above 0 and below 1
  bool skipBad = false;     ///< whether what cannot be used is left out, not an error
  /// Bytes of decoded pictures that are kept; the others are decoded again whenever they are loaded, which gives the same bytes.
  /// Unset: half of the memory that this machine has, at most 2 GiB.
  std::optional<std::uint64_t> memory = std::nullopt;
  /// How many threads decode pictures when the object is made. 0: as many as there are processors for this process.
  std::size_t threads = 0;
  /// What messages call skipBad.
  std::string skipBadName = "skipBad";
};

/// A folder of pictures: PNG and JPEG files (names that end in .png, .jpg or .jpeg), one sub-folder for each class, with further
/// folders inside or not. Classes and files are in the order of their names; names that begin with a dot and files that are no
/// pictures are passed over.
///
/// Of each class every n-th picture, as many as the options say, is for validation (Split::Test). A folder that has `train` and
/// `val`, `validation` or `test` (the first of them that is there) and no other folder holds both sets apart, each with its
/// folders of classes; the share does not matter then.
///
/// Pictures cover the wanted size: they are scaled without distortion until both sides are long enough, and what sticks out is cut
/// off, as much on one side as on the other (coverPicture()). All are decoded once when the object is made, so that what cannot be
/// read is known before a training begins.
class PictureFolder : public Dataset {
 public:
  /// @throws mps::Error in one sentence for a folder without classes, and for what cannot be used: a damaged or empty picture, one
  /// of another kind (.gif, .webp, .bmp, .tif, .heic and such), one beside the class folders, folders more than 32 deep, folders
  /// of /proc and /sys, a class without pictures or with a name that is not UTF-8, a class of validation that training has not, a
  /// link to nothing, to a folder above it or to one that its class has already. With the option skipBad these are left out,
  /// each with a sentence in leftOut(). What is wrong with the folders, not with pictures, is looked at for Split::Training
  /// alone. And for options out of their ranges, and when no picture is left.
  PictureFolder(const std::filesystem::path& folder, Split split, const PictureFolderOptions& options = {});
  ~PictureFolder() override;
  PictureFolder(PictureFolder&&) noexcept;
  PictureFolder& operator=(PictureFolder&&) noexcept;

  [[nodiscard]] Shape shape() const override { return shape_; }
  [[nodiscard]] std::size_t size() const override { return labels_.size(); }
  [[nodiscard]] std::size_t classCount() const override { return classNames_.size(); }
  [[nodiscard]] std::vector<std::string> classNames() const override { return classNames_; }
  [[nodiscard]] bool hasBytes() const override { return true; }
  std::uint32_t load(std::size_t index, std::span<float> pixels) const override;
  /// @throws mps::Error for a picture that is not in memory, and can no longer be read
  std::uint32_t loadBytes(std::size_t index, std::span<std::uint8_t> pixels) const override;

  /// The file of a picture.
  [[nodiscard]] const std::filesystem::path& file(std::size_t index) const { return files_[index]; }
  /// The class of each picture.
  [[nodiscard]] const std::vector<std::uint32_t>& labels() const { return labels_; }
  /// How many pictures are kept decoded.
  [[nodiscard]] std::size_t sizeInMemory() const;
  /// A sentence for each thing that was left out.
  [[nodiscard]] const std::vector<std::string>& leftOut() const { return leftOut_; }

 private:
  Shape shape_;
  std::vector<std::string> classNames_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::uint32_t> labels_;
  std::vector<std::string> leftOut_;
  std::unique_ptr<detail::DecodedPictures> decoded_;
};

/// The PNG and JPEG files in a folder and in those inside it, by name. @throws mps::Error in one sentence for what a PictureFolder
/// would not take, and where there is none
std::vector<std::filesystem::path> picturesIn(const std::filesystem::path& folder);

}  // namespace unmetal::train
