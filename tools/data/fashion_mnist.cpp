#include "tools/data/fashion_mnist.hpp"

namespace unmetal {

Dataset loadFashionMnist(const std::filesystem::path& folder, Split split) {
  const train::MemoryDataset read = train::fashionMnist(split, folder);
  const auto [height, width, channels] = read.shape();
  Dataset data{"fashion-mnist", height, width, channels, read.bytes(), read.labels(), read.classNames()};
  return data;
}

}  // namespace unmetal
