#include "tools/data/dataset.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "mps/core/error.hpp"
#include "tools/data/fashion_mnist.hpp"
#include "tools/data/picture_folder.hpp"
#include "tools/data/synthetic.hpp"
#include "tools/picture.hpp"
#include "tools/suggestion.hpp"
#include "tools/text.hpp"

namespace unmetal {
namespace {

constexpr std::string_view folderOf = "folder:";
/// A training picture is by this share of its size larger than what is cut out of it.
constexpr std::size_t cropDivisor = 8;

std::optional<std::string_view> after(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix) || text.size() == prefix.size()) return std::nullopt;
  return text.substr(prefix.size());
}

/// Stretches all pictures to a size from which parts can be cut out.
void enlargeForCrops(Dataset& data) {
  Dataset larger = data;
  larger.makeRoomForCrops();
  larger.images.clear();
  larger.images.reserve(data.count() * larger.storedSize());
  for (std::size_t i = 0; i < data.count(); ++i) {
    const auto image = data.image(i);
    const Picture picture{data.height, data.width, data.channels, {image.begin(), image.end()}};
    const Picture fitted = fitPicture(picture, larger.storedHeight(), larger.storedWidth(), data.channels);
    larger.images.insert(larger.images.end(), fitted.pixels.begin(), fitted.pixels.end());
  }
  data = std::move(larger);
}

Dataset load(std::string_view specification, Split split, const PictureFolderOptions& options) {
  if (specification == "synthetic") return makeSyntheticDataset(split, {28, 28, 1});
  if (const auto text = after("synthetic:", specification)) {
    const auto size = parsePictureSize(*text);
    if (!size)
      throw mps::Error(
          "the data set \"" + std::string(specification) +
          "\" has no pictures of that size, expected synthetic:" + std::string(expectedPictureSize));
    return makeSyntheticDataset(split, *size);
  }
  if (specification == "fashion-mnist") return loadFashionMnist(fashionMnistFolder, split);
  if (const auto folder = after("fashion-mnist:", specification)) return loadFashionMnist(*folder, split);
  if (const auto folder = after(folderOf, specification)) return loadPictureFolder(*folder, split, options);
  const std::vector<std::string> kinds{"fashion-mnist", "folder", "synthetic"};
  throw mps::Error(
      "the data set \"" + std::string(specification) +
      "\" is not known, expected fashion-mnist, fashion-mnist:FOLDER, folder:FOLDER, synthetic or "
      "synthetic:HxWxC" +
      suggestion(specification.substr(0, specification.find(':')), kinds));
}

}  // namespace

void Dataset::makeRoomForCrops() {
  moreRows = height / cropDivisor;
  moreColumns = width / cropDivisor;
}

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

std::optional<PictureSize> parsePictureSize(std::string_view text) {
  constexpr std::size_t leastSide = 8;
  constexpr std::size_t mostSide = 1024;
  constexpr std::size_t mostChannels = 4;
  PictureSize size;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  for (std::size_t* extent : {&size.height, &size.width, &size.channels}) {
    const auto [stopped, error] = std::from_chars(begin, end, *extent);
    if (error != std::errc{}) return std::nullopt;
    const bool isLast = extent == &size.channels;
    if (isLast ? stopped != end : stopped == end || *stopped != 'x') return std::nullopt;
    begin = stopped + 1;
  }
  const auto isSide = [](std::size_t side) { return side >= leastSide && side <= mostSide; };
  if (!isSide(size.height) || !isSide(size.width) || size.channels == 0 || size.channels > mostChannels)
    return std::nullopt;
  return size;
}

bool isPictureFolder(std::string_view specification) {
  return after(folderOf, specification).has_value();
}

Dataset loadDataset(std::string_view specification, Split split, const PictureFolderOptions& options) {
  // Else the first checkpoint would fail, whose settings are JSON.
  if (!isUtf8(specification))
    throw mps::Error("the data set \"" + std::string(specification) + "\" has a name that is not UTF-8");
  Dataset data = load(specification, split, options);
  if (split == Split::Test || isPictureFolder(specification)) return data;
  if (options.augmentation.crop) enlargeForCrops(data);
  data.mirrors = options.augmentation.flip;
  return data;
}

std::optional<std::string> firstOtherClass(std::span<const std::string> names,
                                           std::span<const std::string> others) {
  const auto [name, other] = std::ranges::mismatch(names, others);
  if (name != names.end() && other != others.end())
    return "class " + std::to_string(name - names.begin()) + " is \"" + *name + "\", not \"" + *other + "\"";
  if (names.size() != others.size())
    return "number of classes is " + std::to_string(names.size()) + ", not " + std::to_string(others.size());
  return std::nullopt;
}

}  // namespace unmetal
