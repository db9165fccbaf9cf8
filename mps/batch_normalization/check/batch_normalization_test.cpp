#include "mps/batch_normalization/batch_normalization.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/batch_normalization/check/batch_normalization_reference.hpp"
#include "mps/conform/compare.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/buffer.hpp"

/// Forward kernels and the state, on the images [1, 3] and
/// [5, 7], gamma 3, beta 1, epsilon 4, so that y = x - 3 with the statistics of the batch.
namespace mps::batch_normalization_test {
namespace {

using detail::FixedBatchNormalization;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using State = std::shared_ptr<CNNBatchNormalizationState>;

class BatchNormalization : public testing::DeviceTest {
 protected:
  BatchNormalization() {
    source_->gammas = {3};
    source_->betas = {1};
    source_->means = {10};
    source_->variances = {12};  // 1 / sqrt(12 + 4) = 1/4
    normalization_ = CNNBatchNormalization::create(device_, source_);
  }
  [[nodiscard]] State state() const {
    return std::static_pointer_cast<CNNBatchNormalizationState>(normalization_->resultState(x_[0]));
  }
  [[nodiscard]] ImageBatch destinations(std::size_t count = 2) const {
    return batch(size_, count, Values(2 * count, poison));
  }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> buffer(const Values& values) const {
    return device_->newBuffer(std::as_bytes(std::span(values)));
  }
  /// y of the whole batch with that state, statistics first or not.
  Values normalized(const State& state, const ImageBatch& x, bool withStatistics) {
    const auto y = destinations(x.count());
    const auto commandBuffer = commands();
    if (withStatistics) statistics_->encodeBatch(commandBuffer, x, state);
    normalization_->encodeBatch(commandBuffer, x, state, y);
    run(commandBuffer);
    return valuesOf(y);
  }

  ImageDescriptor size_ = sizeOf(2, 1, 1);
  std::shared_ptr<FixedBatchNormalization> source_ = FixedBatchNormalization::create(1, 4);
  std::shared_ptr<CNNBatchNormalization> normalization_;
  std::shared_ptr<CNNBatchNormalizationStatistics> statistics_ =
      CNNBatchNormalizationStatistics::create(device_);
  ImageBatch x_ = batch(size_, 2, {1, 3, 5, 7});
  static inline const Values ofBatch{-2, 0, 2, 4};                  // x - 3
  static inline const Values ofKernel{-5.75, -4.25, -2.75, -1.25};  // 3/4 (x - 10) + 1
};

TEST_F(BatchNormalization, TheDataSourceIsReadOnce) {
  EXPECT_EQ(source_->loads, 1);
  EXPECT_EQ(source_->purges, 1);
  EXPECT_EQ(normalization_->numberOfFeatureChannels(), 1U);
  EXPECT_EQ(normalization_->epsilon(), 4);
  EXPECT_EQ(normalization_->dataSource(), source_);
  source_->name = "norm";
  EXPECT_EQ(CNNBatchNormalization::create(device_, source_)->label(), "norm");
}

TEST_F(BatchNormalization, DefaultsOfTheDataSource) {
  const auto plain = std::make_shared<FixedBatchNormalization>(2);
  const auto kernel = CNNBatchNormalization::create(device_, plain);
  EXPECT_EQ(kernel->epsilon(), FLT_MIN);
  kernel->setEpsilon(0);
  const auto x = image(sizeOf(1, 1, 2), {-3, 8});
  const auto y = poisoned(sizeOf(1, 1, 2));
  const auto commandBuffer = commands();
  kernel->encode(commandBuffer, x, y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(*y), (Values{-3, 8})) << "gamma 1, beta 0, mean 0, variance 1";
}

TEST_F(BatchNormalization, EpsilonIsANumberOfAtLeastZero) {
  for (const float epsilon : {-1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_TRUE(names(errorOf([&] { normalization_->setEpsilon(epsilon); }), {"epsilon", "at least 0"}));
    const auto wrong = std::make_shared<FixedBatchNormalization>(1);
    wrong->epsilonValue = epsilon;
    EXPECT_TRUE(
        names(errorOf([&] { CNNBatchNormalization::create(device_, wrong); }), {"epsilon", "at least 0"}));
    EXPECT_TRUE(names(errorOf([&] { normalization_->reloadDataSource(wrong); }), {"epsilon", "at least 0"}));
  }
  EXPECT_EQ(normalization_->epsilon(), 4);
  EXPECT_EQ(normalization_->dataSource(), source_);
}

TEST_F(BatchNormalization, WithoutAStateTheKernelsStatisticsServe) {
  const auto y = destinations();
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, y);
  const auto single = poisoned(size_);
  normalization_->encode(commandBuffer, x_[0], single);
  normalization_->setDestinationImageAllocator(Image::defaultAllocator());
  const auto returned = normalization_->encode(commandBuffer, x_[1]);
  const auto returnedBatch = normalization_->encodeBatch(commandBuffer, x_);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(y), ofKernel);
  EXPECT_EQ(valuesOf(*single), (Values{ofKernel[0], ofKernel[1]}));
  EXPECT_EQ(valuesOf(*returned), (Values{ofKernel[2], ofKernel[3]}));
  EXPECT_EQ(valuesOf(returnedBatch), ofKernel);
}

TEST_F(BatchNormalization, AFreshStateHoldsTheKernelsStatistics) {
  const State fresh = state();
  EXPECT_EQ(valuesOf(fresh->mean()), Values{10});
  EXPECT_EQ(valuesOf(fresh->variance()), Values{12});
  EXPECT_EQ(valuesOf(fresh->gamma()), Values{3});
  EXPECT_EQ(valuesOf(fresh->beta()), Values{1});
  EXPECT_EQ(fresh->gradientForGamma(), nullptr);
  EXPECT_EQ(fresh->gradientForMean(), nullptr);
  EXPECT_EQ(fresh->elementCount(), 0U);
  EXPECT_EQ(fresh->batchNormalization(), normalization_);
  EXPECT_EQ(normalized(fresh, x_, false), ofKernel);
}

TEST_F(BatchNormalization, StatisticsOfTheBatch) {
  const State ofStep = state();
  EXPECT_EQ(normalized(ofStep, x_, true), ofBatch);
  EXPECT_EQ(valuesOf(ofStep->mean()), Values{4});
  EXPECT_EQ(valuesOf(ofStep->variance()), Values{5}) << "biased, without epsilon";
  EXPECT_EQ(ofStep->elementCount(), 4U);
}

TEST_F(BatchNormalization, OneStateServesTheBatch) {
  const StateBatch states = normalization_->resultStateBatch(x_);
  EXPECT_EQ(states.count(), 2U);
  EXPECT_EQ(states[0], states[1]);
  EXPECT_TRUE(statistics_->appendBatchBarrier() && statistics_->isStateModified());
  EXPECT_TRUE(statistics_->isResultStateReusedAcrossBatch());
}

TEST_F(BatchNormalization, PartsOfABatchAndTheInheritedFormsWithStates) {
  const State ofStep = state();
  const auto y = destinations();
  const auto commandBuffer = commands();
  for (const std::size_t i : {0U, 1U}) statistics_->encodeBatch(commandBuffer, x_.slice(i, 1), ofStep);
  normalization_->encode(commandBuffer, x_[0], ofStep, y[0]);
  normalization_->encodeBatch(commandBuffer, x_.slice(1, 1), StateBatch{ofStep}, y.slice(1, 1));
  run(commandBuffer);
  EXPECT_EQ(valuesOf(y), ofBatch);
  EXPECT_EQ(ofStep->elementCount(), 4U);
}

/// The statistics of several sub-batches are those of the whole batch, also where the mean is 10000 times the deviation.
TEST_F(BatchNormalization, StatisticsOfSubBatchesAreThoseOfTheWholeBatch) {
  constexpr std::size_t images = 12;
  const ImageDescriptor size = sizeOf(7, 5, 3);
  for (const double mean : {0.0, 3.0, 1e4}) {
    const auto noise =
        detail::randomValues(images * testing::elementsOf(size), 7, detail::RandomKind::Uniform);
    Values values;
    for (const double value : noise) values.push_back(static_cast<float>(mean + 1.7 * value));
    const auto x = batch(size, images, values);
    detail::ReferenceTensor source(images, 5, 7, 3);
    source.values.assign(values.begin(), values.end());
    const auto expected = detail::batchStatisticsReference(std::span(&source, 1));
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>{12}, {6, 6}, {1, 11}, {5, 4, 3}, std::vector<std::size_t>(12, 1)}) {
      SCOPED_TRACE(std::to_string(counts.size()) + " parts, mean " + std::to_string(mean));
      const State ofParts = std::static_pointer_cast<CNNBatchNormalizationState>(
          CNNBatchNormalization::create(device_, FixedBatchNormalization::create(3, 4))->resultState(x[0]));
      const auto commandBuffer = commands();
      std::size_t first = 0;
      for (const std::size_t count : counts) {
        statistics_->encodeBatch(commandBuffer, x.slice(first, count), ofParts);
        first += count;
      }
      run(commandBuffer);
      const auto agree = [&](const detail::ReferenceTensor& reference, const Values& found) {
        const std::vector<double> stored(found.begin(), found.end());
        return detail::compare(reference, stored, ImageFeatureChannelFormat::Float32, detail::Tier::Bounded);
      };
      EXPECT_EQ(agree(expected.mean, valuesOf(ofParts->mean())).report, "");
      EXPECT_EQ(agree(expected.variance, valuesOf(ofParts->variance())).report, "");
    }
  }
}

/// A state that is kept begins a new batch by itself.
TEST_F(BatchNormalization, StatisticsAfterANormalizationBeginANewBatch) {
  const State kept = state();
  normalized(kept, batch(size_, 2, {100, 200, 300, 400}), true);
  EXPECT_EQ(normalized(kept, x_, true), ofBatch);
  EXPECT_EQ(valuesOf(kept->mean()), Values{4});
  EXPECT_EQ(kept->elementCount(), 4U);
}

TEST_F(BatchNormalization, WithoutAutomaticRestartsStatisticsAccumulate) {
  const State kept = state();
  kept->setRestartsAutomatically(false);
  normalized(kept, x_.slice(0, 1), true);
  normalized(kept, x_.slice(1, 1), true);
  EXPECT_EQ(valuesOf(kept->mean()), Values{4});
  EXPECT_EQ(valuesOf(kept->variance()), Values{5});
  kept->reset();
  normalized(kept, x_.slice(0, 1), true);
  EXPECT_EQ(valuesOf(kept->mean()), Values{2});
}

TEST_F(BatchNormalization, ResetGoesBackToTheKernelsStatistics) {
  const State kept = state();
  normalized(kept, x_, true);
  kept->reset();
  EXPECT_EQ(valuesOf(kept->mean()), Values{10});
  EXPECT_EQ(kept->elementCount(), 0U);
  EXPECT_EQ(normalized(kept, x_, false), ofKernel);
  EXPECT_EQ(normalized(kept, x_, true), ofBatch);
}

TEST_F(BatchNormalization, ReadCountsOfTemporaryStates) {
  const auto commandBuffer = commands();
  const auto temporary = std::static_pointer_cast<CNNBatchNormalizationState>(
      normalization_->temporaryResultState(commandBuffer, x_[0]));
  EXPECT_TRUE(temporary->isTemporary());
  EXPECT_EQ(temporary->readCount(), 1U);
  temporary->setReadCount(2);
  statistics_->encodeBatch(commandBuffer, x_, temporary);
  EXPECT_EQ(temporary->readCount(), 2U) << "statistics write";
  const auto y = destinations();
  normalization_->encodeBatch(commandBuffer, x_, temporary, y);
  EXPECT_EQ(temporary->readCount(), 1U);
  normalization_->encodeBatch(commandBuffer, x_, temporary, destinations());
  EXPECT_EQ(temporary->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] { statistics_->encodeBatch(commandBuffer, x_, temporary); }),
                    {"CNNBatchNormalizationStatistics", "batchNormalizationState", "readCount"}));
  run(commandBuffer);
  EXPECT_EQ(valuesOf(y), ofBatch);
}

TEST_F(BatchNormalization, FusedNeuron) {
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F);
  const auto fused = CNNBatchNormalization::create(device_, source_, relu);
  EXPECT_EQ(fused->fusedNeuronDescriptor(), relu);
  const auto y = destinations();
  const auto commandBuffer = commands();
  const auto ofStep = std::static_pointer_cast<CNNBatchNormalizationState>(fused->resultState(x_[0]));
  statistics_->encodeBatch(commandBuffer, x_, ofStep);
  fused->encodeBatch(commandBuffer, x_, ofStep, y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(y), (Values{-1, 0, 2, 4}));
}

TEST_F(BatchNormalization, TheDestinationMayBeTheSource) {
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, x_);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(x_), ofKernel);
}

/// Index 0 of the parameters belongs to the first channel read.
TEST_F(BatchNormalization, RangesOfChannels) {
  const auto wide = batch(sizeOf(1, 1, 5), 2, {9, 9, 9, 9, 1, 9, 9, 9, 9, 7});
  normalization_->setSourceFeatureChannelOffset(4);
  statistics_->setSourceFeatureChannelOffset(4);
  const State ofStep = state();
  const auto y = batch(sizeOf(1, 1, 1), 2, {poison, poison});
  const auto commandBuffer = commands();
  statistics_->encodeBatch(commandBuffer, wide, ofStep);
  normalization_->encodeBatch(commandBuffer, wide, ofStep, y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(ofStep->mean()), Values{4});
  EXPECT_EQ(valuesOf(ofStep->variance()), Values{9});
}

TEST_F(BatchNormalization, ReloadsFromTheDataSource) {
  const State kept = state();
  const auto y = destinations(), before = destinations();
  const auto commandBuffer = commands();
  normalization_->encodeBatch(commandBuffer, x_, before);
  source_->gammas = {4};
  source_->means = {2};
  normalization_->reloadGammaAndBetaFromDataSource();
  EXPECT_EQ(valuesOf(kept->gamma()), Values{4}) << "states follow their kernel";
  EXPECT_EQ(valuesOf(kept->mean()), Values{10});
  normalization_->reloadMeanAndVarianceFromDataSource();
  normalization_->encodeBatch(commandBuffer, x_, y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(before), ofKernel) << "what was encoded before keeps the old values";
  EXPECT_EQ(valuesOf(y), (Values{0, 2, 4, 6}));

  const auto other = FixedBatchNormalization::create(1, 0);
  normalization_->reloadDataSource(other);
  EXPECT_EQ(normalization_->epsilon(), 0);
  EXPECT_EQ(normalization_->dataSource(), other);
  EXPECT_EQ(valuesOf(kept->gamma()), Values{1});
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadDataSource(FixedBatchNormalization::create(2)); }),
                    {"dataSource", "2", "1"}));
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadDataSource(nullptr); }), {"dataSource", "null"}));
}

TEST_F(BatchNormalization, ReloadsFromStatesInStreamOrder) {
  const auto commandBuffer = commands();
  const auto before = destinations(), after = destinations();
  const auto gamma = buffer({4});
  const auto weights = CNNNormalizationGammaAndBetaState::create(gamma, buffer({2}));
  const auto statistics = CNNNormalizationMeanAndVarianceState::create(buffer({2}), buffer({12}));
  normalization_->encodeBatch(commandBuffer, x_, before);
  normalization_->reloadGammaAndBeta(commandBuffer, weights);
  normalization_->reloadMeanAndVariance(commandBuffer, statistics);
  normalization_->encodeBatch(commandBuffer, x_, after);
  gamma->contentsAs<float>()[0] = 8;  // the copy is made when it runs
  run(commandBuffer);
  EXPECT_EQ(valuesOf(before), ofKernel);
  EXPECT_EQ(valuesOf(after), (Values{0, 4, 8, 12}));

  const auto next = commands();
  const auto temporary = CNNNormalizationGammaAndBetaState::createTemporary(next, 1);
  EXPECT_EQ(temporary->readCount(), 1U);
  normalization_->reloadGammaAndBeta(next, temporary);
  EXPECT_EQ(temporary->readCount(), 0U);
  const auto temporaryStatistics = CNNNormalizationMeanAndVarianceState::createTemporary(next, 1);
  normalization_->reloadMeanAndVariance(next, temporaryStatistics);
  EXPECT_EQ(temporaryStatistics->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadGammaAndBeta(next, nullptr); }),
                    {"gammaAndBetaState", "null"}));
  const auto two = CNNNormalizationMeanAndVarianceState::create(buffer({1, 2}), buffer({1, 2}));
  EXPECT_TRUE(names(errorOf([&] { normalization_->reloadMeanAndVariance(next, two); }),
                    {"meanAndVarianceState", "2 values", "1"}));
}

TEST_F(BatchNormalization, ReloadsThatDoNotRunChangeNothing) {
  const auto reload = [&](const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    normalization_->reloadGammaAndBeta(commandBuffer,
                                       CNNNormalizationGammaAndBetaState::create(buffer({4}), buffer({2})));
    normalization_->reloadMeanAndVariance(
        commandBuffer, CNNNormalizationMeanAndVarianceState::create(buffer({2}), buffer({12})));
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
  EXPECT_EQ(normalized(), ofKernel);
  reload(commands());
  EXPECT_EQ(normalized(), ofKernel) << "dropped";
}

/// The host has counted its elements: no sum with the other parts would be right.
TEST_F(BatchNormalization, APartOfTheStatisticsThatAPredicateLeavesOutIsMissed) {
  const State ofStep = state();
  const auto under = CommandBuffer::create(queue_);
  under->setPredicate(Predicate::create(device_));  // 0
  statistics_->encodeBatch(under, x_.slice(0, 1), ofStep);
  run(under);
  const auto rest = commands();
  statistics_->encodeBatch(rest, x_.slice(1, 1), ofStep);
  rest->commit();
  EXPECT_TRUE(names(errorOf([&] { rest->throwIfFailed(); }),
                    {"CNNBatchNormalizationStatistics", "predicate", "missing"}));
  const State unseen = state();
  const auto first = CommandBuffer::create(queue_);
  first->setPredicate(Predicate::create(device_));  // 0
  statistics_->encodeBatch(first, x_, unseen);
  first->setPredicate(nullptr);
  normalization_->encodeBatch(first, x_, unseen, destinations());
  first->commit();
  EXPECT_TRUE(names(errorOf([&] { first->throwIfFailed(); }), {"predicate", "missing"}));
  for (const State& next : {ofStep, unseen}) {
    next->reset();
    EXPECT_EQ(this->normalized(next, x_, true), ofBatch) << "a new batch";
  }
}

TEST_F(BatchNormalization, AStepThatAPredicateLeavesOutLeavesTheStatisticsOfTheOneBefore) {
  const State ofStep = state();
  this->normalized(ofStep, x_, true);
  const auto under = CommandBuffer::create(queue_);
  under->setPredicate(Predicate::create(device_));  // 0
  const auto y = destinations();
  const auto other = batch(size_, 2, {20, 30, 40, 50});
  statistics_->encodeBatch(under, other, ofStep);
  normalization_->encodeBatch(under, other, ofStep, y);
  run(under);
  EXPECT_EQ(valuesOf(y), Values(4, poison));
  EXPECT_EQ(valuesOf(ofStep->mean()), Values{4});
  EXPECT_EQ(valuesOf(ofStep->variance()), Values{5});
  EXPECT_EQ(this->normalized(ofStep, x_, true), ofBatch);
}

TEST_F(BatchNormalization, StatisticsInADroppedBufferAreNotCounted) {
  const State ofStep = state();
  statistics_->encodeBatch(commands(), x_, ofStep);
  EXPECT_EQ(ofStep->elementCount(), 0U);
  const auto first = commands();
  statistics_->encodeBatch(first, x_.slice(0, 1), ofStep);
  run(first);
  {
    const auto dropped = commands();
    statistics_->encodeBatch(dropped, x_, ofStep);
    statistics_->encodeBatch(dropped, x_, ofStep);
  }
  EXPECT_EQ(ofStep->elementCount(), 2U);
  const auto second = commands();
  statistics_->encodeBatch(second, x_.slice(1, 1), ofStep);
  run(second);
  EXPECT_EQ(valuesOf(ofStep->mean()), Values{4});
  EXPECT_EQ(valuesOf(ofStep->variance()), Values{5});
}

TEST_F(BatchNormalization, ANormalizationInADroppedBufferDoesNotEndTheStatistics) {
  const State ofStep = state();
  const auto first = commands();
  statistics_->encodeBatch(first, x_.slice(0, 1), ofStep);
  run(first);
  normalization_->encodeBatch(commands(), x_, ofStep, destinations());
  const auto second = commands();
  statistics_->encodeBatch(second, x_.slice(1, 1), ofStep);
  run(second);
  EXPECT_EQ(ofStep->elementCount(), 4U);
  EXPECT_EQ(valuesOf(ofStep->mean()), Values{4});
  EXPECT_EQ(valuesOf(ofStep->variance()), Values{5});
}

TEST_F(BatchNormalization, AFrozenNormalizationInADroppedBufferLeavesNothingForAGradient) {
  const State frozen = state();
  normalization_->encodeBatch(commands(), x_, frozen, destinations());
  EXPECT_EQ(frozen->record(), nullptr);
  EXPECT_EQ(frozen->sourceWidth(), 0U);
}

TEST_F(BatchNormalization, ParametersOnTheDeviceAreUsedWithoutCopies) {
  const auto gamma = buffer({3}), mean = buffer({10});
  source_->liveGammaAndBeta = CNNNormalizationGammaAndBetaState::create(gamma, buffer({1}));
  source_->liveMeanAndVariance = CNNNormalizationMeanAndVarianceState::create(mean, buffer({12}));
  const int loads = source_->loads;
  const auto kernel = CNNBatchNormalization::create(device_, source_);
  EXPECT_EQ(source_->loads, loads);
  gamma->contentsAs<float>()[0] = 4;
  mean->contentsAs<float>()[0] = 2;
  const auto y = destinations();
  const auto commandBuffer = commands();
  kernel->encodeBatch(commandBuffer, x_, y);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(y), (Values{0, 2, 4, 6}));
  source_->liveGammaAndBeta = CNNNormalizationGammaAndBetaState::create(buffer({1, 2}), buffer({1, 2}));
  EXPECT_TRUE(names(errorOf([&] { kernel->reloadGammaAndBetaFromDataSource(); }),
                    {"deviceGammaAndBeta", "2 values", "1"}));
  source_->liveMeanAndVariance = CNNNormalizationMeanAndVarianceState::create(buffer({1, 2}), buffer({1, 2}));
  EXPECT_TRUE(names(errorOf([&] { kernel->reloadMeanAndVarianceFromDataSource(); }),
                    {"deviceMeanAndVariance", "2 values", "1"}));
}

TEST_F(BatchNormalization, CopiesAreIndependent) {
  const auto copy = normalization_->copy();
  copy->setEpsilon(1);
  source_->gammas = {7};
  copy->reloadGammaAndBetaFromDataSource();
  EXPECT_EQ(normalization_->epsilon(), 4);
  EXPECT_EQ(valuesOf(state()->gamma()), Values{3});
  EXPECT_EQ(copy->dataSource(), source_);
  const auto other = FixedBatchNormalization::create(1);
  other->gammas = {8};
  source_->copied = other;
  for (const auto& device : {std::shared_ptr<mtl::Device>(), device_, mtl::newCPUDevice(1)}) {
    const auto copied = normalization_->copy(device);
    EXPECT_EQ(copied->dataSource(), other);
    EXPECT_EQ(copied->epsilon(), 4);
    EXPECT_EQ(valuesOf(copied->parameters().gamma), Values{8});
  }
  EXPECT_EQ(normalization_->dataSource(), source_);
  EXPECT_EQ(CNNBatchNormalizationStatistics::create(device_)->copy()->className(), statistics_->className());
}

TEST_F(BatchNormalization, WhatConstructionRefuses) {
  const auto error = [&](auto change) {
    auto wrong = FixedBatchNormalization::create(2);
    change(*wrong);
    return errorOf([&] { CNNBatchNormalization::create(device_, wrong); });
  };
  EXPECT_TRUE(
      names(errorOf([&] { CNNBatchNormalization::create(device_, nullptr); }), {"dataSource", "null"}));
  EXPECT_TRUE(names(error([](auto& s) { s.channels = 0; }), {"numberOfFeatureChannels", "0"}));
  EXPECT_TRUE(names(error([](auto& s) { s.loadsWell = false; }), {"dataSource", "load()"}));
  EXPECT_TRUE(names(error([](auto& s) { s.gammas = {1}; }), {"gamma", "1 values", "2"}));
  EXPECT_TRUE(names(error([](auto& s) { s.betas = {1}; }), {"beta", "1 values"}));
  EXPECT_TRUE(names(error([](auto& s) { s.means = {1, 2, 3}; }), {"mean", "3 values"}));
  EXPECT_TRUE(names(error([](auto& s) { s.variances = {1}; }), {"variance", "1 values"}));
  const std::vector<float> one{0.5F};
  EXPECT_TRUE(names(errorOf([&] {
                      CNNBatchNormalization::create(device_, FixedBatchNormalization::create(2),
                                                    NNNeuronDescriptor::cnnNeuronPReLUDescriptor(one));
                    }),
                    {"fusedNeuronDescriptor", "1 slopes", "2"}));
}

TEST_F(BatchNormalization, WhatStatesOfBuffersRefuse) {
  EXPECT_TRUE(names(errorOf([&] { CNNNormalizationGammaAndBetaState::create(nullptr, buffer({1})); }),
                    {"gamma", "null"}));
  EXPECT_TRUE(names(errorOf([&] { CNNNormalizationGammaAndBetaState::create(buffer({1}), nullptr); }),
                    {"beta", "null"}));
  EXPECT_TRUE(names(errorOf([&] {
                      CNNNormalizationMeanAndVarianceState::create(buffer({1}), buffer({1, 2}));
                    }),
                    {"variance", "8 bytes", "4"}));
}

TEST_F(BatchNormalization, WhatEncodesRefuse) {
  const auto commandBuffer = commands();
  const auto wide = batch(sizeOf(2, 1, 2), 2, Values(8, 1));
  const State ofStep = state();
  EXPECT_TRUE(names(errorOf([&] { normalization_->encodeBatch(commandBuffer, wide, destinations()); }),
                    {"CNNBatchNormalization", "sourceImage", "2 feature channels", "1"}));
  EXPECT_TRUE(names(errorOf([&] { normalization_->encodeBatch(commandBuffer, x_, State(), destinations()); }),
                    {"batchNormalizationState", "null"}));
  const auto foreign = CNNBatchNormalization::create(device_, FixedBatchNormalization::create(2));
  const auto foreignState =
      std::static_pointer_cast<CNNBatchNormalizationState>(foreign->resultState(wide[0]));
  EXPECT_TRUE(
      names(errorOf([&] { normalization_->encodeBatch(commandBuffer, x_, foreignState, destinations()); }),
            {"batchNormalizationState", "2 feature channels", "1"}));
  EXPECT_TRUE(names(errorOf([&] {
                      normalization_->encode(commandBuffer, x_[0], NNGradientState::create(device_),
                                             destinations(1)[0]);
                    }),
                    {"batchNormalizationState", "another kind"}));
  EXPECT_TRUE(names(errorOf([&] { statistics_->encodeBatch(commandBuffer, wide, ofStep); }),
                    {"CNNBatchNormalizationStatistics", "batchNormalizationState", "1 feature channels"}));
  EXPECT_TRUE(names(errorOf([&] { statistics_->encodeBatch(commandBuffer, x_, State()); }),
                    {"batchNormalizationState", "null"}));
  EXPECT_TRUE(names(errorOf([&] { statistics_->encode(commandBuffer, x_[0], destinations(1)[0]); }),
                    {"destinationImage", "batchNormalizationState"}));
  statistics_->setOffset({1, 0, 0});
  EXPECT_TRUE(names(errorOf([&] { statistics_->encodeBatch(commandBuffer, x_, ofStep); }), {"offset"}));
  statistics_->setOffset({});
  statistics_->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf([&] { statistics_->encodeBatch(commandBuffer, x_, ofStep); }), {"clipRect"}));
  statistics_->setClipRect(RectNoClip);
  const auto stack = image(sizeOf(2, 1, 1, 2));
  EXPECT_TRUE(names(errorOf([&] { statistics_->encodeBatch(commandBuffer, {stack}, ofStep); }),
                    {"sourceImages", "stack"}));
  EXPECT_EQ(ofStep->elementCount(), 0U) << "nothing was encoded";
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

/// A device without a part of the batch.
TEST_F(BatchNormalization, StatisticsOfNoImages) {
  const auto sums = [](const State& state) {
    const auto values = state->accumulatedStatistics()->contentsAs<const double>();
    return std::vector<double>(values.begin(), values.end());
  };
  const State ofStep = state();
  normalized(ofStep, x_, true);
  EXPECT_EQ(sums(ofStep), (std::vector<double>{4, 20}));
  auto commandBuffer = commands();
  statistics_->encodeBatch(commandBuffer, ImageBatch(), ofStep);
  run(commandBuffer);
  EXPECT_EQ(sums(ofStep), (std::vector<double>{0, 0})) << "a new batch begins";
  EXPECT_EQ(ofStep->elementCount(), 0U);
  EXPECT_EQ(valuesOf(ofStep->mean()), Values{10}) << "the kernel's";
  commandBuffer = commands();
  statistics_->encodeBatch(commandBuffer, x_, ofStep);
  statistics_->encodeBatch(commandBuffer, ImageBatch(), ofStep);
  run(commandBuffer);
  EXPECT_EQ(sums(ofStep), (std::vector<double>{4, 20})) << "no images add nothing";
  EXPECT_EQ(ofStep->elementCount(), 4U);
}

}  // namespace
}  // namespace mps::batch_normalization_test
