#pragma once

#include "tools/data/dataset.hpp"

namespace unmetal {

/// 4096 training or 1024 test pictures in 10 classes that a net learns within a few steps: a bright square on noise,
/// at a place that tells the class. Of large pictures fewer, a quarter as many for tests: what fits into 64 MiB, at
/// least 256. The same pictures on every machine and in every call.
/// @param size at least four pixels in each direction
Dataset makeSyntheticDataset(Split split, const PictureSize& size);

}  // namespace unmetal
