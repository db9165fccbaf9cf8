#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "train/data/shape.hpp"

namespace unmetal::train {

/// Of a data set whose network is stored in a file, which has their names.
inline constexpr std::size_t mostClasses = 65536;

/// Pictures of one shape with a class each: what networks learn from.
///
/// Derive from it for pictures of your own, and load each where it lies:
///
///     class Bars : public unmetal::train::Dataset {
///      public:
///       Shape shape() const override { return {16, 16, 1}; }
///       std::size_t size() const override { return 1000; }
///       std::size_t classCount() const override { return 2; }
///       std::uint32_t load(std::size_t index, std::span<float> pixels) const override {
///         for (std::size_t i = 0; i < 16; ++i) pixels[index % 2 != 0 ? 16 * i + 5 : 80 + i] = 1;
///         return index % 2;
///       }
///     };
///
/// What it returns is checked when it is used: the sentence of a wrong class names picture and class.
class Dataset {
 public:
  virtual ~Dataset() = default;

  [[nodiscard]] virtual Shape shape() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual std::size_t classCount() const = 0;
  /// classCount() of them, for people. "0", "1", ...
  [[nodiscard]] virtual std::vector<std::string> classNames() const;
  /// Writes a picture: row by row, pixel by pixel, channel by channel. Values of about -1 to 1 learn well. Called by several
  /// threads at once, as const says, and for the same index in each epoch.
  /// @param pixels shape().count() numbers, all 0 at first @return the class, below classCount()
  virtual std::uint32_t load(std::size_t index, std::span<float> pixels) const = 0;
  /// Whether there is loadBytes(): a GPU gets a quarter of the bytes then.
  [[nodiscard]] virtual bool hasBytes() const { return false; }
  /// The picture of load() as bytes, of which 0 is 0.0 and 255 is 1.0.
  /// @param pixels shape().count() bytes @return the class @throws mps::Error where there are none
  virtual std::uint32_t loadBytes(std::size_t index, std::span<std::uint8_t> pixels) const;

 protected:
  /// load() of data sets with bytes.
  std::uint32_t loadFromBytes(std::size_t index, std::span<float> pixels) const;

  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset& operator=(Dataset&&) = default;
};

/// Pictures in memory.
class MemoryDataset : public Dataset {
 public:
  /// @param pixels     one picture after the other, each row by row, pixel by pixel, channel by channel (NHWC); of whole
  ///                   numbers 0 is 0.0 and 255 is 1.0
  /// @param labels     the class of each picture, from 0
  /// @param classNames of all classes; empty: as many as the labels have, named by their numbers, which a training refuses then
  ///                   where a class has no pictures
  /// @throws mps::Error for no pictures, lengths that disagree, a label without a class, a number that is not finite
  /// @{
  MemoryDataset(const Shape& shape, std::vector<float> pixels, std::vector<std::uint32_t> labels,
                std::vector<std::string> classNames = {});
  MemoryDataset(const Shape& shape, std::vector<std::uint8_t> pixels, std::vector<std::uint32_t> labels,
                std::vector<std::string> classNames = {});
  /// @}

  [[nodiscard]] Shape shape() const override { return shape_; }
  [[nodiscard]] std::size_t size() const override { return labels_.size(); }
  [[nodiscard]] std::size_t classCount() const override { return classNames_.size(); }
  [[nodiscard]] std::vector<std::string> classNames() const override { return classNames_; }
  std::uint32_t load(std::size_t index, std::span<float> pixels) const override;
  [[nodiscard]] bool hasBytes() const override { return !bytes_.empty(); }
  std::uint32_t loadBytes(std::size_t index, std::span<std::uint8_t> pixels) const override;

  [[nodiscard]] const std::vector<std::uint32_t>& labels() const { return labels_; }
  /// Whether it was told its classes, some of which may have no pictures.
  [[nodiscard]] bool hasGivenClasses() const { return hasGivenClasses_; }
  /// The pictures as they were given; the other one is empty.
  /// @{
  [[nodiscard]] const std::vector<float>& floats() const { return floats_; }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  /// @}

 private:
  void check(std::size_t pixelCount);

  Shape shape_;
  std::vector<float> floats_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint32_t> labels_;
  std::vector<std::string> classNames_;
  bool hasGivenClasses_ = true;
};

enum class Split { Training, Test };

/// Where Debian's package dataset-fashion-mnist puts the files.
inline constexpr const char* fashionMnistFolder = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28 x 28 x 1, 10 classes.
///
/// Reads `train-images-idx3-ubyte` and `train-labels-idx1-ubyte` (`t10k-...` for the test split) in `folder`, or the same names
/// with `.gz`. So it reads MNIST, too, whose files have these names; its classes are digits.
/// @throws mps::Error with one sentence that names the file when one is missing, damaged, of another shape, when images and
/// labels differ in number, or a label is not below 10
MemoryDataset fashionMnist(Split split, const std::filesystem::path& folder = fashionMnistFolder);

/// Pictures and labels in two files of the IDX format, plain or compressed by gzip. Pictures have one channel where the file has
/// three dimensions; the last one of four is the channels. @throws mps::Error as fashionMnist
MemoryDataset readIdxDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                             std::vector<std::string> classNames = {});

/// CIFAR-10: 50,000 training and 10,000 test pictures, 32 x 32 x 3, 10 classes, from the files of its binary version in `folder`:
/// `data_batch_1.bin` to `data_batch_5.bin`, or `test_batch.bin`. A file may have any number of pictures.
/// @throws mps::Error with one sentence that names the file when one is missing, does not divide into pictures, or a label is not
/// below 10
MemoryDataset cifar10(Split split, const std::filesystem::path& folder);

}  // namespace unmetal::train
