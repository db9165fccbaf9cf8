#pragma once

#include <filesystem>

#include "tools/data/dataset.hpp"

namespace unmetal {

/// Where Debian's package dataset-fashion-mnist puts the files.
inline constexpr const char* fashionMnistFolder = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28 x 28 x 1, 10 classes.
///
/// Reads `train-images-idx3-ubyte` and `train-labels-idx1-ubyte` (`t10k-...` for the test split) in `folder`,
/// or the same names with `.gz`. Throws mps::Error with one sentence that names the file when one is missing,
/// damaged, of another shape, when images and labels differ in number, or a label is not below 10.
Dataset loadFashionMnist(const std::filesystem::path& folder, Split split);

}  // namespace unmetal
