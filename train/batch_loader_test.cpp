#include "train/batch_loader.hpp"

#include <gtest/gtest.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "mps/core/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/dataset_batches.hpp"
#include "train/pictures/picture.hpp"

namespace unmetal::train::batch_loader_test {
namespace {

using mps::ImageFeatureChannelFormat;
using mps::detail::errorOf;
using Numbers = std::vector<std::uint32_t>;

/// `count` pictures of 1 x 2 x 1; picture i has the pixels i and 255 - i and the label i % 10.
MemoryDataset smallDataset(std::size_t count) {
  std::vector<std::uint8_t> pixels;
  Numbers labels;
  for (std::size_t i = 0; i < count; ++i) {
    pixels.push_back(static_cast<std::uint8_t>(i));
    pixels.push_back(static_cast<std::uint8_t>(255 - i));
    labels.push_back(static_cast<std::uint32_t>(i % 10));
  }
  return {{1, 2, 1}, std::move(pixels), std::move(labels)};
}

BatchFill plainFill(const Dataset& data, ImageFeatureChannelFormat format) {
  return detail::fillFrom(data, {format, data.shape()});
}

/// A fill function that keeps the numbers as the batch's "images".
BatchFill fillWithNumbers() {
  return [](std::span<const std::uint32_t> numbers, Batch& batch) {
    batch.images.resize(numbers.size_bytes());
    std::memcpy(batch.images.data(), numbers.data(), numbers.size_bytes());
    batch.labels.resize(numbers.size());
  };
}

Numbers numbersOf(const Batch& batch) {
  Numbers numbers(batch.images.size() / sizeof(std::uint32_t));
  std::memcpy(numbers.data(), batch.images.data(), batch.images.size());
  return numbers;
}

/// Everything that a loader hands out, in one list, with the number of batches.
std::pair<Numbers, int> allOf(std::size_t count, const BatchOptions& options) {
  BatchLoader loader(count, fillWithNumbers(), options);
  std::pair<Numbers, int> result;
  Batch batch;
  while (loader.next(batch)) {
    const Numbers numbers = numbersOf(batch);
    result.first.insert(result.first.end(), numbers.begin(), numbers.end());
    ++result.second;
  }
  return result;
}

TEST(ShuffledOrderTest, CheckValues) {
  EXPECT_EQ(shuffledOrder(10, 7, 0), (Numbers{7, 4, 3, 1, 8, 9, 0, 5, 6, 2}));
  EXPECT_EQ(shuffledOrder(10, 7, 1), (Numbers{6, 2, 5, 4, 1, 0, 9, 7, 3, 8}));
  EXPECT_EQ(shuffledOrder(10, 0x123456789ULL, 0), (Numbers{4, 5, 8, 7, 6, 3, 1, 0, 9, 2}));
  EXPECT_EQ(shuffledOrder(10, 7, std::uint64_t{1} << 32), (Numbers{1, 3, 9, 2, 5, 6, 7, 0, 4, 8}));
  EXPECT_EQ(shuffledOrder(1, 7, 0), Numbers{0});
  EXPECT_TRUE(shuffledOrder(0, 7, 0).empty());
}

TEST(ShuffledOrderTest, IsAPermutation) {
  Numbers order = shuffledOrder(1000, 3, 5);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  Numbers expected(1000);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(order, expected);
}

TEST(ShuffledOrderTest, EveryPlaceIsEquallyLikely) {
  constexpr std::size_t count = 5;
  constexpr int epochs = 10'000;
  std::array<std::array<int, count>, count> seen{};
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const Numbers order = shuffledOrder(count, 1, static_cast<std::uint64_t>(epoch));
    for (std::size_t place = 0; place < count; ++place) ++seen[place][order[place]];
  }
  // Expected 2000 with a standard deviation of 40.
  for (const auto& place : seen) {
    for (const int times : place) EXPECT_NEAR(times, 2000, 200);
  }
}

TEST(BatchLoaderTest, Float32IsThePixelOver255) {
  const MemoryDataset data = smallDataset(200);
  BatchLoader loader(data.size(), plainFill(data, ImageFeatureChannelFormat::Float32), {.batchSize = 50});
  Batch batch;
  std::set<int> seen;
  while (loader.next(batch)) {
    ASSERT_EQ(batch.count(), 50U);
    ASSERT_EQ(batch.images.size(), 50U * 2 * sizeof(float));
    for (std::size_t i = 0; i < batch.count(); ++i) {
      std::array<float, 2> pixels{};
      std::memcpy(pixels.data(), batch.images.data() + i * sizeof(pixels), sizeof(pixels));
      const int number = static_cast<int>(std::lround(pixels[0] * 255.0F));
      EXPECT_EQ(pixels[0], static_cast<float>(number) / 255.0F);
      EXPECT_EQ(pixels[1], static_cast<float>(255 - number) / 255.0F);
      EXPECT_EQ(batch.labels[i], number % 10);
      seen.insert(number);
    }
  }
  EXPECT_EQ(seen.size(), 200U);
}

TEST(BatchLoaderTest, Unorm8IsThePixel) {
  const MemoryDataset data = smallDataset(3);
  BatchLoader loader(data.size(), plainFill(data, ImageFeatureChannelFormat::Unorm8),
                     {.batchSize = 3, .shuffle = false});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.images, (std::vector<std::byte>{std::byte{0}, std::byte{255}, std::byte{1}, std::byte{254},
                                                  std::byte{2}, std::byte{253}}));
  EXPECT_EQ(batch.labels, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_FALSE(loader.next(batch));
  EXPECT_FALSE(loader.next(batch));
}

TEST(BatchLoaderTest, LastBatchDroppedOrKept) {
  const auto [dropped, droppedBatches] = allOf(10, {.batchSize = 4, .shuffle = false});
  EXPECT_EQ(dropped, (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(droppedBatches, 2);
  const auto [kept, keptBatches] =
      allOf(10, {.batchSize = 4, .lastBatch = LastBatch::Keep, .shuffle = false});
  EXPECT_EQ(kept, (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(keptBatches, 3);
  EXPECT_EQ(allOf(3, {.batchSize = 4, .lastBatch = LastBatch::Keep, .shuffle = false}).first,
            (Numbers{0, 1, 2}));
}

TEST(BatchLoaderTest, EpochsAreNumberedAndShuffledDifferently) {
  BatchLoader loader(8, fillWithNumbers(), {.batchSize = 4, .seed = 5, .endEpoch = 2});
  EXPECT_EQ(loader.batchesPerEpoch(), 2U);
  Batch batch;
  for (std::uint64_t step = 0; step < 4; ++step) {
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.epoch, step / 2);
    EXPECT_EQ(batch.index, step % 2);
    EXPECT_EQ(batch.isLastOfEpoch, step % 2 == 1);
    const Numbers order = shuffledOrder(8, 5, step / 2);
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(step % 2 * 4);
    EXPECT_EQ(numbersOf(batch), Numbers(begin, begin + 4));
  }
  EXPECT_FALSE(loader.next(batch));
}

TEST(BatchLoaderTest, GoesOnWhereAnotherStopped) {
  const BatchOptions whole{.batchSize = 3, .seed = 9, .endEpoch = 3};
  const Numbers all = allOf(20, whole).first;
  ASSERT_EQ(all.size(), 3U * 6 * 3);
  for (std::uint64_t step = 0; step <= 18; ++step) {
    BatchOptions rest = whole;
    rest.firstEpoch = step / 6;
    rest.firstBatch = step % 6;
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(step * 3);
    EXPECT_EQ(allOf(20, rest).first, Numbers(begin, all.end())) << "step " << step;
  }
  // The end of an epoch is the beginning of the next.
  BatchOptions rest = whole;
  rest.firstEpoch = 1;
  rest.firstBatch = 6;
  EXPECT_EQ(allOf(20, rest).first, Numbers(all.begin() + 36, all.end()));
}

TEST(BatchLoaderTest, MakesAtMostThreeAhead) {
  std::atomic<int> made = 0;
  BatchLoader loader(100,
                     [&](std::span<const std::uint32_t> numbers, Batch& batch) {
                       batch.labels.resize(numbers.size());
                       ++made;
                     },
                     {.batchSize = 1});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  while (made < 4) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 4);
}

TEST(BatchLoaderTest, MemoryIsUsedAgain) {
  const MemoryDataset data = smallDataset(100);
  BatchLoader loader(data.size(), plainFill(data, ImageFeatureChannelFormat::Float32),
                     {.batchSize = 10, .endEpoch = 20});
  std::set<const std::byte*> blocks;
  Batch batch;
  while (loader.next(batch)) blocks.insert(batch.images.data());
  EXPECT_LE(blocks.size(), 6U);
}

TEST(BatchLoaderTest, StopsBeforeTheEnd) {
  const MemoryDataset data = smallDataset(100);
  BatchOptions endless{.batchSize = 10};
  endless.endEpoch = std::numeric_limits<std::uint64_t>::max();
  for (int taken = 0; taken < 5; ++taken) {
    BatchLoader loader(data.size(), plainFill(data, ImageFeatureChannelFormat::Unorm8), endless);
    Batch batch;
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next(batch));
  }
}

TEST(BatchLoaderTest, ExceptionsComeOutAfterTheBatchesBefore) {
  const BatchFill fill = [](std::span<const std::uint32_t> numbers, Batch& batch) {
    if (numbers[0] == 2) throw std::runtime_error("picture 2 is lost");
    batch.labels.resize(numbers.size());
  };
  BatchLoader loader(5, fill, {.batchSize = 1, .shuffle = false});
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(errorOf<std::runtime_error>([&] { loader.next(batch); }), "picture 2 is lost");
  EXPECT_EQ(errorOf<std::runtime_error>([&] { loader.next(batch); }), "picture 2 is lost");
}

TEST(BatchLoaderTest, WrongOptions) {
  const auto errorFor = [](std::size_t count, const BatchOptions& options) {
    return errorOf<mps::Error>([&] { BatchLoader(count, fillWithNumbers(), options); });
  };
  EXPECT_EQ(errorFor(10, {.batchSize = 0}), "the batch size is 0, expected at least 1");
  EXPECT_EQ(errorFor(10, {.batchSize = 11}), "the batch size is 11, but the data set has only 10 images");
  EXPECT_EQ(errorFor(0, {.batchSize = 1, .lastBatch = LastBatch::Keep}),
            "the batch size is 1, but the data set has only 0 images");
  EXPECT_EQ(errorFor(10, {.batchSize = 2, .firstBatch = 6}), "there is no batch 6 in an epoch of 5");
  EXPECT_EQ(errorOf<mps::Error>([] { plainFill(smallDataset(1), ImageFeatureChannelFormat::Float16); }),
            "pictures are handed out as unorm8 or float32 only");
}

/// Pictures of 3 x 4 x 1, 12 n to 12 n + 11.
template <class Value>
MemoryDataset largerDataset() {
  std::vector<Value> pixels;
  for (std::uint8_t i = 0; i < 240; ++i) pixels.push_back(static_cast<Value>(i));
  return {{3, 4, 1}, std::move(pixels), Numbers(20)};
}

constexpr Augmentation cropAndFlip{.crop = true, .flip = true};

std::vector<int> pixelsOf(const Dataset& data, const Numbers& numbers, std::uint64_t epoch,
                          std::uint64_t seed, const Shape& shape, const Augmentation& augmentation) {
  Batch batch;
  batch.epoch = epoch;
  if (!data.hasBytes()) {
    detail::fillFrom(data, {ImageFeatureChannelFormat::Float32, shape, augmentation, seed})(numbers, batch);
    std::vector<float> values(batch.images.size() / sizeof(float));
    std::memcpy(values.data(), batch.images.data(), batch.images.size());
    return {values.begin(), values.end()};
  }
  detail::fillFrom(data, {ImageFeatureChannelFormat::Unorm8, shape, augmentation, seed})(numbers, batch);
  std::vector<int> pixels;
  for (const std::byte value : batch.images) pixels.push_back(std::to_integer<int>(value));
  return pixels;
}

std::vector<int> partsOf(const Dataset& data, const Numbers& numbers, std::uint64_t epoch,
                         std::uint64_t seed) {
  return pixelsOf(data, numbers, epoch, seed, {2, 2, 1}, cropAndFlip);
}

void expectOwnWayInEachEpoch(const Dataset& data) {
  std::set<std::vector<int>> found;
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
    const auto pixels = partsOf(data, {3}, epoch, 1);
    ASSERT_EQ(pixels.size(), 4U);
    found.insert(pixels);
    EXPECT_EQ(partsOf(data, {3}, epoch, 1), pixels) << "the same every time";
    const auto both = partsOf(data, {5, 3}, epoch, 1);
    EXPECT_EQ(std::vector<int>(both.begin() + 4, both.end()), pixels) << "whatever else is in the batch";
  }
  // 2 x 3 places, mirrored or not.
  std::set<std::vector<int>> expected;
  for (int top : {0, 1})
    for (int left : {0, 1, 2}) {
      const int first = 36 + 4 * top + left;
      expected.insert({first, first + 1, first + 4, first + 5});
      expected.insert({first + 1, first, first + 5, first + 4});
    }
  EXPECT_EQ(found, expected);
  int differing = 0;
  for (std::uint64_t epoch = 0; epoch < 100; ++epoch)
    if (partsOf(data, {3}, epoch, 1) != partsOf(data, {3}, epoch, 2)) ++differing;
  EXPECT_GT(differing, 50) << "the seed decides";
}

TEST(FillTest, EachEpochCutsOutAndMirrorsInItsOwnWay) {
  expectOwnWayInEachEpoch(largerDataset<std::uint8_t>());
  expectOwnWayInEachEpoch(largerDataset<float>());
}

TEST(FillTest, MirrorsWholePixels) {
  const MemoryDataset data({1, 2, 3}, std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6}, {0});
  std::set<std::vector<int>> found;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch)
    found.insert(pixelsOf(data, {0}, epoch, 1, data.shape(), {.flip = true}));
  EXPECT_EQ(found, (std::set<std::vector<int>>{{1, 2, 3, 4, 5, 6}, {4, 5, 6, 1, 2, 3}}));
}

TEST(FillTest, CropsOfPicturesOfTheirSizeAreOfStretchedOnes) {
  std::vector<std::uint8_t> pixels(128);
  std::iota(pixels.begin(), pixels.begin() + 64, std::uint8_t{0});
  const MemoryDataset data({8, 8, 1}, pixels, {0, 0});
  ASSERT_EQ(shapeForCrops(data.shape()), (Shape{9, 9, 1}));
  const Picture larger =
      fitPicture({8, 8, 1, std::vector<std::uint8_t>(pixels.begin(), pixels.begin() + 64)}, 9, 9, 1);
  std::set<std::vector<int>> expected;
  for (std::size_t top : {0, 1})
    for (std::size_t left : {0, 1}) {
      std::vector<int> part;
      for (std::size_t i = 0; i < 64; ++i) part.push_back(larger.pixels[(top + i / 8) * 9 + left + i % 8]);
      expected.insert(part);
    }
  std::set<std::vector<int>> found;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch)
    found.insert(pixelsOf(data, {0}, epoch, 1, data.shape(), {.crop = true}));
  EXPECT_EQ(found, expected);
}

TEST(FillTest, WrongClassesAndNumbersAreNamed) {
  class Wrong : public Dataset {
   public:
    explicit Wrong(bool hasNan) : hasNan_(hasNan) {}
    [[nodiscard]] Shape shape() const override { return {1, 1, 1}; }
    [[nodiscard]] std::size_t size() const override { return 3; }
    [[nodiscard]] std::size_t classCount() const override { return 2; }
    std::uint32_t load(std::size_t index, std::span<float> pixels) const override {
      if (hasNan_) pixels[0] = std::nanf("");
      return static_cast<std::uint32_t>(index);
    }

   private:
    bool hasNan_;
  };
  const auto trouble = [](bool hasNan) {
    const Wrong data(hasNan);
    return errorOf<mps::Error>([&] {
      Batch batch;
      plainFill(data, ImageFeatureChannelFormat::Float32)(Numbers{0, 1, 2}, batch);
    });
  };
  EXPECT_EQ(trouble(false), "data set: class of picture 2 is 2, expected 0 to 1");
  EXPECT_EQ(trouble(true), "data set: picture 0 has a number that is not finite");
  std::vector<std::uint8_t> bytes(1);
  EXPECT_EQ(errorOf<mps::Error>([&] { Wrong(false).loadBytes(0, bytes); }),
            "data set: its pictures are no bytes; loadBytes() needs hasBytes()");
}

}  // namespace
}  // namespace unmetal::train::batch_loader_test
