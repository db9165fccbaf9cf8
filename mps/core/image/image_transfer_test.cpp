#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "mps/core/image/image.hpp"
#include "mps/core/image/texture_view.hpp"
#include "mps/core/testing/test_images.hpp"

/// readBytes and writeBytes.
namespace mps::image_transfer_test {
namespace {

using testing::channelsFirst;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::pixelsFirst;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using Format = ImageFeatureChannelFormat;
using Bytes = std::vector<std::byte>;

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

/// Distinct bytes, as far as a byte goes.
Bytes distinctBytes(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 37 + i / 251) & 0xFFU);
  return bytes;
}

class ImageTransfer : public testing::DeviceTest {};

struct Case {
  Format format;
  std::size_t channels;
};

class ImageTransferOfFormats : public ImageTransfer, public ::testing::WithParamInterface<Case> {};

TEST_P(ImageTransferOfFormats, WrittenPlanesAreReadAsPixelsAndBack) {
  const auto [format, channels] = GetParam();
  constexpr std::size_t width = 5;
  constexpr std::size_t height = 3;
  const auto image = Image::create(device_, {format, width, height, channels});
  const std::size_t size = bytesPerChannel(format);
  const Bytes planes = distinctBytes(width * height * channels * size);
  image->writeBytes(std::span(planes), channelsFirst);
  Bytes pixels(planes.size());
  image->readBytes(std::span(pixels), pixelsFirst);
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t y = 0; y < height; ++y)
      for (std::size_t x = 0; x < width; ++x)
        ASSERT_EQ(std::memcmp(&pixels[((y * width + x) * channels + c) * size],
                              &planes[((c * height + y) * width + x) * size], size),
                  0)
            << "x " << x << " y " << y << " c " << c;
  Bytes again(planes.size());
  image->readBytes(std::span(again), channelsFirst);
  EXPECT_EQ(again, planes);
  const auto other = Image::create(device_, {format, width, height, channels});
  other->writeBytes(std::span(pixels), pixelsFirst);
  other->readBytes(std::span(again), channelsFirst);
  EXPECT_EQ(again, planes);
}

TEST_P(ImageTransferOfFormats, RowsMayBePadded) {
  const auto [format, channels] = GetParam();
  constexpr std::size_t width = 4;
  constexpr std::size_t height = 3;
  const std::size_t size = bytesPerChannel(format);
  const Bytes packed = distinctBytes(width * height * channels * size);
  const std::size_t row = width * channels * size;
  const std::size_t padded = row + 5 * size;
  Bytes source(padded * (height - 1) + row, std::byte{0xEE});  // the last row needs no padding
  for (std::size_t y = 0; y < height; ++y) std::memcpy(&source[y * padded], &packed[y * row], row);
  const auto image = Image::create(device_, {format, width, height, channels});
  const mtl::Region whole{{0, 0, 0}, {width, height, 1}};
  image->writeBytes(source, pixelsFirst, {0, padded, 0}, whole, {0, channels});
  Bytes back(packed.size());
  image->readBytes(std::span(back), pixelsFirst);
  EXPECT_EQ(back, packed);
  Bytes target(source.size(), std::byte{0xEE});
  image->readBytes(target, pixelsFirst, {0, padded, 0}, whole, {0, channels});
  EXPECT_EQ(target, source) << "gaps stay as they are";
}

TEST_P(ImageTransferOfFormats, ASubRegionLeavesTheRestAlone) {
  const auto [format, channels] = GetParam();
  const std::size_t size = bytesPerChannel(format);
  const auto image = Image::create(device_, {format, 6, 5, channels});
  Bytes all = distinctBytes(6 * 5 * channels * size);
  image->writeBytes(std::span(all), pixelsFirst);
  const mtl::Region region{{2, 1, 0}, {3, 2, 1}};
  const Bytes part(3 * 2 * channels * size, std::byte{0x3C});
  image->writeBytes(part, channelsFirst, {}, region, {0, channels});
  for (std::size_t y = 1; y < 3; ++y)
    std::fill_n(all.begin() + static_cast<std::ptrdiff_t>((y * 6 + 2) * channels * size), 3 * channels * size,
                std::byte{0x3C});
  Bytes back(all.size());
  image->readBytes(std::span(back), pixelsFirst);
  EXPECT_EQ(back, all);
}

std::vector<Case> everyFormat() {
  std::vector<Case> cases;
  for (const Format format : {Format::Unorm8, Format::Unorm16, Format::Float16, Format::Float32})
    for (const std::size_t channels : {1U, 2U, 3U, 4U, 5U, 9U}) cases.push_back({format, channels});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Formats, ImageTransferOfFormats, ::testing::ValuesIn(everyFormat()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return std::string(name(info.param.format)) + "x" +
                                  std::to_string(info.param.channels);
                         });

TEST_F(ImageTransfer, APlaneOfARegionFollowsTheRowsOfTheRegion) {
  const auto image = this->image(sizeOf(4, 3, 2), counted(24, 0));
  // Planes are region height * bytesPerRow apart; the row stride is 3 elements for 2 columns.
  Values read(2 * 2 * 3, -1);
  image->readBytes(std::as_writable_bytes(std::span(read)), channelsFirst, {0, 12, 0}, {{1, 1, 0}, {2, 2, 1}},
                   {0, 2});
  EXPECT_EQ(read, (Values{10, 12, -1, 18, 20, -1, 11, 13, -1, 19, 21, -1}));
}

TEST_F(ImageTransfer, ColumnsMayBePadded) {
  const auto image = this->image(sizeOf(3, 2, 2), counted(12, 0));
  const mtl::Region whole{{0, 0, 0}, {3, 2, 1}};
  Values read(3 * 3 * 2 - 1, -1);
  image->readBytes(std::as_writable_bytes(std::span(read)), pixelsFirst, {12, 0, 0}, whole, {0, 2});
  EXPECT_EQ(read, (Values{0, 1, -1, 2, 3, -1, 4, 5, -1, 6, 7, -1, 8, 9, -1, 10, 11}));
  Values planes(2 * 3 * 2 * 2 - 1, -1);
  image->readBytes(std::as_writable_bytes(std::span(planes)), channelsFirst, {8, 0, 0}, whole, {0, 2});
  EXPECT_EQ(planes,
            (Values{0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 1, -1, 3, -1, 5, -1, 7, -1, 9, -1, 11}));
}

TEST_F(ImageTransfer, ImagesOfAStackAreAddressedByIndexOriginAndDepth) {
  const auto stack = this->image(sizeOf(2, 1, 1, 4), counted(8, 0));
  Values one(2);
  stack->readBytes(std::span(one), pixelsFirst, 2);
  EXPECT_EQ(one, (Values{4, 5}));
  Values two(5, -1);
  stack->readBytes(std::as_writable_bytes(std::span(two)), pixelsFirst, {0, 0, 12}, {{0, 0, 1}, {2, 1, 2}},
                   {0, 1}, 1);
  EXPECT_EQ(two, (Values{4, 5, -1, 6, 7})) << "the first image is imageIndex + origin.z";
  const Values written{50, 60, 70};
  stack->writeBytes(std::as_bytes(std::span(written)), channelsFirst, {}, {{1, 0, 1}, {1, 1, 3}}, {0, 1});
  EXPECT_EQ(valuesOf(*stack), (Values{0, 1, 2, 50, 4, 60, 6, 70}));
}

TEST_F(ImageTransfer, ChannelWindowsTouchTheirChannelsOnly) {
  const auto image = this->image(sizeOf(2, 1, 9), counted(18, 0));
  const mtl::Region whole{{0, 0, 0}, {2, 1, 1}};
  Values read(8);
  image->readBytes(std::as_writable_bytes(std::span(read)), pixelsFirst, {}, whole, {4, 4});
  EXPECT_EQ(read, (Values{4, 5, 6, 7, 13, 14, 15, 16}));
  Values last(2);
  image->readBytes(std::as_writable_bytes(std::span(last)), pixelsFirst, {}, whole, {8, 1});
  EXPECT_EQ(last, (Values{8, 17})) << "the last, partial group";
  const Values planes{-1, -2, -3, -4, -5, -6};
  image->writeBytes(std::as_bytes(std::span(planes)), channelsFirst, {}, whole, {0, 3});
  EXPECT_EQ(valuesOf(*image), (Values{-1, -3, -5, 3, 4, 5, 6, 7, 8, -2, -4, -6, 12, 13, 14, 15, 16, 17}));
}

TEST_F(ImageTransfer, EveryCheckNamesWhatIsWrong) {
  const auto image = this->image(sizeOf(4, 3, 9, 2), counted(216));
  Bytes bytes(4096);
  const auto read = [&](const DataStrides& strides, const mtl::Region& region,
                        const ImageReadWriteParams& window, std::size_t index, std::size_t length) {
    return errorOf([&] {
      image->readBytes(std::span(bytes).first(length), pixelsFirst, strides, region, window, index);
    });
  };
  const mtl::Region whole{{0, 0, 0}, {4, 3, 1}};
  EXPECT_EQ(read({}, whole, {0, 9}, 0, 432), "");
  EXPECT_TRUE(names(read({}, whole, {0, 9}, 0, 431), {"431", "432"}));
  for (const mtl::Region& region : {mtl::Region{{1, 0, 0}, {4, 3, 1}},
                                    {{0, 1, 0}, {4, 3, 1}},
                                    {{0, 0, 0}, {0, 3, 1}},
                                    {{0, 0, 0}, {4, 0, 1}},
                                    {{4, 0, 0}, {1, 1, 1}},
                                    {{huge, 0, 0}, {2, 1, 1}},
                                    {{1, 0, 0}, {huge, 1, 1}}})
    EXPECT_TRUE(names(read({}, region, {0, 9}, 0, 4096), {"region"}));
  for (const mtl::Region& region : {mtl::Region{{0, 0, 2}, {1, 1, 1}},
                                    {{0, 0, 0}, {1, 1, 3}},
                                    {{0, 0, 1}, {1, 1, 2}},
                                    {{0, 0, huge}, {1, 1, 1}},
                                    {{0, 0, 1}, {1, 1, huge}}})
    EXPECT_TRUE(names(read({}, region, {0, 9}, 0, 4096), {"imageIndex"}));
  EXPECT_TRUE(names(read({}, whole, {0, 9}, 2, 4096), {"imageIndex"}));
  EXPECT_TRUE(names(read({}, {{0, 0, 1}, {1, 1, 1}}, {0, 9}, huge, 4096), {"imageIndex"}));
  for (const ImageReadWriteParams& window : {ImageReadWriteParams{0, 0},
                                             {0, 10},
                                             {2, 4},
                                             {4, 3},
                                             {4, 6},
                                             {8, 2},
                                             {12, 1},
                                             {huge - 3, 4},
                                             {4, huge}})
    EXPECT_TRUE(names(read({}, whole, window, 0, 4096), {"featureChannelInfo"}));
  EXPECT_EQ(read({}, whole, {0, 3}, 0, 4096), "") << "any count at offset 0";
  for (const std::size_t stride : {huge, huge / 2, huge / 2 + 1, huge - 7}) {
    EXPECT_NE(read({stride, 0, 0}, whole, {0, 9}, 0, 4096), "") << stride;
    EXPECT_NE(read({0, stride, 0}, whole, {0, 9}, 0, 4096), "") << stride;
    EXPECT_NE(read({0, 0, stride}, {{0, 0, 0}, {4, 3, 2}}, {0, 9}, 0, 4096), "") << stride;
  }
  std::vector<std::uint16_t> shorts(1000);
  EXPECT_TRUE(
      names(errorOf([&] { image->readBytes(std::span(shorts), pixelsFirst); }), {"2 bytes", "4", "float32"}));
  EXPECT_NE(errorOf([&] { image->writeBytes(std::span(shorts), pixelsFirst); }), "");
  EXPECT_NE(errorOf([&] { image->writeBytes(std::span(std::as_const(bytes)).first(431), pixelsFirst); }), "");
}

TEST_F(ImageTransfer, D16TexturesAreSlicesOfFourChannels) {
  const auto image = this->image(sizeOf(2, 1, 6, 2), counted(24, 0));
  TextureView texture = image->texture();
  EXPECT_EQ(texture.width(), 2U);
  EXPECT_EQ(texture.height(), 1U);
  EXPECT_EQ(texture.arrayLength(), 4U);
  EXPECT_EQ(texture.pixelFormat(), PixelFormat::RGBA32Float);
  Values texels(8, -1);
  const mtl::Region whole{{0, 0, 0}, {2, 1, 1}};
  texture.getBytes(std::as_writable_bytes(std::span(texels)), 32, whole, 2);
  EXPECT_EQ(texels, (Values{12, 13, 14, 15, 18, 19, 20, 21}));
  texture.getBytes(std::as_writable_bytes(std::span(texels)), 0, whole, 3);
  EXPECT_EQ(texels, (Values{16, 17, 0, 0, 22, 23, 0, 0})) << "texel channels beyond the image read as 0";
  const Values second{60, 61, 62, 63};
  texture.replace({{1, 0, 0}, {1, 1, 1}}, 1, std::as_bytes(std::span(second)), 16);
  EXPECT_EQ(valuesOf(*image),
            (Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 60, 61, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}));
}

TEST_F(ImageTransfer, TexturesOfOneTwoAndThreeChannelsHaveTexelsOfOneTwoAndFour) {
  for (const std::size_t channels : {1U, 2U, 3U}) {
    const auto image = this->image(sizeOf(2, 2, channels), counted(4 * channels));
    const std::size_t lanes = channels == 3 ? 4 : channels;
    Values texels(4 * lanes, -1);
    TextureView texture = image->texture();
    EXPECT_EQ(texture.arrayLength(), 1U);
    texture.getBytes(std::as_writable_bytes(std::span(texels)), 2 * lanes * 4, {{0, 0, 0}, {2, 2, 1}}, 0);
    Values expected;
    for (std::size_t pixel = 0; pixel < 4; ++pixel)
      for (std::size_t c = 0; c < lanes; ++c)
        expected.push_back(c < channels ? static_cast<float>(pixel * channels + c + 1) : 0);
    EXPECT_EQ(texels, expected);
    const auto copy = this->image(sizeOf(2, 2, channels));
    copy->texture().replace({{0, 0, 0}, {2, 2, 1}}, 0, std::as_bytes(std::span(texels)), 2 * lanes * 4);
    EXPECT_EQ(valuesOf(*copy), valuesOf(*image));
  }
}

TEST_F(ImageTransfer, ATextureIsOfAnImage) {
  EXPECT_TRUE(names(errorOf([] { TextureView(nullptr); }), {"TextureView", "image", "null"}));
}

TEST_F(ImageTransfer, TexturesCheckTheirArguments) {
  TextureView texture = this->image(sizeOf(2, 2, 5))->texture();
  Values texels(64);
  const auto bytes = std::as_writable_bytes(std::span(texels));
  const auto get = [&](const mtl::Region& region, std::size_t slice, std::size_t row, std::size_t length) {
    return errorOf([&] { texture.getBytes(bytes.first(length), row, region, slice); });
  };
  EXPECT_EQ(get({{0, 0, 0}, {2, 2, 1}}, 1, 32, 64), "");
  EXPECT_TRUE(names(get({{0, 0, 0}, {2, 2, 1}}, 2, 32, 64), {"slice"}));
  EXPECT_NE(get({{0, 0, 0}, {2, 2, 1}}, 1, 32, 63), "");
  EXPECT_NE(get({{0, 0, 0}, {2, 2, 1}}, 1, huge - 8, 64), "");
  for (const mtl::Region& region : {mtl::Region{{1, 0, 0}, {2, 2, 1}},
                                    {{0, 0, 0}, {2, 0, 1}},
                                    {{0, 2, 0}, {1, 1, 1}},
                                    {{0, 0, 0}, {1, huge, 1}},
                                    {{0, 0, 0}, {huge, 1, 1}}})
    EXPECT_TRUE(names(get(region, 0, 32, 256), {"region"}));
  EXPECT_EQ(texels, Values(64, 0));
}

TEST_F(ImageTransfer, RowsOfTexturesStayApart) {
  const auto image = this->image(sizeOf(2, 3, 4), counted(24));
  TextureView texture = image->texture();
  Values texels(24, -1);
  const auto bytes = std::as_writable_bytes(std::span(texels));
  const mtl::Region whole{{0, 0, 0}, {2, 3, 1}};
  for (const std::size_t shorter : {1U, 16U, 28U, 31U}) {
    EXPECT_TRUE(names(errorOf([&] { texture.getBytes(bytes, shorter, whole, 0); }),
                      {"TextureView", "bytesPerRow", std::to_string(shorter), "32", "2 texels"}));
    EXPECT_TRUE(names(errorOf([&] { texture.replace(whole, 0, bytes, shorter); }), {"bytesPerRow", "32"}));
  }
  EXPECT_TRUE(names(errorOf([&] {
                      texture.getBytes(bytes, 34, {{0, 0, 0}, {2, 2, 1}}, 0);
                    }),
                    {"bytesPerRow", "34", "a multiple of 4"}))
      << "rows that no float32 can begin at";
  EXPECT_EQ(texels, Values(24, -1)) << "nothing is read";
  EXPECT_EQ(valuesOf(*image), counted(24)) << "nothing is written";
  Values wide(3 * 12 - 4, -1);
  texture.getBytes(std::as_writable_bytes(std::span(wide)), 48, whole, 0);
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t i = 0; i < 12 && row * 12 + i < wide.size(); ++i)
      EXPECT_EQ(wide[row * 12 + i], i < 8 ? static_cast<float>(row * 8 + i + 1) : -1);
}

TEST_F(ImageTransfer, ATextureSaysHowManyBytesItNeeds) {
  TextureView texture = this->image(sizeOf(2, 3, 1))->texture();
  Values texels(16);
  const auto get = [&](std::size_t length, std::size_t row, std::size_t rows) {
    return errorOf([&] {
      texture.getBytes(std::as_writable_bytes(std::span(texels)).first(length), row,
                       {{0, 0, 0}, {2, rows, 1}}, 0);
    });
  };
  EXPECT_TRUE(names(get(7, 8, 1), {"bytes is 7 bytes", "at least 8, 1 row"})) << get(7, 8, 1);
  EXPECT_EQ(get(8, 8, 1), "");
  EXPECT_TRUE(names(get(31, 12, 3), {"bytes is 31 bytes", "at least 8 and 2 times 12, 3 rows"}))
      << get(31, 12, 3);
  EXPECT_EQ(get(32, 12, 3), "");
}

TEST_F(ImageTransfer, WhatIsReadIsNotReadOverSomethingElse) {
  const auto image = this->image(sizeOf(2, 2, 4, 2), counted(32));
  Values read(64, -1);
  const auto bytes = std::as_writable_bytes(std::span(read));
  const mtl::Region whole{{0, 0, 0}, {2, 2, 2}};
  const auto get = [&](DataLayout layout, const DataStrides& strides) {
    return errorOf([&] { image->readBytes(bytes, layout, strides, whole, {0, 4}, 0); });
  };
  const auto pixelsFirst = DataLayout::HeightxWidthxFeatureChannels;
  const auto planes = DataLayout::FeatureChannelsxHeightxWidth;
  EXPECT_TRUE(names(get(pixelsFirst, {12, 0, 0}), {"bytesPerColumn", "12", "16"}));
  EXPECT_TRUE(names(get(pixelsFirst, {16, 28, 0}), {"bytesPerRow", "28", "32"}));
  EXPECT_TRUE(names(get(pixelsFirst, {16, 32, 60}), {"bytesPerImage", "60", "64"}));
  EXPECT_TRUE(names(get(planes, {4, 4, 0}), {"bytesPerRow", "4", "8"}));
  EXPECT_TRUE(names(get(planes, {4, 8, 60}), {"bytesPerImage", "60", "64"}));
  EXPECT_EQ(read, Values(64, -1));
  EXPECT_EQ(get(pixelsFirst, {20, 40, 100}), "");
  EXPECT_EQ(get(planes, {4, 8, 64}), "");
}

}  // namespace
}  // namespace mps::image_transfer_test
