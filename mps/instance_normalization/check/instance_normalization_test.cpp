#include "mps/instance_normalization/instance_normalization.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mtl/buffer.hpp"

/// Kernels and states, on the images [1, 3] and [10, 12], gamma 4, beta 1,
/// epsilon 3; dy [1, 2] and [0, 4].
namespace mps::instance_normalization_test {
namespace {

using detail::FixedInstanceNormalization;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using State = CNNInstanceNormalizationGradientState;

class InstanceNormalization : public testing::DeviceTest {
 protected:
  InstanceNormalization() {
    source_->gammas = {4};
    source_->betas = {1};
    normalization_ = CNNInstanceNormalization::create(device_, source_);
  }
  [[nodiscard]] ImageBatch destinations(std::size_t count = 2) const {
    return batch(size_, count, Values(2 * count, poison));
  }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> buffer(const Values& values) const {
    return device_->newBuffer(std::as_bytes(std::span(values)));
  }
  static std::shared_ptr<State> stateOf(const std::shared_ptr<mps::State>& state) {
    return std::dynamic_pointer_cast<State>(state);
  }
  void expectGradients(const StateBatch& states) const {
    EXPECT_EQ(valuesOf(stateOf(states[0])->gradientForGamma()), Values{0.5F});
    EXPECT_EQ(valuesOf(stateOf(states[0])->gradientForBeta()), Values{3});
    EXPECT_EQ(valuesOf(stateOf(states[1])->gradientForGamma()), Values{2});
    EXPECT_EQ(valuesOf(stateOf(states[1])->gradientForBeta()), Values{4});
  }

  ImageDescriptor size_ = sizeOf(2, 1, 1);
  std::shared_ptr<FixedInstanceNormalization> source_ = FixedInstanceNormalization::create(1, 3);
  std::shared_ptr<CNNInstanceNormalization> normalization_;
  std::shared_ptr<CNNInstanceNormalizationGradient> gradient_ =
      CNNInstanceNormalizationGradient::create(device_);
  ImageBatch x_ = batch(size_, 2, {1, 3, 10, 12});
  ImageBatch dy_ = batch(size_, 2, {1, 2, 0, 4});
  static inline const Values expected{-1, 3, -1, 3};
  static inline const Values expectedGradient{-0.75F, 0.75F, -3, 3};
};

TEST_F(InstanceNormalization, TheDataSourceIsReadOnce) {
  EXPECT_EQ(source_->loads, 1);
  EXPECT_EQ(source_->purges, 1);
  EXPECT_EQ(normalization_->numberOfFeatureChannels(), 1U);
  EXPECT_EQ(normalization_->epsilon(), 3);
  EXPECT_EQ(normalization_->dataSource(), source_);
  source_->name = "norm";
  EXPECT_EQ(CNNInstanceNormalization::create(device_, source_)->label(), "norm");
}

TEST_F(InstanceNormalization, DefaultsOfTheDataSource) {
  class Plain : public CNNInstanceNormalizationDataSource {
   public:
    [[nodiscard]] std::size_t numberOfFeatureChannels() const override { return 2; }
    [[nodiscard]] std::span<const float> gamma() const override { return {}; }
    [[nodiscard]] std::span<const float> beta() const override { return {}; }
  };
  const auto plain = std::make_shared<Plain>();
  const auto kernel = CNNInstanceNormalization::create(device_, plain);
  EXPECT_EQ(kernel->epsilon(), FLT_MIN);
  EXPECT_EQ(plain->updateGammaAndBeta(commands(), StateBatch()), nullptr);
  EXPECT_FALSE(plain->updateGammaAndBeta(StateBatch()));
  const auto y = poisoned(sizeOf(2, 1, 2));
  const auto commandBuffer = commands();
  kernel->encode(commandBuffer, image(sizeOf(2, 1, 2), {-3, 8, 5, 6}), y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*y), (Values{-1, 1, 1, -1})) << "gamma 1, beta 0";
}

TEST_F(InstanceNormalization, EpsilonIsANumberOfAtLeastZero) {
  for (const float epsilon : {-1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_TRUE(names(errorOf([&] { normalization_->setEpsilon(epsilon); }), {"epsilon", "at least 0"}));
    const auto wrong = FixedInstanceNormalization::create(1, epsilon);
    EXPECT_TRUE(
        names(errorOf([&] { CNNInstanceNormalization::create(device_, wrong); }), {"epsilon", "at least 0"}));
    EXPECT_TRUE(names(errorOf([&] { normalization_->reloadDataSource(wrong); }), {"epsilon", "at least 0"}));
  }
  EXPECT_EQ(normalization_->epsilon(), 3);
  EXPECT_EQ(normalization_->dataSource(), source_);
}

TEST_F(InstanceNormalization, AGradientInADroppedBufferLeavesNoneForOptimizers) {
  using detail::ImageNormalizationGradientState;
  const StateBatch states = normalization_->resultStateBatch(x_);
  const auto forward = commands();
  normalization_->encodeBatch(forward, x_, states, destinations());
  run(forward);
  const auto hasGradient = [&] {
    const auto state = std::dynamic_pointer_cast<ImageNormalizationGradientState>(states[1]);
    return state->gradients()->hasGradient(state->gradientRow());
  };
  {
    const auto dropped = commands();
    gradient_->encodeBatch(dropped, dy_, x_, states, destinations());
    gradient_->encodeBatch(dropped, dy_, x_, states, destinations());
    EXPECT_TRUE(hasGradient());
  }
  EXPECT_FALSE(hasGradient());
  const auto kept = commands();
  gradient_->encodeBatch(kept, dy_, x_, states, destinations());
  gradient_->encodeBatch(commands(), dy_, x_, states, destinations());
  run(kept);
  EXPECT_TRUE(hasGradient()) << "another buffer has encoded it";
}

TEST_F(InstanceNormalization, EncodeForms) {
  normalization_->setDestinationImageAllocator(Image::defaultAllocator());
  const auto y = destinations(), withStates = destinations();
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, y);
  normalization_->encodeBatch(commandBuffer, x_, normalization_->resultStateBatch(x_), withStates);
  const auto single = poisoned(size_), withState = poisoned(size_);
  normalization_->encode(commandBuffer, x_[1], single);
  normalization_->encode(commandBuffer, x_[1], normalization_->resultState(x_[1]), withState);
  const auto returned = normalization_->encode(commandBuffer, x_[0]);
  const auto returnedBatch = normalization_->encodeBatch(commandBuffer, x_);
  std::shared_ptr<mps::State> state;
  StateBatch states;
  normalization_->encode(commandBuffer, x_[0], state, false);
  const auto last = normalization_->encodeBatch(commandBuffer, x_, states, false);
  run(commandBuffer);
  for (const ImageBatch& result : {y, withStates, returnedBatch, last}) EXPECT_EQ(valuesOf(result), expected);
  for (const auto& result : {single, withState, returned}) EXPECT_EQ(valuesOf(*result), (Values{-1, 3}));
  EXPECT_NE(stateOf(state), nullptr);
  EXPECT_EQ(states.count(), 2U);
  EXPECT_NE(states[0], states[1]) << "one state for each image";
}

TEST_F(InstanceNormalization, AWholeStep) {
  const StateBatch states = normalization_->resultStateBatch(x_);
  const auto dx = destinations();
  const auto commandBuffer = commands();
  EXPECT_EQ(stateOf(states[0])->gamma(), nullptr) << "before the forward pass";
  normalization_->encodeBatch(commandBuffer, x_, states, destinations());
  gradient_->encodeBatch(commandBuffer, dy_, x_, states, dx);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(dx), expectedGradient);
  expectGradients(states);
  EXPECT_EQ(stateOf(states[0])->instanceNormalization(), normalization_);
  EXPECT_EQ(stateOf(states[0])->numberOfFeatureChannels(), 1U);
  EXPECT_EQ(valuesOf(stateOf(states[1])->gamma()), Values{4});
  EXPECT_EQ(valuesOf(stateOf(states[1])->beta()), Values{1});
}

TEST_F(InstanceNormalization, GradientsInEveryForm) {
  gradient_->setDestinationImageAllocator(Image::defaultAllocator());
  const StateBatch states = normalization_->resultStateBatch(x_);
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, states, destinations());
  const auto returned = gradient_->encodeBatch(commandBuffer, dy_, x_, states);
  const auto one = gradient_->encode(commandBuffer, dy_[1], x_[1], states[1]);
  const auto given = poisoned(size_);
  gradient_->encode(commandBuffer, dy_[0], x_[0], states[0], given);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(returned), expectedGradient);
  EXPECT_EQ(valuesOf(*one), (Values{-3, 3}));
  EXPECT_EQ(valuesOf(*given), (Values{-0.75F, 0.75F}));
  expectGradients(states);
}

/// Loose states, and those of the batch in another order: each image goes with its own.
TEST_F(InstanceNormalization, StatesThatAreNoBatch) {
  const StateBatch loose{normalization_->resultState(x_[0]), normalization_->resultState(x_[1])};
  const StateBatch made = normalization_->resultStateBatch(x_);
  const StateBatch turned{made[1], made[0]};
  const ImageBatch turnedX{x_[1], x_[0]}, turnedDy{dy_[1], dy_[0]};
  const auto dx = destinations(), turnedDx = destinations();
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, loose, destinations());
  gradient_->encodeBatch(commandBuffer, dy_, x_, loose, dx);
  normalization_->encodeBatch(commandBuffer, x_, made, destinations());
  gradient_->encodeBatch(commandBuffer, turnedDy, turnedX, turned, turnedDx);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(dx), expectedGradient);
  EXPECT_EQ(valuesOf(turnedDx), (Values{-3, 3, -0.75F, 0.75F}));
  expectGradients(loose);
  expectGradients(made);
}

/// A state that the images share, and one of a stack, have the sums over the images.
TEST_F(InstanceNormalization, SharedStatesHaveSums) {
  const auto shared = normalization_->resultState(x_[0]), ofStack = normalization_->resultState(x_[0]);
  const auto stack = image(sizeOf(2, 1, 1, 2), {1, 3, 10, 12});
  const auto dyStack = image(sizeOf(2, 1, 1, 2), {1, 2, 0, 4});
  const auto dx = destinations();
  const auto dxStack = poisoned(sizeOf(2, 1, 1, 2));
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, StateBatch(shared, 2), destinations());
  gradient_->encodeBatch(commandBuffer, dy_, x_, StateBatch(shared, 2), dx);
  normalization_->encode(commandBuffer, stack, ofStack, poisoned(sizeOf(2, 1, 1, 2)));
  gradient_->encode(commandBuffer, dyStack, stack, ofStack, dxStack);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(dx), expectedGradient);
  EXPECT_EQ(valuesOf(*dxStack), expectedGradient);
  for (const auto& state : {shared, ofStack}) {
    EXPECT_EQ(valuesOf(stateOf(state)->gradientForGamma()), Values{2.5F});
    EXPECT_EQ(valuesOf(stateOf(state)->gradientForBeta()), Values{7});
  }
}

/// docs/decisions.md, D11: another image of the right size is computed with; its statistics are its own.
TEST_F(InstanceNormalization, D11AnotherSourceImage) {
  const StateBatch states = normalization_->resultStateBatch(x_);
  const auto dx = destinations();
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, batch(size_, 2, {7, 7, 7, 9}), states, destinations());
  gradient_->encodeBatch(commandBuffer, dy_, x_, states, dx);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(dx), expectedGradient);
}

/// docs/decisions.md, D9.
TEST_F(InstanceNormalization, D9StatesKeepWhatTheForwardPassUsed) {
  const StateBatch states = normalization_->resultStateBatch(x_);
  const auto dx = destinations();
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, states, destinations());
  normalization_->setEpsilon(8);
  source_->gammas = {100};
  normalization_->reloadGammaAndBetaFromDataSource();
  gradient_->encodeBatch(commandBuffer, dy_, x_, states, dx);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(dx), expectedGradient);
  EXPECT_EQ(valuesOf(stateOf(states[0])->gamma()), Values{4});
}

TEST_F(InstanceNormalization, ReadCountsOfTemporaryStates) {
  const auto commandBuffer = commands();
  const StateBatch states = normalization_->temporaryResultStateBatch(commandBuffer, x_);
  const auto one = stateOf(normalization_->temporaryResultState(commandBuffer, x_[0]));
  EXPECT_TRUE(one->isTemporary());
  EXPECT_EQ(one->readCount(), 1U);
  normalization_->encode(commandBuffer, x_[0], one, destinations()[0]);
  EXPECT_EQ(one->readCount(), 1U) << "the forward pass writes";
  const auto dx = destinations();
  StateBatchIncrementReadCount(states, 1);
  normalization_->encodeBatch(commandBuffer, x_, states, destinations());
  gradient_->encodeBatch(commandBuffer, dy_, x_, states, dx);
  EXPECT_EQ(states[1]->readCount(), 1U);
  gradient_->encodeBatch(commandBuffer, dy_, x_, states, destinations());
  EXPECT_EQ(states[1]->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, states, dx); }),
                    {"gradientStates", "readCount"}));
  one->setReadCount(0);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(dx), expectedGradient);
}

TEST_F(InstanceNormalization, InPlaceAndRangesOfChannels) {
  const auto commandBuffer = commands();
  const auto wide = batch(sizeOf(2, 1, 5), 1, {9, 9, 9, 9, 1, 9, 9, 9, 9, 3});
  const auto y = batch(size_, 1, {poison, poison});
  normalization_->encodeBatch(commandBuffer, x_, x_);
  normalization_->setSourceFeatureChannelOffset(4);
  normalization_->encodeBatch(commandBuffer, wide, y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(x_), expected);
  EXPECT_EQ(valuesOf(y), (Values{-1, 3}));
}

TEST_F(InstanceNormalization, ReloadsFromTheDataSource) {
  const auto before = destinations(), after = destinations();
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, before);
  source_->gammas = {8};
  normalization_->reloadGammaAndBetaFromDataSource();
  normalization_->encodeBatch(commandBuffer, x_, after);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(before), expected) << "what was encoded before keeps the old values";
  EXPECT_EQ(valuesOf(after), (Values{-3, 5, -3, 5}));

  const auto other = FixedInstanceNormalization::create(1, 8);
  normalization_->reloadDataSource(other);
  EXPECT_EQ(normalization_->epsilon(), 8);
  EXPECT_EQ(normalization_->dataSource(), other);
  EXPECT_EQ(valuesOf(normalization_->parameters().gamma), Values{1});
  const auto broken = FixedInstanceNormalization::create(1);
  broken->gammas = {1, 2};
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadDataSource(broken); }), {"gamma", "2 values", "1"}));
  EXPECT_EQ(normalization_->dataSource(), other);
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadDataSource(FixedInstanceNormalization::create(2)); }),
                    {"dataSource", "2", "1"}));
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadDataSource(nullptr); }), {"dataSource", "null"}));
}

TEST_F(InstanceNormalization, ReloadsFromStatesInStreamOrder) {
  const auto commandBuffer = commands();
  const auto before = destinations(), after = destinations();
  const auto gamma = buffer({2});
  normalization_->encodeBatch(commandBuffer, x_, before);
  normalization_->reloadGammaAndBeta(commandBuffer,
                                     CNNNormalizationGammaAndBetaState::create(gamma, buffer({2})));
  normalization_->encodeBatch(commandBuffer, x_, after);
  gamma->contentsAs<float>()[0] = 8;  // the copy is made when it runs
  run(commandBuffer);
  EXPECT_EQ(valuesOf(before), expected);
  EXPECT_EQ(valuesOf(after), (Values{-2, 6, -2, 6}));

  const auto next = commands();
  const auto temporary = CNNNormalizationGammaAndBetaState::createTemporary(next, 1);
  normalization_->reloadGammaAndBeta(next, temporary);
  EXPECT_EQ(temporary->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadGammaAndBeta(next, nullptr); }),
                    {"gammaAndBetaState", "null"}));
  const auto two = CNNNormalizationGammaAndBetaState::create(buffer({1, 2}), buffer({1, 2}));
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadGammaAndBeta(next, two); }),
                    {"gammaAndBetaState", "2 values", "1"}));
}

TEST_F(InstanceNormalization, AReloadThatDoesNotRunChangesNothing) {
  const auto reload = [&](const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    normalization_->reloadGammaAndBeta(commandBuffer,
                                       CNNNormalizationGammaAndBetaState::create(buffer({8}), buffer({2})));
  };
  const auto normalized = [&] {
    const auto y = destinations();
    const auto commandBuffer = commands();
    normalization_->encodeBatch(commandBuffer, x_, y);
    run(commandBuffer);
    return valuesOf(y);
  };
  const auto under = CommandBuffer::create(queue_);
  under->setPredicate(Predicate::create(device_));  // 0
  reload(under);
  run(under);
  EXPECT_EQ(normalized(), expected);
  reload(commands());
  EXPECT_EQ(normalized(), expected) << "dropped";
}

TEST_F(InstanceNormalization, ParametersOnTheDeviceAreUsedWithoutCopies) {
  const auto gamma = buffer({4});
  source_->liveGammaAndBeta = CNNNormalizationGammaAndBetaState::create(gamma, buffer({1}));
  const int loads = source_->loads;
  const auto kernel = CNNInstanceNormalization::create(device_, source_);
  EXPECT_EQ(source_->loads, loads);
  gamma->contentsAs<float>()[0] = 8;
  const auto y = destinations();
  const auto commandBuffer = commands();
  kernel->encodeBatch(commandBuffer, x_, y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(y), (Values{-3, 5, -3, 5}));
  source_->liveGammaAndBeta = CNNNormalizationGammaAndBetaState::create(buffer({1, 2}), buffer({1, 2}));
  EXPECT_TRUE(names(errorOf([&] { kernel->reloadGammaAndBetaFromDataSource(); }),
                    {"deviceGammaAndBeta", "2 values", "1"}));
}

TEST_F(InstanceNormalization, CopiesAreIndependent) {
  const auto copy = normalization_->copy();
  copy->setEpsilon(1);
  source_->gammas = {7};
  copy->reloadGammaAndBetaFromDataSource();
  EXPECT_EQ(normalization_->epsilon(), 3);
  EXPECT_EQ(valuesOf(normalization_->parameters().gamma), Values{4});
  EXPECT_EQ(copy->dataSource(), source_);
  const auto elsewhere = mtl::newCPUDevice(1);
  const auto other = FixedInstanceNormalization::create(1);
  other->gammas = {8};
  source_->copied = other;
  for (const auto& device : {std::shared_ptr<mtl::Device>(), device_, elsewhere}) {
    const auto copied = normalization_->copy(device);
    EXPECT_EQ(copied->dataSource(), other);
    EXPECT_EQ(copied->epsilon(), 3);
    EXPECT_EQ(valuesOf(copied->parameters().gamma), Values{8});
  }
  EXPECT_EQ(normalization_->dataSource(), source_);
  EXPECT_EQ(gradient_->copy(elsewhere)->className(), gradient_->className());
}

TEST_F(InstanceNormalization, WhatConstructionRefuses) {
  const auto error = [&](auto change) {
    auto wrong = FixedInstanceNormalization::create(2);
    change(*wrong);
    std::string text = errorOf([&] { CNNInstanceNormalization::create(device_, wrong); });
    EXPECT_EQ(wrong->loads, wrong->purges);
    return text;
  };
  EXPECT_TRUE(
      names(errorOf([&] { CNNInstanceNormalization::create(device_, nullptr); }), {"dataSource", "null"}));
  EXPECT_TRUE(names(error([](auto& s) { s.channels = 0; }), {"numberOfFeatureChannels", "0"}));
  EXPECT_TRUE(names(error([](auto& s) { s.loadsWell = false; }), {"dataSource", "load()"}));
  EXPECT_TRUE(names(error([](auto& s) { s.gammas = {1}; }), {"gamma", "1 values", "2"}));
  EXPECT_TRUE(names(error([](auto& s) { s.betas = {1, 2, 3}; }), {"beta", "3 values"}));
}

TEST_F(InstanceNormalization, WhatForwardEncodesRefuse) {
  const auto commandBuffer = commands();
  const auto wide = batch(sizeOf(2, 1, 2), 2, Values(8, 1));
  const auto encode = [&] { normalization_->encodeBatch(commandBuffer, x_, destinations()); };
  EXPECT_TRUE(names(errorOf([&] { normalization_->encodeBatch(commandBuffer, wide, destinations()); }),
                    {"CNNInstanceNormalization", "sourceImage", "2 feature channels", "1"}));
  normalization_->setOffset({1, 0, 0});
  EXPECT_TRUE(names(errorOf(encode), {"offset"}));
  normalization_->setOffset({});
  normalization_->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf(encode), {"clipRect"}));
  normalization_->setClipRect(RectNoClip);
  EXPECT_TRUE(names(
      errorOf([&] { normalization_->encodeBatch(commandBuffer, x_, batch(sizeOf(3, 1, 1), 2, Values(6))); }),
      {"destinationImage"}));
  EXPECT_TRUE(names(errorOf([&] {
                      normalization_->encode(commandBuffer, x_[0], NNGradientState::create(device_),
                                             destinations(1)[0]);
                    }),
                    {"destinationState", "another kind"}));
  const auto foreign = CNNInstanceNormalization::create(device_, FixedInstanceNormalization::create(2));
  EXPECT_TRUE(names(errorOf([&] {
                      normalization_->encode(commandBuffer, x_[0], foreign->resultState(wide[0]),
                                             destinations(1)[0]);
                    }),
                    {"destinationState", "2 feature channels", "1"}));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(InstanceNormalization, NoImagesOfAStackHaveGradientsOfZero) {
  const auto state = normalization_->resultState(x_[0]);
  const auto stack = image(sizeOf(2, 1, 1, 2), {1, 3, 10, 12});
  const auto dx = poisoned(sizeOf(2, 1, 1, 2));
  const auto commandBuffer = commands();
  normalization_->encode(commandBuffer, stack, state, poisoned(sizeOf(2, 1, 1, 2)));
  mtl::Region none = RectNoClip;
  none.size.depth = 0;
  gradient_->setClipRect(none);
  gradient_->encode(commandBuffer, stack, stack, state, dx);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*dx), Values(4, poison));
  EXPECT_EQ(valuesOf(stateOf(state)->gradientForGamma()), Values{0});
  EXPECT_EQ(valuesOf(stateOf(state)->gradientForBeta()), Values{0});
}

TEST_F(InstanceNormalization, WhatGradientEncodesRefuse) {
  const StateBatch states = normalization_->resultStateBatch(x_);
  const auto commandBuffer = commands();
  const auto encode = [&] { gradient_->encodeBatch(commandBuffer, dy_, x_, states, destinations()); };
  EXPECT_TRUE(names(errorOf(encode), {"gradientStates", "no forward kernel"}));
  normalization_->encodeBatch(commandBuffer, x_, states, destinations());
  const std::size_t commandsBefore = commandBuffer->commandCount();
  gradient_->setClipRect({{1, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf(encode), {"offset or clipRect"}));
  gradient_->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf(encode), {"of the same size"}));
  gradient_->setClipRect({{100, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf(encode), {"offset or clipRect"})) << "not even where it leaves nothing to write";
  gradient_->setClipRect(RectNoClip);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, destinations()); }),
                    {"gradientState", "missing"}));
  EXPECT_EQ(commandBuffer->commandCount(), commandsBefore);
}

/// Also where nothing would be written: the state would say that the kernel had encoded with it.
TEST_F(InstanceNormalization, ARegionOutsideTheDestinationIsNoWholeImage) {
  normalization_->setClipRect({{100, 0, 0}, {1, 1, 1}});
  const auto state = normalization_->resultState(x_[0]);
  EXPECT_TRUE(names(errorOf([&] { normalization_->encode(commands(), x_[0], state, destinations(1)[0]); }),
                    {"CNNInstanceNormalization", "clipRect", "whole images"}));
  EXPECT_EQ(stateOf(state)->gamma(), nullptr) << "nothing was encoded";
}

}  // namespace
}  // namespace mps::instance_normalization_test
