#include "train/batches/augmented_pictures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/batches/dataset_batches.hpp"

namespace unmetal::train::augmented_pictures_test {
namespace {

using detail::AugmentedPictures;
using mps::detail::errorOf;

/// 12 pictures of noise with colours.
template <class Value>
MemoryDataset noise(const Shape& shape) {
  std::vector<Value> pixels;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < 12 * shape.count(); ++i) {
    state = state * 1664525U + 1013904223U;
    pixels.push_back(
        static_cast<Value>(static_cast<float>(state >> 24) / (sizeof(Value) == 1 ? 1.0F : 255.0F)));
  }
  return {shape, std::move(pixels), {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}};
}

constexpr Augmentation everything{.resizedCrop = 0.3,
                                  .flip = true,
                                  .shift = 0.1,
                                  .rotate = 20,
                                  .brightness = 0.4,
                                  .contrast = 0.4,
                                  .saturation = 0.4,
                                  .mixup = 0.5};

std::vector<Batch> batchesWith(const Dataset& data, const Augmentation& augmentation, std::uint64_t seed,
                               const BatchOptions& options) {
  BatchLoader loader(
      data.size(),
      detail::sourceFrom(data, {mps::ImageFeatureChannelFormat::Float32, {6, 7, 3}, augmentation, seed}),
      options);
  std::vector<Batch> batches;
  for (Batch batch; loader.next(batch);) batches.push_back(batch);
  return batches;
}

TEST(AugmentedPictures, DependOnSeedEpochAndNumberAlone) {
  const MemoryDataset data = noise<std::uint8_t>({8, 9, 3});
  const BatchOptions options{.batchSize = 4, .seed = 7, .endEpoch = 3, .threads = 1};
  const std::vector<Batch> one = batchesWith(data, everything, 5, options);
  ASSERT_EQ(one.size(), 9U);
  for (const std::size_t threads : {2U, 8U}) {
    BatchOptions more = options;
    more.threads = threads;
    const std::vector<Batch> others = batchesWith(data, everything, 5, more);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(others[i].images, one[i].images);
  }
  ASSERT_EQ(one[0].others.size(), 4U);
  // As another rank or a resumed training would see it.
  BatchOptions later = options;
  later.firstEpoch = 2;
  later.firstBatch = 1;
  EXPECT_EQ(batchesWith(data, everything, 5, later)[0].images, one[7].images);
  EXPECT_NE(batchesWith(data, everything, 6, options)[0].images, one[0].images);
  const AugmentedPictures pictures(data, {6, 7, 3}, everything, 5);
  std::set<std::vector<std::uint8_t>> found;
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<std::uint8_t> pixels;
    EXPECT_EQ(pictures.load(6, epoch, pixels).label, 2U);
    EXPECT_EQ(pixels.size(), 6U * 7 * 3);
    found.insert(pixels);
  }
  EXPECT_EQ(found.size(), 20U);
}

TEST(AugmentedPictures, EachChangeChangesAndOfFloatsTheSame) {
  const Shape shape{6, 7, 3};
  const MemoryDataset bytes = noise<std::uint8_t>(shape);
  const MemoryDataset floats = noise<float>(shape);
  for (const Augmentation& augmentation :
       {Augmentation{.crop = 0.5}, Augmentation{.resizedCrop = 0.5}, Augmentation{.shift = 0.3},
        Augmentation{.rotate = 30}, Augmentation{.brightness = 0.2}, Augmentation{.contrast = 0.2},
        Augmentation{.saturation = 0.2}}) {
    SCOPED_TRACE(nameOf(augmentation));
    std::vector<std::uint8_t> before(shape.count());
    bytes.loadBytes(5, before);
    int changed = 0;
    int differing = 0;
    for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
      std::vector<std::uint8_t> rounded;
      std::vector<float> exact;
      AugmentedPictures(bytes, shape, augmentation, 3).load(5, epoch, rounded);
      AugmentedPictures(floats, shape, augmentation, 3).load(5, epoch, exact);
      if (rounded != before) ++changed;
      for (std::size_t i = 0; i < rounded.size(); ++i) {
        // Bytes end at 0 and 255.
        const float value = std::clamp(255 * exact[i], 0.0F, 255.0F);
        if (std::abs(value - static_cast<float>(rounded[i])) > 0.51F) ++differing;
      }
    }
    EXPECT_GE(changed, 6);
    EXPECT_EQ(differing, 0);
  }
}

TEST(AugmentedPictures, ChangesStayInTheirRanges) {
  // A ramp: its values tell where a pixel comes from.
  std::vector<float> ramp(100);
  for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i);
  const MemoryDataset data({1, 100, 1}, std::move(ramp), {0});
  std::vector<float> pixels;
  float least = 0;
  float most = 0;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    AugmentedPictures(data, data.shape(), {.shift = 0.2}, 1).load(0, epoch, pixels);
    least = std::min(least, pixels[50] - 50);
    most = std::max(most, pixels[50] - 50);
  }
  EXPECT_GE(least, -20);
  EXPECT_LT(least, -17);
  EXPECT_LE(most, 20);
  EXPECT_GT(most, 17);
}

TEST(AugmentedPictures, AMixtureHasTheSharesOfBothClasses) {
  // Picture i has the value i and the class i.
  constexpr std::uint32_t count = 10;
  std::vector<float> values(count);
  std::vector<std::uint32_t> labels(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    labels[i] = i;
    values[i] = static_cast<float>(i);
  }
  const MemoryDataset data({1, 1, 1}, std::move(values), std::move(labels));
  std::set<std::uint32_t> others;
  double sum = 0;
  constexpr int epochs = 400;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    std::vector<float> pixels;
    const PictureClass found = AugmentedPictures(data, {1, 1, 1}, {.mixup = 0.4}, 1).load(3, epoch, pixels);
    EXPECT_EQ(found.label, 3U);
    EXPECT_LE(found.other.share, 0.5F);
    EXPECT_NEAR(pixels[0], 3 + found.other.share * (static_cast<float>(found.other.label) - 3), 1e-5F);
    others.insert(found.other.label);
    sum += static_cast<double>(found.other.share);
  }
  EXPECT_EQ(others.size(), count);
  // The mean of min(v, 1 - v) for a beta distribution of (0.4, 0.4).
  EXPECT_NEAR(sum / epochs, 0.1603, 0.025);
}

TEST(AugmentedPictures, LargerPicturesNeedACrop) {
  const MemoryDataset data = noise<float>({8, 8, 3});
  EXPECT_EQ(errorOf<mps::Error>([&] {
              AugmentedPictures(data, {6, 6, 3}, {.flip = true}, 1);
            }),
            "data set: shape of a picture is 8x8x3, expected 6x6x3");
  EXPECT_EQ(errorOf<mps::Error>([&] {
              AugmentedPictures(data, {6, 9, 3}, {.crop = 0.1}, 1);
            }),
            "augmentation: a crop of 6x9x3 is larger than the pictures of 8x8x3");
}

}  // namespace
}  // namespace unmetal::train::augmented_pictures_test
