#include <gtest/gtest.h>

#include <functional>

#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"

/// A batch is processed as each of its images alone, however its images lie in memory.
namespace mps::kernel_batch_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Scale;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using testing::WindowSum;

using Images = std::vector<std::shared_ptr<Image>>;

const ImageDescriptor size = sizeOf(3, 2, 4);
constexpr std::size_t each = 24;

/// Four images in some arrangement.
struct Arrangement {
  const char* name;
  std::function<ImageBatch(const std::shared_ptr<mtl::Device>&)> make;
};

Images looseImages(const std::shared_ptr<mtl::Device>& device, std::size_t count) {
  Images images;
  for (std::size_t i = 0; i < count; ++i) images.push_back(Image::create(device, size));
  return images;
}

std::vector<Arrangement> arrangements() {
  using Device = std::shared_ptr<mtl::Device>;
  return {
      {"Block", [](const Device& device) { return ImageBatch::create(device, size, 4); }},
      {"SliceOfABlock", [](const Device& device) { return ImageBatch::create(device, size, 7).slice(2, 4); }},
      {"Loose", [](const Device& device) { return ImageBatch(looseImages(device, 4)); }},
      {"SliceOfLoose", [](const Device& device) { return ImageBatch(looseImages(device, 6)).slice(1, 4); }},
      {"ImagesOfABlock",
       [](const Device& device) {
         const auto block = ImageBatch::create(device, size, 4);
         return ImageBatch{block[0], block[1], block[2], block[3]};
       }},
      {"Reordered",
       [](const Device& device) {
         const auto block = ImageBatch::create(device, size, 4);
         return ImageBatch{block[2], block[0], block[3], block[1]};
       }},
      {"Reversed",
       [](const Device& device) {
         const auto block = ImageBatch::create(device, size, 4);
         return ImageBatch{block[3], block[2], block[1], block[0]};
       }},
      {"EveryOther",
       [](const Device& device) {
         const auto block = ImageBatch::create(device, size, 8);
         return ImageBatch{block[1], block[3], block[5], block[7]};
       }},
      {"Stacked",
       [](const Device& device) {
         const auto stack = Image::create(device, sizeOf(3, 2, 4, 4));
         return stack->batchRepresentation();
       }},
      {"PartOfAStack",
       [](const Device& device) {
         return Image::create(device, sizeOf(3, 2, 4, 6))->batchRepresentation(1, 4);
       }},
      {"ChannelsOfAStack",
       [](const Device& device) {
         const auto stack = Image::create(device, sizeOf(3, 2, 12, 4));
         return stack->subImageWithFeatureChannelRange(4, 4)->batchRepresentation();
       }},
      {"ChannelsOfOneImage",
       [](const Device& device) {
         const auto image = Image::create(device, sizeOf(3, 2, 16));
         Images parts;
         for (std::size_t i = 0; i < 4; ++i)
           parts.push_back(image->subImageWithFeatureChannelRange(4 * i, 4));
         return ImageBatch(parts);
       }},
      {"StridesOfSeveralKinds",
       [](const Device& device) {
         const auto buffer = device->newBuffer(4 * 1024);
         return ImageBatch{Image::create(device, size), Image::create(buffer, 0, size, {8, 32, 0}),
                           Image::create(buffer, 1024, size, {5, 17, 0}), Image::create(buffer, 2048, size)};
       }},
      {"StridedOverOneBuffer",
       [](const Device& device) {
         const auto buffer = device->newBuffer(4 * 1024);
         Images images;
         for (std::size_t i = 0; i < 4; ++i)
           images.push_back(Image::create(buffer, 1024 * i, size, {6, 20, 0}));
         return ImageBatch(images);
       }},
  };
}

class BatchArrangements : public testing::DeviceTest,
                          public ::testing::WithParamInterface<std::tuple<Arrangement, Arrangement>> {
 protected:
  [[nodiscard]] ImageBatch sources(const Values& values) const {
    auto batch = std::get<0>(GetParam()).make(device_);
    batch.writeBytes(std::span(values), testing::pixelsFirst);
    return batch;
  }
  [[nodiscard]] ImageBatch results() const {
    auto batch = std::get<1>(GetParam()).make(device_);
    const Values values(4 * each, poison);
    batch.writeBytes(std::span(values), testing::pixelsFirst);
    return batch;
  }
  static Values read(const ImageBatch& batch) {
    Values values(4 * each);
    batch.readBytes(std::span(values), testing::pixelsFirst);
    return values;
  }
  /// What a kernel gives when it takes each image alone, between plain images.
  template <class KernelType>
  Values oneByOne(KernelType& kernel, const Values& values) const {
    Values all;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(i * each);
      const auto result = poisoned(size);
      const auto buffer = commands();
      kernel.encode(buffer, image(size, Values(first, first + each)), result);
      run(buffer);
      const Values part = valuesOf(*result);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

TEST_P(BatchArrangements, WholeImages) {
  const auto kernel = WindowSum::create(device_, 3);
  const auto from = sources(counted(4 * each));
  const auto to = results();
  const auto buffer = commands();
  kernel->encodeBatch(buffer, from, to);
  run(buffer);
  EXPECT_EQ(read(to), oneByOne(*kernel, counted(4 * each)));
  EXPECT_EQ(read(from), counted(4 * each));
}

TEST_P(BatchArrangements, ClipRectangleChannelsAndEdges) {
  const auto kernel = Scale::create(device_, 3);
  kernel->setOffset({-1, 1, 0});
  kernel->setClipRect({{1, 0, 0}, {2, 2, 1}});
  kernel->setEdgeMode(ImageEdgeMode::Clamp);
  kernel->setSourceFeatureChannelMaxCount(3);
  const auto from = sources(counted(4 * each));
  const auto to = results();
  const auto buffer = commands();
  kernel->encodeBatch(buffer, from, to);
  run(buffer);
  EXPECT_EQ(read(to), oneByOne(*kernel, counted(4 * each)));
}

TEST_P(BatchArrangements, ImagesMayBeDroppedAfterEncoding) {
  const auto kernel = Scale::create(device_, 1);
  const auto to = results();
  const auto buffer = commands();
  {
    const auto from = sources(counted(4 * each));
    kernel->encodeBatch(buffer, from, to);
  }
  const auto scribbled = sources(Values(4 * each, 77));  // would take the memory if it were free
  run(buffer);
  EXPECT_EQ(read(to), counted(4 * each));
  EXPECT_EQ(read(scribbled), Values(4 * each, 77));
}

TEST_P(BatchArrangements, DroppedDestinationsAreNotOverwrittenLater) {
  const auto kernel = Scale::create(device_, 1);
  const auto from = sources(Values(4 * each, 5));
  const auto buffer = commands();
  kernel->encodeBatch(buffer, from, results());
  const auto innocent = sources(counted(4 * each));
  const auto moreInnocent = results();
  run(buffer);
  EXPECT_EQ(read(innocent), counted(4 * each));
  EXPECT_EQ(read(moreInnocent), Values(4 * each, poison));
}

INSTANTIATE_TEST_SUITE_P(All, BatchArrangements,
                         ::testing::Combine(::testing::ValuesIn(arrangements()),
                                            ::testing::ValuesIn(arrangements())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "To" +
                                  std::get<1>(info.param).name;
                         });

class KernelBatch : public testing::DeviceTest {
 protected:
  std::shared_ptr<Scale> scale_ = Scale::create(device_, 2);
};

TEST_F(KernelBatch, ASourceMayAppearSeveralTimes) {
  const auto a = image(sizeOf(1, 1, 2), {1, 2});
  const auto b = image(sizeOf(1, 1, 2), {3, 4});
  for (const ImageBatch& sources : {ImageBatch{a, a, a}, ImageBatch{a, b, a}}) {
    const auto results = ImageBatch::create(device_, sizeOf(1, 1, 2), 3);
    const auto buffer = commands();
    scale_->encodeBatch(buffer, sources, results);
    run(buffer);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(valuesOf(*results[i]), sources[i] == a ? (Values{2, 4}) : (Values{6, 8}));
  }
}

TEST_F(KernelBatch, OfADestinationThatAppearsSeveralTimesTheLastOneStays) {
  const auto sources = batch(sizeOf(64, 64, 4), 3, [] {
    Values values(3 * 16384, 1);
    std::fill(values.begin() + 16384, values.begin() + 2 * 16384, 2.F);
    std::fill(values.begin() + 2 * 16384, values.end(), 3.F);
    return values;
  }());
  const auto result = poisoned(sizeOf(64, 64, 4));
  const auto buffer = commands();
  scale_->encodeBatch(buffer, sources, ImageBatch{result, result, result});
  run(buffer);
  EXPECT_EQ(valuesOf(*result), Values(16384, 6));
}

/// As if each had been processed alone, one after the other; not elements of several at once.
TEST_F(KernelBatch, OfDestinationsThatShareElementsTheLastOneStays) {
  constexpr std::size_t pixels = 4096;
  const auto sources = ImageBatch::create(device_, sizeOf(64, 64, 8), 3);
  for (std::size_t i = 0; i < 3; ++i)
    testing::fill(*sources[i], Values(8 * pixels, static_cast<float>(i + 1)));
  const auto whole = poisoned(sizeOf(64, 64, 16));
  const auto buffer = commands();
  ImageBatch results{whole->subImageWithFeatureChannelRange(0, 8),
                     whole->subImageWithFeatureChannelRange(4, 8),
                     whole->subImageWithFeatureChannelRange(8, 8)};
  EXPECT_TRUE(detail::BatchOperand(results, true).isLoose()) << "else they are written at once";
  EXPECT_FALSE(detail::BatchOperand(results).isLoose());
  scale_->encodeBatch(buffer, sources, results);
  run(buffer);
  Values expected;
  for (std::size_t i = 0; i < pixels; ++i)
    expected.insert(expected.end(), {2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6});
  EXPECT_EQ(valuesOf(*whole), expected);
  const auto back = commands();
  scale_->encodeBatch(back, sources, ImageBatch{results[2], results[1], results[0]});
  run(back);
  expected.clear();
  for (std::size_t i = 0; i < pixels; ++i)
    expected.insert(expected.end(), {6, 6, 6, 6, 6, 6, 6, 6, 4, 4, 4, 4, 2, 2, 2, 2});
  EXPECT_EQ(valuesOf(*whole), expected);
}

TEST_F(KernelBatch, ZFieldsDoNotCountTheImagesOfABatch) {
  const auto sources = batch(sizeOf(1, 1, 1), 4, counted(4));
  const auto encode = [&] {
    const auto results = batch(sizeOf(1, 1, 1), 4, Values(4, poison));
    const auto buffer = commands();
    scale_->encodeBatch(buffer, sources, results);
    run(buffer);
    Values values(4);
    results.readBytes(std::span(values), testing::pixelsFirst);
    return values;
  };
  scale_->setClipRect({{0, 0, 0}, {1, 1, 1}});  // a two-dimensional region, as ported code writes it
  EXPECT_EQ(encode(), (Values{2, 4, 6, 8}));
  scale_->setClipRect({{0, 0, 0}, {1, 1, 3}});
  EXPECT_EQ(encode(), (Values{2, 4, 6, 8}));
  scale_->setClipRect({{0, 0, 0}, {1, 1, 0}});
  EXPECT_EQ(encode(), Values(4, poison));
  scale_->setClipRect({{0, 0, 1}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf(encode), {"clipRect.origin.z", "1"}));
  scale_->setClipRect(RectNoClip);
  scale_->setOffset({0, 0, 1});
  EXPECT_TRUE(names(errorOf(encode), {"offset.z", "1"}));
}

TEST_F(KernelBatch, TemporaryAndPermanentImagesMayBeMixed) {
  const auto buffer = commands();
  const auto first = image(sizeOf(1, 1, 2), {1, 2});
  const auto temporary = scale_->encode(buffer, first);
  const auto results = ImageBatch::create(device_, sizeOf(1, 1, 2), 2);
  {
    const auto permanent = image(sizeOf(1, 1, 2), {5, 6});
    scale_->encodeBatch(buffer, ImageBatch{temporary, permanent}, results);
  }
  const auto other = image(sizeOf(1, 1, 2), {0, 0});
  EXPECT_EQ(static_cast<TemporaryImage&>(*temporary).readCount(), 0U);
  run(buffer);
  EXPECT_EQ(valuesOf(*results[0]), (Values{4, 8}));
  EXPECT_EQ(valuesOf(*results[1]), (Values{10, 12}));
}

TEST_F(KernelBatch, ObjectsOfAnEncodeLiveUntilItRan) {
  const auto result = poisoned(sizeOf(3, 3, 1));
  const auto buffer = commands();
  {
    const auto kernel = Scale::create(device_, 2);
    const auto source = image(sizeOf(3, 3, 1), counted(9));
    kernel->encode(buffer, source, result);
    kernel->setOffset({1, 1, 0});  // reads beyond the edge: through a copy
    kernel->setClipRect({{0, 0, 0}, {1, 1, 1}});
    kernel->encode(buffer, source, poisoned(sizeOf(3, 3, 1)));
  }
  const auto edge = poisoned(sizeOf(3, 3, 1));
  {
    const auto kernel = Scale::create(device_, 2);
    kernel->setOffset({2, 2, 0});
    kernel->encode(buffer, image(sizeOf(3, 3, 1), counted(9)), edge);
  }
  const auto scribbled = image(sizeOf(3, 3, 1), Values(9, 55));
  const auto more = image(sizeOf(3, 3, 1), Values(9, 55));
  run(buffer);
  EXPECT_EQ(valuesOf(*result)[8], 18);
  EXPECT_EQ(valuesOf(*edge), (Values{18, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(valuesOf(*scribbled), Values(9, 55));
}

TEST_F(KernelBatch, SteadyStateAsksTheSystemForNoMemory) {
  const auto sources = batch(sizeOf(16, 16, 4), 4, Values(4096, 1));
  const auto loose = ImageBatch{image(sizeOf(16, 16, 4)), image(sizeOf(16, 16, 4)), image(sizeOf(16, 16, 4)),
                                image(sizeOf(16, 16, 4))};
  const auto encodeStep = [&] {
    auto buffer = commands();
    StateBatch states;
    auto images = scale_->encodeBatch(buffer, sources, states, true);
    for (int layer = 0; layer < 4; ++layer) images = scale_->encodeBatch(buffer, images);
    scale_->encodeBatch(buffer, images, loose);
    return buffer;
  };
  // As much as ever is in flight: one step runs while the next one is encoded.
  auto before = encodeStep();
  const auto next = encodeStep();
  for (const auto& buffer : {before, next}) run(buffer);
  const std::size_t allocations = device_->systemAllocationCount();
  for (int step = 0; step < 60; ++step) {
    const auto buffer = encodeStep();
    buffer->commit();
    before->throwIfFailed();
    before = buffer;
    ASSERT_EQ(device_->systemAllocationCount(), allocations) << "step " << step;
  }
  before->throwIfFailed();
  EXPECT_EQ(valuesOf(*loose[3])[0], 64);
}

}  // namespace
}  // namespace mps::kernel_batch_test
