#include <gtest/gtest.h>

#include <limits>

#include "mps/core/image.hpp"
#include "mps/core/image_batch.hpp"
#include "mps/core/test_images.hpp"
#include "mtl/memory.hpp"

/// Views of images: spec/01 section 4.2.
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
