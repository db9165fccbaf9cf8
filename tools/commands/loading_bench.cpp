#include "tools/commands/loading_bench.hpp"

#include <algorithm>

#include "mtl/cpu/processors.hpp"
#include "tools/terminal/progress.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/batches/dataset_batches.hpp"

namespace unmetal {
namespace {

/// Seconds of an epoch.
double secondsOf(const train::Dataset& data, const train::BatchSource& source,
                 const train::BatchOptions& options) {
  const double begin = steadySeconds();
  train::BatchLoader loader(data.size(), source, options);
  for (train::Batch batch; loader.next(batch);) {
  }
  return steadySeconds() - begin;
}

}  // namespace

LoadingRate measureLoading(const LoadingOptions& options) {
  DataOptions pictures = options.pictures;
  pictures.memory = 0;
  const NamedData data = loadDataset(options.data, Split::Training, pictures);
  train::Shape shape = data.pictures->shape();
  if (isPictureFolder(options.data)) shape = pictures.size;
  train::BatchOptions batches;
  batches.batchSize = std::min(options.batchSize, data.pictures->size());
  batches.threads = options.threads;
  const train::BatchSource source = train::detail::sourceFrom(
      *data.pictures, {.format = data.pictures->hasBytes() ? mps::ImageFeatureChannelFormat::Unorm8
                                                           : mps::ImageFeatureChannelFormat::Float32,
                       .pictures = shape,
                       .augmentation = pictures.augmentation});
  double seconds = 0;
  std::size_t images = 0;
  constexpr double least = 1;
  while (seconds < least) {
    seconds += secondsOf(*data.pictures, source, batches);
    images += data.pictures->size() / batches.batchSize * batches.batchSize;
    ++batches.firstEpoch;
    ++batches.endEpoch;
  }
  return {static_cast<double>(images) / seconds,
          options.threads != 0 ? options.threads : static_cast<std::size_t>(mtl::cpu::defaultThreadCount())};
}

}  // namespace unmetal
