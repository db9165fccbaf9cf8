#include "train/batches/batch_loader.hpp"

#include <gtest/gtest.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/batches/dataset_batches.hpp"
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

BatchSource plainSource(const Dataset& data, ImageFeatureChannelFormat format) {
  return detail::sourceFrom(data, {format, data.shape()});
}

/// The "pictures" are their numbers.
BatchSource numbersSource() {
  return {sizeof(std::uint32_t),
          [](std::uint32_t number, std::uint64_t /*epoch*/, std::span<std::byte> picture) {
            std::memcpy(picture.data(), &number, sizeof number);
            return number;
          }};
}

Numbers numbersOf(const Batch& batch) {
  Numbers numbers(batch.images.size() / sizeof(std::uint32_t));
  std::memcpy(numbers.data(), batch.images.data(), batch.images.size());
  return numbers;
}

/// Everything that a loader hands out, in one list, with the number of batches.
std::pair<Numbers, int> allOf(std::size_t count, const BatchOptions& options) {
  BatchLoader loader(count, numbersSource(), options);
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
  BatchLoader loader(data.size(), plainSource(data, ImageFeatureChannelFormat::Float32), {.batchSize = 50});
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
  BatchLoader loader(data.size(), plainSource(data, ImageFeatureChannelFormat::Unorm8),
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
  BatchLoader loader(8, numbersSource(), {.batchSize = 4, .seed = 5, .endEpoch = 2});
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
  for (const std::size_t threads : {1U, 8U}) {
    std::atomic<int> made = 0;
    BatchLoader loader(
        100,
        {1,
         [&](std::uint32_t /*number*/, std::uint64_t /*epoch*/, std::span<std::byte> /*picture*/) {
           ++made;
           return 0U;
         }},
        {.batchSize = 1, .threads = threads});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    while (made < 4) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(made, 4);
  }
}

/// Pictures large enough that threads share a batch, and some that take their time.
BatchSource slowSource() {
  constexpr std::size_t pictureBytes = std::size_t{1} << 15;
  return {pictureBytes, [](std::uint32_t number, std::uint64_t epoch, std::span<std::byte> picture) {
            if (number % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
            std::ranges::fill(picture, static_cast<std::byte>(number + 7 * epoch));
            return number;
          }};
}

TEST(BatchLoaderTest, BytesDoNotDependOnTheNumberOfThreads) {
  const auto allWith = [](std::size_t threads) {
    BatchLoader loader(
        50, slowSource(),
        {.batchSize = 7, .lastBatch = LastBatch::Keep, .seed = 3, .endEpoch = 2, .threads = threads});
    std::vector<Batch> batches;
    for (Batch batch; loader.next(batch);) batches.push_back(batch);
    return batches;
  };
  const std::vector<Batch> one = allWith(1);
  ASSERT_EQ(one.size(), 16U);
  for (const std::size_t threads : {2U, 8U, 100U}) {
    const std::vector<Batch> others = allWith(threads);
    ASSERT_EQ(others.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(others[i].epoch, one[i].epoch);
      EXPECT_EQ(others[i].index, one[i].index);
      EXPECT_EQ(others[i].isLastOfEpoch, one[i].isLastOfEpoch);
      EXPECT_EQ(others[i].labels, one[i].labels);
      EXPECT_EQ(others[i].images, one[i].images);
    }
  }
}

TEST(BatchLoaderTest, SeveralThreadsWriteABatch) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const BatchSource slow = slowSource();
  BatchLoader loader(40,
                     {slow.pictureBytes,
                      [&](std::uint32_t number, std::uint64_t epoch, std::span<std::byte> picture) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(2));
                        const std::lock_guard lock(mutex);
                        threads.insert(std::this_thread::get_id());
                        return slow.write(number, epoch, picture);
                      }},
                     {.batchSize = 40, .threads = 4});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(threads.size(), 4U);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(BatchLoaderTest, MemoryIsUsedAgain) {
  const MemoryDataset data = smallDataset(100);
  BatchLoader loader(data.size(), plainSource(data, ImageFeatureChannelFormat::Float32),
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
    BatchLoader loader(data.size(), plainSource(data, ImageFeatureChannelFormat::Unorm8), endless);
    Batch batch;
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(loader.next(batch));
  }
}

/// Which picture's exception comes out of a loader, after how many batches.
std::pair<std::string, int> failureOf(const std::set<std::uint32_t>& lost, const BatchOptions& options) {
  constexpr std::size_t pictureBytes = std::size_t{1} << 15;
  BatchLoader loader(40,
                     {pictureBytes,
                      [&](std::uint32_t number, std::uint64_t /*epoch*/, std::span<std::byte> /*picture*/) {
                        if (!lost.contains(number)) return number;
                        // The first of them is the slowest.
                        if (number == *lost.begin())
                          std::this_thread::sleep_for(std::chrono::milliseconds(5));
                        throw std::runtime_error("picture " + std::to_string(number) + " is lost");
                      }},
                     options);
  Batch batch;
  int batches = 0;
  const auto takeAll = [&] {
    while (loader.next(batch)) ++batches;
  };
  const std::string failure = errorOf<std::runtime_error>(takeAll);
  EXPECT_EQ(errorOf<std::runtime_error>(takeAll), failure) << "again in later calls";
  return {failure, batches};
}

TEST(BatchLoaderTest, ExceptionsComeOutAfterTheBatchesBefore) {
  for (const std::size_t threads : {1U, 2U, 8U}) {
    const BatchOptions single{.batchSize = 1, .shuffle = false, .threads = threads};
    EXPECT_EQ(failureOf({2, 3, 4}, single), std::pair(std::string("picture 2 is lost"), 2));
    const BatchOptions ten{.batchSize = 10, .shuffle = false, .threads = threads};
    EXPECT_EQ(failureOf({13, 14, 15, 18, 21}, ten), std::pair(std::string("picture 13 is lost"), 1));
  }
}

TEST(BatchLoaderTest, WrongOptions) {
  const auto errorFor = [](std::size_t count, const BatchOptions& options) {
    return errorOf<mps::Error>([&] { BatchLoader(count, numbersSource(), options); });
  };
  EXPECT_EQ(errorFor(10, {.batchSize = 0}), "the batch size is 0, expected at least 1");
  EXPECT_EQ(errorFor(10, {.batchSize = 11}), "the batch size is 11, but the data set has only 10 images");
  EXPECT_EQ(errorFor(0, {.batchSize = 1, .lastBatch = LastBatch::Keep}),
            "the batch size is 1, but the data set has only 0 images");
  EXPECT_EQ(errorFor(10, {.batchSize = 2, .firstBatch = 6}), "there is no batch 6 in an epoch of 5");
  EXPECT_EQ(errorOf<mps::Error>([] { plainSource(smallDataset(1), ImageFeatureChannelFormat::Float16); }),
            "pictures are handed out as unorm8 or float32 only");
}

/// Pictures of 3 x 4 x 1, 12 n to 12 n + 11.
template <class Value>
MemoryDataset largerDataset() {
  std::vector<Value> pixels;
  for (std::uint8_t i = 0; i < 240; ++i) pixels.push_back(static_cast<Value>(i));
  return {{3, 4, 1}, std::move(pixels), Numbers(20)};
}

constexpr Augmentation cropAndFlip{.crop = 0.125, .flip = true};

std::vector<int> pixelsOf(const Dataset& data, const Numbers& numbers, std::uint64_t epoch,
                          std::uint64_t seed, const Shape& shape, const Augmentation& augmentation) {
  Batch batch;
  batch.epoch = epoch;
  if (!data.hasBytes()) {
    fillBatch(detail::sourceFrom(data, {ImageFeatureChannelFormat::Float32, shape, augmentation, seed}),
              numbers, batch);
    std::vector<float> values(batch.images.size() / sizeof(float));
    std::memcpy(values.data(), batch.images.data(), batch.images.size());
    return {values.begin(), values.end()};
  }
  fillBatch(detail::sourceFrom(data, {ImageFeatureChannelFormat::Unorm8, shape, augmentation, seed}), numbers,
            batch);
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
  for (const std::size_t top : {std::size_t{0}, std::size_t{1}})
    for (const std::size_t left : {std::size_t{0}, std::size_t{1}}) {
      std::vector<int> part;
      for (std::size_t i = 0; i < 64; ++i) part.push_back(larger.pixels[(top + i / 8) * 9 + left + i % 8]);
      expected.insert(part);
    }
  std::set<std::vector<int>> found;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch)
    found.insert(pixelsOf(data, {0}, epoch, 1, data.shape(), {.crop = 0.125}));
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
      fillBatch(plainSource(data, ImageFeatureChannelFormat::Float32), Numbers{0, 1, 2}, batch);
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
