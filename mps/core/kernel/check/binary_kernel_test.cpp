#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <memory>

#include "mps/core/testing/test_kernels.hpp"

/// Kernels with two sources.
namespace mps::binary_kernel_test {
namespace {

using testing::errorOf;
using testing::Join;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class BinaryKernel : public testing::ScaleTest {
 protected:
  BinaryKernel() { join_->setDestinationImageAllocator(Image::defaultAllocator()); }

  std::shared_ptr<Join> join_ = Join::create(device_);
  std::shared_ptr<Image> primary_ = image(sizeOf(2, 1, 2), {1, 2, 3, 4});
  std::shared_ptr<Image> secondary_ = image(sizeOf(2, 1, 2), {5, 6, 7, 8});
  const Values joined_ = {15, 26, 37, 48};
  ImageBatch primaries_ = batch(sizeOf(1, 1, 2), 2, {1, 2, 3, 4});
  ImageBatch secondaries_ = batch(sizeOf(1, 1, 2), 2, {5, 6, 7, 8});
};

TEST_F(BinaryKernel, PropertiesHaveTheirDefaults) {
  const auto kernel = Join::create(device_);
  EXPECT_EQ(kernel->primaryOffset(), Offset{});
  EXPECT_EQ(kernel->secondaryOffset(), Offset{});
  EXPECT_EQ(kernel->clipRect(), RectNoClip);
  EXPECT_EQ(kernel->destinationFeatureChannelOffset(), 0U);
  EXPECT_EQ(kernel->primarySourceFeatureChannelOffset(), 0U);
  EXPECT_EQ(kernel->secondarySourceFeatureChannelOffset(), 0U);
  EXPECT_EQ(kernel->primarySourceFeatureChannelMaxCount(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(kernel->secondarySourceFeatureChannelMaxCount(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(kernel->primaryEdgeMode(), ImageEdgeMode::Zero);
  EXPECT_EQ(kernel->secondaryEdgeMode(), ImageEdgeMode::Zero);
  EXPECT_EQ(kernel->primaryKernelWidth(), 1U);
  EXPECT_EQ(kernel->primaryKernelHeight(), 1U);
  EXPECT_EQ(kernel->secondaryKernelWidth(), 1U);
  EXPECT_EQ(kernel->secondaryKernelHeight(), 1U);
  EXPECT_EQ(kernel->primaryStrideInPixelsX(), 1U);
  EXPECT_EQ(kernel->primaryStrideInPixelsY(), 1U);
  EXPECT_EQ(kernel->secondaryStrideInPixelsX(), 1U);
  EXPECT_EQ(kernel->secondaryStrideInPixelsY(), 1U);
  EXPECT_EQ(kernel->primaryDilationRateX(), 1U);
  EXPECT_EQ(kernel->secondaryDilationRateY(), 1U);
  EXPECT_FALSE(kernel->isBackwards());
  EXPECT_FALSE(kernel->isStateModified());
  EXPECT_FALSE(kernel->isResultStateReusedAcrossBatch());
  EXPECT_FALSE(kernel->appendBatchBarrier());
  EXPECT_EQ(kernel->padding()->paddingMethod(), NNPaddingMethod::SizeSame);
  EXPECT_EQ(kernel->destinationImageAllocator(), TemporaryImage::defaultAllocator());
}

TEST_F(BinaryKernel, EachSourceHasPropertiesOfItsOwnAndACopyKeepsThem) {
  join_->setPrimaryOffset({1, 2, 3});
  join_->setSecondaryOffset({4, 5, 6});
  join_->setPrimarySourceFeatureChannelOffset(4);
  join_->setSecondarySourceFeatureChannelOffset(8);
  join_->setPrimarySourceFeatureChannelMaxCount(5);
  join_->setSecondarySourceFeatureChannelMaxCount(6);
  join_->setPrimaryEdgeMode(ImageEdgeMode::Clamp);
  join_->setPrimaryStrideInPixelsX(2);
  join_->setPrimaryStrideInPixelsY(3);
  join_->setSecondaryStrideInPixelsX(4);
  join_->setSecondaryStrideInPixelsY(5);
  const auto copy = detail::copyAs(*join_, device_);
  for (const auto& kernel : {join_, copy}) {
    EXPECT_EQ(kernel->primaryOffset(), (Offset{1, 2, 3}));
    EXPECT_EQ(kernel->secondaryOffset(), (Offset{4, 5, 6}));
    EXPECT_EQ(kernel->primarySourceFeatureChannelOffset(), 4U);
    EXPECT_EQ(kernel->secondarySourceFeatureChannelOffset(), 8U);
    EXPECT_EQ(kernel->primarySourceFeatureChannelMaxCount(), 5U);
    EXPECT_EQ(kernel->secondarySourceFeatureChannelMaxCount(), 6U);
    EXPECT_EQ(kernel->primaryEdgeMode(), ImageEdgeMode::Clamp);
    EXPECT_EQ(kernel->secondaryEdgeMode(), ImageEdgeMode::Zero);
    EXPECT_EQ(kernel->primaryStrideInPixelsX(), 2U);
    EXPECT_EQ(kernel->primaryStrideInPixelsY(), 3U);
    EXPECT_EQ(kernel->secondaryStrideInPixelsX(), 4U);
    EXPECT_EQ(kernel->secondaryStrideInPixelsY(), 5U);
  }
  copy->setSecondaryEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(copy->secondaryEdgeMode(), ImageEdgeMode::Clamp);
  EXPECT_EQ(join_->secondaryEdgeMode(), ImageEdgeMode::Zero);
}

TEST_F(BinaryKernel, EveryFormGivesTheSame) {
  join_->setMakesState(true);
  const auto buffer = commands();
  const auto given = poisoned(sizeOf(2, 1, 2));
  join_->encode(buffer, primary_, secondary_, given);
  EXPECT_TRUE(join_->encodedStates().empty());
  const auto returned = join_->encode(buffer, primary_, secondary_);
  EXPECT_TRUE(join_->encodedStates().empty());
  std::shared_ptr<State> state;
  const auto returnedWithState = join_->encode(buffer, primary_, secondary_, state, false);
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(join_->encodedStates()[0], state);

  const auto givenBatch = batch(sizeOf(1, 1, 2), 2, Values(4, poison));
  join_->encodeBatch(buffer, primaries_, secondaries_, givenBatch);
  EXPECT_TRUE(join_->encodedStates().empty());
  const auto givenBatchWithStates = batch(sizeOf(1, 1, 2), 2, Values(4, poison));
  const NNBinaryGradientStateBatch ownStates = join_->resultStateBatch(primaries_, secondaries_);
  join_->encodeBatch(buffer, primaries_, secondaries_, ownStates, givenBatchWithStates);
  EXPECT_EQ(join_->encodedStates()[1], ownStates[1]);
  const auto returnedBatch = join_->encodeBatch(buffer, primaries_, secondaries_);
  StateBatch states;
  const auto returnedBatchWithStates = join_->encodeBatch(buffer, primaries_, secondaries_, states, true);
  ASSERT_EQ(states.count(), 2U);
  EXPECT_EQ(join_->encodedStates()[1], states[1]);

  run(buffer);
  for (const auto& result : {given, returned, returnedWithState}) EXPECT_EQ(valuesOf(*result), joined_);
  for (const auto& result : {givenBatch, givenBatchWithStates, returnedBatch, returnedBatchWithStates})
    EXPECT_EQ(valuesOfBatch(result), joined_);
}

TEST_F(BinaryKernel, StatesAreBinaryGradientStatesOneForEachImage) {
  join_->setMakesState(true);
  const auto buffer = commands();
  const auto isBinary = [&](const std::shared_ptr<State>& state) {
    return std::dynamic_pointer_cast<NNBinaryGradientState>(state) != nullptr && !state->isTemporary() &&
           state->resourceCount() == 0 && state->device() == device_;
  };
  EXPECT_TRUE(isBinary(join_->resultState(primary_, secondary_)));
  EXPECT_TRUE(isBinary(join_->temporaryResultState(buffer, primary_, secondary_)));
  EXPECT_TRUE(names(errorOf([&] { (void)join_->temporaryResultState(nullptr, primary_, secondary_); }),
                    {"Join", "commandBuffer", "null"}));
  for (const StateBatch& states : {join_->resultStateBatch(primaries_, secondaries_),
                                   join_->temporaryResultStateBatch(buffer, primaries_, secondaries_)}) {
    ASSERT_EQ(states.count(), 2U);
    EXPECT_TRUE(isBinary(states[0]));
    EXPECT_TRUE(isBinary(states[1]));
    EXPECT_NE(states[0], states[1]);
  }
  join_->setSharesState(true);
  StateBatch shared;
  join_->encodeBatch(buffer, primaries_, secondaries_, shared, false);
  ASSERT_EQ(shared.count(), 2U);
  EXPECT_EQ(shared[0], shared[1]);
}

TEST_F(BinaryKernel, AKernelWithoutStateGivesNone) {
  const auto buffer = commands();
  std::shared_ptr<State> state = State::create(device_, StateResourceList{});
  join_->encode(buffer, primary_, secondary_, state, false);
  EXPECT_EQ(state, nullptr);
  StateBatch states(State::create(device_, StateResourceList{}), 2);
  join_->encodeBatch(buffer, primaries_, secondaries_, states, false);
  EXPECT_TRUE(states.empty());
  EXPECT_EQ(join_->resultState(primary_, secondary_), nullptr);
  EXPECT_EQ(join_->temporaryResultState(buffer, primary_, secondary_), nullptr);
  EXPECT_TRUE(join_->resultStateBatch(primaries_, secondaries_).empty());
}

TEST_F(BinaryKernel, AnEmptyBatchIsNamed) {
  join_->setMakesState(true);
  const auto buffer = commands();
  const ImageBatch none;
  const std::vector<std::string> expected{join_->className(), "primaryImages", "an empty batch"};
  EXPECT_TRUE(names(errorOf([&] { join_->encodeBatch(buffer, none, none); }), expected));
  EXPECT_TRUE(names(errorOf([&] { join_->encodeBatch(buffer, none, none, none); }), expected));
  StateBatch states(State::create(device_, StateResourceList{}), 2);
  EXPECT_TRUE(names(errorOf([&] { join_->encodeBatch(buffer, none, none, states, false); }), expected));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(BinaryKernel, WrongArgumentsAreRefusedAndNothingIsRecorded) {
  const auto buffer = commands();
  const auto result = poisoned(sizeOf(2, 1, 2));
  EXPECT_TRUE(names(errorOf([&] { join_->encode(buffer, nullptr, secondary_); }), {"primaryImage", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { join_->encode(buffer, primary_, nullptr, result); }), {"secondaryImage", "null"}));
  EXPECT_TRUE(names(errorOf([&] { join_->encode(buffer, primary_, secondary_, nullptr); }),
                    {"destinationImage", "null"}));
  EXPECT_TRUE(names(errorOf([&] { join_->encode(buffer, primary_, secondary_, secondary_); }),
                    {"Join", "secondaryImage"}));
  EXPECT_TRUE(names(errorOf([&] { join_->encodeBatch(buffer, primaries_, secondaries_.slice(0, 1)); }),
                    {"Join", "secondaryImages", "1", "2"}));
  const std::vector<std::shared_ptr<Image>> three(3, primary_);
  EXPECT_TRUE(names(errorOf([&] { join_->destinationImageDescriptor(three); }),
                    {"sourceImages", "3 images", "exactly 2"}));
  const std::vector<std::shared_ptr<Image>> half{primary_, nullptr};
  EXPECT_TRUE(names(errorOf([&] { join_->destinationImageDescriptor(half); }), {"sourceImages", "null"}));
  EXPECT_TRUE(names(errorOf([&] { join_->setPadding(nullptr); }), {"Join", "padding"}));
  EXPECT_TRUE(names(errorOf([&] { join_->setDestinationImageAllocator(nullptr); }),
                    {"Join", "destinationImageAllocator"}));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(BinaryKernel, StridesOfThePrimarySourceSizeTheDestinationAndEachSourceGetsItsOwnOffset) {
  const std::vector<std::shared_ptr<Image>> sources{image(sizeOf(8, 7, 2)), image(sizeOf(6, 9, 5))};
  join_->setPrimaryStrideInPixelsX(2);
  EXPECT_EQ(join_->destinationImageDescriptor(sources), sizeOf(4, 7, 2));
  join_->setPrimaryStrideInPixelsX(1);
  join_->setPrimaryStrideInPixelsY(3);
  join_->setPrimaryOffset({0, 0, 4});
  EXPECT_EQ(join_->destinationImageDescriptor(sources), sizeOf(8, 3, 2));
  // -trunc((extra + 1) / 2), extra = (destination - 1) stride + 1 - source.
  EXPECT_EQ(join_->primaryOffset(), (Offset{0, 0, 4})) << "extra 0, 0; z is the caller's";
  EXPECT_EQ(join_->secondaryOffset(), (Offset{-1, 2, 0})) << "extra 2, -6";
  join_->setDestinationFeatureChannelOffset(4);
  join_->setPrimarySourceFeatureChannelMaxCount(1);
  EXPECT_EQ(join_->destinationImageDescriptor(sources).featureChannels(), 5U);
}

}  // namespace
}  // namespace mps::binary_kernel_test
