#include <gtest/gtest.h>

#include <limits>

#include "mps/core/image/image.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/memory.hpp"

/// Views of images.
namespace mps::image_view_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class ImageView : public testing::DeviceTest {
 protected:
  std::shared_ptr<TemporaryImage> temporary(const ImageDescriptor& size) {
    return TemporaryImage::create(commands_, size);
  }
  static std::shared_ptr<TemporaryImage> viewOf(const std::shared_ptr<TemporaryImage>& image) {
    return std::static_pointer_cast<TemporaryImage>(image->subImageWithFeatureChannelRange(0, 4));
  }
  std::shared_ptr<mtl::CommandBuffer> commands_ = queue_->commandBuffer();
};

TEST_F(ImageView, BatchRepresentationSharesTheStack) {
  const auto stack = image(sizeOf(2, 1, 2, 3), counted(12));
  const auto images = stack->batchRepresentation();
  ASSERT_EQ(images.count(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(images[i]->numberOfImages(), 1U);
    EXPECT_EQ(images[i]->parent(), stack);
    EXPECT_EQ(images[i]->resourceSize(), 0U);
    EXPECT_EQ(valuesOf(*images[i]), counted(4, 1 + 4 * static_cast<float>(i)));
  }
  testing::fill(*images[1], {0, 0, 0, 0});
  EXPECT_EQ(valuesOf(*stack), (Values{1, 2, 3, 4, 0, 0, 0, 0, 9, 10, 11, 12}));
  const auto part = stack->batchRepresentation(1, 2);
  ASSERT_EQ(part.count(), 2U);
  EXPECT_EQ(valuesOf(*part[1]), (Values{9, 10, 11, 12}));
  EXPECT_NE(errorOf([&] { static_cast<void>(stack->batchRepresentation(2, 2)); }), "");
  EXPECT_NE(errorOf([&] {
              static_cast<void>(stack->batchRepresentation(1, std::numeric_limits<std::size_t>::max()));
            }),
            "");
}

TEST_F(ImageView, AChannelRangeSharesItsChannels) {
  const auto image = this->image(sizeOf(2, 1, 9), counted(18, 0));
  const auto middle = image->subImageWithFeatureChannelRange(4, 4);
  EXPECT_EQ(middle->featureChannels(), 4U);
  EXPECT_EQ(middle->width(), 2U);
  EXPECT_EQ(middle->parent(), image);
  EXPECT_EQ(valuesOf(*middle), (Values{4, 5, 6, 7, 13, 14, 15, 16}));
  testing::fill(*middle, Values(8, -1));
  EXPECT_EQ(valuesOf(*image), (Values{0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10, 11, 12, -1, -1, -1, -1, 17}));
  EXPECT_EQ(valuesOf(*image->subImageWithFeatureChannelRange(8, 100)), (Values{8, 17})) << "cut to fit";
  EXPECT_EQ(
      image->subImageWithFeatureChannelRange(4, std::numeric_limits<std::size_t>::max())->featureChannels(),
      5U);
  for (const auto& range : {std::pair{2UL, 4UL}, {12UL, 4UL}, {0UL, 0UL}, {0UL, 6UL}, {9UL, 1UL}})
    EXPECT_TRUE(names(errorOf([&] {
                        static_cast<void>(image->subImageWithFeatureChannelRange(range.first, range.second));
                      }),
                      {"featureChannelRange"}));
}

/// Images of 9 channels have 3 slices each.
TEST_F(ImageView, ASliceRangeIsAPartOfOneImageOrWholeImages) {
  const auto stack = image(sizeOf(1, 1, 9, 3), counted(27, 0));
  const auto viewOf = [&](std::size_t first, std::size_t count, std::size_t channels) {
    return Image::create(stack, first, count, channels);
  };
  const auto middle = viewOf(4, 1, 3);
  EXPECT_EQ(middle->parent(), stack);
  EXPECT_EQ(middle->numberOfImages(), 1U);
  EXPECT_EQ(valuesOf(*middle), (Values{13, 14, 15})) << "the second image from channel 4 on";
  EXPECT_EQ(valuesOf(*viewOf(7, 2, 5)), (Values{22, 23, 24, 25, 26}));
  const auto last = viewOf(3, 6, 9);
  EXPECT_EQ(last->numberOfImages(), 2U);
  EXPECT_EQ(valuesOf(*last), counted(18, 9));
  testing::fill(*middle, {-1, -1, -1});
  EXPECT_EQ(valuesOf(*last->batchRepresentation()[0]), (Values{9, 10, 11, 12, -1, -1, -1, 16, 17}));
}

TEST_F(ImageView, OtherSliceRangesAreRefused) {
  const auto stack = image(sizeOf(1, 1, 9, 3));
  const auto refused = [&](std::size_t first, std::size_t count, std::size_t channels) {
    return errorOf([&] { Image::create(stack, first, count, channels); });
  };
  EXPECT_TRUE(names(refused(9, 1, 4), {"sliceRange", "9 + 1", "9 slices"}));
  EXPECT_TRUE(names(refused(8, std::numeric_limits<std::size_t>::max(), 4), {"sliceRange"}));
  EXPECT_TRUE(names(refused(0, 0, 4), {"sliceRange"}));
  EXPECT_TRUE(names(refused(0, 3, 8), {"featureChannels", "8"}));
  EXPECT_TRUE(names(refused(0, 3, 0), {"featureChannels", "0"}));
  EXPECT_TRUE(names(refused(2, 1, 4), {"sliceRange"})) << "of the last slice there is one channel";
  EXPECT_TRUE(names(refused(2, 2, 8), {"sliceRange"})) << "across images";
  EXPECT_TRUE(names(refused(0, 3, 4), {"sliceRange"})) << "slices of one image as images";
  EXPECT_TRUE(names(refused(0, 9, 12), {"sliceRange"})) << "more channels than there are";
  EXPECT_TRUE(names(errorOf([] { Image::create(nullptr, 0, 1, 4); }), {"parentImage", "null"}));
}

TEST_F(ImageView, ASliceRangeOfATemporaryImageHoldsOneRead) {
  const auto parent = temporary(sizeOf(1, 1, 8));
  const auto view = std::static_pointer_cast<TemporaryImage>(Image::create(parent, 1, 1, 4));
  EXPECT_EQ(parent->readCount(), 2U);
  view->setReadCount(0);
  EXPECT_EQ(parent->readCount(), 1U);
}

TEST_F(ImageView, AChannelRangeOfAStackCoversEachImage) {
  const auto stack = image(sizeOf(1, 1, 8, 2), counted(16, 0));
  const auto upper = stack->subImageWithFeatureChannelRange(4, 4);
  EXPECT_EQ(upper->numberOfImages(), 2U);
  EXPECT_EQ(valuesOf(*upper), (Values{4, 5, 6, 7, 12, 13, 14, 15}));
  EXPECT_EQ(valuesOf(*upper->batchRepresentation()[1]), (Values{12, 13, 14, 15}));
}

TEST_F(ImageView, ViewsKeepTheMemoryOfTheirParent) {
  std::shared_ptr<Image> view;
  {
    const auto parent = image(sizeOf(1, 1, 8), counted(8));
    view = parent->subImageWithFeatureChannelRange(4, 4);
  }
  EXPECT_EQ(valuesOf(*view), counted(4, 5));
}

TEST_F(ImageView, AViewOfATemporaryImageIsTemporaryAndHoldsOneRead) {
  const auto parent = temporary(sizeOf(2, 2, 8));
  EXPECT_EQ(parent->readCount(), 1U);
  const auto view = viewOf(parent);
  EXPECT_TRUE(view->isTemporary());
  EXPECT_EQ(view->readCount(), 1U);
  EXPECT_EQ(parent->readCount(), 2U);
  view->setReadCount(3);
  EXPECT_EQ(parent->readCount(), 2U) << "one read, whatever the view's count";
  view->setReadCount(0);
  EXPECT_EQ(parent->readCount(), 1U);
  EXPECT_NE(errorOf([&] { view->setReadCount(1); }), "");
}

TEST_F(ImageView, ADroppedViewGivesItsReadBack) {
  const auto parent = temporary(sizeOf(2, 2, 8));
  {
    const auto view = viewOf(parent);
    EXPECT_EQ(parent->readCount(), 2U);
  }
  EXPECT_EQ(parent->readCount(), 1U);
  {
    const auto view = viewOf(parent);
    view->setReadCount(0);
    EXPECT_EQ(parent->readCount(), 1U);
  }
  EXPECT_EQ(parent->readCount(), 1U) << "given back once";
}

TEST_F(ImageView, TheLastViewReleasesTheParent) {
  const auto parent = temporary(sizeOf(16, 16, 8));
  const auto view = viewOf(parent);
  const auto viewOfView = viewOf(view);
  EXPECT_EQ(view->readCount(), 2U);
  EXPECT_EQ(parent->readCount(), 2U);
  parent->setReadCount(1);  // the parent itself is read no more
  view->setReadCount(1);
  EXPECT_EQ(parent->readCount(), 1U);
  viewOfView->setReadCount(0);
  EXPECT_EQ(view->readCount(), 0U);
  EXPECT_EQ(parent->readCount(), 0U);
}

TEST_F(ImageView, EachImageOfATemporaryStackHoldsOneRead) {
  const auto stack = temporary(sizeOf(2, 2, 4, 3));
  {
    const auto images = stack->batchRepresentation();
    EXPECT_EQ(stack->readCount(), 4U);
    EXPECT_EQ(ImageBatchIncrementReadCount(images, -1), 3U);
    EXPECT_EQ(stack->readCount(), 1U);
  }
  EXPECT_EQ(stack->readCount(), 1U);
}

TEST_F(ImageView, AReleasedParentMakesNoViewsAndDestructionStaysQuiet) {
  const auto parent = temporary(sizeOf(2, 2, 8));
  const auto view = viewOf(parent);
  parent->setReadCount(0);
  EXPECT_NE(errorOf([&] { viewOf(parent); }), "");
  EXPECT_NO_THROW(view->setReadCount(0));
}

}  // namespace
}  // namespace mps::image_view_test
