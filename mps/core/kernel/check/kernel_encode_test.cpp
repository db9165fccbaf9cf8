#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/memory.hpp"

/// The encodes of unary kernels and what they read and write.
namespace mps::kernel_encode_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Scale;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class KernelEncode : public testing::ScaleTest {};

TEST_F(KernelEncode, PropertiesHaveTheirDefaults) {
  const auto kernel = Scale::create(device_);
  EXPECT_EQ(kernel->offset(), Offset{});
  EXPECT_EQ(kernel->clipRect(), RectNoClip);
  EXPECT_EQ(kernel->destinationFeatureChannelOffset(), 0U);
  EXPECT_EQ(kernel->sourceFeatureChannelOffset(), 0U);
  EXPECT_EQ(kernel->sourceFeatureChannelMaxCount(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(kernel->edgeMode(), ImageEdgeMode::Zero);
  EXPECT_EQ(kernel->kernelWidth(), 1U);
  EXPECT_EQ(kernel->strideInPixelsY(), 1U);
  EXPECT_EQ(kernel->dilationRateX(), 1U);
  EXPECT_FALSE(kernel->isBackwards());
  EXPECT_FALSE(kernel->isStateModified());
  EXPECT_FALSE(kernel->isResultStateReusedAcrossBatch());
  EXPECT_FALSE(kernel->appendBatchBarrier());
  EXPECT_EQ(kernel->padding()->paddingMethod(), NNPaddingMethod::SizeSame);
  EXPECT_EQ(kernel->destinationImageAllocator(), TemporaryImage::defaultAllocator());
  EXPECT_EQ(kernel->options(), KernelOptions::None);
  EXPECT_EQ(kernel->label(), "");
  EXPECT_EQ(kernel->device(), device_);
  EXPECT_EQ(kernel->describe(), "Scale");
  kernel->setLabel("one");
  EXPECT_EQ(kernel->describe(), "Scale \"one\"");
}

TEST_F(KernelEncode, EveryFormGivesTheSame) {
  const Values in = counted(24);
  const Values expected = scaled(in);
  const auto source = image(sizeOf(3, 2, 4), in);
  const auto sources = batch(sizeOf(3, 2, 4), 2, counted(48));
  const Values expectedOfBatch = scaled(counted(48));
  const auto buffer = commands();

  const auto given = poisoned(sizeOf(3, 2, 4));
  scale_->encode(buffer, source, given);

  const auto givenWithState = poisoned(sizeOf(3, 2, 4));
  const auto state = scale_->resultState(source);
  ASSERT_NE(state, nullptr);
  scale_->encode(buffer, source, state, givenWithState);
  EXPECT_NE(std::dynamic_pointer_cast<NNGradientState>(state)->record(), nullptr);

  const auto returned = scale_->encode(buffer, source);
  std::shared_ptr<State> madeState;
  const auto returnedWithState = scale_->encode(buffer, source, madeState, false);
  ASSERT_NE(madeState, nullptr);
  EXPECT_NE(std::dynamic_pointer_cast<NNGradientState>(madeState)->record(), nullptr);

  const auto batchGiven = batch(sizeOf(3, 2, 4), 2, Values(48, poison));
  scale_->encodeBatch(buffer, sources, batchGiven);
  const auto batchGivenWithStates = batch(sizeOf(3, 2, 4), 2, Values(48, poison));
  const auto states = scale_->resultStateBatch(sources);
  ASSERT_EQ(states.count(), 2U);
  scale_->encodeBatch(buffer, sources, states, batchGivenWithStates);
  const auto batchGivenWithoutStates = batch(sizeOf(3, 2, 4), 2, Values(48, poison));
  scale_->encodeBatch(buffer, sources, StateBatch(), batchGivenWithoutStates);
  const auto batchReturned = scale_->encodeBatch(buffer, sources);
  StateBatch madeStates;
  const auto batchReturnedWithStates = scale_->encodeBatch(buffer, sources, madeStates, true);
  ASSERT_EQ(madeStates.count(), 2U);

  run(buffer);
  for (const auto& result : {given, givenWithState, returned, returnedWithState})
    EXPECT_EQ(valuesOf(*result), expected);
  for (const auto& result :
       {batchGiven, batchGivenWithStates, batchGivenWithoutStates, batchReturned, batchReturnedWithStates})
    EXPECT_EQ(valuesOfBatch(result), expectedOfBatch);
  EXPECT_EQ(scale_->encodes(), 9);
}

TEST_F(KernelEncode, ReturnedImagesAreTemporaryByDefault) {
  const auto kernel = Scale::create(device_);
  const auto buffer = commands();
  const auto result = kernel->encode(buffer, image(sizeOf(2, 2, 1)));
  EXPECT_TRUE(result->isTemporary());
  EXPECT_EQ(static_cast<TemporaryImage&>(*result).readCount(), 1U);
  const auto results = kernel->encodeBatch(buffer, batch(sizeOf(2, 2, 1), 3, counted(12)));
  EXPECT_TRUE(results.isTemporary());
  EXPECT_EQ(results.count(), 3U);
  EXPECT_NE(results.blockStorage(), nullptr) << "one block";
}

TEST_F(KernelEncode, AKernelWithoutStateGivesNone) {
  scale_->setMakesState(false);
  const auto source = image(sizeOf(2, 2, 1), counted(4));
  const auto buffer = commands();
  std::shared_ptr<State> state = State::create(device_, StateResourceList{});
  scale_->encode(buffer, source, state, false);
  EXPECT_EQ(state, nullptr);
  StateBatch states(State::create(device_, StateResourceList{}), 2);
  scale_->encodeBatch(buffer, batch(sizeOf(2, 2, 1), 2, counted(8)), states, false);
  EXPECT_TRUE(states.empty());
  EXPECT_EQ(scale_->resultState(source), nullptr);
  EXPECT_TRUE(scale_->resultStateBatch(ImageBatch{source}).empty());
  EXPECT_EQ(scale_->temporaryResultState(buffer, source), nullptr);
}

TEST_F(KernelEncode, AStateThatTheBatchSharesIsOneObject) {
  scale_->setSharesState(true);
  StateBatch states;
  const auto sources = batch(sizeOf(2, 2, 1), 3, counted(12));
  scale_->encodeBatch(commands(), sources, states, false);
  ASSERT_EQ(states.count(), 3U);
  EXPECT_EQ(states[0], states[2]);
  EXPECT_NE(scale_->resultStateBatch(sources).sharedState(), nullptr);
  const auto made = scale_->temporaryResultStateBatch(commands(), sources);
  EXPECT_EQ(made[0], made[2]);
}

TEST_F(KernelEncode, AnEmptyBatchIsNamed) {
  const auto buffer = commands();
  scale_->setLabel("twice");
  const std::vector<std::string> expected{"Scale \"twice\"", "sourceImages", "an empty batch"};
  EXPECT_TRUE(names(errorOf([&] { scale_->encodeBatch(buffer, ImageBatch()); }), expected));
  EXPECT_TRUE(names(errorOf([&] { scale_->encodeBatch(buffer, ImageBatch(), ImageBatch()); }), expected));
  StateBatch states(State::create(device_, StateResourceList{}), 2);
  EXPECT_TRUE(names(errorOf([&] { scale_->encodeBatch(buffer, ImageBatch(), states, false); }), expected));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(KernelEncode, EncodingRecordsAndRunsNothing) {
  const auto result = poisoned(sizeOf(2, 1, 1));
  const auto buffer = commands();
  scale_->encode(buffer, image(sizeOf(2, 1, 1), {1, 2}), result);
  EXPECT_EQ(valuesOf(*result), Values(2, poison));
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{2, 4}));
}

TEST_F(KernelEncode, PropertiesAreCapturedWhenEncoding) {
  const auto source = image(sizeOf(4, 1, 4), counted(16));
  const auto result = poisoned(sizeOf(4, 1, 4));
  const auto buffer = commands();
  scale_->setOffset({1, 0, 0});
  scale_->setClipRect({{0, 0, 0}, {2, 1, 1}});
  scale_->encode(buffer, source, result);
  scale_->setFactor(100);
  scale_->setOffset({3, 3, 0});
  scale_->setClipRect(RectNoClip);
  scale_->setEdgeMode(ImageEdgeMode::Clamp);
  scale_->setSourceFeatureChannelOffset(4);
  run(buffer);
  Values expected(16, poison);
  for (std::size_t i = 0; i < 8; ++i) expected[i] = 2 * static_cast<float>(i + 5);
  EXPECT_EQ(valuesOf(*result), expected);
}

TEST_F(KernelEncode, ACopyHasTheSamePropertiesAndALifeOfItsOwn) {
  scale_->setLabel("original");
  scale_->setOffset({1, 2, 3});
  scale_->setClipRect({{1, 1, 0}, {2, 2, 1}});
  scale_->setEdgeMode(ImageEdgeMode::Clamp);
  scale_->setSourceFeatureChannelOffset(4);
  scale_->setSourceFeatureChannelMaxCount(8);
  scale_->setDestinationFeatureChannelOffset(12);
  scale_->setOptions(KernelOptions::Verbose);
  scale_->setFactor(7);
  const auto copy = scale_->copy();
  EXPECT_NE(copy, scale_);
  EXPECT_EQ(copy->device(), device_);
  EXPECT_EQ(copy->label(), "original");
  EXPECT_EQ(copy->offset(), (Offset{1, 2, 3}));
  EXPECT_EQ(copy->clipRect(), scale_->clipRect());
  EXPECT_EQ(copy->edgeMode(), ImageEdgeMode::Clamp);
  EXPECT_EQ(copy->sourceFeatureChannelOffset(), 4U);
  EXPECT_EQ(copy->sourceFeatureChannelMaxCount(), 8U);
  EXPECT_EQ(copy->destinationFeatureChannelOffset(), 12U);
  EXPECT_EQ(copy->options(), KernelOptions::Verbose);
  EXPECT_EQ(copy->factor(), 7);
  EXPECT_EQ(copy->padding(), scale_->padding());
  EXPECT_EQ(copy->destinationImageAllocator(), scale_->destinationImageAllocator());
  copy->setFactor(1);
  copy->setLabel("copy");
  EXPECT_EQ(scale_->factor(), 7);
  EXPECT_EQ(scale_->label(), "original");
}

/// docs/decisions.md, D12 and D13: copies go to any device; kernels never work on another one's buffers.
TEST(Decisions, D13ACopyWorksOnItsOwnDeviceOnly) {
  const auto here = mtl::newCPUDevice(1);
  const auto there = mtl::newCPUDevice(1);
  const auto kernel = Scale::create(here);
  const auto copy = kernel->copy(there);
  EXPECT_EQ(copy->device(), there);
  EXPECT_EQ(kernel->device(), here);
  const auto encode = [](Scale& scale, const std::shared_ptr<mtl::Device>& buffers,
                         const std::shared_ptr<mtl::Device>& sources,
                         const std::shared_ptr<mtl::Device>& results) {
    const auto source = Image::create(sources, sizeOf(2, 1, 1));
    const auto result = Image::create(results, sizeOf(2, 1, 1));
    return errorOf([&] { scale.encode(buffers->newCommandQueue()->commandBuffer(), source, result); });
  };
  EXPECT_EQ(encode(*copy, there, there, there), "");
  EXPECT_TRUE(names(encode(*copy, here, there, there), {"Scale", "commandBuffer", "device"}));
  EXPECT_TRUE(names(encode(*copy, there, here, there), {"Scale", "sourceImage", "device"}));
  EXPECT_TRUE(names(encode(*copy, there, there, here), {"Scale", "destinationImage", "device"}));
  EXPECT_NE(errorOf([] { Scale::create(nullptr); }), "");
}

TEST_F(KernelEncode, TheUsersAllocatorMakesTheDestination) {
  class Allocator : public ImageAllocator {
   public:
    std::shared_ptr<Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 const ImageDescriptor& descriptor, const Kernel& kernel) override {
      ++calls;
      asked = descriptor;
      asking = kernel.describe();
      ImageDescriptor made = descriptor;
      made.setWidth(made.width() + widen);
      made.setNumberOfImages(images);
      if (givesNull) return nullptr;
      last = Image::create(device ? device : commandBuffer->device(), made);
      return last;
    }
    int calls = 0;
    std::size_t widen = 0;
    std::size_t images = 1;
    bool givesNull = false;
    std::shared_ptr<mtl::Device> device;
    ImageDescriptor asked;
    std::string asking;
    std::shared_ptr<Image> last;
  };
  const auto allocator = std::make_shared<Allocator>();
  scale_->setDestinationImageAllocator(allocator);
  scale_->setLabel("asks");
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto buffer = commands();
  const auto result = scale_->encode(buffer, source);
  EXPECT_EQ(result, allocator->last);
  EXPECT_EQ(allocator->asked, sizeOf(2, 1, 1));
  EXPECT_EQ(allocator->asking, "Scale \"asks\"");
  const auto results = scale_->encodeBatch(buffer, batch(sizeOf(2, 1, 1), 3, counted(6)));
  EXPECT_EQ(allocator->calls, 4) << "the default of imageBatch asks for each image";
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{2, 4}));
  EXPECT_EQ(valuesOfBatch(results), scaled(counted(6)));
  const auto refused = [&] { return errorOf([&] { scale_->encode(commands(), source); }); };
  allocator->widen = 1;
  EXPECT_TRUE(names(refused(), {"asks", "destinationImageAllocator"}));
  allocator->widen = 0;
  allocator->images = 2;
  EXPECT_NE(refused(), "");
  allocator->images = 1;
  allocator->givesNull = true;
  EXPECT_NE(refused(), "");
  allocator->givesNull = false;
  allocator->device = mtl::newCPUDevice(1);
  EXPECT_NE(refused(), "");
  EXPECT_NE(errorOf([&] { scale_->setDestinationImageAllocator(nullptr); }), "");
}

TEST_F(KernelEncode, ScratchMemoryIsTakenAndReported) {
  scale_->setScratchBytes(1000);
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto result = image(sizeOf(2, 1, 1));
  EXPECT_EQ(scale_->encodingStorageSize(source, {}, result), 1000U);
  EXPECT_EQ(scale_->batchEncodingStorageSize(ImageBatch{source}, {}, ImageBatch{result}), 1000U);
  EXPECT_EQ(scale_->batchEncodingStorageSize(ImageBatch()), 0U);
  const auto buffer = commands();
  scale_->encode(buffer, source, result);
  EXPECT_EQ(queue_->heap()->peakBytes(), 1024U);
  EXPECT_EQ(queue_->heap()->usedBytes(), 0U);
}

}  // namespace
}  // namespace mps::kernel_encode_test
