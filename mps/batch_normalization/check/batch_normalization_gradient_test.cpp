#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/buffer.hpp"

/// Gradient kernels (docs/decisions.md, D3, D4), on the images [1, 3] and
/// [5, 7], gamma 3, beta 1.5, epsilon 4, ReLU with slope 0.5.
namespace mps::batch_normalization_gradient_test {
namespace {

using detail::FixedBatchNormalization;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using State = std::shared_ptr<CNNBatchNormalizationState>;

class BatchNormalizationGradients : public testing::DeviceTest {
 protected:
  BatchNormalizationGradients() {
    source_->gammas = {3};
    source_->betas = {1.5F};
    source_->means = {4};
    source_->variances = {5};
  }
  [[nodiscard]] State newState() const {
    return std::static_pointer_cast<CNNBatchNormalizationState>(normalization_->resultState(x_[0]));
  }
  [[nodiscard]] ImageBatch destinations(std::size_t count = 2) const {
    return batch(size_, count, Values(2 * count, poison));
  }
  void encodeForward(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const State& state) {
    statistics_->encodeBatch(commandBuffer, x_, state);
    normalization_->encodeBatch(commandBuffer, x_, state, destinations());
  }
  static Values valuesOf(const std::shared_ptr<mtl::Buffer>& buffer) {
    const auto values = buffer->contentsAs<const float>();
    return {values.begin(), values.end()};
  }
  static Values valuesOf(Vector& vector) {
    const float* first = vector.data()->contentsAs<const float>().data() + vector.offset() / sizeof(float);
    return {first, first + vector.length()};
  }
  static Values valuesOf(const ImageBatch& images) {
    Values all;
    for (std::size_t i = 0; i < images.count(); ++i)
      for (const float value : testing::valuesOf(*images[i])) all.push_back(value);
    return all;
  }
  static void expectNear(const Values& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], detail::arithmeticBound(5, 10, 0)) << i;
  }
  void expectGradients(CNNBatchNormalizationState& state) {
    expectNear(valuesOf(state.gradientForBeta()), {4.5});
    expectNear(valuesOf(state.gradientForGamma()), {-11.0 / 6});
    // gamma r = 1, r = 1/3
    expectNear(valuesOf(*state.gradientForMean()), {-4.5});
    expectNear(valuesOf(*state.gradientForVariance()), {11.0 / 36});
  }
  static inline const std::vector<double> expected{-13.0 / 12, 31.0 / 18, 37.0 / 36, -5.0 / 3};

  NNNeuronDescriptor relu_ = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F);
  ImageDescriptor size_ = sizeOf(2, 1, 1);
  std::shared_ptr<FixedBatchNormalization> source_ = FixedBatchNormalization::create(1, 4);
  ImageBatch x_ = batch(size_, 2, {1, 3, 5, 7});
  ImageBatch dy_ = batch(size_, 2, {1, 3, 2, -1});
  std::shared_ptr<CNNBatchNormalizationStatistics> statistics_ =
      CNNBatchNormalizationStatistics::create(device_);
  std::shared_ptr<CNNBatchNormalizationStatisticsGradient> sums_ =
      CNNBatchNormalizationStatisticsGradient::create(device_, relu_);
  std::shared_ptr<CNNBatchNormalizationGradient> gradient_ =
      CNNBatchNormalizationGradient::create(device_, relu_);
  std::shared_ptr<CNNBatchNormalization> normalization_;

  void SetUp() override { normalization_ = CNNBatchNormalization::create(device_, source_, relu_); }
};

TEST_F(BatchNormalizationGradients, D4AWholeStepWithTheGradientsOfMeanAndVariance) {
  const auto commandBuffer = commands();
  const State state = newState();
  const auto dx = destinations();
  encodeForward(commandBuffer, state);
  EXPECT_EQ(state->gradientForGamma(), nullptr);
  sums_->encodeBatch(commandBuffer, dy_, x_, state);
  gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx);
  run(commandBuffer);
  expectGradients(*state);
  expectNear(valuesOf(dx), expected);
}

TEST_F(BatchNormalizationGradients, AFirstPartThatDoesNotRunAddsNothing) {
  const State left = newState();
  auto commandBuffer = CommandBuffer::create(queue_);
  encodeForward(commandBuffer, left);
  commandBuffer->setPredicate(Predicate::create(device_));  // 0
  sums_->encodeBatch(commandBuffer, dy_.slice(0, 1), x_.slice(0, 1), left);
  commandBuffer->setPredicate(nullptr);
  sums_->encodeBatch(commandBuffer, dy_.slice(1, 1), x_.slice(1, 1), left);
  run(commandBuffer);
  // h = 1/3 and 1; z = h gamma + beta > 0
  expectNear(valuesOf(left->gradientForBeta()), {1});
  expectNear(valuesOf(left->gradientForGamma()), {2.0 / 3 - 1});

  const State dropped = newState();
  const auto forward = commands();
  encodeForward(forward, dropped);
  run(forward);
  sums_->encodeBatch(commands(), dy_, x_, dropped);
  const auto again = commands();
  sums_->encodeBatch(again, dy_, x_, dropped);
  run(again);
  expectGradients(*dropped);
}

TEST_F(BatchNormalizationGradients, AGradientInADroppedBufferDoesNotEndTheSums) {
  const State frozen = newState();
  const auto first = commands();
  normalization_->encodeBatch(first, x_, frozen, destinations());
  sums_->encodeBatch(first, dy_, x_, frozen);
  run(first);
  const Values once = valuesOf(frozen->gradientForBeta());
  gradient_->encodeBatch(commands(), dy_, x_, frozen, destinations());
  const auto second = commands();
  sums_->encodeBatch(second, dy_, x_, frozen);
  run(second);
  EXPECT_EQ(valuesOf(frozen->gradientForBeta()), Values{2 * once[0]});
}

TEST_F(BatchNormalizationGradients, PartsOfABatchInEveryForm) {
  const auto commandBuffer = commands();
  const State state = newState();
  gradient_->setDestinationImageAllocator(Image::defaultAllocator());
  encodeForward(commandBuffer, state);
  for (const std::size_t i : {0U, 1U})
    sums_->encodeBatch(commandBuffer, dy_.slice(i, 1), x_.slice(i, 1), state);
  const auto given = destinations();
  gradient_->encode(commandBuffer, dy_[0], x_[0], state, given[0]);
  gradient_->encodeBatch(commandBuffer, dy_.slice(1, 1), x_.slice(1, 1), StateBatch{state},
                         given.slice(1, 1));
  const auto image = gradient_->encode(commandBuffer, dy_[0], x_[0], state);
  const auto images = gradient_->encodeBatch(commandBuffer, dy_, x_, state);
  const auto inherited = gradient_->encodeBatch(commandBuffer, dy_, x_, StateBatch(state, 2));
  run(commandBuffer);
  expectGradients(*state);
  expectNear(valuesOf(given), expected);
  expectNear(testing::valuesOf(*image), {expected[0], expected[1]});
  expectNear(valuesOf(images), expected);
  expectNear(valuesOf(inherited), expected);
}

/// docs/decisions.md, D3.
TEST_F(BatchNormalizationGradients, D3InheritedFormsOfTheStatisticsGradientComputeBoth) {
  sums_->setDestinationImageAllocator(Image::defaultAllocator());
  const auto commandBuffer = commands();
  const State state = newState(), other = newState();
  encodeForward(commandBuffer, state);
  const auto dx = destinations();
  sums_->encodeBatch(commandBuffer, dy_, x_, StateBatch(state, 2), dx);
  encodeForward(commandBuffer, other);
  const auto returned = sums_->encodeBatch(commandBuffer, dy_, x_, StateBatch(other, 2));
  run(commandBuffer);
  expectGradients(*state);
  expectGradients(*other);
  expectNear(valuesOf(dx), expected);
  expectNear(valuesOf(returned), expected);
}

TEST_F(BatchNormalizationGradients, D3TheSingleFormsAndTheMissingImages) {
  sums_->setDestinationImageAllocator(Image::defaultAllocator());
  const auto commandBuffer = commands();
  const State state = newState();
  encodeForward(commandBuffer, state);
  const std::size_t before = commandBuffer->commandCount();
  EXPECT_TRUE(names(errorOf([&] { sums_->encode(commandBuffer, dy_[0], x_[0], state); }),
                    {"CNNBatchNormalizationStatisticsGradient", "gradientState", "1 images", "4 elements"}));
  EXPECT_EQ(commandBuffer->commandCount(), before);
  EXPECT_EQ(state->gradientForGamma(), nullptr);
  sums_->encodeBatch(commandBuffer, dy_.slice(0, 1), x_.slice(0, 1), state);
  const auto last = destinations(1);
  sums_->encode(commandBuffer, dy_[1], x_[1], state, last[0]);
  run(commandBuffer);
  expectGradients(*state);
  expectNear(valuesOf(last), {expected[2], expected[3]});
}

TEST_F(BatchNormalizationGradients, ConstantStatistics) {
  const auto commandBuffer = commands();
  const State state = newState();
  const auto dx = destinations(), whole = destinations();
  normalization_->encodeBatch(commandBuffer, x_, state, destinations());
  sums_->encodeBatch(commandBuffer, dy_, x_, state);
  gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx);
  sums_->encodeBatch(commandBuffer, dy_, x_, StateBatch(state, 2), whole);
  run(commandBuffer);
  expectGradients(*state);  // mean and variance of the data source are those of the batch
  expectNear(valuesOf(dx), {0.5, 3, 2, -1});
  expectNear(valuesOf(whole), {0.5, 3, 2, -1});
}

TEST_F(BatchNormalizationGradients, ConstantStatisticsWithoutANeuronNeedNoSource) {
  const auto commandBuffer = commands();
  const auto plain = CNNBatchNormalization::create(device_, source_);
  const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(plain->resultState(x_[0]));
  const auto dx = destinations();
  plain->encodeBatch(commandBuffer, x_, state, destinations());
  CNNBatchNormalizationStatisticsGradient::create(device_)->encodeBatch(commandBuffer, dy_, x_, state);
  CNNBatchNormalizationGradient::create(device_)->encodeBatch(commandBuffer, dy_, x_, state, dx);
  run(commandBuffer);
  expectNear(valuesOf(state->gradientForBeta()), {5});
  expectNear(valuesOf(state->gradientForGamma()), {-7.0 / 3});
  expectNear(valuesOf(dx), {1, 3, 2, -1});
}

TEST_F(BatchNormalizationGradients, SumsBeginAnewWithTheNextBatch) {
  const State kept = newState();
  for (int step = 0; step < 2; ++step) {
    const auto commandBuffer = commands();
    const auto dx = destinations();
    encodeForward(commandBuffer, kept);
    sums_->encodeBatch(commandBuffer, dy_, x_, kept);
    gradient_->encodeBatch(commandBuffer, dy_, x_, kept, dx);
    run(commandBuffer);
    expectGradients(*kept);
    expectNear(valuesOf(dx), expected);
  }
  kept->reset();
  EXPECT_EQ(kept->gradientForGamma(), nullptr);
  EXPECT_EQ(kept->gradientForBeta(), nullptr);
  EXPECT_EQ(kept->gradientForVariance(), nullptr);
}

/// docs/decisions.md, D9: what the normalisation used counts, not what the kernel has by now.
TEST_F(BatchNormalizationGradients, TheGradientUsesWhatTheNormalizationUsed) {
  const auto commandBuffer = commands();
  const State state = newState();
  encodeForward(commandBuffer, state);
  normalization_->setEpsilon(1);
  source_->gammas = {100};
  normalization_->reloadGammaAndBetaFromDataSource();
  const auto dx = destinations();
  sums_->encodeBatch(commandBuffer, dy_, x_, state);
  gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx);
  run(commandBuffer);
  expectGradients(*state);
  expectNear(valuesOf(dx), expected);
}

TEST_F(BatchNormalizationGradients, ANormalizationBetweenTheGradientsChangesNothing) {
  const auto commandBuffer = commands();
  const State state = newState();
  const auto dx = destinations();
  encodeForward(commandBuffer, state);
  sums_->encodeBatch(commandBuffer, dy_, x_, state);
  normalization_->encodeBatch(commandBuffer, x_, state, destinations());  // activations made again
  gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx);
  run(commandBuffer);
  expectGradients(*state);
  expectNear(valuesOf(dx), expected);
}

TEST_F(BatchNormalizationGradients, ReadCountsOfTemporaryStates) {
  const auto commandBuffer = commands();
  const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(
      normalization_->temporaryResultState(commandBuffer, x_[0]));
  state->setReadCount(3);
  encodeForward(commandBuffer, state);
  EXPECT_EQ(state->readCount(), 2U);
  sums_->encodeBatch(commandBuffer, dy_, x_, state);
  EXPECT_EQ(state->readCount(), 1U);
  const auto dx = destinations();
  gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx);
  EXPECT_EQ(state->readCount(), 0U) << "one for the call, however many images it has";
  run(commandBuffer);
  expectNear(valuesOf(dx), expected);
}

TEST_F(BatchNormalizationGradients, TheDestinationMayBeTheSourceGradient) {
  const auto commandBuffer = commands();
  const State state = newState();
  encodeForward(commandBuffer, state);
  sums_->encodeBatch(commandBuffer, dy_, x_, StateBatch(state, 2), dy_);
  run(commandBuffer);
  expectGradients(*state);
  expectNear(valuesOf(dy_), expected);
}

TEST_F(BatchNormalizationGradients, AccumulatesIntoTheDestination) {
  const auto commandBuffer = commands();
  const State state = newState();
  const auto dx = batch(size_, 2, {1, 1, 1, 1});
  encodeForward(commandBuffer, state);
  sums_->encodeBatchAccumulating(commandBuffer, dy_, x_, StateBatch(state, 2), dx);
  run(commandBuffer);
  expectNear(valuesOf(dx), {expected[0] + 1, expected[1] + 1, expected[2] + 1, expected[3] + 1});
}

TEST_F(BatchNormalizationGradients, StacksOfImages) {
  const auto commandBuffer = commands();
  const State state = newState();
  encodeForward(commandBuffer, state);
  const auto dx = poisoned(sizeOf(2, 1, 1, 2));
  sums_->encodeBatch(commandBuffer, dy_, x_, state);
  const auto x = image(sizeOf(2, 1, 1, 2), {1, 3, 5, 7});
  const auto dy = image(sizeOf(2, 1, 1, 2), {1, 3, 2, -1});
  const auto y = poisoned(sizeOf(2, 1, 1, 2));
  normalization_->encode(commandBuffer, x, state, y);
  gradient_->encode(commandBuffer, dy, x, state, dx);
  run(commandBuffer);
  EXPECT_EQ(testing::valuesOf(*y), (Values{-0.75F, 0.5F, 2.5F, 4.5F}));
  expectNear(testing::valuesOf(*dx), expected);
}

/// One image on each of two devices. Both merge in the same order.
TEST_F(BatchNormalizationGradients, OneBatchOnTwoDevices) {
  const std::vector<State> states{newState(), newState()};
  const auto doubles = [](const std::shared_ptr<mtl::Buffer>& buffer) {
    return buffer->contentsAs<double>();
  };
  const auto bufferOf = [&](const std::vector<double>& values) {
    return device_->newBuffer(std::as_bytes(std::span(values)));
  };
  const auto part = [](const ImageBatch& images, std::size_t rank) { return images.slice(rank, 1); };
  auto commandBuffer = commands();
  for (const std::size_t rank : {0U, 1U})
    statistics_->encodeBatch(commandBuffer, part(x_, rank), states[rank]);
  run(commandBuffer);
  const auto a = doubles(states[0]->accumulatedStatistics()), b = doubles(states[1]->accumulatedStatistics());
  const auto nA = static_cast<double>(states[0]->elementCount());
  const auto nB = static_cast<double>(states[1]->elementCount());
  const double difference = b[0] - a[0];
  const auto merged = bufferOf(
      {a[0] + difference * nB / (nA + nB), a[1] + b[1] + difference * difference * nA * nB / (nA + nB)});
  const auto y = destinations(), dx = destinations();
  commandBuffer = commands();
  for (const std::size_t rank : {0U, 1U}) {
    statistics_->importStatistics(commandBuffer, merged, 4, states[rank]);
    EXPECT_EQ(states[rank]->elementCount(), 4U);
    normalization_->encodeBatch(commandBuffer, part(x_, rank), states[rank], part(y, rank));
    sums_->encodeBatch(commandBuffer, part(dy_, rank), part(x_, rank), states[rank]);
  }
  run(commandBuffer);
  EXPECT_EQ(valuesOf(states[1]->mean()), Values{4});
  EXPECT_EQ(valuesOf(states[1]->variance()), Values{5});
  EXPECT_EQ(valuesOf(y), (Values{-0.75F, 0.5F, 2.5F, 4.5F}));
  const auto sumA = doubles(states[0]->accumulatedGradients()),
             sumB = doubles(states[1]->accumulatedGradients());
  const auto all = bufferOf({sumA[0] + sumB[0], sumA[1] + sumB[1]});
  commandBuffer = commands();
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_TRUE(names(errorOf([&] {
                        gradient_->encodeBatch(commandBuffer, part(dy_, rank), part(x_, rank), states[rank],
                                               part(dx, rank));
                      }),
                      {"gradientState", "1 images"}));
    sums_->importGradients(commandBuffer, all, states[rank]);
    gradient_->encodeBatch(commandBuffer, part(dy_, rank), part(x_, rank), states[rank], part(dx, rank));
  }
  run(commandBuffer);
  expectNear(valuesOf(dx), expected);
  expectNear(valuesOf(states[0]->gradientForBeta()), {3.5});
  expectNear(valuesOf(states[0]->gradientForGamma()), {-1.5});
  expectNear(valuesOf(states[1]->gradientForBeta()), {1});
  expectNear(valuesOf(states[1]->gradientForGamma()), {-1.0 / 3});
}

/// A device without a part of the batch takes part in both exchanges.
TEST_F(BatchNormalizationGradients, GradientsOfNoImages) {
  const auto sums = [](const State& state) {
    const auto values = state->accumulatedGradients()->contentsAs<const double>();
    return std::vector<double>(values.begin(), values.end());
  };
  const State state = newState();
  auto commandBuffer = commands();
  encodeForward(commandBuffer, state);
  sums_->encodeBatch(commandBuffer, dy_, x_, state);
  sums_->encodeBatch(commandBuffer, ImageBatch(), ImageBatch(), state);
  run(commandBuffer);
  expectGradients(*state);
  const std::vector<double> all = sums(state);
  const auto merged = device_->newBuffer(std::as_bytes(std::span(all)));

  const auto expectNothing = [&] {
    EXPECT_EQ(valuesOf(state->gradientForGamma()), Values{0});
    EXPECT_EQ(valuesOf(state->gradientForBeta()), Values{0});
    EXPECT_EQ(valuesOf(*state->gradientForMean()), Values{0});
    EXPECT_EQ(valuesOf(*state->gradientForVariance()), Values{0});
  };
  const std::vector<double> statistics{4, 20};
  for (const bool encodesNone : {true, false}) {
    commandBuffer = commands();
    statistics_->encodeBatch(commandBuffer, ImageBatch(), state);
    statistics_->importStatistics(commandBuffer, device_->newBuffer(std::as_bytes(std::span(statistics))), 4,
                                  state);
    if (encodesNone) {
      sums_->encodeBatch(commandBuffer, ImageBatch(), ImageBatch(), state);
      run(commandBuffer);
      EXPECT_EQ(sums(state), (std::vector<double>{0, 0}));
      expectNothing();
      commandBuffer = commands();
    }
    sums_->importGradients(commandBuffer, merged, state);
    run(commandBuffer);
    EXPECT_EQ(sums(state), all);
    expectNothing();
  }
}

/// Every pixel weighs the same.
TEST_F(BatchNormalizationGradients, ABatchOfImagesOfTwoSizes) {
  const ImageBatch x[] = {ImageBatch{image(sizeOf(1, 1, 1), {1})},
                          ImageBatch{image(sizeOf(3, 1, 1), {3, 5, 7})}};
  const ImageBatch dy[] = {ImageBatch{image(sizeOf(1, 1, 1), {1})},
                           ImageBatch{image(sizeOf(3, 1, 1), {3, 2, -1})}};
  const ImageBatch dx[] = {ImageBatch{poisoned(sizeOf(1, 1, 1))}, ImageBatch{poisoned(sizeOf(3, 1, 1))}};
  const State state = newState();
  const auto commandBuffer = commands();
  for (const ImageBatch& images : x) statistics_->encodeBatch(commandBuffer, images, state);
  for (const ImageBatch& images : x)
    normalization_->encodeBatch(commandBuffer, images, state, ImageBatch{poisoned(images.descriptor())});
  for (const std::size_t i : {0U, 1U}) sums_->encodeBatch(commandBuffer, dy[i], x[i], state);
  for (const std::size_t i : {0U, 1U}) gradient_->encodeBatch(commandBuffer, dy[i], x[i], state, dx[i]);
  run(commandBuffer);
  expectGradients(*state);
  Values all = valuesOf(dx[0]);
  for (const float value : valuesOf(dx[1])) all.push_back(value);
  expectNear(all, expected);
}

/// From a fresh state, too.
TEST_F(BatchNormalizationGradients, GradientsWithoutAForwardPassUseTheKernelsStatistics) {
  for (const bool inherited : {false, true}) {
    const State state = newState();
    const auto commandBuffer = commands();
    const auto dx = destinations();
    if (inherited) {
      sums_->encodeBatch(commandBuffer, dy_, x_, StateBatch(state, 2), dx);
    } else {
      sums_->encodeBatch(commandBuffer, dy_, x_, state);
      gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx);
    }
    run(commandBuffer);
    expectGradients(*state);
    expectNear(valuesOf(dx), {0.5, 3, 2, -1});
  }
}

TEST_F(BatchNormalizationGradients, TheNeuronIsThatOfTheKernelThatMadeTheState) {
  const auto other = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.50000006F);
  const auto none = NNNeuronDescriptor::cnnNeuronPReLUDescriptor({});
  for (const auto& neuron : {other, none}) {
    const auto sums = CNNBatchNormalizationStatisticsGradient::create(device_, neuron);
    EXPECT_TRUE(names(errorOf([&] { sums->encodeBatch(commands(), dy_, x_, newState()); }),
                      {"CNNBatchNormalizationStatisticsGradient", "fusedNeuronDescriptor", "ReLU a=0.5,"}));
  }
  const auto unknown = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Count);
  EXPECT_TRUE(names(errorOf([&] { CNNBatchNormalizationStatisticsGradient::create(device_, unknown); }),
                    {"CNNBatchNormalizationStatisticsGradient", "neuronType", "16"}));
  EXPECT_TRUE(names(errorOf([&] { CNNBatchNormalizationGradient::create(device_, unknown); }),
                    {"CNNBatchNormalizationGradient", "neuronType", "16"}));
  EXPECT_TRUE(names(errorOf([&] { CNNBatchNormalization::create(device_, source_, unknown); }),
                    {"CNNBatchNormalization", "neuronType", "16"}));
}

TEST_F(BatchNormalizationGradients, SeveralStatesAreRefused) {
  EXPECT_TRUE(
      names(errorOf([&] {
              gradient_->encodeBatch(commands(), dy_, x_, StateBatch{newState(), newState()}, destinations());
            }),
            {"CNNBatchNormalizationGradient", "gradientStates", "one"}));
}

TEST_F(BatchNormalizationGradients, WhatImportsRefuse) {
  const auto commandBuffer = commands();
  const auto two = device_->newBuffer(2 * sizeof(double)), three = device_->newBuffer(3 * sizeof(double));
  const auto refuses = [&](auto import, const std::vector<std::string>& words) {
    EXPECT_TRUE(names(errorOf(import), words));
  };
  refuses([&] { statistics_->importStatistics(commandBuffer, two, 0, newState()); }, {"elementCount", "0"});
  refuses([&] { statistics_->importStatistics(commandBuffer, three, 4, newState()); },
          {"accumulatedStatistics", "24 bytes", "16"});
  refuses([&] { statistics_->importStatistics(commandBuffer, nullptr, 4, newState()); },
          {"accumulatedStatistics", "null"});
  refuses([&] { statistics_->importStatistics(commandBuffer, two, 4, State()); },
          {"batchNormalizationState", "null"});
  refuses([&] { sums_->importGradients(commandBuffer, three, newState()); },
          {"accumulatedGradients", "24 bytes"});
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(BatchNormalizationGradients, CopiesKeepTheNeuron) {
  EXPECT_EQ(sums_->copy()->fusedNeuronDescriptor(), relu_);
  EXPECT_EQ(gradient_->copy()->fusedNeuronDescriptor(), relu_);
  EXPECT_TRUE(sums_->appendBatchBarrier() && sums_->isStateModified());
  EXPECT_TRUE(sums_->isResultStateReusedAcrossBatch() && gradient_->isResultStateReusedAcrossBatch());
}

TEST_F(BatchNormalizationGradients, WhatIsRefused) {
  const auto commandBuffer = commands();
  const State state = newState();
  const auto dx = destinations();
  encodeForward(commandBuffer, state);
  const auto refuses = [&](auto encode, const std::vector<std::string>& words) {
    const std::size_t before = commandBuffer->commandCount();
    EXPECT_TRUE(names(errorOf(encode), words));
    EXPECT_EQ(commandBuffer->commandCount(), before);
  };
  refuses([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx); },
          {"CNNBatchNormalizationGradient", "without a statistics gradient"});
  sums_->encodeBatch(commandBuffer, dy_.slice(0, 1), x_.slice(0, 1), state);
  refuses([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx); }, {"gradientState", "1 images"});
  refuses([&] { sums_->encodeBatch(commandBuffer, dy_, x_, state); },
          {"sourceImages", "6 elements", "at most 4"});
  refuses([&] { sums_->encodeBatch(commandBuffer, dy_, x_, State()); }, {"batchNormalizationState", "null"});
  refuses([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, State(), dx); },
          {"batchNormalizationState", "null"});
  refuses([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, State()); },
          {"batchNormalizationState", "null"});
  refuses([&] { sums_->encodeBatch(commandBuffer, dy_, x_.slice(0, 1), state); },
          {"sourceImages", "batch of 1"});
  refuses([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, dx); }, {"gradientState", "missing"});
  const auto larger = batch(sizeOf(2, 2, 1), 2, Values(8, 1));
  refuses([&] { sums_->encodeBatch(commandBuffer, larger, x_, newState()); }, {"of the same size"});
  const auto wide = batch(sizeOf(2, 1, 2), 2, Values(8, 1));
  refuses([&] { sums_->encodeBatch(commandBuffer, wide, wide, newState()); },
          {"sourceGradient", "2 feature channels", "1"});
  const auto plain = CNNBatchNormalizationStatisticsGradient::create(device_);
  refuses([&] { plain->encodeBatch(commandBuffer, dy_.slice(1, 1), x_.slice(1, 1), state); },
          {"fusedNeuronDescriptor", "ReLU"});
  const auto plainGradient = CNNBatchNormalizationGradient::create(device_);
  refuses([&] { plainGradient->encodeBatch(commandBuffer, dy_, x_, state, dx); },
          {"fusedNeuronDescriptor", "ReLU"});
  gradient_->setClipRect({{0, 0, 0}, {1, 1, 1}});
  sums_->encodeBatch(commandBuffer, dy_.slice(1, 1), x_.slice(1, 1), state);
  refuses([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx); }, {"offset or clipRect"});
  gradient_->setClipRect({{100, 0, 0}, {1, 1, 1}});
  refuses([&] { gradient_->encodeBatch(commandBuffer, dy_, x_, state, dx); }, {"offset or clipRect"});
  sums_->setClipRect({{100, 0, 0}, {1, 1, 1}});
  const auto once = newState();
  refuses([&] { sums_->encodeBatch(commandBuffer, dy_, x_, StateBatch(once, 2), dx); },
          {"offset or clipRect"});
  EXPECT_EQ(once->gradientForGamma(), nullptr) << "nothing was encoded";
  sums_->setClipRect(RectNoClip);
  sums_->encodeBatch(commandBuffer, ImageBatch(), ImageBatch(), newState());
}

}  // namespace
}  // namespace mps::batch_normalization_gradient_test
