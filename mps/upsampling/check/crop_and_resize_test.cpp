#include "mps/upsampling/crop_and_resize.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/upsampling/crop_and_resize_problem.hpp"

/// The public class. The arithmetic over all shapes is tested with the plans of upsampling.
namespace mps::crop_and_resize_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using Regions = std::vector<NormalizedRegion>;

class CropAndResize : public testing::DeviceTest {
 protected:
  std::shared_ptr<NNCropAndResizeBilinear> kernel(std::size_t width, std::size_t height,
                                                  const Regions& regions) const {
    auto made = NNCropAndResizeBilinear::create(device_, width, height, regions);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  Values cropped(const std::shared_ptr<NNCropAndResizeBilinear>& kernel,
                 const std::shared_ptr<Image>& source) {
    const auto buffer = commands();
    const auto result = kernel->encode(buffer, source);
    run(buffer);
    return valuesOf(*result);
  }
  std::shared_ptr<Image> row_ = image(sizeOf(5, 1, 1), {0, 8, 16, 24, 40});
};

/// t = (origin + d size / (out - 1)) (in - 1).
TEST_F(CropAndResize, RegionsAreFractionsOfTheSizeLessOne) {
  EXPECT_EQ(cropped(kernel(5, 1, {{}}), row_), (Values{0, 8, 16, 24, 40}));
  EXPECT_EQ(cropped(kernel(3, 1, {{0.25, 0, 0.5, 1}}), row_), (Values{8, 16, 24}));
  EXPECT_EQ(cropped(kernel(3, 1, {{0.625, 0, 0.25, 1}}), row_), (Values{20, 24, 32}));
}

TEST_F(CropAndResize, NegativeSizesMirror) {
  EXPECT_EQ(cropped(kernel(3, 1, {{1, 0, -1, 1}}), row_), (Values{40, 16, 0}));
}

TEST_F(CropAndResize, OnePixelIsTheMiddleOfTheRegion) {
  EXPECT_EQ(cropped(kernel(1, 1, {{0.5, 0, 0.5, 1}}), row_), (Values{24}));
}

TEST_F(CropAndResize, OutsideIsZeroOrTheEdge) {
  const auto outside = kernel(5, 1, {{-0.25, 0, 2, 1}});
  EXPECT_EQ(cropped(outside, row_), (Values{0, 8, 24, 0, 0}));
  outside->setEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(cropped(outside, row_), (Values{0, 8, 24, 40, 40}));
}

/// Ends that are not exact in binary are not outside.
TEST_F(CropAndResize, TheFarEdgeIsInside) {
  for (const double origin : {0.1, 0.3, 0.6, 0.7}) {
    const Values result = cropped(kernel(4, 1, {{origin, 0, 1 - origin, 1}}), row_);
    EXPECT_EQ(result.back(), 40) << origin;
  }
}

TEST_F(CropAndResize, EachRegionIsAnImageOfTheStack) {
  const Regions regions{{0, 0, 1, 1}, {0.5, 0, 0.5, 0}, {0, 1, 0, 0}};
  const auto source = image(sizeOf(3, 2, 2), testing::counted(12));
  const auto made = kernel(2, 1, regions);
  EXPECT_EQ(made->numberOfRegions(), 3U);
  const std::shared_ptr<Image> sources[] = {source};
  EXPECT_EQ(made->destinationImageDescriptor(sources), sizeOf(2, 1, 2, 3));
  // Of one row the middle: rows 0 and 1 of the first region.
  const Values expected{4, 5, 8, 9, 3, 4, 5, 6, 7, 8, 7, 8};
  EXPECT_EQ(cropped(made, source), expected);
  const auto given = poisoned(sizeOf(2, 1, 2, 3));
  const auto buffer = commands();
  made->encode(buffer, source, given);
  run(buffer);
  EXPECT_EQ(valuesOf(*given), expected);
}

TEST_F(CropAndResize, BatchesHaveTheRegionsOfEachSource) {
  const auto sources = batch(sizeOf(3, 1, 1), 2, {1, 2, 3, 10, 20, 30});
  const auto made = kernel(1, 1, {{0, 0, 0, 0}, {1, 0, 0, 0}});
  const auto buffer = commands();
  const ImageBatch results = made->encodeBatch(buffer, sources);
  run(buffer);
  ASSERT_EQ(results.count(), 4U);
  EXPECT_EQ(valuesOf(results), (Values{1, 3, 10, 30}));
  EXPECT_TRUE(names(errorOf([&] { made->encodeBatch(commands(), ImageBatch{}); }),
                    {"NNCropAndResizeBilinear", "sourceImages", "an empty batch"}));
}

TEST_F(CropAndResize, SourcesThatAreEvenlySpacedAreOneCall) {
  const auto made = kernel(1, 1, {{0, 0, 0, 0}, {1, 0, 0, 0}});
  const auto image = [&](float first) { return this->image(sizeOf(2, 1, 1), {first, first + 1}); };
  const auto calls = [&](const ImageBatch& sources, const Values& expected) {
    int count = 0;
    const auto buffer = commands();
    {
      const detail::CallObserver observer([&](const detail::PreparedCall& /*prepared*/,
                                              const detail::CallOperands& /*operands*/) { ++count; });
      const ImageBatch results = made->encodeBatch(buffer, sources);
      run(buffer);
      EXPECT_EQ(valuesOf(results), expected);
    }
    return count;
  };
  EXPECT_EQ(calls(batch(sizeOf(2, 1, 1), 3, {1, 2, 3, 4, 5, 6}), {1, 2, 3, 4, 5, 6}), 1);
  EXPECT_EQ(calls({image(1), image(4), image(7)}, {1, 2, 4, 5, 7, 8}), 3);
  const auto same = image(3);
  EXPECT_EQ(calls({same, same}, {3, 4, 3, 4}), 1);
}

TEST_F(CropAndResize, ATemporarySourceIsReadOnce) {
  const auto buffer = commands();
  const auto source = TemporaryImage::create(buffer, sizeOf(5, 1, 1));
  const auto first = kernel(5, 1, {{}});
  first->encode(buffer, row_, source);
  const auto result = kernel(1, 1, {{0, 0, 0, 0}, {1, 0, 0, 0}})->encode(buffer, source);
  EXPECT_EQ(source->readCount(), 0U);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{0, 40}));
}

TEST_F(CropAndResize, ASourceTwiceInABatchIsReadOnce) {
  const auto buffer = commands();
  const auto twice = TemporaryImage::create(buffer, sizeOf(5, 1, 1));
  const auto between = image(sizeOf(5, 1, 1), {1, 2, 3, 4, 5});
  kernel(5, 1, {{}})->encode(buffer, row_, twice);
  const ImageBatch results =
      kernel(1, 1, {{0, 0, 0, 0}, {1, 0, 0, 0}})->encodeBatch(buffer, {twice, between, twice});
  EXPECT_EQ(twice->readCount(), 0U);
  run(buffer);
  EXPECT_EQ(valuesOf(results), (Values{0, 40, 1, 5, 0, 40}));
}

TEST_F(CropAndResize, AFailedEncodeReadsNoSource) {
  const auto buffer = commands();
  const auto first = TemporaryImage::create(buffer, sizeOf(5, 1, 1));
  kernel(5, 1, {{}})->encode(buffer, row_, first);
  const auto other = image(sizeOf(3, 1, 1), {1, 2, 3});
  const ImageBatch results{poisoned(sizeOf(1, 1, 1)), poisoned(sizeOf(1, 1, 1))};
  EXPECT_TRUE(names(errorOf([&] {
                      kernel(1, 1, {{}})->encodeBatch(buffer, {first, other}, results);
                    }),
                    {"sourceImage"}));
  EXPECT_EQ(first->readCount(), 1U);
  EXPECT_EQ(kernel(1, 1, {{}})->encode(buffer, first)->width(), 1U);
  run(buffer);
}

TEST_F(CropAndResize, ClipsAndOffsets) {
  const auto made = kernel(3, 1, {{0, 0, 0.5, 1}});
  made->setOffset({1, 0, 0});
  made->setClipRect({{1, 0, 0}, {2, 1, 1}});
  const auto given = poisoned(sizeOf(3, 1, 1));
  const auto buffer = commands();
  made->encode(buffer, row_, given);
  run(buffer);
  EXPECT_EQ(valuesOf(*given), (Values{poison, 8, 16}));
}

TEST_F(CropAndResize, KeepsWhatItIsGiven) {
  Regions regions{{0, 0.5, 0.25, 1}, {}};
  const auto made = kernel(6, 7, regions);
  regions[0].x = 9;
  KeyedArchiver archiver;
  made->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  for (const auto& one : {made->copy(), NNCropAndResizeBilinear::decode(unarchiver, device_)}) {
    EXPECT_EQ(one->className(), "NNCropAndResizeBilinear");
    EXPECT_EQ(one->resizeWidth(), 6U);
    EXPECT_EQ(one->resizeHeight(), 7U);
    EXPECT_EQ(Regions(one->regions().begin(), one->regions().end()), (Regions{{0, 0.5, 0.25, 1}, {}}));
    EXPECT_EQ(one->resultState(row_), nullptr);
  }
}

TEST_F(CropAndResize, WrongUseIsNamed) {
  for (const std::size_t size : {std::size_t{0}, (std::size_t{1} << 24U) + 1}) {
    EXPECT_TRUE(names(errorOf([&] { kernel(size, 1, {{}}); }), {"resizeWidth"}));
    EXPECT_TRUE(names(errorOf([&] { kernel(1, size, {{}}); }), {"resizeHeight"}));
  }
  EXPECT_TRUE(names(errorOf([&] { kernel(1, 1, {}); }), {"regions", "none"}));
  for (const double number : {std::numeric_limits<double>::quiet_NaN(), 2e9, -2e9})
    EXPECT_TRUE(names(errorOf([&] { kernel(1, 1, {{0, number, 1, 1}}); }), {"regions"}));
  const auto two = kernel(1, 1, {{}, {}});
  EXPECT_TRUE(names(errorOf([&] { two->encode(commands(), row_, poisoned(sizeOf(1, 1, 1))); }),
                    {"destinationImages", "1", "2"}));
  EXPECT_TRUE(names(errorOf([&] { two->encode(commands(), nullptr); }), {"sourceImage", "null"}));
  EXPECT_TRUE(names(errorOf([&] { two->encode(commands(), row_, nullptr); }), {"destinationImage", "null"}));
  // The encodes of the base class know nothing of several results.
  CNNKernel& base = *two;
  EXPECT_TRUE(
      names(errorOf([&] { base.encode(commands(), row_); }), {"destinationImages", "2 for each source"}));
}

TEST(CropAndResizeProblem, HashAndEqualitySeeEachField) {
  detail::CropAndResizeProblem problem;
  problem.regions.resize(2);
  problem.destination = detail::TensorShape::dense(2, 3, 4, 5);
  const auto expectOther = [&](auto change) {
    detail::CropAndResizeProblem other = problem;
    change(other);
    EXPECT_NE(other, problem);
    EXPECT_NE(other.hash(), problem.hash());
  };
  expectOther([](auto& other) { other.edgeMode = ImageEdgeMode::Clamp; });
  expectOther([](auto& other) { other.regions[1].x.start = 1; });
  expectOther([](auto& other) { other.regions[0].y.step = 1; });
  expectOther([](auto& other) { other.input.channels = 1; });
  expectOther([](auto& other) { other.destination.channels = 1; });
  expectOther([](auto& other) { other.regions.pop_back(); });
}

}  // namespace
}  // namespace mps::crop_and_resize_test
