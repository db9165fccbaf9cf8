#include "tools/data/fashion_mnist.hpp"

#include <algorithm>

#include "mps/core/error.hpp"
#include "tools/data/idx.hpp"

namespace unmetal {
namespace {

constexpr std::size_t extent = 28;

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

}  // namespace

Dataset loadFashionMnist(const std::filesystem::path& folder, Split split) {
  const std::string part = split == Split::Training ? "train" : "t10k";
  const std::filesystem::path imagesPath = findFile(folder, part + "-images-idx3-ubyte");
  const std::filesystem::path labelsPath = findFile(folder, part + "-labels-idx1-ubyte");
  Dataset data{"fashion-mnist", extent, extent, 1, {}, {}, {}};
  data.classNames = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                     "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

  IdxArray labels = readIdx(labelsPath);
  if (labels.shape.size() != 1) {
    throw mps::Error(labelsPath.string() + " has " + std::to_string(labels.shape.size()) +
                     " dimensions, expected one label for each image");
  }
  const auto isWrong = [&](std::uint8_t label) { return label >= data.classNames.size(); };
  if (const auto wrong = std::ranges::find_if(labels.values, isWrong); wrong != labels.values.end()) {
    throw mps::Error(labelsPath.string() + " has the label " + std::to_string(*wrong) + ", expected 0 to 9");
  }

  IdxArray images = readIdx(imagesPath);
  if (images.shape.size() != 3 || images.shape[1] != extent || images.shape[2] != extent) {
    throw mps::Error(imagesPath.string() + " does not hold images of 28 x 28 pixels");
  }
  if (images.shape[0] != labels.shape[0]) {
    throw mps::Error(imagesPath.string() + " has " + std::to_string(images.shape[0]) + " images, but " +
                     labelsPath.string() + " has " + std::to_string(labels.shape[0]) + " labels");
  }
  data.images = std::move(images.values);
  data.labels.assign(labels.values.begin(), labels.values.end());
  return data;
}

}  // namespace unmetal
