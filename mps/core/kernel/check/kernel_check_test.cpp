#include <gtest/gtest.h>

#include <limits>

#include "mps/core/image/image_storage.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

/// Wrong use of encodes gives a sentence that names kernel and argument, and nothing is recorded: design
/// section 9.
namespace mps::kernel_check_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Scale;
using testing::sizeOf;

class KernelChecks : public testing::DeviceTest {
 protected:
  KernelChecks() { scale_->setLabel("checked"); }

  /// The error of an encode of the given images; nothing may be recorded.
  std::string encode(const std::shared_ptr<Image>& source, const std::shared_ptr<Image>& result) {
    auto text = errorOf([&] { scale_->encode(commands_, source, result); });
    if (!text.empty()) {
      EXPECT_EQ(commands_->commandCount(), 0U);
      EXPECT_TRUE(names(text, {"Scale \"checked\""}));
    }
    return text;
  }
  std::string encodeBatch(const ImageBatch& sources, const ImageBatch& results) {
    return errorOf([&] { scale_->encodeBatch(commands_, sources, results); });
  }

  std::shared_ptr<mtl::CommandBuffer> commands_ = queue_->commandBuffer();
  std::shared_ptr<Scale> scale_ = Scale::create(device_);
  std::shared_ptr<Image> source_ = image(sizeOf(4, 4, 8), counted(128));
  std::shared_ptr<Image> result_ = poisoned(sizeOf(4, 4, 8));
};

TEST_F(KernelChecks, Nulls) {
  EXPECT_TRUE(names(encode(nullptr, result_), {"sourceImage", "null"}));
  EXPECT_TRUE(names(encode(source_, nullptr), {"destinationImage", "null"}));
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(nullptr, source_, result_); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(commands_, source_, std::shared_ptr<State>(), result_); }),
                    {"destinationState", "null"}));
  EXPECT_NE(errorOf([&] { scale_->encode(nullptr, source_); }), "");
}

TEST_F(KernelChecks, ACommittedCommandBuffer) {
  run(commands_);
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(commands_, source_, result_); }), {"commit"}));
  EXPECT_NE(errorOf([&] { scale_->encode(commands_, source_); }), "");
}

TEST_F(KernelChecks, CountsOfBatches) {
  const auto three = batch(sizeOf(1, 1, 1), 3, counted(3));
  const auto two = batch(sizeOf(1, 1, 1), 2, counted(2));
  EXPECT_TRUE(names(encodeBatch(three, two), {"destinationImages", "2", "3"}));
  EXPECT_NE(encodeBatch(ImageBatch(), two), "");
  EXPECT_NE(encodeBatch(two, ImageBatch()), "");
  const auto states = scale_->resultStateBatch(three);
  const auto results = batch(sizeOf(1, 1, 1), 2, counted(2));
  EXPECT_TRUE(names(errorOf([&] { scale_->encodeBatch(commands_, two, states, results); }),
                    {"destinationStates", "3"}));
  EXPECT_EQ(commands_->commandCount(), 0U);
}

TEST_F(KernelChecks, ImagesOfABatchMustBeAlike) {
  const auto a = image(sizeOf(2, 2, 1));
  const auto results = ImageBatch::create(device_, sizeOf(2, 2, 1), 2);
  for (const ImageDescriptor& other : {sizeOf(3, 2, 1), sizeOf(2, 3, 1), sizeOf(2, 2, 2),
                                       ImageDescriptor(ImageFeatureChannelFormat::Float16, 2, 2, 1)}) {
    const auto b = image(other);
    EXPECT_TRUE(names(encodeBatch(ImageBatch{a, b}, results), {"sourceImage", "image 1 of the batch"}));
    EXPECT_TRUE(names(encodeBatch(results, ImageBatch{a, b}), {"destinationImage", "image 1 of the batch"}));
  }
}

TEST_F(KernelChecks, StacksInBatches) {
  const auto stack = image(sizeOf(1, 1, 1, 2));
  const auto single = image(sizeOf(1, 1, 1));
  EXPECT_TRUE(names(encodeBatch(ImageBatch{stack}, ImageBatch{single}), {"sourceImages", "numberOfImages"}));
  EXPECT_TRUE(
      names(encodeBatch(ImageBatch{single}, ImageBatch{stack}), {"destinationImages", "numberOfImages"}));
  EXPECT_NE(errorOf([&] { scale_->encodeBatch(commands_, ImageBatch{stack}); }), "");
  EXPECT_TRUE(names(errorOf([&] { scale_->encode(commands_, stack); }), {"sourceImage", "numberOfImages"}));
}

TEST_F(KernelChecks, D16FormatsOfDestinations) {
  for (const auto format : {ImageFeatureChannelFormat::Unorm8, ImageFeatureChannelFormat::Unorm16})
    EXPECT_TRUE(
        names(encode(source_, image(ImageDescriptor(format, 4, 4, 8))), {"destinationImage", name(format)}));
}

TEST_F(KernelChecks, ChannelOffsets) {
  scale_->setSourceFeatureChannelOffset(2);
  EXPECT_TRUE(names(encode(source_, result_), {"sourceFeatureChannelOffset", "2", "multiple of 4"}));
  scale_->setSourceFeatureChannelOffset(8);
  EXPECT_TRUE(names(encode(source_, result_), {"sourceFeatureChannelOffset", "8"}));
  scale_->setSourceFeatureChannelOffset(0);
  scale_->setSourceFeatureChannelMaxCount(0);
  EXPECT_NE(encode(source_, result_), "");
  scale_->setSourceFeatureChannelMaxCount(8);
  scale_->setDestinationFeatureChannelOffset(3);
  EXPECT_TRUE(names(encode(source_, result_), {"destinationFeatureChannelOffset", "3"}));
  scale_->setDestinationFeatureChannelOffset(4);
  EXPECT_TRUE(names(encode(source_, result_), {"destinationImage", "8", "12"}));
  scale_->setDestinationFeatureChannelOffset(std::numeric_limits<std::size_t>::max() - 3);
  EXPECT_TRUE(names(encode(source_, result_), {"destinationImage"}));
  scale_->setDestinationFeatureChannelOffset(0);
  EXPECT_EQ(encode(source_, result_), "");
}

TEST_F(KernelChecks, EdgeModes) {
  for (const auto mode : {ImageEdgeMode::Mirror, ImageEdgeMode::MirrorWithEdge, ImageEdgeMode::Constant}) {
    scale_->setEdgeMode(mode);
    EXPECT_TRUE(names(encode(source_, result_), {"edgeMode", "Zero or Clamp"}));
  }
}

TEST_F(KernelChecks, StatesOfOtherBuffersDevicesAndCounts) {
  const auto encodeWith = [&](const std::shared_ptr<State>& state) {
    return errorOf([&] { scale_->encode(commands_, source_, state, result_); });
  };
  EXPECT_TRUE(names(encodeWith(State::create(mtl::newCPUDevice(1), StateResourceList{4})),
                    {"destinationStates", "device"}));
  EXPECT_TRUE(names(encodeWith(State::createTemporary(commands(), StateResourceList{4})),
                    {"destinationStates", "another command buffer"}));
  const auto released = State::createTemporary(commands_, StateResourceList{4});
  released->setLabel("old");
  released->setReadCount(0);
  EXPECT_TRUE(names(encodeWith(released), {"destinationStates", "old", "readCount"}));
  EXPECT_EQ(commands_->commandCount(), 0U);
}

TEST_F(KernelChecks, InvalidContent) {
  source_->storage()->memory()->setFailure("CNNConvolution \"c1\": broken");
  EXPECT_TRUE(names(encode(source_, result_), {"sourceImage", "CNNConvolution \"c1\": broken"}));
  EXPECT_EQ(encode(result_, source_), "") << "a new write is welcome";
}

TEST_F(KernelChecks, D15SkipAPIValidationSkipsThemAll) {
  const auto alike = image(sizeOf(4, 4, 8));
  source_->storage()->memory()->setFailure("broken");
  EXPECT_NE(encode(source_, result_), "");
  scale_->setOptions(KernelOptions::SkipAPIValidation | KernelOptions::Verbose);
  EXPECT_EQ(encode(source_, result_), "");
  EXPECT_EQ(encode(alike, alike), "") << "aliasing is the caller's business now";
  EXPECT_EQ(encode(alike, Image::create(device_, {ImageFeatureChannelFormat::Unorm8, 4, 4, 8})), "");
  scale_->setEdgeMode(ImageEdgeMode::Constant);
  EXPECT_EQ(encode(alike, result_), "");
}

TEST_F(KernelChecks, D15SkipAPIValidationDoesNotSkipTheChecksOfMemory) {
  scale_->setOptions(KernelOptions::SkipAPIValidation);
  const auto temporary = TemporaryImage::create(commands_, sizeOf(4, 4, 8));
  temporary->setReadCount(0);
  EXPECT_NE(errorOf([&] { scale_->encode(commands_, temporary, result_); }), "");
  scale_->setScratchBytes(std::numeric_limits<std::size_t>::max() / 2);
  EXPECT_THROW(scale_->encode(commands_, source_, result_), std::bad_alloc);
}

class Aliasing : public KernelChecks {};

TEST_F(Aliasing, TheSameImage) {
  EXPECT_TRUE(names(encode(source_, source_), {"destination", "sourceImage"}));
}

TEST_F(Aliasing, AKernelThatWorksInPlaceMayWriteOverItsSource) {
  scale_->setWorksInPlace(true);
  EXPECT_NE(encode(source_, source_->subImageWithFeatureChannelRange(0, 4)), "") << "a part of it";
  EXPECT_EQ(encode(source_, source_), "");
  const auto block = batch(sizeOf(2, 2, 4), 4, counted(64));
  EXPECT_EQ(encodeBatch(block, block), "");
  EXPECT_NE(encodeBatch(block.slice(0, 3), block.slice(1, 3)), "") << "another place of the block";
  EXPECT_NE(encodeBatch(ImageBatch{block[0], block[2], block[1]}, ImageBatch{block[1], block[2], block[0]}),
            "");
}

TEST_F(Aliasing, InPlaceEveryPixelMustStayWhereItIs) {
  scale_->setWorksInPlace(true);
  scale_->setOffset({1, 0, 0});
  EXPECT_NE(encode(source_, source_), "");
  scale_->setOffset({});
  scale_->setClipRect({{0, 1, 0}, {4, 3, 1}});
  EXPECT_NE(encode(source_, source_), "");
  scale_->setClipRect(RectNoClip);
  scale_->setSourceFeatureChannelOffset(4);
  scale_->setSourceFeatureChannelMaxCount(4);
  EXPECT_NE(encode(source_, source_), "");
  scale_->setDestinationFeatureChannelOffset(4);
  EXPECT_EQ(encode(source_, source_), "");
}

TEST_F(Aliasing, AnotherPlaceInTheBatch) {
  const auto block = batch(sizeOf(2, 2, 4), 4, counted(64));
  EXPECT_NE(encodeBatch(block, ImageBatch{image(sizeOf(2, 2, 4)), image(sizeOf(2, 2, 4)),
                                          image(sizeOf(2, 2, 4)), block[0]}),
            "");
  EXPECT_NE(encodeBatch(block.slice(0, 3), block.slice(1, 3)), "");
  EXPECT_EQ(encodeBatch(block.slice(0, 2), block.slice(2, 2)), "") << "different images of one block";
  EXPECT_EQ(encodeBatch(ImageBatch{block[3], block[0]}, ImageBatch{block[1], block[2]}), "");
}

TEST_F(Aliasing, Views) {
  const auto lower = source_->subImageWithFeatureChannelRange(0, 4);
  const auto upper = source_->subImageWithFeatureChannelRange(4, 4);
  EXPECT_NE(encode(lower, source_), "");
  EXPECT_NE(encode(source_, upper), "");
  EXPECT_NE(encode(lower, source_->subImageWithFeatureChannelRange(0, 4)), "") << "two views of one range";
  EXPECT_EQ(encode(lower, upper), "") << "different channels of one image";
  const auto stack = image(sizeOf(2, 2, 8, 3), counted(96));
  const auto images = stack->batchRepresentation();
  EXPECT_EQ(errorOf([&] { scale_->encode(commands_, images[0], images[2]); }), "");
  EXPECT_NE(errorOf([&] { scale_->encode(commands_, images[1], stack); }), "");
}

TEST_F(Aliasing, TwoImagesOverOneBuffer) {
  const auto buffer = device_->newBuffer(4096);
  const auto whole = Image::create(buffer, 0, sizeOf(4, 4, 8));
  EXPECT_NE(encode(whole, Image::create(buffer, 0, sizeOf(4, 4, 8))), "");
  EXPECT_NE(encode(whole, Image::create(buffer, 256, sizeOf(4, 4, 8))), "");
  EXPECT_EQ(encode(whole, Image::create(buffer, 512, sizeOf(4, 4, 8))), "");
}

TEST_F(Aliasing, ChannelsAndColumnsSideBySideInOneBuffer) {
  const auto buffer = device_->newBuffer(65536);
  const auto error = [&](std::size_t offsetA, std::size_t channelsA, std::size_t widthA, std::size_t offsetB,
                         std::size_t channelsB, std::size_t widthB) {
    const auto a = Image::create(buffer, 4 * offsetA, sizeOf(widthA, 4, channelsA), {8, 80, 0});
    const auto b = Image::create(buffer, 4 * offsetB, sizeOf(widthB, 4, channelsB), {8, 80, 0});
    scale_->setProducedChannels(channelsB);
    return errorOf([&] { scale_->encode(commands_, a, b); });
  };
  // Pixels of 8 channels, rows of 10 pixels, beginning anywhere in the buffer.
  for (const std::size_t start : {0U, 1U, 5U, 79U, 83U}) {
    SCOPED_TRACE("start " + std::to_string(start));
    EXPECT_EQ(error(start, 4, 5, start + 4, 4, 5), "") << "channels 0-3 and 4-7";
    EXPECT_EQ(error(start + 4, 4, 5, start, 4, 5), "");
    EXPECT_NE(error(start, 5, 5, start + 4, 4, 5), "") << "channel 4 twice";
    EXPECT_NE(error(start, 8, 5, start + 4, 2, 5), "");
    EXPECT_EQ(error(start, 8, 5, start + 40, 8, 5), "") << "columns 0-4 and 5-9";
    EXPECT_EQ(error(start + 40, 8, 5, start, 8, 5), "");
    EXPECT_NE(error(start, 8, 6, start + 40, 8, 5), "") << "column 5 twice";
    EXPECT_NE(error(start, 8, 5, start + 80, 8, 5), "") << "rows 1-3 twice";
    EXPECT_EQ(error(start, 8, 10, start + 320, 8, 10), "") << "rows 0-3 and 4-7";
  }
}

TEST_F(Aliasing, ADestinationOfLooseImages) {
  const auto a = image(sizeOf(2, 2, 1));
  const auto b = image(sizeOf(2, 2, 1));
  const auto c = image(sizeOf(2, 2, 1));
  EXPECT_NE(encodeBatch(ImageBatch{a, b}, ImageBatch{c, a}), "");
  EXPECT_EQ(encodeBatch(ImageBatch{a, b}, ImageBatch{c, image(sizeOf(2, 2, 1))}), "");
}

}  // namespace
}  // namespace mps::kernel_check_test
