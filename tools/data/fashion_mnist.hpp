#pragma once

#include <filesystem>

#include "tools/data/dataset.hpp"

namespace unmetal {

using train::fashionMnistFolder;

/// train::fashionMnist as the program keeps pictures.
Dataset loadFashionMnist(const std::filesystem::path& folder, Split split);

}  // namespace unmetal
