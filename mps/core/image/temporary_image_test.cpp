#include <gtest/gtest.h>

#include "mps/core/image/image.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/image_storage.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/memory.hpp"

/// Read counts of temporary images.
namespace mps::temporary_image_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Scale;
using testing::ScaleGradient;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class TemporaryImageTest : public testing::DeviceTest {
 protected:
  std::shared_ptr<TemporaryImage> temporary(const ImageDescriptor& size) {
    return TemporaryImage::create(commands_, size);
  }
  /// A temporary image that a kernel has written.
  std::shared_ptr<TemporaryImage> written(const std::shared_ptr<Image>& source) {
    auto made = temporary(source->descriptor());
    scale_->encode(commands_, source, made);
    return made;
  }
  [[nodiscard]] std::size_t used() const { return queue_->heap()->usedBytes(); }

  std::shared_ptr<mtl::CommandBuffer> commands_ = queue_->commandBuffer();
  std::shared_ptr<Scale> scale_ = Scale::create(device_, 2);
  std::shared_ptr<Image> source_ = image(sizeOf(8, 8, 4), counted(256));
  Values doubled_ = [] {
    Values values = counted(256);
    for (float& value : values) value *= 2;
    return values;
  }();
};

TEST_F(TemporaryImageTest, StartsWithOneRead) {
  EXPECT_EQ(temporary(sizeOf(2, 2, 1))->readCount(), 1U);
  EXPECT_TRUE(temporary(sizeOf(2, 2, 1))->isTemporary());
  EXPECT_NE(errorOf([&] { TemporaryImage::create(nullptr, sizeOf(1, 1, 1)); }), "");
}

TEST_F(TemporaryImageTest, EveryEncodeThatReadsItTakesOneOff) {
  const auto image = written(source_);
  image->setReadCount(3);
  for (std::size_t left = 3; left-- > 0;) {
    scale_->encode(commands_, image, this->image(sizeOf(8, 8, 4)));
    EXPECT_EQ(image->readCount(), left);
  }
}

TEST_F(TemporaryImageTest, WritingDoesNotCount) {
  const auto image = temporary(sizeOf(8, 8, 4));
  scale_->encode(commands_, source_, image);
  scale_->encode(commands_, source_, image);
  EXPECT_EQ(image->readCount(), 1U);
}

TEST_F(TemporaryImageTest, TakesMemoryAtItsFirstEncode) {
  const auto image = temporary(sizeOf(8, 8, 4));
  EXPECT_EQ(used(), 0U);
  scale_->encode(commands_, source_, image);
  EXPECT_EQ(used(), 1024U);
}

TEST_F(TemporaryImageTest, AtZeroTheMemoryServesTheNextImageAtOnce) {
  const auto first = written(source_);
  const std::byte* const address = first->storage()->memory()->address();
  const auto result = image(sizeOf(8, 8, 4));
  scale_->encode(commands_, first, result);
  EXPECT_EQ(used(), 0U);
  const auto second = written(source_);
  EXPECT_EQ(second->storage()->memory()->address(), address);
  const auto other = image(sizeOf(8, 8, 4));
  scale_->encode(commands_, second, other);
  run(commands_);
  Values fourfold = doubled_;
  for (float& value : fourfold) value *= 2;
  EXPECT_EQ(valuesOf(*result), fourfold);
  EXPECT_EQ(valuesOf(*other), fourfold);
}

TEST_F(TemporaryImageTest, AChainOfManyLayersNeedsTheMemoryOfTwo) {
  std::shared_ptr<Image> image = source_;
  scale_->setFactor(1);
  for (int layer = 0; layer < 50; ++layer) image = scale_->encode(commands_, image);
  EXPECT_EQ(queue_->heap()->peakBytes(), 2048U);
  const auto result = this->image(sizeOf(8, 8, 4));
  scale_->encode(commands_, image, result);
  run(commands_);
  EXPECT_EQ(valuesOf(*result), counted(256));
}

TEST_F(TemporaryImageTest, ReadingAReleasedImageNamesItsProducerAndItsLastReader) {
  const auto image = temporary(source_->descriptor());
  scale_->setLabel("conv1");
  scale_->encode(commands_, source_, image);
  scale_->setLabel("relu1");
  scale_->encode(commands_, image, this->image(sizeOf(8, 8, 4)));
  scale_->setLabel("conv2");
  const std::size_t commandCount = commands_->commandCount();
  const auto message = errorOf([&] { scale_->encode(commands_, image, this->image(sizeOf(8, 8, 4))); });
  EXPECT_TRUE(names(message, {"Scale \"conv2\"", "sourceImage", "readCount", "\"conv1\"", "\"relu1\""}));
  EXPECT_EQ(commands_->commandCount(), commandCount);
}

TEST_F(TemporaryImageTest, WritingAReleasedImageIsAnErrorToo) {
  const auto image = temporary(source_->descriptor());
  image->setReadCount(0);
  EXPECT_TRUE(
      names(errorOf([&] { scale_->encode(commands_, source_, image); }), {"destinationImage", "readCount"}));
}

TEST_F(TemporaryImageTest, SettingTheCountOnceItIsZeroIsAnError) {
  const auto image = temporary(sizeOf(2, 2, 1));
  image->setReadCount(5);
  image->setReadCount(0);
  EXPECT_NE(errorOf([&] { image->setReadCount(1); }), "");
  EXPECT_NE(errorOf([&] { image->setReadCount(0); }), "");
  EXPECT_EQ(image->readCount(), 0U);
}

TEST_F(TemporaryImageTest, SettingTheCountToZeroFreesEarly) {
  const auto image = written(source_);
  EXPECT_EQ(used(), 1024U);
  image->setReadCount(0);
  EXPECT_EQ(used(), 0U);
}

TEST_F(TemporaryImageTest, D15ADroppedImageWithReadsLeftFreesItsMemoryAndIsNoError) {
  written(source_);
  EXPECT_EQ(used(), 0U);
  EXPECT_NO_THROW(run(commands_));
}

TEST_F(TemporaryImageTest, BelongsToItsCommandBuffer) {
  const auto image = written(source_);
  const auto other = queue_->commandBuffer();
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(other, image, this->image(sizeOf(8, 8, 4))); }),
                    {"sourceImage", "another command buffer"}));
  EXPECT_NE(errorOf([&] { scale_->encode(other, source_, image); }), "");
  EXPECT_EQ(image->readCount(), 1U);
}

TEST_F(TemporaryImageTest, OfAFinishedCommandBufferIsRefusedByALaterOneAtTheSameAddress) {
  for (int round = 0; round < 20; ++round) {
    std::shared_ptr<TemporaryImage> image;
    {
      const auto buffer = queue_->commandBuffer();
      image = TemporaryImage::create(buffer, sizeOf(8, 8, 4));
      scale_->encode(buffer, source_, image);
    }
    const auto next = queue_->commandBuffer();
    ASSERT_NE(errorOf([&] { scale_->encode(next, image, this->image(sizeOf(8, 8, 4))); }), "");
  }
}

TEST_F(TemporaryImageTest, IsNotMadeAfterCommit) {
  run(commands_);
  EXPECT_NE(errorOf([&] { temporary(sizeOf(1, 1, 1)); }), "");
}

TEST_F(TemporaryImageTest, IsClosedToTheHost) {
  const auto image = written(source_);
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*image); }), {"readBytes", "temporary"}));
  for (const char* call :
       {"setDestinationImageAllocator(Image::defaultAllocator())", "setExportFromGraph(true)",
        "setSynchronizeResource(true)", "setImageAllocator(Image::defaultAllocator())"})
    EXPECT_TRUE(names(errorOf([&] { valuesOf(*image); }), {call})) << "what to call instead";
  EXPECT_TRUE(names(errorOf([&] { testing::fill(*image, Values(256)); }), {"writeBytes", "temporary"}));
}

TEST_F(TemporaryImageTest, AGradientEncodeTakesOneOffEachOfItsInputs) {
  const auto source = written(source_);
  source->setReadCount(2);
  std::shared_ptr<State> state;
  const auto result =
      std::static_pointer_cast<TemporaryImage>(scale_->encode(commands_, source, state, true));
  EXPECT_EQ(source->readCount(), 1U);
  EXPECT_EQ(result->readCount(), 1U);
  const auto gradient = ScaleGradient::create(device_)->encode(commands_, result, source, state);
  EXPECT_EQ(source->readCount(), 0U);
  EXPECT_EQ(result->readCount(), 0U);
  const auto copy = image(sizeOf(8, 8, 4));
  scale_->encode(commands_, gradient, copy);
  run(commands_);
  EXPECT_EQ(valuesOf(*copy)[255], 256 * 2 * 2 * 2 * 2);
}

TEST_F(TemporaryImageTest, ABatchCountsDistinctImages) {
  const auto a = written(source_);
  const auto b = written(source_);
  a->setReadCount(2);
  b->setReadCount(2);
  const auto results = scale_->encodeBatch(commands_, ImageBatch{a, b, a});
  EXPECT_EQ(a->readCount(), 1U);
  EXPECT_EQ(b->readCount(), 1U);
  EXPECT_EQ(results.count(), 3U);
}

TEST_F(TemporaryImageTest, ABatchOfOneBlockFreesItsMemoryWhenAllImagesAreRead) {
  const auto batch = ImageBatch::createTemporary(commands_, sizeOf(8, 8, 4), 4);
  const auto sources = this->batch(sizeOf(8, 8, 4), 4, Values(1024, 1));
  scale_->encodeBatch(commands_, sources, batch);
  EXPECT_EQ(used(), 4096U);
  const auto results = ImageBatch::create(device_, sizeOf(8, 8, 4), 4);
  scale_->encodeBatch(commands_, batch.slice(0, 3), results.slice(0, 3));
  EXPECT_EQ(used(), 4096U) << "one image is still to be read";
  EXPECT_TRUE(
      names(errorOf([&] { scale_->encodeBatch(commands_, batch, results); }), {"sourceImage", "readCount"}));
  EXPECT_EQ(static_cast<TemporaryImage&>(*batch[3]).readCount(), 1U);
  scale_->encodeBatch(commands_, batch.slice(3, 1), results.slice(3, 1));
  EXPECT_EQ(used(), 0U);
  run(commands_);
  Values values(1024);
  results.readBytes(std::span(values), testing::pixelsFirst);
  EXPECT_EQ(values, Values(1024, 4));
}

TEST_F(TemporaryImageTest, AViewIsReadInPlaceOfItsParent) {
  const auto parent = written(source_);
  const auto view = std::static_pointer_cast<TemporaryImage>(parent->subImageWithFeatureChannelRange(0, 4));
  parent->setReadCount(1);
  const auto result = image(sizeOf(8, 8, 4));
  scale_->encode(commands_, view, result);
  EXPECT_EQ(view->readCount(), 0U);
  EXPECT_EQ(parent->readCount(), 0U);
  EXPECT_EQ(used(), 0U);
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(commands_, view, result); }), {"readCount"}));
  run(commands_);
  EXPECT_EQ(valuesOf(*result)[0], 4);
}

TEST_F(TemporaryImageTest, AViewOfAReleasedParentIsRefusedBeforeAnythingIsRecorded) {
  const auto parent = written(source_);
  const auto view = parent->subImageWithFeatureChannelRange(0, 4);
  parent->setReadCount(0);
  const std::size_t commandCount = commands_->commandCount();
  EXPECT_TRUE(
      names(errorOf([&] { scale_->encode(commands_, view, image(sizeOf(8, 8, 4))); }), {"readCount"}));
  EXPECT_EQ(commands_->commandCount(), commandCount);
}

TEST_F(TemporaryImageTest, AViewCanBeWritten) {
  const auto parent = temporary(sizeOf(1, 1, 8));
  const auto lower = parent->subImageWithFeatureChannelRange(0, 4);
  const auto upper = parent->subImageWithFeatureChannelRange(4, 4);
  scale_->encode(commands_, image(sizeOf(1, 1, 4), {1, 2, 3, 4}), lower);
  scale_->encode(commands_, image(sizeOf(1, 1, 4), {5, 6, 7, 8}), upper);
  const auto result = image(sizeOf(1, 1, 8));
  scale_->encode(commands_, parent, result);
  run(commands_);
  EXPECT_EQ(valuesOf(*result), (Values{4, 8, 12, 16, 20, 24, 28, 32}));
}

TEST_F(TemporaryImageTest, ContentOfAFailedCommandIsMarkedAndTheQueueGoesOn) {
  const auto result = poisoned(sizeOf(8, 8, 4));
  const auto before = image(sizeOf(8, 8, 4));
  scale_->encode(commands_, source_, before);
  scale_->setLabel("broken");
  scale_->setFailure("it broke");
  const auto middle = scale_->encode(commands_, source_);
  scale_->setFailure("");
  scale_->setLabel("after");
  scale_->encode(commands_, middle, result);
  commands_->commit();
  EXPECT_EQ(errorOf([&] { commands_->throwIfFailed(); }), "Scale \"broken\": it broke");
  EXPECT_EQ(valuesOf(*before), doubled_);
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*result); }), {"Scale \"broken\": it broke"}));
  const auto next = commands();
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(next, result, before); }), {"Scale \"broken\": it broke"}));
  scale_->encode(next, source_, result);
  run(next);
  EXPECT_EQ(valuesOf(*result), doubled_);
}

}  // namespace
}  // namespace mps::temporary_image_test
