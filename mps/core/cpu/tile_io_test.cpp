#include "mps/core/cpu/tile_io.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mtl/device.hpp"

namespace mps::detail::tile_io_test {
namespace {

using enum ImageFeatureChannelFormat;

std::shared_ptr<mtl::Device> testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(2);
  return device;
}

TensorShape strided(std::int64_t images, std::int64_t height, std::int64_t width, std::int64_t channels,
                    std::int64_t pixelGap, std::int64_t rowGap, std::int64_t imageGap,
                    ImageFeatureChannelFormat format) {
  TensorShape shape = TensorShape::dense(images, height, width, channels, format);
  shape.pixelStride = channels + pixelGap;
  shape.rowStride = width * shape.pixelStride + rowGap;
  shape.imageStride = height * shape.rowStride + imageGap;
  return shape;
}

/// Dense, gaps between channels, rows, images; pixels larger than a tile; one pixel for each image.
std::vector<TensorShape> shapes(ImageFeatureChannelFormat format) {
  return {TensorShape::dense(3, 5, 7, 17, format),   strided(2, 9, 11, 5, 3, 0, 0, format),
          strided(3, 17, 6, 16, 0, 5, 0, format),    strided(3, 4, 5, 33, 0, 0, 7, format),
          strided(2, 2, 3, 4100, 4, 8, 16, format),  TensorShape::dense(2, 1, 2, 2048, format),
          TensorShape::dense(2100, 1, 1, 3, format), TensorShape::dense(1, 1, 1, 1, format),
          strided(40, 1, 1, 100, 0, 0, 28, format)};
}

TEST(Tiling, CoversEveryElementOnceInOrder) {
  for (const std::int64_t channels : {1, 3, 64, 2047, 2048, 2049, 5000})
    for (const std::int64_t pixels : {0, 1, 2, 31, 1000}) {
      const Tiling tiling(pixels, channels);
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < tiling.count(); ++i) {
        const Tile tile = tiling[i];
        EXPECT_EQ(tile.firstPixel * channels + tile.firstChannel, next);
        EXPECT_TRUE(tile.channels == channels || tile.pixels == 1);
        EXPECT_GT(tile.elements(), 0);
        EXPECT_LE(tile.elements(), Tiling::capacity);
        next += tile.elements();
      }
      EXPECT_EQ(next, pixels * channels);
    }
  EXPECT_EQ(Tiling(5, 0).count(), 0);
}

float valueOf(ConstFloatRun run, std::int64_t i) {
  const ConstFloatRun at = run + static_cast<std::size_t>(i);
  return at.isHalf ? loadFloat(static_cast<const mps::Float16*>(at.address))
                   : *static_cast<const float*>(at.address);
}

TEST(TileIo, LoadsEveryFormatAndStride) {
  forEachTarget([](const std::string& target) {
    for (const auto format : {Unorm8, Unorm16, Float16, Float32})
      for (const TensorShape& shape : shapes(format)) {
        SCOPED_TRACE(shape.describe() + " " + target);
        TestTensor source(testDevice(), shape, 3);
        source.write(randomValues(static_cast<std::size_t>(shape.elements()), 1, RandomKind::Positive));
        const std::vector<double> expected = source.read();
        const Tiling tiling(shape.pixels(), shape.channels);
        std::vector<float> buffer(Tiling::capacity);
        std::vector<float> found;
        std::vector<float> foundInRuns;
        for (std::int64_t i = 0; i < tiling.count(); ++i) {
          const Tile tile = tiling[i];
          const float* values = loadTile(shape, source.address(), tile, buffer.data());
          found.insert(found.end(), values, values + tile.elements());
          const ConstFloatRun run = loadRun(shape, source.address(), tile, buffer.data());
          for (std::int64_t e = 0; e < tile.elements(); ++e) foundInRuns.push_back(valueOf(run, e));
        }
        ASSERT_EQ(found.size(), expected.size());
        EXPECT_EQ(foundInRuns, found);
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_EQ(found[i], static_cast<float>(expected[i])) << i;
        EXPECT_TRUE(source.isUnchanged());
      }
  });
}

/// Fills a destination tile by tile with the given values.
void storeAll(TestTensor& destination, const std::vector<double>& values, bool accumulate, bool inRuns) {
  const TensorShape& shape = destination.shape();
  const Tiling tiling(shape.pixels(), shape.channels);
  std::vector<float> buffer(Tiling::capacity);
  auto next = values.begin();
  for (std::int64_t i = 0; i < tiling.count(); ++i) {
    const Tile tile = tiling[i];
    const FloatRun target =
        inRuns ? runTarget(shape, destination.address(), tile, buffer.data(), accumulate)
               : FloatRun(tileTarget(shape, destination.address(), tile, buffer.data(), accumulate));
    for (std::int64_t e = 0; e < tile.elements(); ++e) {
      const FloatRun at = target + static_cast<std::size_t>(e);
      const auto value = static_cast<float>(*next++);
      if (at.isHalf)
        storeFloat(value, static_cast<mps::Float16*>(at.address));
      else
        *static_cast<float*>(at.address) = value;
    }
    storeTile(shape, destination.address(), tile, target, accumulate);
  }
}

TEST(TileIo, StoresEveryFormatAndStrideAndNothingElse) {
  forEachTarget([](const std::string& target) {
    for (const auto format : {Unorm8, Unorm16, Float16, Float32})
      for (const TensorShape& shape : shapes(format)) {
        SCOPED_TRACE(shape.describe() + " " + target);
        const bool isUnorm = format == Unorm8 || format == Unorm16;
        const auto values = randomValues(static_cast<std::size_t>(shape.elements()), 2,
                                         isUnorm ? RandomKind::Positive : RandomKind::Uniform);
        for (const bool inRuns : {false, true}) {
          TestTensor destination(testDevice(), shape, 5);
          storeAll(destination, values, false, inRuns);
          const std::vector<double> found = destination.read();
          for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], roundTo(values[i], format)) << i;
          EXPECT_TRUE(destination.surroundingsIntact());
        }
      }
  });
}

TEST(TileIo, Accumulates) {
  forEachTarget([](const std::string& target) {
    for (const TensorShape& shape : shapes(Float32)) {
      SCOPED_TRACE(shape.describe() + " " + target);
      const auto before =
          randomValues(static_cast<std::size_t>(shape.elements()), 3, RandomKind::SmallIntegers);
      const auto values =
          randomValues(static_cast<std::size_t>(shape.elements()), 4, RandomKind::SmallIntegers);
      for (const bool inRuns : {false, true}) {
        TestTensor destination(testDevice(), shape);
        destination.write(before);
        storeAll(destination, values, true, inRuns);
        const std::vector<double> found = destination.read();
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], before[i] + values[i]) << i;
        EXPECT_TRUE(destination.surroundingsIntact());
      }
    }
  });
}

TEST(TileIo, DenseFloat32IsNotCopied) {
  const TensorShape shape = TensorShape::dense(2, 3, 4, 5);
  TestTensor tensor(testDevice(), shape);
  const Tile tile{6, 10, 0, 5};
  float buffer[50];
  EXPECT_EQ(loadTile(shape, tensor.address(), tile, buffer), reinterpret_cast<float*>(tensor.address()) + 30);
  EXPECT_EQ(tileTarget(shape, tensor.address(), tile, buffer),
            reinterpret_cast<float*>(tensor.address()) + 30);
  EXPECT_EQ(tileTarget(shape, tensor.address(), tile, buffer, true), buffer);
}

TEST(TileIo, RunsOfDenseFloat16AreNotCopied) {
  const TensorShape shape = TensorShape::dense(2, 3, 4, 5, Float16);
  TestTensor tensor(testDevice(), shape);
  const Tile tile{6, 10, 0, 5};
  float buffer[50];
  const ConstFloatRun run = loadRun(shape, tensor.address(), tile, buffer);
  EXPECT_TRUE(run.isHalf);
  EXPECT_EQ(run.address, tensor.address() + 60);
  const FloatRun target = runTarget(shape, tensor.address(), tile, buffer);
  EXPECT_TRUE(target.isHalf);
  EXPECT_EQ(target.address, tensor.address() + 60);
}

}  // namespace
}  // namespace mps::detail::tile_io_test
