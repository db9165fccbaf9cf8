#pragma once

#include <cstdint>

#include "tools/data/dataset.hpp"
#include "train/batch_loader.hpp"

namespace unmetal {

using train::Batch;
using train::BatchFill;
using train::BatchLoader;
using train::BatchOptions;
using train::LastBatch;
using train::pictureFormat;
using train::shuffledOrder;

/// Copies from `data`, which must outlive the function: Unorm8 as it is, or Float32 as value / 255. Where the data set
/// says so, pictures are cut out at random places and mirrored: a function of seed, epoch and number alone.
/// Throws mps::Error for another format.
BatchFill fillFrom(const Dataset& data, mps::ImageFeatureChannelFormat format, std::uint64_t seed = 0);

}  // namespace unmetal
