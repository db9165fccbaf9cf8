#include "mps/core/image/image_batch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "mps/core/image/image_storage.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/memory.hpp"

namespace mps::image_batch_test {
namespace {

using testing::channelsFirst;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::pixelsFirst;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

constexpr std::int64_t goOn = std::numeric_limits<std::int64_t>::min();

class ImageBatchTest : public testing::DeviceTest {
 protected:
  static Values valuesOfBatch(const ImageBatch& batch) {
    Values values(testing::elementsOf(batch.descriptor()) * batch.count());
    batch.readBytes(std::span(values), pixelsFirst);
    return values;
  }
};

TEST_F(ImageBatchTest, OneBlockIsWrittenAndReadInOneCopy) {
  const auto batch = this->batch(sizeOf(2, 2, 3), 3, counted(36));
  EXPECT_EQ(batch.count(), 3U);
  EXPECT_FALSE(batch.empty());
  EXPECT_EQ(valuesOfBatch(batch), counted(36));
  EXPECT_EQ(valuesOf(*batch[1]), counted(12, 13));
  Values planes(36);
  batch.readBytes(std::span(planes), channelsFirst);
  EXPECT_EQ(planes[0], 1);
  EXPECT_EQ(planes[1], 4);
  EXPECT_EQ(planes[12], 13);
  const auto other = ImageBatch::create(device_, sizeOf(2, 2, 3), 3);
  other.writeBytes(std::span(planes), channelsFirst);
  EXPECT_EQ(valuesOfBatch(other), counted(36));
}

TEST_F(ImageBatchTest, WhatIsInvalidCannotBeReadNorWhatIsPrivateReadOrWritten) {
  const auto batch = this->batch(sizeOf(2, 1, 1), 2, {1, 2, 3, 4});
  Values found(4);
  batch.blockStorage()->memory()->setFailure("no luck");
  EXPECT_TRUE(
      names(errorOf([&] { batch.readBytes(std::span(found), pixelsFirst); }), {"invalid", "no luck"}));
  const Values written{5, 6, 7, 8};
  batch.writeBytes(std::span(written), pixelsFirst);
  EXPECT_EQ(valuesOfBatch(batch), written) << "valid again";
  ImageDescriptor size = sizeOf(2, 1, 1);
  size.setStorageMode(mtl::StorageMode::Private);
  const auto closed = ImageBatch::create(device_, size, 2);
  EXPECT_NE(errorOf([&] { closed.readBytes(std::span(found), pixelsFirst); }), "");
  EXPECT_TRUE(names(errorOf([&] { closed.writeBytes(std::span(written), pixelsFirst); }), {"private"}));
}

TEST_F(ImageBatchTest, IsValidAgainOnceAllIsWrittenInPlanesToo) {
  const auto batch = this->batch(sizeOf(2, 1, 2), 2, counted(8));
  batch.blockStorage()->memory()->setFailure("no luck");
  const Values written = counted(8, 11);
  batch.slice(0, 1).writeBytes(std::span(written).first(4), channelsFirst);
  Values found(8);
  EXPECT_TRUE(names(errorOf([&] { batch.readBytes(std::span(found), channelsFirst); }), {"no luck"}))
      << "the other image is not";
  batch.writeBytes(std::span(written), channelsFirst);
  batch.readBytes(std::span(found), channelsFirst);
  EXPECT_EQ(found, written);
}

TEST_F(ImageBatchTest, ElementsMustHaveTheSizeOfAChannelAsThoseOfAnImage) {
  ImageDescriptor half = sizeOf(2, 2, 1);
  half.setChannelFormat(ImageFeatureChannelFormat::Float16);
  const auto loose = [&] { return ImageBatch{Image::create(device_, half), Image::create(device_, half)}; };
  for (const ImageBatch& batch : {ImageBatch::create(device_, half, 2), loose()}) {
    Values floats(8);
    std::vector<std::uint16_t> float16Values(8);
    for (const std::string& error : {errorOf([&] { batch.writeBytes(std::span(floats), pixelsFirst); }),
                                     errorOf([&] { batch.readBytes(std::span(floats), pixelsFirst); })})
      EXPECT_EQ(error, "ImageBatch: element size is 4 bytes, expected 2, the size of a float16 channel");
    const std::string ofImage = errorOf([&] { batch[0]->writeBytes(std::span(floats), pixelsFirst); });
    EXPECT_EQ(ofImage, "Image: element size is 4 bytes, expected 2, the size of a float16 channel");
    EXPECT_EQ(errorOf([&] { batch.writeBytes(std::span(float16Values), pixelsFirst); }), "");
    EXPECT_EQ(errorOf([&] { batch.readBytes(std::span(float16Values), pixelsFirst); }), "");
    EXPECT_EQ(errorOf([&] { batch.writeBytes(std::as_bytes(std::span(float16Values)), pixelsFirst); }), "");
  }
  EXPECT_EQ(errorOf([] { ImageBatch().writeBytes(std::span<const float>(), pixelsFirst); }), "");
}

TEST_F(ImageBatchTest, LooseImagesThatDifferAreNeitherWrittenNorRead) {
  ImageDescriptor half = sizeOf(2, 2, 1);
  half.setChannelFormat(ImageFeatureChannelFormat::Float16);
  ImageDescriptor stack = sizeOf(2, 2, 1);
  stack.setNumberOfImages(2);
  Values values(8);
  for (const ImageDescriptor& other : {sizeOf(1, 2, 1), sizeOf(2, 1, 1), sizeOf(2, 2, 2), half, stack}) {
    const ImageBatch batch{Image::create(device_, sizeOf(2, 2, 1)), Image::create(device_, other)};
    EXPECT_TRUE(names(errorOf([&] { batch.writeBytes(std::span(values), pixelsFirst); }),
                      {"ImageBatch", "image", "like the first"}));
    EXPECT_TRUE(names(errorOf([&] { batch.readBytes(std::span(values), pixelsFirst); }),
                      {"ImageBatch", "image", "like the first"}));
  }
}

TEST_F(ImageBatchTest, IsOneBlockOfMemory) {
  const auto batch = this->batch(sizeOf(4, 4, 1), 5, counted(80));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(batch[i]->storage(), batch[0]->storage());
  EXPECT_EQ(ImageBatchResourceSize(batch), 5U * 64U);
  EXPECT_EQ(ImageBatchResourceSize(batch.slice(1, 2)), 2U * 64U);
}

TEST_F(ImageBatchTest, AnImageIsTheSameObjectEachTimeAndKeepsItsLabel) {
  const auto batch = ImageBatch::create(device_, sizeOf(2, 2, 1), 3);
  batch[1]->setLabel("second");
  EXPECT_EQ(batch[1]->label(), "second");
  EXPECT_EQ(batch[1], batch[1]);
  const ImageBatch copy = batch;  // NOLINT(performance-unnecessary-copy-initialization): what is tested
  EXPECT_EQ(copy[1], batch[1]);
  EXPECT_EQ(batch.slice(1, 2)[0], batch[1]);
  EXPECT_NE(batch[0], batch[1]);
}

TEST_F(ImageBatchTest, ImagesOutliveTheBatch) {
  std::shared_ptr<Image> image;
  {
    const auto batch = this->batch(sizeOf(2, 1, 1), 2, {1, 2, 3, 4});
    image = batch[1];
  }
  EXPECT_EQ(valuesOf(*image), (Values{3, 4}));
}

TEST_F(ImageBatchTest, SlicesShareMemory) {
  const auto batch = this->batch(sizeOf(1, 1, 1), 5, counted(5));
  const auto part = batch.slice(1, 3);
  EXPECT_EQ(part.count(), 3U);
  EXPECT_EQ(valuesOfBatch(part), (Values{2, 3, 4}));
  const Values written{20, 30, 40};
  part.writeBytes(std::span(written), pixelsFirst);
  EXPECT_EQ(valuesOfBatch(batch), (Values{1, 20, 30, 40, 5}));
  EXPECT_EQ(valuesOfBatch(part.slice(1, 1)), Values{30});
  EXPECT_TRUE(batch.slice(5, 0).empty());
}

TEST_F(ImageBatchTest, ASliceOfAFreshBatchLeavesTheOthersZero) {
  for (int round = 0; round < 2; ++round) {
    const auto batch = ImageBatch::create(device_, sizeOf(1, 1, 1), 3);
    const Values one{7};
    batch.slice(1, 1).writeBytes(std::span(one), pixelsFirst);
    EXPECT_EQ(valuesOfBatch(batch), (Values{0, 7, 0}));
    const Values all(3, 9);
    batch.writeBytes(std::span(all), pixelsFirst);
  }
}

TEST_F(ImageBatchTest, LooseImagesAreABatchInTheirOrder) {
  const auto a = image(sizeOf(2, 1, 1), {1, 2});
  const auto b = image(sizeOf(2, 1, 1), {3, 4});
  const ImageBatch batch{b, a, b};
  EXPECT_EQ(batch.count(), 3U);
  EXPECT_EQ(batch[0], b);
  EXPECT_EQ(batch[1], a);
  EXPECT_EQ(valuesOfBatch(batch), (Values{3, 4, 1, 2, 3, 4}));
  const Values written{5, 6, 7, 8};
  batch.slice(0, 2).writeBytes(std::span(written), pixelsFirst);
  EXPECT_EQ(valuesOf(*a), (Values{7, 8}));
  EXPECT_EQ(ImageBatchResourceSize(batch), 2U * 8U) << "distinct images count once";
}

TEST_F(ImageBatchTest, ChecksItsArguments) {
  const auto batch = ImageBatch::create(device_, sizeOf(2, 2, 1), 3);
  EXPECT_TRUE(names(errorOf([&] { static_cast<void>(batch[3]); }), {"index", "3"}));
  EXPECT_NE(errorOf([&] { static_cast<void>(batch.slice(2, 2)); }), "");
  EXPECT_NE(errorOf([&] { static_cast<void>(batch.slice(4, 0)); }), "");
  EXPECT_NE(errorOf([&] { static_cast<void>(batch.slice(1, std::numeric_limits<std::size_t>::max())); }), "");
  Values values(11);
  EXPECT_TRUE(names(errorOf([&] { batch.writeBytes(std::span(values), pixelsFirst); }), {"44", "48"}));
  EXPECT_NE(errorOf([&] { batch.readBytes(std::span(values), pixelsFirst); }), "");
  EXPECT_NE(errorOf([] { ImageBatch{std::shared_ptr<Image>()}; }), "");
  EXPECT_NE(errorOf([&] { ImageBatch::create(device_, sizeOf(2, 2, 1, 2), 3); }), "") << "stacks";
  EXPECT_NE(errorOf([&] { ImageBatch::create(device_, sizeOf(0, 2, 1), 3); }), "");
  EXPECT_NE(errorOf([&] { ImageBatch::create(nullptr, sizeOf(1, 2, 1), 3); }), "");
  EXPECT_NE(errorOf([&] { ImageBatch::create(device_, sizeOf(1UL << 30U, 1UL << 20U, 1), 1UL << 30U); }), "");
  EXPECT_NE(errorOf([&] {
              ImageBatch::createTemporary(commands(), sizeOf(1UL << 30U, 1UL << 20U, 1), 1UL << 30U);
            }),
            "");
  EXPECT_NE(errorOf([&] { ImageBatch::createTemporary(nullptr, sizeOf(1, 1, 1), 1); }), "");
  const auto committed = commands();
  run(committed);
  EXPECT_NE(errorOf([&] { ImageBatch::createTemporary(committed, sizeOf(1, 1, 1), 1); }), "");
  EXPECT_NE(errorOf([] { static_cast<void>(ImageBatch().descriptor()); }), "");
}

TEST_F(ImageBatchTest, TemporaryImagesAreClosedToTheHost) {
  const auto batch = ImageBatch::createTemporary(commands(), sizeOf(1, 1, 1), 2);
  EXPECT_TRUE(batch.isTemporary());
  Values values(2);
  EXPECT_NE(errorOf([&] { batch.writeBytes(std::span(values), pixelsFirst); }), "");
  EXPECT_NE(errorOf([&] { batch.writeBytes(std::span(values), channelsFirst); }), "");
  EXPECT_NE(errorOf([&] { batch.readBytes(std::span(values), pixelsFirst); }), "");
}

TEST_F(ImageBatchTest, AFormatOfNoneBecomesFloat16) {
  const auto batch = ImageBatch::create(device_, {ImageFeatureChannelFormat::None, 1, 1, 1}, 2);
  EXPECT_EQ(batch[0]->featureChannelFormat(), ImageFeatureChannelFormat::Float16);
}

TEST_F(ImageBatchTest, IncrementReadCountCountsDistinctTemporaryImages) {
  const auto buffer = commands();
  const auto a = TemporaryImage::create(buffer, sizeOf(1, 1, 1));
  const auto b = TemporaryImage::create(buffer, sizeOf(1, 1, 1));
  const auto permanent = image(sizeOf(1, 1, 1));
  const ImageBatch batch{a, permanent, b, a};
  EXPECT_EQ(ImageBatchIncrementReadCount(batch, 2), 3U);
  EXPECT_EQ(a->readCount(), 3U);
  EXPECT_EQ(b->readCount(), 3U);
  b->setReadCount(0);
  EXPECT_EQ(ImageBatchIncrementReadCount(batch, 1), 3U) << "those at 0 stay there";
  EXPECT_EQ(a->readCount(), 4U);
  EXPECT_EQ(b->readCount(), 0U);
  EXPECT_EQ(ImageBatchIncrementReadCount(batch, 0), 3U);
  EXPECT_EQ(a->readCount(), 4U);
  EXPECT_EQ(ImageBatchIncrementReadCount(batch, -9), 3U) << "never below 0";
  EXPECT_EQ(a->readCount(), 0U);
  const auto c = TemporaryImage::create(buffer, sizeOf(1, 1, 1));
  ImageBatchIncrementReadCount(ImageBatch{c}, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(c->readCount(), 0U);
  EXPECT_EQ(ImageBatchIncrementReadCount(ImageBatch(), 1), 0U);
}

TEST_F(ImageBatchTest, IncrementReadCountOfASliceTouchesItsImagesOnly) {
  const auto batch = ImageBatch::createTemporary(commands(), sizeOf(1, 1, 1), 3);
  EXPECT_EQ(ImageBatchIncrementReadCount(batch.slice(1, 1), 4), 1U);
  const auto countOf = [&](std::size_t i) { return static_cast<TemporaryImage&>(*batch[i]).readCount(); };
  EXPECT_EQ(countOf(0), 1U);
  EXPECT_EQ(countOf(1), 5U);
  EXPECT_EQ(countOf(2), 1U);
}

TEST_F(ImageBatchTest, IterateVisitsDistinctImagesUntilToldToStop) {
  const auto a = image(sizeOf(1, 1, 1));
  const auto b = image(sizeOf(1, 1, 1));
  const auto c = image(sizeOf(1, 1, 1));
  const ImageBatch batch{a, b, a, c};
  std::vector<std::size_t> visited;
  EXPECT_EQ(ImageBatchIterate(batch,
                              [&](const auto&, std::size_t i) {
                                visited.push_back(i);
                                return goOn;
                              }),
            goOn);
  EXPECT_EQ(visited, (std::vector<std::size_t>{0, 1, 3}));
  visited.clear();
  EXPECT_EQ(ImageBatchIterate(batch,
                              [&](const auto&, std::size_t i) {
                                visited.push_back(i);
                                return std::int64_t{0};
                              }),
            0)
      << "0 is greater than INT64_MIN and stops";
  EXPECT_EQ(visited, std::vector<std::size_t>{0});
  visited.clear();
  EXPECT_EQ(ImageBatchIterate(batch,
                              [&](const auto& image, std::size_t i) {
                                visited.push_back(i);
                                return image == b ? std::int64_t{-5} : goOn;
                              }),
            -5);
  EXPECT_EQ(visited, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(ImageBatchIterate(ImageBatch(), [](const auto&, std::size_t) { return std::int64_t{3}; }), goOn);
}

TEST_F(ImageBatchTest, SynchronizeIsLegalBeforeCommitOnly) {
  const auto block = this->batch(sizeOf(1, 1, 1), 2, {1, 2});
  const ImageBatch loose{block[0], image(sizeOf(1, 1, 1))};
  const auto buffer = commands();
  ImageBatchSynchronize(block, buffer);
  ImageBatchSynchronize(loose, buffer);
  ImageBatchSynchronize(ImageBatch(), buffer);
  const auto foreign = mtl::newCPUDevice(1)->newCommandQueue()->commandBuffer();
  for (const ImageBatch& batch : {block, loose})
    EXPECT_TRUE(names(errorOf([&] { ImageBatchSynchronize(batch, foreign); }), {"another device"}));
  run(buffer);
  EXPECT_NE(errorOf([&] { ImageBatchSynchronize(block, buffer); }), "");
  EXPECT_NE(errorOf([&] { ImageBatchSynchronize(loose, buffer); }), "");
  EXPECT_NE(errorOf([&] { ImageBatchSynchronize(block, nullptr); }), "");
}

TEST_F(ImageBatchTest, ALoopGoesThroughTheImagesInOrder) {
  const auto block = this->batch(sizeOf(1, 1, 1), 3, {1, 2, 3});
  const ImageBatch loose{block[2], block[0]};
  EXPECT_EQ(block.size(), 3U);
  std::vector<std::shared_ptr<Image>> seen;
  for (const auto& image : block) seen.push_back(image);
  EXPECT_EQ(seen, (std::vector{block[0], block[1], block[2]}));
  seen.clear();
  for (auto& image : loose) seen.push_back(image);
  EXPECT_EQ(seen, (std::vector{block[2], block[0]}));
  EXPECT_EQ(std::vector(block.begin(), block.end()), (std::vector{block[0], block[1], block[2]}));
  const ImageBatch part = block.slice(1, 2);
  EXPECT_EQ(*part.begin(), block[1]);
  EXPECT_EQ(std::distance(part.begin(), part.end()), 2);
  for (const auto& image : ImageBatch()) ADD_FAILURE() << image->describe();
}

TEST_F(ImageBatchTest, NothingIsAnEmptyBatchAndAListOfAnyKindOfImagesIsOne) {
  const ImageBatch none = nullptr;
  EXPECT_TRUE(none.empty());
  const auto buffer = commands();
  const std::vector<std::shared_ptr<TemporaryImage>> images{TemporaryImage::create(buffer, sizeOf(1, 1, 1)),
                                                            TemporaryImage::create(buffer, sizeOf(1, 1, 1))};
  const ImageBatch batch = images;
  EXPECT_EQ(batch.size(), 2U);
  EXPECT_EQ(batch[1], images[1]);
  for (const auto& image : images) image->setReadCount(0);
}

TEST_F(ImageBatchTest, VectorsArraysAndSpansAreWrittenAndRead) {
  const auto batch = ImageBatch::create(device_, sizeOf(2, 1, 1), 2);
  const std::vector<float> written{1, 2, 3, 4};
  batch.writeBytes(written, pixelsFirst);
  std::vector<float> found(4);
  batch.readBytes(found, pixelsFirst);
  EXPECT_EQ(found, written);
  const std::array<float, 4> more{5, 6, 7, 8};
  batch.writeBytes(more, pixelsFirst);
  float numbers[4] = {};
  batch.readBytes(numbers, pixelsFirst);
  EXPECT_EQ(numbers[3], 8);
  std::vector<std::byte> bytes(16);
  batch.readBytes(bytes, pixelsFirst);
  batch.writeBytes(bytes, pixelsFirst);
  EXPECT_EQ(valuesOf(*batch[1]), (Values{7, 8}));
  std::vector<double> doubles(4);
  EXPECT_TRUE(names(errorOf([&] { batch.readBytes(doubles, pixelsFirst); }), {"8", "4"}));
  EXPECT_NE(errorOf([&] { batch.writeBytes(std::vector<float>(3), pixelsFirst); }), "");
}

}  // namespace
}  // namespace mps::image_batch_test
