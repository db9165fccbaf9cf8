#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "mps/core/types/types.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/data/dataset.hpp"
#include "train/data/normalization.hpp"

namespace unmetal::train {

Normalization Normalization::of(const Dataset& data) {
  const Shape shape = data.shape();
  BatchOptions options;
  options.batchSize = std::min<std::size_t>(256, std::max<std::size_t>(1, data.size()));
  options.lastBatch = LastBatch::Keep;
  options.shuffle = false;
  BatchLoader loader(data.size(), detail::sourceFrom(data, {mps::ImageFeatureChannelFormat::Float32, shape}),
                     options);
  std::vector<double> sums(shape.channels);
  std::vector<double> squares(shape.channels);
  for (Batch batch; loader.next(batch);) {
    std::vector<float> values(batch.images.size() / sizeof(float));
    std::memcpy(values.data(), batch.images.data(), batch.images.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      sums[i % shape.channels] += value;
      squares[i % shape.channels] += value * value;
    }
  }
  const double count = static_cast<double>(data.size()) * static_cast<double>(shape.height * shape.width);
  Normalization normalization;
  for (std::size_t channel = 0; channel < shape.channels; ++channel) {
    const double mean = sums[channel] / count;
    const auto deviation =
        static_cast<float>(std::sqrt(std::max(0.0, squares[channel] / count - mean * mean)));
    // What rounding leaves of equal values is no difference.
    constexpr float least = 1e-6F;
    normalization.mean.push_back(static_cast<float>(mean));
    normalization.deviation.push_back(deviation > least ? deviation : 1);
  }
  return normalization;
}

}  // namespace unmetal::train
