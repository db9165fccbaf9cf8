#pragma once

#include "tools/data/dataset.hpp"

namespace unmetal {

/// 4096 training or 1024 test pictures of 28 x 28 x 1 in 10 classes that a net learns within a few steps: a
/// bright square on noise, at a place that tells the class. The same pictures on every machine and in every
/// call.
Dataset makeSyntheticDataset(Split split);

}  // namespace unmetal
