#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mps/core/testing/test_kernels.hpp"
#include "mtl/memory.hpp"

/// Kernels with any number of sources.
namespace mps::multiary_kernel_test {
namespace {

using testing::Digits;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

using Images = std::vector<std::shared_ptr<Image>>;

class MultiaryKernel : public testing::ScaleTest {
 protected:
  MultiaryKernel() { digits_->setDestinationImageAllocator(Image::defaultAllocator()); }

  /// Three images of 2 x 1 x 2 whose sum by digits is known.
  [[nodiscard]] Images threeImages() const {
    const auto size = sizeOf(2, 1, 2);
    return {image(size, {1, 2, 3, 4}), image(size, {5, 6, 7, 8}), image(size, {9, 8, 7, 6})};
  }
  const Values sum_ = {951, 862, 773, 684};
  /// The same in batches of two; the second images are ten times the first.
  [[nodiscard]] std::vector<ImageBatch> threeBatches() const {
    const auto size = sizeOf(2, 1, 2);
    return {batch(size, 2, {1, 2, 3, 4, 10, 20, 30, 40}), batch(size, 2, {5, 6, 7, 8, 50, 60, 70, 80}),
            batch(size, 2, {9, 8, 7, 6, 90, 80, 70, 60})};
  }
  const Values sums_ = {951, 862, 773, 684, 9510, 8620, 7730, 6840};

  std::shared_ptr<Digits> digits_ = Digits::create(device_, 3);
};

TEST_F(MultiaryKernel, PropertiesHaveTheirDefaults) {
  EXPECT_EQ(digits_->sourceCount(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(digits_->offset(i), Offset{});
    EXPECT_EQ(digits_->sourceFeatureChannelOffset(i), 0U);
    EXPECT_EQ(digits_->sourceFeatureChannelMaxCount(i), std::numeric_limits<std::size_t>::max());
    EXPECT_EQ(digits_->edgeMode(i), ImageEdgeMode::Zero);
    EXPECT_EQ(digits_->kernelWidth(i), 1U);
    EXPECT_EQ(digits_->kernelHeight(i), 1U);
    EXPECT_EQ(digits_->strideInPixelsX(i), 1U);
    EXPECT_EQ(digits_->strideInPixelsY(i), 1U);
    EXPECT_EQ(digits_->dilationRateX(i), 1U);
    EXPECT_EQ(digits_->dilationRateY(i), 1U);
  }
  const auto fresh = Digits::create(device_, 1);
  EXPECT_EQ(fresh->clipRect(), RectNoClip);
  EXPECT_EQ(fresh->destinationFeatureChannelOffset(), 0U);
  EXPECT_EQ(fresh->padding()->paddingMethod(), NNPaddingMethod::SizeSame);
  EXPECT_EQ(fresh->destinationImageAllocator(), TemporaryImage::defaultAllocator());
  EXPECT_FALSE(fresh->isBackwards());
  EXPECT_FALSE(fresh->isStateModified());
  EXPECT_FALSE(fresh->isResultStateReusedAcrossBatch());
  EXPECT_FALSE(fresh->appendBatchBarrier());
}

TEST_F(MultiaryKernel, EachSourceHasPropertiesOfItsOwn) {
  for (std::size_t i = 0; i < 3; ++i) {
    digits_->setOffset({static_cast<std::ptrdiff_t>(i), 10, -1}, i);
    digits_->setSourceFeatureChannelOffset(4 * i, i);
    digits_->setSourceFeatureChannelMaxCount(100 + i, i);
    digits_->setEdgeMode(i == 1 ? ImageEdgeMode::Clamp : ImageEdgeMode::Zero, i);
    digits_->setKernelWidth(20 + i, i);
    digits_->setKernelHeight(30 + i, i);
    digits_->setStrideInPixelsX(40 + i, i);
    digits_->setStrideInPixelsY(50 + i, i);
    digits_->setDilationRateX(60 + i, i);
    digits_->setDilationRateY(70 + i, i);
  }
  const auto copy = detail::copyAs(*digits_, device_);
  for (const auto& kernel : {digits_, copy}) {
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(kernel->offset(i), (Offset{static_cast<std::ptrdiff_t>(i), 10, -1}));
      EXPECT_EQ(kernel->sourceFeatureChannelOffset(i), 4 * i);
      EXPECT_EQ(kernel->sourceFeatureChannelMaxCount(i), 100 + i);
      EXPECT_EQ(kernel->edgeMode(i), i == 1 ? ImageEdgeMode::Clamp : ImageEdgeMode::Zero);
      EXPECT_EQ(kernel->kernelWidth(i), 20 + i);
      EXPECT_EQ(kernel->kernelHeight(i), 30 + i);
      EXPECT_EQ(kernel->strideInPixelsX(i), 40 + i);
      EXPECT_EQ(kernel->strideInPixelsY(i), 50 + i);
      EXPECT_EQ(kernel->dilationRateX(i), 60 + i);
      EXPECT_EQ(kernel->dilationRateY(i), 70 + i);
    }
  }
}

TEST_F(MultiaryKernel, AnIndexOutsideIsRefusedByEveryProperty) {
  digits_->setLabel("sum");
  const std::vector<std::function<void(std::size_t)>> uses = {
      [&](std::size_t i) { (void)digits_->offset(i); },
      [&](std::size_t i) { digits_->setOffset({}, i); },
      [&](std::size_t i) { (void)digits_->sourceFeatureChannelOffset(i); },
      [&](std::size_t i) { digits_->setSourceFeatureChannelOffset(0, i); },
      [&](std::size_t i) { (void)digits_->sourceFeatureChannelMaxCount(i); },
      [&](std::size_t i) { digits_->setSourceFeatureChannelMaxCount(1, i); },
      [&](std::size_t i) { (void)digits_->edgeMode(i); },
      [&](std::size_t i) { digits_->setEdgeMode(ImageEdgeMode::Clamp, i); },
      [&](std::size_t i) { (void)digits_->kernelWidth(i); },
      [&](std::size_t i) { digits_->setKernelWidth(1, i); },
      [&](std::size_t i) { (void)digits_->kernelHeight(i); },
      [&](std::size_t i) { digits_->setKernelHeight(1, i); },
      [&](std::size_t i) { (void)digits_->strideInPixelsX(i); },
      [&](std::size_t i) { digits_->setStrideInPixelsX(1, i); },
      [&](std::size_t i) { (void)digits_->strideInPixelsY(i); },
      [&](std::size_t i) { digits_->setStrideInPixelsY(1, i); },
      [&](std::size_t i) { (void)digits_->dilationRateX(i); },
      [&](std::size_t i) { digits_->setDilationRateX(1, i); },
      [&](std::size_t i) { (void)digits_->dilationRateY(i); },
      [&](std::size_t i) { digits_->setDilationRateY(1, i); },
  };
  for (std::size_t use = 0; use < uses.size(); ++use) {
    EXPECT_EQ(errorOf([&] { uses[use](2); }), "") << use;
    for (const std::size_t index : {std::size_t{3}, std::numeric_limits<std::size_t>::max()})
      EXPECT_TRUE(names(errorOf([&] { uses[use](index); }),
                        {"Digits \"sum\"", "index", std::to_string(index), "sourceCount 3"}))
          << use;
  }
}

TEST_F(MultiaryKernel, ZeroSourcesAndNullsAreRefused) {
  EXPECT_TRUE(names(errorOf([&] { Digits::create(device_, 0); }), {"sourceCount", "0", "at least 1"}));
  EXPECT_NE(errorOf([] { Digits::create(nullptr, 1); }), "");
  EXPECT_TRUE(names(errorOf([&] { digits_->setPadding(nullptr); }), {"Digits", "padding", "null"}));
  EXPECT_TRUE(names(errorOf([&] { digits_->setDestinationImageAllocator(nullptr); }),
                    {"Digits", "destinationImageAllocator", "null"}));
}

TEST_F(MultiaryKernel, EveryFormGivesTheSame) {
  const auto images = threeImages();
  const auto batches = threeBatches();
  digits_->setMakesState(true);
  const auto buffer = commands();

  const auto given = poisoned(sizeOf(2, 1, 2));
  digits_->encode(buffer, images, given);
  EXPECT_TRUE(digits_->encodedStates().empty());
  const auto returned = digits_->encode(buffer, images);
  EXPECT_TRUE(digits_->encodedStates().empty());
  std::shared_ptr<State> state;
  const auto returnedWithState = digits_->encode(buffer, images, state, false);
  ASSERT_NE(state, nullptr);
  ASSERT_EQ(digits_->encodedStates().size(), 1U);
  EXPECT_EQ(digits_->encodedStates()[0], state) << "what the caller is given is what was encoded with";

  const auto givenBatch = batch(sizeOf(2, 1, 2), 2, Values(8, poison));
  digits_->encodeBatch(buffer, batches, givenBatch);
  EXPECT_TRUE(digits_->encodedStates().empty());
  const auto returnedBatch = digits_->encodeBatch(buffer, batches);
  StateBatch states;
  const auto returnedBatchWithStates = digits_->encodeBatch(buffer, batches, states, true);
  ASSERT_EQ(states.count(), 2U);
  EXPECT_EQ(digits_->encodedStates()[1], states[1]);
  const NNMultiaryGradientStateBatch givenStates = digits_->resultStateBatch(batches);
  const auto givenBoth = batch(sizeOf(2, 1, 2), 2, Values(8, poison));
  digits_->encodeBatch(buffer, batches, givenStates, givenBoth);
  EXPECT_EQ(digits_->encodedStates()[1], givenStates[1]);
  EXPECT_TRUE(
      names(errorOf([&] { digits_->encodeBatch(buffer, batches, StateBatch{givenStates[0]}, givenBoth); }),
            {"Digits", "destinationStates"}));

  run(buffer);
  for (const auto& result : {given, returned, returnedWithState}) EXPECT_EQ(valuesOf(*result), sum_);
  for (const auto& result : {givenBatch, returnedBatch, returnedBatchWithStates, givenBoth})
    EXPECT_EQ(valuesOfBatch(result), sums_);
}

TEST_F(MultiaryKernel, LooseAndReorderedBatchesGiveTheSame) {
  auto batches = threeBatches();
  const auto reversed = ImageBatch{batches[1][1], batches[1][0]};
  const auto a = batches[0];
  batches = {ImageBatch{a[1], a[0]}, reversed, ImageBatch{batches[2][1], batches[2][0]}};
  const auto result = batch(sizeOf(2, 1, 2), 2, Values(8, poison));
  const auto buffer = commands();
  digits_->encodeBatch(buffer, batches, ImageBatch{result[1], result[0]});
  run(buffer);
  EXPECT_EQ(valuesOfBatch(result), sums_);
}

/// What the base class has serves kernels of every class.
TEST_F(MultiaryKernel, WorksThroughItsBaseClass) {
  const std::shared_ptr<CNNMultiaryKernel> kernel = digits_;
  const auto buffer = commands();
  const auto one = kernel->encode(buffer, threeImages());
  const auto several = kernel->encodeBatch(buffer, threeBatches());
  run(buffer);
  EXPECT_EQ(valuesOf(*one), sum_);
  EXPECT_EQ(valuesOfBatch(several), sums_);
}

TEST_F(MultiaryKernel, OneSourceWillDo) {
  const auto one = Digits::create(device_, 1);
  const auto result = poisoned(sizeOf(2, 1, 2));
  const auto buffer = commands();
  one->encode(buffer, Images{threeImages()[1]}, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{5, 6, 7, 8}));
}

TEST_F(MultiaryKernel, ReturnedImagesAreTemporaryByDefault) {
  const auto kernel = Digits::create(device_, 3);
  const auto buffer = commands();
  const auto result = kernel->encode(buffer, threeImages());
  ASSERT_TRUE(result->isTemporary());
  EXPECT_EQ(static_cast<TemporaryImage&>(*result).readCount(), 1U);
  const auto results = kernel->encodeBatch(buffer, threeBatches());
  EXPECT_TRUE(results.isTemporary());
  EXPECT_NE(results.blockStorage(), nullptr) << "one block";
}

TEST_F(MultiaryKernel, EachSourceLosesOneRead) {
  const auto buffer = commands();
  Images sources;
  for (const auto& from : threeImages()) {
    const auto made = TemporaryImage::create(buffer, from->descriptor());
    scale_->setFactor(1);
    scale_->encode(buffer, from, made);
    made->setReadCount(2);
    sources.push_back(made);
  }
  const auto result = poisoned(sizeOf(2, 1, 2));
  digits_->encode(buffer, sources, result);
  for (const auto& source : sources) EXPECT_EQ(static_cast<TemporaryImage&>(*source).readCount(), 1U);
  digits_->encode(buffer, sources, result);
  for (const auto& source : sources) EXPECT_EQ(static_cast<TemporaryImage&>(*source).readCount(), 0U);
  EXPECT_EQ(queue_->heap()->usedBytes(), 0U);
  EXPECT_TRUE(
      names(errorOf([&] { digits_->encode(buffer, sources, result); }), {"sourceImages", "readCount"}));
  run(buffer);
  EXPECT_EQ(valuesOf(*result), sum_);
}

TEST_F(MultiaryKernel, AnEncodeThatFailsHalfwayLeavesNothing) {
  const auto buffer = commands();
  Images sources = threeImages();
  const auto temporary = TemporaryImage::create(buffer, sources[0]->descriptor());
  scale_->encode(buffer, sources[0], temporary);
  sources[0] = temporary;
  digits_->setMakesState(true);
  digits_->setFailingSource(2);
  digits_->setOffset({5, 6, 7}, 1);
  const std::size_t commandCount = buffer->commandCount();
  const std::size_t usedBytes = queue_->heap()->usedBytes();
  std::shared_ptr<State> state;
  EXPECT_EQ(errorOf([&] { digits_->encode(buffer, sources, state, false); }), "Digits: no plan");
  EXPECT_EQ(state, nullptr);
  EXPECT_EQ(errorOf([&] { digits_->encode(buffer, sources, image(sizeOf(2, 1, 2))); }), "Digits: no plan");
  EXPECT_EQ(buffer->commandCount(), commandCount);
  EXPECT_EQ(queue_->heap()->usedBytes(), usedBytes);
  EXPECT_EQ(temporary->readCount(), 1U);
  EXPECT_EQ(digits_->offset(1), (Offset{5, 6, 7})) << "sizing is undone too";
}

TEST_F(MultiaryKernel, WrongArgumentsAreRefusedAndNothingIsRecorded) {
  const auto images = threeImages();
  const auto batches = threeBatches();
  const auto result = poisoned(sizeOf(2, 1, 2));
  const auto buffer = commands();
  const auto refusal = [&](const Images& sources, const std::shared_ptr<Image>& destination) {
    return errorOf([&] { digits_->encode(buffer, sources, destination); });
  };
  const auto batchRefusal = [&](const std::vector<ImageBatch>& sources, const ImageBatch& destinations) {
    return errorOf([&] { digits_->encodeBatch(buffer, sources, destinations); });
  };
  const Images two(images.begin(), images.begin() + 2);
  EXPECT_TRUE(names(refusal(two, result), {"Digits", "sourceImages", "2 sources", "3"}));
  EXPECT_TRUE(names(errorOf([&] { digits_->encode(buffer, two); }), {"sourceImages", "2 sources", "3"}));
  EXPECT_TRUE(names(errorOf([&] { digits_->encodeBatch(buffer, std::vector<ImageBatch>{}); }),
                    {"sourceImages", "0 sources", "3"}));
  EXPECT_TRUE(names(errorOf([&] { digits_->destinationImageDescriptor(two); }), {"2 sources", "3"}));
  EXPECT_TRUE(names(errorOf([&] { (void)digits_->resultState(two); }), {"2 sources", "3"}));
  EXPECT_TRUE(names(refusal({images[0], nullptr, images[2]}, result), {"sourceImages", "null"}));
  EXPECT_TRUE(names(refusal(images, nullptr), {"destinationImage", "null"}));
  EXPECT_TRUE(names(errorOf([&] { digits_->encode(nullptr, images, result); }), {"commandBuffer", "null"}));

  const auto shorter = std::vector{batches[0], batches[1].slice(0, 1), batches[2]};
  const auto results = batch(sizeOf(2, 1, 2), 2, Values(8, poison));
  EXPECT_TRUE(names(batchRefusal(shorter, results), {"sourceImages", "1", "2"}));
  EXPECT_TRUE(names(errorOf([&] { digits_->encodeBatch(buffer, shorter); }), {"sourceImages", "1", "2"}));
  EXPECT_TRUE(names(batchRefusal(batches, results.slice(0, 1)), {"destinationImages", "1", "2"}));

  EXPECT_TRUE(names(refusal(images, images[2]), {"sourceImages"})) << "aliases the last source";
  const auto elsewhere = mtl::newCPUDevice(1);
  const auto foreign = Image::create(elsewhere, sizeOf(2, 1, 2));
  EXPECT_TRUE(names(refusal({images[0], images[1], foreign}, result), {"sourceImages", "device"}));
  EXPECT_TRUE(names(refusal(images, foreign), {"destinationImage", "device"}));
  const auto stacked = image(sizeOf(2, 1, 2, 2));
  EXPECT_TRUE(names(
      batchRefusal({ImageBatch{images[0]}, ImageBatch{stacked}, ImageBatch{images[2]}}, ImageBatch{result}),
      {"sourceImages", "numberOfImages"}));
  EXPECT_TRUE(names(errorOf([&] {
                      digits_->encode(buffer, Images{images[0], stacked, images[2]});
                    }),
                    {"sourceImages", "numberOfImages"}));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(MultiaryKernel, AnEmptyBatchIsNamed) {
  const auto buffer = commands();
  const std::vector<ImageBatch> none(3);
  digits_->setMakesState(true);
  EXPECT_TRUE(
      names(errorOf([&] { digits_->encodeBatch(buffer, none); }), {"sourceImages", "an empty batch"}));
  EXPECT_TRUE(names(errorOf([&] { digits_->encodeBatch(buffer, none, ImageBatch()); }),
                    {"sourceImages", "an empty batch"}));
  StateBatch states(State::create(device_, StateResourceList{}), 2);
  EXPECT_TRUE(names(errorOf([&] { digits_->encodeBatch(buffer, none, states, false); }),
                    {"sourceImages", "an empty batch"}));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(MultiaryKernel, AKernelWithoutStateGivesNone) {
  const auto images = threeImages();
  const auto buffer = commands();
  std::shared_ptr<State> state = State::create(device_, StateResourceList{});
  digits_->encode(buffer, images, state, false);
  EXPECT_EQ(state, nullptr);
  StateBatch states(State::create(device_, StateResourceList{}), 2);
  digits_->encodeBatch(buffer, threeBatches(), states, true);
  EXPECT_TRUE(states.empty());
  EXPECT_EQ(digits_->resultState(images), nullptr);
  EXPECT_EQ(digits_->temporaryResultState(buffer, images), nullptr);
  EXPECT_TRUE(digits_->resultStateBatch(threeBatches()).empty());
  EXPECT_TRUE(digits_->temporaryResultStateBatch(buffer, threeBatches()).empty());
}

TEST_F(MultiaryKernel, StatesAreMultiaryGradientStatesOneForEachImage) {
  digits_->setMakesState(true);
  const auto images = threeImages();
  const auto batches = threeBatches();
  const auto buffer = commands();
  const auto isMultiary = [&](const std::shared_ptr<State>& state) {
    return std::dynamic_pointer_cast<NNMultiaryGradientState>(state) != nullptr && !state->isTemporary() &&
           state->resourceCount() == 0 && state->device() == device_;
  };
  static_assert(!std::is_base_of_v<NNGradientState, NNMultiaryGradientState>);
  static_assert(!std::is_base_of_v<NNBinaryGradientState, NNMultiaryGradientState>);
  EXPECT_TRUE(isMultiary(digits_->resultState(images)));
  EXPECT_TRUE(isMultiary(digits_->temporaryResultState(buffer, images)));
  for (const StateBatch& states :
       {digits_->resultStateBatch(batches), digits_->temporaryResultStateBatch(buffer, batches)}) {
    ASSERT_EQ(states.count(), 2U);
    EXPECT_TRUE(isMultiary(states[0]));
    EXPECT_TRUE(isMultiary(states[1]));
    EXPECT_NE(states[0], states[1]);
  }
  const auto state = NNMultiaryGradientState::create(device_);
  EXPECT_EQ(state->record(), nullptr);
  EXPECT_NE(errorOf([] { NNMultiaryGradientState::create(nullptr); }), "");
}

TEST_F(MultiaryKernel, AStateThatTheBatchSharesIsOneObject) {
  digits_->setMakesState(true);
  digits_->setSharesState(true);
  StateBatch states;
  digits_->encodeBatch(commands(), threeBatches(), states, false);
  ASSERT_EQ(states.count(), 2U);
  EXPECT_EQ(states[0], states[1]);
  EXPECT_NE(digits_->resultStateBatch(threeBatches()).sharedState(), nullptr);
}

TEST_F(MultiaryKernel, TheDestinationIsSizedByThePaddingPolicyOnSourceZero) {
  const auto kernel = Digits::create(device_, 2);
  const Images sources{image(sizeOf(8, 7, 4)), image(sizeOf(16, 7, 4))};
  kernel->setKernelWidth(3, 0);
  kernel->setKernelHeight(2, 0);
  kernel->setStrideInPixelsX(2, 0);
  kernel->setStrideInPixelsY(2, 0);
  kernel->setDestinationFeatureChannelOffset(8);
  EXPECT_EQ(kernel->destinationImageDescriptor(sources), sizeOf(4, 4, 12));
  EXPECT_EQ(kernel->offset(0), (Offset{0, 0, 0}));
  kernel->setSourceFeatureChannelOffset(0, 0);
  kernel->setSourceFeatureChannelMaxCount(3, 0);
  EXPECT_EQ(kernel->destinationImageDescriptor(sources).featureChannels(), 11U);
  kernel->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  EXPECT_EQ(kernel->destinationImageDescriptor(sources).width(), 3U);
  EXPECT_EQ(kernel->offset(0), (Offset{1, 1, 0}));
  kernel->setKernelWidth(9, 0);
  EXPECT_TRUE(names(errorOf([&] { kernel->destinationImageDescriptor(sources); }),
                    {"Digits", "sourceImages", "dilated window"}));
  kernel->setKernelWidth(4, 0);
  kernel->setDilationRateX(3, 0);
  EXPECT_NE(errorOf([&] { kernel->destinationImageDescriptor(sources); }), "") << "4 taps 3 apart span 10";
}

/// Their products are.
TEST_F(MultiaryKernel, WindowsAndStridesThatNoSizeIsComputedFromAreRefused) {
  const Images sources{image(sizeOf(8, 7, 4)), image(sizeOf(8, 7, 4))};
  const auto refusal = [&](const std::function<void(Digits&)>& set) {
    const auto kernel = Digits::create(device_, 2);
    kernel->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeFull));
    set(*kernel);
    return errorOf([&] { kernel->destinationImageDescriptor(sources); });
  };
  constexpr std::size_t most = std::size_t{1} << 31U;
  EXPECT_EQ(refusal([](Digits& kernel) { kernel.setKernelHeight(0, 1); }),
            "Digits: kernelHeight is 0, expected at least 1");
  EXPECT_EQ(refusal([](Digits& kernel) { kernel.setKernelWidth(0, 0); }),
            "Digits: kernelWidth is 0, expected at least 1");
  EXPECT_EQ(refusal([](Digits& kernel) { kernel.setKernelWidth(most, 0); }), "");
  for (const std::size_t large : {most + 1, std::size_t{1} << 62U, std::numeric_limits<std::size_t>::max()}) {
    const std::string end = " is " + std::to_string(large) + ", expected at most 2^31";
    EXPECT_EQ(refusal([&](Digits& kernel) { kernel.setKernelWidth(large, 0); }), "Digits: kernelWidth" + end);
    EXPECT_EQ(refusal([&](Digits& kernel) { kernel.setKernelHeight(large, 1); }),
              "Digits: kernelHeight" + end);
    EXPECT_EQ(refusal([&](Digits& kernel) { kernel.setDilationRateX(large, 0); }),
              "Digits: dilationRateX" + end);
    EXPECT_EQ(refusal([&](Digits& kernel) { kernel.setDilationRateY(large, 1); }),
              "Digits: dilationRateY" + end);
    EXPECT_EQ(refusal([&](Digits& kernel) { kernel.setStrideInPixelsX(large, 0); }),
              "Digits: strideInPixelsX" + end);
    EXPECT_EQ(refusal([&](Digits& kernel) { kernel.setStrideInPixelsY(large, 1); }),
              "Digits: strideInPixelsY" + end);
  }
  EXPECT_TRUE(names(refusal([](Digits& kernel) {
                      kernel.setKernelWidth(3, 0);
                      kernel.setDilationRateX(most, 0);
                    }),
                    {"Digits", "dilated kernelWidth", "2^31"}));
}

TEST_F(MultiaryKernel, EachSourceGetsItsOwnOffsetAgainstTheDestination) {
  const auto kernel = Digits::create(device_, 4);
  const Images sources{image(sizeOf(8, 8, 1)), image(sizeOf(16, 8, 1)), image(sizeOf(12, 8, 1)),
                       image(sizeOf(6, 8, 1))};
  kernel->setStrideInPixelsX(2, 1);
  kernel->setKernelWidth(3, 2);
  kernel->setOffset({0, 0, 9}, 2);
  EXPECT_EQ(kernel->destinationImageDescriptor(sources), sizeOf(8, 8, 1));
  // q - trunc((extra + 1) / 2), extra = (8 - 1) stride + window - size.
  EXPECT_EQ(kernel->offset(0), (Offset{0, 0, 0}));
  EXPECT_EQ(kernel->offset(1), (Offset{0, 0, 0})) << "extra -1";
  EXPECT_EQ(kernel->offset(2), (Offset{1, 0, 9})) << "extra -2; z is the caller's";
  EXPECT_EQ(kernel->offset(3), (Offset{-1, 0, 0})) << "extra 2";
}

TEST_F(MultiaryKernel, FormatsOfTheDestinationFollowSourceZero) {
  const auto formatFor = [&](ImageFeatureChannelFormat format) {
    const Images sources(3, image({format, 2, 2, 1}));
    return digits_->destinationImageDescriptor(sources).channelFormat();
  };
  EXPECT_EQ(formatFor(ImageFeatureChannelFormat::Float32), ImageFeatureChannelFormat::Float32);
  EXPECT_EQ(formatFor(ImageFeatureChannelFormat::Float16), ImageFeatureChannelFormat::Float16);
  EXPECT_EQ(formatFor(ImageFeatureChannelFormat::Unorm8), ImageFeatureChannelFormat::Float32);
  EXPECT_EQ(formatFor(ImageFeatureChannelFormat::Unorm16), ImageFeatureChannelFormat::Float32);
}

}  // namespace
}  // namespace mps::multiary_kernel_test
