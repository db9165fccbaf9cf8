#include "mps/core/image/image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_storage.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::image_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::pixelsFirst;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using Format = ImageFeatureChannelFormat;

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

class ImageTest : public testing::DeviceTest {};

/// Ignored while there is no memory.
TEST_F(ImageTest, MemoryIsNeverPurged) {
  const auto made = Image::create(device_, sizeOf(1, 1, 2));
  EXPECT_EQ(made->setPurgeableState(PurgeableState::Empty), PurgeableState::AllocationDeferred);
  testing::fill(*made, {3, 4});
  EXPECT_EQ(made->setPurgeableState(PurgeableState::Empty), PurgeableState::NonVolatile);
  EXPECT_EQ(made->setPurgeableState(PurgeableState::KeepCurrent), PurgeableState::NonVolatile);
  EXPECT_EQ(valuesOf(*made), (Values{3, 4}));
}

TEST_F(ImageTest, PropertiesAreThoseOfTheDescriptor) {
  const auto image = Image::create(device_, {Format::Unorm16, 7, 5, 3, 2, TextureUsage::ShaderRead});
  EXPECT_EQ(image->width(), 7U);
  EXPECT_EQ(image->height(), 5U);
  EXPECT_EQ(image->featureChannels(), 3U);
  EXPECT_EQ(image->numberOfImages(), 2U);
  EXPECT_EQ(image->featureChannelFormat(), Format::Unorm16);
  EXPECT_EQ(image->usage(), TextureUsage::ShaderRead);
  EXPECT_EQ(image->device(), device_);
  EXPECT_EQ(image->parent(), nullptr);
  EXPECT_FALSE(image->isTemporary());
  EXPECT_EQ(image->resourceSize(), 7U * 5U * 3U * 2U * 2U);
  EXPECT_EQ(image->label(), "");
  image->setLabel("input");
  EXPECT_TRUE(names(image->describe(), {"\"input\"", "unorm16", "7x5x3", "2 images"}));
}

TEST_F(ImageTest, FormatsHaveTheirSizesAndApplesPixelFormats) {
  struct Row {
    Format format;
    std::size_t precision, bytes;
    PixelFormat one, two, more;
  };
  const Row rows[] = {
      {Format::Unorm8, 8, 1, PixelFormat::R8Unorm, PixelFormat::RG8Unorm, PixelFormat::RGBA8Unorm},
      {Format::Unorm16, 16, 2, PixelFormat::R16Unorm, PixelFormat::RG16Unorm, PixelFormat::RGBA16Unorm},
      {Format::Float16, 11, 2, PixelFormat::R16Float, PixelFormat::RG16Float, PixelFormat::RGBA16Float},
      {Format::Float32, 24, 4, PixelFormat::R32Float, PixelFormat::RG32Float, PixelFormat::RGBA32Float}};
  for (const Row& row : rows) {
    const auto of = [&](std::size_t channels) {
      return Image::create(device_, {row.format, 2, 2, channels});
    };
    EXPECT_EQ(of(1)->precision(), row.precision);
    EXPECT_EQ(of(1)->pixelFormat(), row.one);
    EXPECT_EQ(of(2)->pixelFormat(), row.two);
    EXPECT_EQ(of(1)->pixelSize(), row.bytes);
    EXPECT_EQ(of(2)->pixelSize(), 2 * row.bytes);
    for (const std::size_t channels : {3U, 4U, 5U, 64U}) {
      EXPECT_EQ(of(channels)->pixelFormat(), row.more);
      EXPECT_EQ(of(channels)->pixelSize(), 4 * row.bytes);
    }
  }
  EXPECT_EQ(static_cast<int>(PixelFormat::RGBA32Float), 125);
}

TEST(ImageDescriptors, NoPixelFormatHasNoChannels) {
  for (const ImageFeatureChannelFormat format :
       {ImageFeatureChannelFormat::None, ImageFeatureChannelFormat::Unorm8,
        ImageFeatureChannelFormat::Unorm16, ImageFeatureChannelFormat::Float16,
        ImageFeatureChannelFormat::Float32})
    EXPECT_EQ(ImageDescriptor(format, 1, 1, 0).pixelFormat(), PixelFormat::Invalid);
}

TEST_F(ImageTest, SeveralSlicesMakeATextureArray) {
  const auto typeOf = [&](std::size_t channels, std::size_t images) {
    return Image::create(device_, {Format::Float32, 2, 2, channels, images})->textureType();
  };
  EXPECT_EQ(typeOf(1, 1), TextureType::Type2D);
  EXPECT_EQ(typeOf(4, 1), TextureType::Type2D);
  EXPECT_EQ(typeOf(5, 1), TextureType::Type2DArray);
  EXPECT_EQ(typeOf(4, 2), TextureType::Type2DArray);
  EXPECT_EQ(static_cast<int>(TextureType::Type2D), 2);
  EXPECT_EQ(static_cast<int>(TextureType::Type2DArray), 3);
}

TEST_F(ImageTest, FormatNoneBecomesFloat16) {
  EXPECT_EQ(ImageDescriptor().channelFormat(), Format::None);
  EXPECT_EQ(Image::create(device_, {Format::None, 2, 2, 1})->featureChannelFormat(), Format::Float16);
}

TEST_F(ImageTest, AnImageThatWasNeverWrittenReadsAsZerosOverRecycledMemoryToo) {
  for (int round = 0; round < 3; ++round) {
    const auto image = this->image(sizeOf(6, 4, 3));
    EXPECT_EQ(valuesOf(*image), Values(72, 0));
    testing::fill(*image, counted(72));
  }
}

TEST_F(ImageTest, TheRestOfAPartialFirstWriteIsZero) {
  for (int round = 0; round < 2; ++round) {
    const auto image = this->image(sizeOf(4, 2, 1));
    const Values row{7, 8};
    image->writeBytes(std::as_bytes(std::span(row)), pixelsFirst, {}, {{1, 1, 0}, {2, 1, 1}}, {0, 1});
    EXPECT_EQ(valuesOf(*image), (Values{0, 0, 0, 0, 0, 7, 8, 0}));
    testing::fill(*image, Values(8, 99));
  }
}

TEST_F(ImageTest, TakesMemoryAtFirstUse) {
  const std::size_t before = device_->currentAllocatedSize();
  const auto image = this->image(sizeOf(64, 64, 4));
  EXPECT_EQ(image->resourceSize(), 65536U);
  EXPECT_EQ(device_->currentAllocatedSize(), before);
  valuesOf(*image);
  EXPECT_GE(device_->currentAllocatedSize(), before + 65536);
}

TEST(ImageRegions, ArePixelsAndChannels) {
  EXPECT_EQ(ImageRegion{}, (ImageRegion{{0, 0, 0}, {0, 0, 0}}));
  const ImageRegion region{{1, 2, 3}, {4, 5, 6}};
  EXPECT_EQ(region.offset.x, 1U);
  EXPECT_EQ(region.offset.y, 2U);
  EXPECT_EQ(region.offset.channel, 3U);
  EXPECT_EQ(region.size, (ImageCoordinate{4, 5, 6}));
  EXPECT_NE(region, (ImageRegion{{1, 2, 4}, {4, 5, 6}}));
  EXPECT_NE(region, (ImageRegion{{1, 2, 3}, {4, 5, 7}}));
}

TEST_F(ImageTest, DescriptorsThatDescribeNoImageAreRefused) {
  for (const auto& [width, height, channels, images] : {std::tuple{0UL, 1UL, 1UL, 1UL},
                                                        {1UL, 0UL, 1UL, 1UL},
                                                        {1UL, 1UL, 0UL, 1UL},
                                                        {1UL, 1UL, 1UL, 0UL},
                                                        {huge, huge, huge, huge},
                                                        {1UL << 32U, 1UL << 32U, 1UL, 1UL},
                                                        {huge / 2, 1UL, 1UL, 1UL}}) {
    const ImageDescriptor wrong(Format::Float32, width, height, channels, images);
    EXPECT_TRUE(names(errorOf([&] { Image::create(device_, wrong); }), {"imageDescriptor"}));
    EXPECT_NE(errorOf([&] { TemporaryImage::create(commands(), wrong); }), "");
  }
  EXPECT_TRUE(names(errorOf([] { Image::create(std::shared_ptr<mtl::Device>(), sizeOf(1, 1, 1)); }),
                    {"device", "null"}));
}

TEST_F(ImageTest, LargerThanTheMemoryOfItsDeviceIsRefused) {
  const auto huge = sizeOf(1UL << 20U, 1UL << 20U, 1024);
  const std::string most = std::to_string(device_->recommendedMaxWorkingSetSize());
  const auto isRefused = [&](const auto& make) {
    return names(errorOf(make), {"Image", "imageDescriptor", "1048576x1048576x1024", most, "memory of cpu"});
  };
  EXPECT_TRUE(isRefused([&] { Image::create(device_, huge); }));
  EXPECT_TRUE(isRefused([&] { TemporaryImage::create(commands(), huge); }));
  EXPECT_TRUE(isRefused([&] { ImageBatch::create(device_, huge, 2); }));
  EXPECT_TRUE(isRefused([&] { ImageBatch::createTemporary(commands(), huge, 2); }));
}

TEST_F(ImageTest, OverABufferSharesItsBytes) {
  const auto buffer = device_->newBuffer(4 * sizeof(float) + 24 * sizeof(float));
  const auto elements = buffer->contentsAs<float>();
  std::copy_n(counted(28, 0).begin(), 28, elements.begin());
  const auto image = Image::create(buffer, 16, sizeOf(3, 2, 4));
  EXPECT_EQ(valuesOf(*image), counted(24, 4));
  testing::fill(*image, counted(24, 100));
  EXPECT_EQ(elements[3], 3);
  EXPECT_EQ(elements[4], 100);
  EXPECT_EQ(elements[27], 123);
  elements[5] = -1;
  EXPECT_EQ(valuesOf(*image)[1], -1);
  EXPECT_EQ(image->resourceSize(), 0U);
}

TEST_F(ImageTest, OverABufferTakesStrides) {
  // Channels 2 and 3 of 5, columns 1 and 2 of 4, of two images of 3 rows.
  const Values numbers = counted(2 * 3 * 4 * 5, 0);
  const auto buffer = device_->newBuffer(std::as_bytes(std::span(numbers)));
  const auto image = Image::create(buffer, (5 + 2) * sizeof(float), sizeOf(2, 3, 2, 2), {5, 20, 60});
  Values expected;
  for (const float n : {0.F, 60.F})
    for (const float y : {0.F, 20.F, 40.F})
      for (const float x : {5.F, 10.F})
        for (const float c : {2.F, 3.F}) expected.push_back(n + y + x + c);
  EXPECT_EQ(valuesOf(*image), expected);
  testing::fill(*image, Values(24, -1));
  const auto elements = buffer->contentsAs<float>();
  EXPECT_EQ(std::count(elements.begin(), elements.end(), -1.F), 24);
  EXPECT_EQ(elements[6], 6);
  EXPECT_EQ(elements[7], -1);
  EXPECT_EQ(elements[9], 9);
}

TEST_F(ImageTest, OverABufferMustStayInside) {
  const auto buffer = device_->newBuffer(24 * sizeof(float));
  const auto make = [&](std::size_t offset, const ImageDescriptor& size, const ImageStrides& strides) {
    return errorOf([&] { Image::create(buffer, offset, size, strides); });
  };
  EXPECT_EQ(make(0, sizeOf(3, 2, 4), {}), "");
  EXPECT_TRUE(names(make(4, sizeOf(3, 2, 4), {}), {"96 bytes", "100"}));
  EXPECT_EQ(make(4, sizeOf(3, 2, 3), {4, 12, 0}), "") << "the last pixel needs its channels only";
  EXPECT_NE(make(8, sizeOf(3, 2, 3), {4, 12, 0}), "");
  EXPECT_NE(make(2, sizeOf(1, 1, 1), {}), "") << "not a multiple of the element size";
  EXPECT_NE(make(huge - 3, sizeOf(1, 1, 1), {}), "");
  for (const std::size_t stride : {huge, huge / 2, huge / 4, huge / 4 + 1, huge / 8}) {
    EXPECT_NE(make(0, sizeOf(2, 1, 1), {stride, 0, 0}), "") << stride;
    EXPECT_NE(make(0, sizeOf(1, 2, 1), {0, stride, 0}), "") << stride;
    EXPECT_NE(make(0, sizeOf(1, 1, 1, 2), {0, 0, stride}), "") << stride;
    EXPECT_NE(make(0, sizeOf(5, 1, 1), {stride, 0, 0}), "") << stride;
    EXPECT_EQ(make(0, sizeOf(1, 1, 1), {stride, stride, stride}), "") << "strides of one step are not used";
  }
  EXPECT_NE(make(0, sizeOf(1UL << 40U, 1UL << 18U, 1), {24, 0, 0}), "");
  EXPECT_NE(errorOf([] { Image::create(std::shared_ptr<mtl::Buffer>(), 0, sizeOf(1, 1, 1)); }), "");
}

TEST_F(ImageTest, OverABufferElementsMustNotShareMemory) {
  const auto buffer = device_->newBuffer(1024 * sizeof(float));
  const auto make = [&](const ImageDescriptor& size, const ImageStrides& strides) {
    return errorOf([&] { Image::create(buffer, 0, size, strides); });
  };
  EXPECT_TRUE(names(make(sizeOf(3, 1, 4), {3, 0, 0}), {"Image", "strides", "3", "elements apart"}));
  EXPECT_NE(make(sizeOf(4, 4, 1), {1, 3, 0}), "");
  EXPECT_NE(make(sizeOf(4, 4, 1), {1, 1, 0}), "");
  EXPECT_NE(make(sizeOf(4, 1, 2, 3), {2, 0, 7}), "");
  EXPECT_NE(make(sizeOf(4, 3, 2, 2), {4, 16, 3}), "") << "images between the pixels of others";
  EXPECT_EQ(make(sizeOf(4, 3, 2, 2), {4, 16, 2}), "");
  EXPECT_EQ(make(sizeOf(4, 3, 2), {6, 2, 0}), "") << "rows and columns exchanged";
  EXPECT_EQ(make(sizeOf(4, 3, 2), {9, 2, 0}), "");
  EXPECT_EQ(make(sizeOf(1, 1, 4), {1, 1, 1}), "") << "strides of one step are not used";
  EXPECT_EQ(make(sizeOf(4, 1, 4), {5, 1, 1}), "");
}

TEST_F(ImageTest, AnInvalidImageIsReadWithTheMessageOfTheFailedCommand) {
  const auto image = this->image(sizeOf(2, 1, 1), {1, 2});
  image->setLabel("weights");
  image->storage()->memory()->setFailure("CNNPoolingMax: broken");
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*image); }), {"weights", "CNNPoolingMax: broken"}));
  const Values one{5};
  image->writeBytes(std::as_bytes(std::span(one)), pixelsFirst, {}, {{0, 0, 0}, {1, 1, 1}}, {0, 1});
  EXPECT_NE(errorOf([&] { valuesOf(*image); }), "") << "the other pixel is still invalid";
  testing::fill(*image, {3, 4});
  EXPECT_EQ(valuesOf(*image), (Values{3, 4}));
}

TEST_F(ImageTest, PrivateImagesHideTheirBytes) {
  ImageDescriptor hidden = sizeOf(2, 1, 1);
  hidden.setStorageMode(mtl::StorageMode::Private);
  const auto image = Image::create(device_, hidden);
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*image); }), {"readBytes", "private"}));
  EXPECT_TRUE(names(errorOf([&] { testing::fill(*image, {1, 2}); }), {"writeBytes", "private"}));
}

TEST_F(ImageTest, OverAPrivateBufferHidesItsBytesAsTheBufferDoes) {
  const auto buffer = device_->newBuffer(2 * sizeof(float), mtl::ResourceOptions::StorageModePrivate);
  const auto image = Image::create(buffer, 0, sizeOf(2, 1, 1));
  EXPECT_EQ(image->descriptor().storageMode(), mtl::StorageMode::Private);
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*image); }), {"readBytes", "private"}));
  EXPECT_TRUE(names(errorOf([&] { testing::fill(*image, {1, 2}); }), {"writeBytes", "private"}));
}

TEST_F(ImageTest, SynchronizeIsLegalBeforeCommitOnly) {
  const auto image = this->image(sizeOf(2, 1, 1), {1, 2});
  const auto unallocated = this->image(sizeOf(2, 1, 1));
  const auto buffer = commands();
  image->synchronize(buffer);
  unallocated->synchronize(buffer);
  TemporaryImage::create(buffer, sizeOf(1, 1, 1))->synchronize(buffer);
  const auto foreign = mtl::newCPUDevice(1)->newCommandQueue()->commandBuffer();
  EXPECT_TRUE(names(errorOf([&] { image->synchronize(foreign); }), {"Image", "another device"}));
  run(buffer);
  EXPECT_NE(errorOf([&] { image->synchronize(buffer); }), "");
  EXPECT_NE(errorOf([&] { unallocated->synchronize(buffer); }), "");
  EXPECT_NE(errorOf([&] { image->synchronize(nullptr); }), "");
}

}  // namespace
}  // namespace mps::image_test
