#include <gtest/gtest.h>

#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"

/// After a failed command those bytes are invalid that it should have written, until somebody writes them.
namespace mps::testing::invalid_content_test {
namespace {

const ImageDescriptor size = sizeOf(2, 1, 4);
constexpr std::size_t each = 8;

class InvalidContent : public ScaleTest {
 protected:
  /// Runs a command that should have written the images and fails.
  void fail(const ImageBatch& results) {
    const auto broken = Scale::create(device_);
    broken->setFailure("no luck");
    const auto buffer = commands();
    broken->encodeBatch(buffer, ImageBatch::create(device_, results.descriptor(), results.count()), results);
    buffer->commit();
    buffer->waitUntilCompleted();
  }
  void fail(const std::shared_ptr<Image>& result) {
    const auto broken = Scale::create(device_);
    broken->setFailure("no luck");
    const auto buffer = commands();
    broken->encode(buffer, image(result->descriptor()), result);
    buffer->commit();
    buffer->waitUntilCompleted();
  }
  /// Neither the host nor a kernel takes it.
  [[nodiscard]] bool isInvalid(const std::shared_ptr<Image>& image) const {
    const std::string onHost = errorOf([&] { valuesOf(*image); });
    const auto result = Image::create(device_, image->descriptor());
    const std::string inKernel = errorOf([&] { scale_->encode(commands(), image, result); });
    EXPECT_EQ(onHost.find("no luck") != std::string::npos, inKernel.find("no luck") != std::string::npos)
        << onHost << " / " << inKernel;
    return !onHost.empty();
  }
  /// An image over a part of one buffer, at that place.
  [[nodiscard]] std::shared_ptr<Image> over(std::size_t place) const {
    return Image::create(buffer_, place * each * sizeof(float), size);
  }

  std::shared_ptr<mtl::Buffer> buffer_ = device_->newBuffer(4 * each * sizeof(float));
};

TEST_F(InvalidContent, AWriteOfTheHostLeavesTheOtherImagesOverABufferInvalid) {
  const auto first = over(0);
  const auto second = over(1);
  fail({first, second});
  fill(*first, counted(each));
  EXPECT_EQ(valuesOf(*first), counted(each));
  EXPECT_TRUE(isInvalid(second));
  fill(*second, counted(each));
  EXPECT_FALSE(isInvalid(second));
}

TEST_F(InvalidContent, AKernelLeavesTheOtherImagesOverABufferInvalid) {
  const auto first = over(0);
  const auto second = over(1);
  fail({first, second});
  const auto buffer = commands();
  scale_->encode(buffer, image(size, counted(each)), first);
  run(buffer);
  EXPECT_EQ(valuesOf(*first), scaled(counted(each)));
  EXPECT_TRUE(isInvalid(second));
}

TEST_F(InvalidContent, WhatAFailedKernelWouldNotHaveWrittenStaysValid) {
  const auto first = over(0);
  const auto second = over(1);
  fill(*second, counted(each));
  fail(first);
  EXPECT_TRUE(isInvalid(first));
  EXPECT_FALSE(isInvalid(second));
  EXPECT_EQ(valuesOf(*second), counted(each));
}

TEST_F(InvalidContent, ChannelsOfAnImageAreValidOnceTheyAreWritten) {
  const auto whole = image(sizeOf(3, 2, 8));
  fail(whole);
  const auto first = whole->subImageWithFeatureChannelRange(0, 4);
  const auto second = whole->subImageWithFeatureChannelRange(4, 4);
  fill(*first, counted(24));
  EXPECT_FALSE(isInvalid(first));
  EXPECT_TRUE(isInvalid(second));
  EXPECT_TRUE(isInvalid(whole));
  const auto buffer = commands();
  scale_->encode(buffer, image(sizeOf(3, 2, 4), counted(24)), second);
  run(buffer);
  EXPECT_FALSE(isInvalid(whole));
}

TEST_F(InvalidContent, TheImagesOfAStackMakeItValid) {
  const auto stack = image(sizeOf(2, 1, 4, 3));
  fail(stack);
  const ImageBatch images = stack->batchRepresentation();
  images.slice(0, 2).writeBytes(std::span<const float>(counted(2 * each)), pixelsFirst);
  EXPECT_FALSE(isInvalid(images[1]));
  EXPECT_TRUE(isInvalid(images[2]));
  EXPECT_TRUE(isInvalid(stack));
  images.writeBytes(std::span<const float>(counted(3 * each)), pixelsFirst);
  EXPECT_FALSE(isInvalid(stack));
  EXPECT_EQ(valuesOf(*stack), counted(3 * each));
}

TEST_F(InvalidContent, TheImagesOfABatchMakeItValidOneByOne) {
  const auto all = ImageBatch::create(device_, size, 3);
  fail(all);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(isInvalid(all[i])) << i;
    all.slice(i, 1).writeBytes(std::span<const float>(counted(each)), pixelsFirst);
    EXPECT_FALSE(isInvalid(all[i])) << i;
  }
  const auto results = ImageBatch::create(device_, size, 3);
  const auto buffer = commands();
  scale_->encodeBatch(buffer, all, results);
  run(buffer);
  EXPECT_EQ(valuesOf(*results[2]), scaled(counted(each)));
}

TEST_F(InvalidContent, TheRegionsOfAnImageMakeItValid) {
  const auto result = image(size);
  fail(result);
  const Values pixel = counted(4);
  for (std::size_t x = 0; x < 2; ++x) {
    EXPECT_TRUE(isInvalid(result));
    result->writeBytes(std::as_bytes(std::span(pixel)), pixelsFirst, {}, {{x, 0, 0}, {1, 1, 1}}, {0, 4});
  }
  EXPECT_FALSE(isInvalid(result));
}

TEST_F(InvalidContent, AClipRectangleMakesValidWhatIsInIt) {
  const auto result = image(size);
  fail(result);
  scale_->setClipRect({{1, 0, 0}, {1, 1, 1}});
  const auto write = [&] {
    const auto buffer = commands();
    scale_->encode(buffer, image(size, counted(each)), result);
    run(buffer);
  };
  write();
  scale_->setClipRect(RectNoClip);
  EXPECT_TRUE(isInvalid(result));
  scale_->setClipRect({{0, 0, 0}, {1, 1, 1}});
  write();
  scale_->setClipRect(RectNoClip);
  EXPECT_FALSE(isInvalid(result));
}

/// With a buffer that host and device share there is no other way to say so.
TEST_F(InvalidContent, BytesOfABufferThatTheHostSaysItWroteAreValid) {
  const auto first = over(0);
  const auto second = over(1);
  fail({first, second});
  buffer_->didModifyRange(0, each * sizeof(float) - 1);
  EXPECT_TRUE(isInvalid(first));
  buffer_->didModifyRange(0, each * sizeof(float));
  EXPECT_FALSE(isInvalid(first));
  EXPECT_TRUE(isInvalid(second));
}

}  // namespace
}  // namespace mps::testing::invalid_content_test
