#include "tools/data/data.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "mps/core/types/error.hpp"
#include "tools/terminal/suggestion.hpp"
#include "train/pictures/synthetic.hpp"
#include "train/text/utf8.hpp"

namespace unmetal {
namespace {

constexpr std::string_view folderOf = "folder:";

std::optional<std::string_view> after(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix) || text.size() == prefix.size()) return std::nullopt;
  return text.substr(prefix.size());
}

/// Without a slash at its end, which messages would repeat.
std::filesystem::path pathOf(std::string_view text) {
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  return text;
}

template <class Data>
NamedData named(std::string name, Data data) {
  return {std::move(name), std::make_unique<Data>(std::move(data))};
}

NamedData synthetic(Split split, const train::Shape& shape) {
  NamedData data = named("synthetic", train::SyntheticDataset(split, shape));
  data.isGenerated = true;
  return data;
}

/// Of training pictures: what is cut out of them is not enlarged, up to one and a half times their sides.
train::Shape storedSize(const DataOptions& options) {
  const train::Augmentation& augmentation = options.augmentation;
  if (augmentation.crop > 0) return train::shapeForCrops(options.size, augmentation.crop);
  if (augmentation.resizedCrop > 0)
    return train::shapeForCrops(options.size, std::min(0.5, 1 / std::sqrt(augmentation.resizedCrop) - 1));
  return options.size;
}

NamedData pictureFolder(const std::filesystem::path& folder, Split split, const DataOptions& options) {
  train::PictureFolderOptions pictures;
  pictures.size = options.size;
  if (split == Split::Training) pictures.size = storedSize(options);
  pictures.validation = options.validation;
  pictures.memory = options.memory;
  pictures.threads = options.threads;
  pictures.skipBad = options.skipBad;
  pictures.skipBadName = "--skip-bad";
  train::PictureFolder read(folder, split, pictures);
  std::vector<std::string> leftOut = read.leftOut();
  NamedData data = named("folder:" + folder.string(), std::move(read));
  data.leftOut = std::move(leftOut);
  return data;
}

}  // namespace

std::optional<train::Shape> parsePictureSize(std::string_view text) {
  constexpr std::size_t leastSide = 8;
  constexpr std::size_t mostSide = 1024;
  constexpr std::size_t mostChannels = 4;
  train::Shape size;
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

namespace {

NamedData read(std::string_view specification, Split split, const DataOptions& options) {
  // Else the first checkpoint would fail, whose settings are JSON.
  if (!train::detail::isUtf8(specification))
    throw mps::Error("the data set \"" + std::string(specification) + "\" has a name that is not UTF-8");
  if (specification == "synthetic") return synthetic(split, {28, 28, 1});
  if (const auto text = after("synthetic:", specification)) {
    const auto size = parsePictureSize(*text);
    if (!size)
      throw mps::Error(
          "the data set \"" + std::string(specification) +
          "\" has no pictures of that size, expected synthetic:" + std::string(expectedPictureSize));
    return synthetic(split, *size);
  }
  if (specification == "fashion-mnist") return named("fashion-mnist", train::fashionMnist(split));
  if (const auto folder = after("fashion-mnist:", specification))
    return named("fashion-mnist", train::fashionMnist(split, pathOf(*folder)));
  if (const auto folder = after("cifar-10:", specification))
    return named("cifar-10", train::cifar10(split, pathOf(*folder)));
  if (const auto folder = after(folderOf, specification))
    return pictureFolder(pathOf(*folder), split, options);
  const std::vector<std::string> kinds{"cifar-10", "fashion-mnist", "folder", "synthetic"};
  throw mps::Error(
      "the data set \"" + std::string(specification) +
      "\" is not known, expected fashion-mnist, fashion-mnist:FOLDER, cifar-10:FOLDER, folder:FOLDER, "
      "synthetic or synthetic:HxWxC" +
      suggestion(specification.substr(0, specification.find(':')), kinds));
}

}  // namespace

NamedData loadDataset(std::string_view specification, Split split, const DataOptions& options) {
  NamedData data = read(specification, split, options);
  data.threads = options.threads;
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
