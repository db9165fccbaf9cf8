#include "train/data/dataset.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mps/core/types/error.hpp"
#include "train/data/idx.hpp"

namespace unmetal::train {
namespace {

std::vector<std::string> numbersTo(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

/// The plain file if there is one, else the compressed one.
std::filesystem::path findFile(const std::filesystem::path& folder, const std::string& name) {
  std::filesystem::path plain = folder / name;
  std::filesystem::path compressed = folder / (name + ".gz");
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) return plain;
  if (std::filesystem::exists(compressed, ignored)) return compressed;
  throw mps::Error(
      "cannot find " + compressed.string() +
      ": install Debian's package dataset-fashion-mnist or name the folder as fashion-mnist:FOLDER");
}

/// @param classes 0: as many as there are
std::vector<std::uint32_t> readLabels(const std::filesystem::path& path, std::size_t classes) {
  const IdxArray labels = readIdx(path);
  if (labels.shape.size() != 1)
    throw mps::Error(path.string() + " has " + std::to_string(labels.shape.size()) +
                     " dimensions, expected one label for each image");
  const auto isWrong = [&](std::uint8_t label) { return classes != 0 && label >= classes; };
  if (const auto wrong = std::ranges::find_if(labels.values, isWrong); wrong != labels.values.end())
    throw mps::Error(path.string() + " has the label " + std::to_string(*wrong) + ", expected 0 to " +
                     std::to_string(classes - 1));
  return {labels.values.begin(), labels.values.end()};
}

void checkCounts(const std::filesystem::path& images, std::uint64_t imageCount,
                 const std::filesystem::path& labels, std::size_t labelCount) {
  if (imageCount != labelCount)
    throw mps::Error(images.string() + " has " + std::to_string(imageCount) + " images, but " +
                     labels.string() + " has " + std::to_string(labelCount) + " labels");
}

}  // namespace

std::vector<std::string> Dataset::classNames() const {
  return numbersTo(classCount());
}

std::uint32_t Dataset::loadBytes(std::size_t /*index*/, std::span<std::uint8_t> /*pixels*/) const {
  throw mps::Error("data set: its pictures are no bytes; loadBytes() needs hasBytes()");
}

std::uint32_t Dataset::loadFromBytes(std::size_t index, std::span<float> pixels) const {
  std::vector<std::uint8_t> bytes(pixels.size());
  const std::uint32_t label = loadBytes(index, bytes);
  std::ranges::transform(bytes, pixels.begin(),
                         [](std::uint8_t value) { return static_cast<float>(value) / 255.0F; });
  return label;
}

MemoryDataset::MemoryDataset(const Shape& shape, std::vector<float> pixels, std::vector<std::uint32_t> labels,
                             std::vector<std::string> classNames)
    : shape_(shape),
      floats_(std::move(pixels)),
      labels_(std::move(labels)),
      classNames_(std::move(classNames)) {
  check(floats_.size());
  const auto wrong = std::ranges::find_if(floats_, [](float value) { return !std::isfinite(value); });
  if (wrong != floats_.end())
    throw mps::Error("MemoryDataset: picture " +
                     std::to_string(static_cast<std::size_t>(wrong - floats_.begin()) / shape_.count()) +
                     " has a number that is not finite");
}

MemoryDataset::MemoryDataset(const Shape& shape, std::vector<std::uint8_t> pixels,
                             std::vector<std::uint32_t> labels, std::vector<std::string> classNames)
    : shape_(shape),
      bytes_(std::move(pixels)),
      labels_(std::move(labels)),
      classNames_(std::move(classNames)) {
  check(bytes_.size());
}

void MemoryDataset::check(std::size_t pixelCount) {
  const auto [height, width, channels] = shape_;
  if (labels_.empty()) throw mps::Error("MemoryDataset", "labels", "empty", "one for each picture");
  // By division, as a product may be more than a number holds.
  const std::size_t each = pixelCount / labels_.size();
  const bool fits = pixelCount % labels_.size() == 0 && height != 0 && width != 0 && channels != 0 &&
                    each % height == 0 && each / height % width == 0 && each / height / width == channels;
  if (!fits)
    throw mps::Error("MemoryDataset", "number of pixels", std::to_string(pixelCount),
                     std::to_string(labels_.size()) + " pictures of " + describe(shape_));
  const std::uint32_t largest = *std::ranges::max_element(labels_);
  hasGivenClasses_ = !classNames_.empty();
  if (!hasGivenClasses_) classNames_ = numbersTo(std::size_t{largest} + 1);
  const auto isWrong = [&](std::uint32_t label) { return label >= classNames_.size(); };
  if (const auto wrong = std::ranges::find_if(labels_, isWrong); wrong != labels_.end())
    throw mps::Error("MemoryDataset", "label of picture " + std::to_string(wrong - labels_.begin()),
                     std::to_string(*wrong), "0 to " + std::to_string(classNames_.size() - 1));
}

std::uint32_t MemoryDataset::load(std::size_t index, std::span<float> pixels) const {
  if (hasBytes()) return loadFromBytes(index, pixels);
  const std::size_t count = shape_.count();
  std::ranges::copy(std::span(floats_).subspan(index * count, count), pixels.begin());
  return labels_[index];
}

std::uint32_t MemoryDataset::loadBytes(std::size_t index, std::span<std::uint8_t> pixels) const {
  if (!hasBytes()) return Dataset::loadBytes(index, pixels);
  const std::size_t count = shape_.count();
  std::ranges::copy(std::span(bytes_).subspan(index * count, count), pixels.begin());
  return labels_[index];
}

MemoryDataset fashionMnist(Split split, const std::filesystem::path& folder) {
  constexpr std::size_t extent = 28;
  const std::string part = split == Split::Training ? "train" : "t10k";
  const std::filesystem::path imagesPath = findFile(folder, part + "-images-idx3-ubyte");
  const std::filesystem::path labelsPath = findFile(folder, part + "-labels-idx1-ubyte");
  std::vector<std::string> names{"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                 "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  std::vector<std::uint32_t> labels = readLabels(labelsPath, names.size());
  IdxArray images = readIdx(imagesPath);
  if (images.shape.size() != 3 || images.shape[1] != extent || images.shape[2] != extent)
    throw mps::Error(imagesPath.string() + " does not hold images of 28 x 28 pixels");
  checkCounts(imagesPath, images.shape[0], labelsPath, labels.size());
  return {{extent, extent, 1}, std::move(images.values), std::move(labels), std::move(names)};
}

MemoryDataset readIdxDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                             std::vector<std::string> classNames) {
  std::vector<std::uint32_t> classes = readLabels(labels, classNames.size());
  IdxArray pictures = readIdx(images);
  if (pictures.shape.size() != 3 && pictures.shape.size() != 4)
    throw mps::Error(images.string() + " has " + std::to_string(pictures.shape.size()) +
                     " dimensions, expected 3 or 4 of pictures");
  checkCounts(images, pictures.shape[0], labels, classes.size());
  const auto extent = [&](std::size_t axis) {
    return axis < pictures.shape.size() ? static_cast<std::size_t>(pictures.shape[axis]) : 1;
  };
  return {{extent(1), extent(2), extent(3)},
          std::move(pictures.values),
          std::move(classes),
          std::move(classNames)};
}

}  // namespace unmetal::train
