#pragma once

#include "train/data/dataset.hpp"

namespace unmetal::train {

/// Generated pictures in 10 classes that a network learns within a few steps: a bright square on noise, at a place that
/// tells the class. For tests and benchmarks.
///
/// There are 4096 for training or 1024 for tests; of large pictures fewer, a quarter as many for tests: what fits into
/// 64 MiB, at least 256. The same pictures on every machine and in every call.
class SyntheticDataset : public MemoryDataset {
 public:
  /// @param shape sides from 4 to 16384, 1 to 1024 channels @throws mps::Error for another one
  explicit SyntheticDataset(Split split, const Shape& shape = {28, 28, 1});
};

}  // namespace unmetal::train
