#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "tools/data/data.hpp"

namespace unmetal {

/// What `unmetal bench --data` times.
struct LoadingOptions {
  std::string data;
  DataOptions pictures;
  std::size_t batchSize = 64;
  std::size_t threads = 0;  ///< 0: as many as there are processors
};

/// Pictures that a training's loader makes in a second, while nothing else runs: read, decoded, augmented and put into batches, a
/// second of epochs at least. Pictures of a folder are decoded each time.
struct LoadingRate {
  double imagesPerSecond = 0;
  std::size_t threads = 0;
};
LoadingRate measureLoading(const LoadingOptions& options);

}  // namespace unmetal
