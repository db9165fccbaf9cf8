#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/loss/loss_numbers.hpp"
#include "mps/loss/loss_problem.hpp"

/// What one run of a loss on the CPU hands to its vector code: how the pixels are cut into items of work, and
/// the addresses and numbers of the run.
namespace mps::detail {

/// Elements that an item has at most, but for pixels with more channels: its float32 tiles stay in the first
/// cache, and so many are summed before the sum goes on in float64.
inline constexpr std::int64_t kLossTile = 1024;

/// Some pixels of one image, or all pixels of some images.
struct LossItem {
  std::int64_t firstImage = 0;
  std::int64_t images = 0;
  std::int64_t firstPixel = 0;
  std::int64_t pixels = 0;
};

/// How the work is cut. It depends on the shapes alone, hence so do the bits of all sums.
struct LossLayout {
  explicit LossLayout(const LossProblem& problem)
      : images(problem.predictions.images),
        pixelsPerImage(problem.predictions.height * problem.predictions.width),
        channels(problem.countedChannels) {
    const std::int64_t pixelsPerTile = std::max<std::int64_t>(1, kLossTile / channels);
    pixelsPerItem = std::min(pixelsPerImage, pixelsPerTile);
    itemsPerImage = (pixelsPerImage + pixelsPerItem - 1) / pixelsPerItem;
    imagesPerItem = itemsPerImage == 1 ? pixelsPerTile / pixelsPerImage : 1;
    items = (images + imagesPerItem - 1) / imagesPerItem * itemsPerImage;
  }

  [[nodiscard]] LossItem item(std::int64_t index) const {
    const std::int64_t firstImage = index / itemsPerImage * imagesPerItem;
    const std::int64_t firstPixel = index % itemsPerImage * pixelsPerItem;
    return {firstImage, std::min(imagesPerItem, images - firstImage), firstPixel,
            std::min(pixelsPerItem, pixelsPerImage - firstPixel)};
  }

  /// Pixels with more channels than a tile are taken in slices of channels, one pixel an item.
  [[nodiscard]] std::int64_t slices() const { return (channels + kLossTile - 1) / kLossTile; }

  /// All pixels of an item, with the channels of a slice.
  [[nodiscard]] Tile tile(const LossItem& item, std::int64_t slice) const {
    const std::int64_t firstChannel = slice * kLossTile;
    return {item.firstImage * pixelsPerImage + item.firstPixel, item.images * item.pixels, firstChannel,
            std::min(kLossTile, channels - firstChannel)};
  }

  std::int64_t images;
  std::int64_t pixelsPerImage;
  std::int64_t channels;
  std::int64_t imagesPerItem;
  std::int64_t pixelsPerItem;
  std::int64_t itemsPerImage;
  std::int64_t items;
};

/// The adjacent values of a tile; null where there is nothing or nothing is wanted.
struct LossRows {
  ConstFloatRun predictions;
  ConstFloatRun labels;
  ConstFloatRun weights;
  ConstFloatRun sourceGradient;  ///< of reduction None alone
  FloatRun gradient;
  FloatRun labelGradient;
  FloatRun loss;           ///< of reduction None alone
  bool wantsLoss = false;  ///< as values or as a sum
  /// Predictions, labels and gradient are float16, also where they are float32 here because they lie apart in memory: it is
  /// the tensors that say how exact exponentials are, not what else is in a tile.
  bool isHalf = false;
};

/// The images that share a tile, or the part of one that is in it.
struct LossImages {
  std::size_t count = 0;
  std::size_t elements = 0;              ///< of each image
  std::array<float, kLossTile> factors;  ///< of the derivatives: LossRun::factor
  std::array<float, kLossTile> sums;     ///< of w l
};

/// One run: addresses, numbers, and the partial results in scratch memory.
struct LossRun {
  const LossProblem& problem;  ///< tensors of one value per element have the counted channels alone
  const LossLayout& layout;
  LossNumbers numbers;
  double weight = 1;
  bool accumulate = false;

  const std::byte* predictions = nullptr;
  const std::byte* labels = nullptr;
  const std::byte* weights = nullptr;
  const std::byte* sourceGradient = nullptr;
  std::byte* gradient = nullptr;
  std::byte* loss = nullptr;
  std::byte* labelGradient = nullptr;

  double* sums = nullptr;          ///< of w l, per image and item
  std::int64_t* counts = nullptr;  ///< of weights that are not 0, likewise; null when nobody asks
  double* divisors = nullptr;      ///< per image

  [[nodiscard]] bool perElement() const { return problem.reductionType == CNNReductionType::None; }

  /// Where the share of an item's first image lies in sums and counts; those of its other images follow.
  [[nodiscard]] std::int64_t shareIndex(const LossItem& item) const {
    return item.firstImage * layout.itemsPerImage + item.firstPixel / layout.pixelsPerItem;
  }

  /// What every derivative of an image is multiplied with.
  [[nodiscard]] float factor(std::int64_t image) const {
    if (perElement()) return numbers.weight;
    double value = weight;
    if (problem.sourceGradient.channels > 0) value *= incomingGradient(problem.reduceAcrossBatch ? 0 : image);
    if (problem.divideGradient) {
      const double divisor = divisors[image];
      value = divisor == 0 ? 0 : value / divisor;
    }
    return static_cast<float>(value);
  }

 private:
  [[nodiscard]] double incomingGradient(std::int64_t image) const {
    return withElementType(problem.sourceGradient.format, [&](auto type) {
      const auto* values = reinterpret_cast<const decltype(type)*>(sourceGradient);
      return static_cast<double>(loadFloat(values + image * problem.sourceGradient.imageStride));
    });
  }
};

}  // namespace mps::detail
