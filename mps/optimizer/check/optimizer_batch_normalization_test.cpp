#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/testing/test_images.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"

/// The optimisers on batch-normalisation states.
namespace mps::optimizer_batch_normalization_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;
using SGD = NNOptimizerStochasticGradientDescent;
using WeightsState = CNNNormalizationGammaAndBetaState;
using Vectors = std::vector<std::shared_ptr<Vector>>;

/// Two channels: gamma 10, 20 with gradients 1, 2; beta 30, 40 with gradients 3, 4.
class BatchNormalizationOptimizer : public testing::DeviceTest {
 protected:
  BatchNormalizationOptimizer() {
    live_->gamma = buffer({10, 20});
    live_->beta = buffer({30, 40});
    live_->mean = buffer({0, 0});
    live_->variance = buffer({1, 1});
    state_ = newState();
  }
  [[nodiscard]] std::shared_ptr<CNNBatchNormalizationState> newState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer = nullptr) const {
    auto state = CNNBatchNormalizationState::create(device_, commandBuffer, 2, nullptr, live_);
    state->didEncodeGradientStatistics(1);
    if (commandBuffer) return state;
    set(state->gradientForGamma(), {1, 2});
    set(state->gradientForBeta(), {3, 4});
    return state;
  }
  static void set(const std::shared_ptr<mtl::Buffer>& buffer, const Values& values) {
    std::ranges::copy(values, buffer->contentsAs<float>().begin());
  }
  static Values valuesOf(const std::shared_ptr<mtl::Buffer>& buffer) {
    const auto values = buffer->contentsAs<const float>();
    return {values.begin(), values.end()};
  }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> buffer(const Values& values) const {
    return device_->newBuffer(std::as_bytes(std::span(values)));
  }
  [[nodiscard]] std::shared_ptr<WeightsState> result() const {
    return WeightsState::create(buffer({0, 0}), buffer({0, 0}));
  }
  [[nodiscard]] Vectors zeros(std::size_t count = 2) const {
    Vectors vectors;
    for (std::size_t i = 0; i < count; ++i)
      vectors.push_back(Vector::create(device_, VectorDescriptor::vectorDescriptor(2, DataType::Float32)));
    return vectors;
  }
  template <class Encode>
  void runWith(Encode&& encode) {
    const auto commandBuffer = commands();
    encode(commandBuffer);
    run(commandBuffer);
  }

  std::shared_ptr<detail::BatchNormalizationParameters> live_ =
      std::make_shared<detail::BatchNormalizationParameters>();
  std::shared_ptr<CNNBatchNormalizationState> state_;
  std::shared_ptr<SGD> sgd_ = SGD::create(device_, 1);
};

TEST_F(BatchNormalizationOptimizer, OneStateGivesGradientsAndValues) {
  const auto to = result();
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, state_, {}, to); });
  EXPECT_EQ(valuesOf(to->gamma()), (Values{9, 18}));
  EXPECT_EQ(valuesOf(to->beta()), (Values{27, 36}));
  EXPECT_EQ(valuesOf(state_->gamma()), (Values{10, 20}));
}

TEST_F(BatchNormalizationOptimizer, TwoStatesGiveOneEach) {
  const auto to = result();
  const auto other = std::make_shared<detail::BatchNormalizationParameters>(*live_);
  other->gamma = buffer({100, 200});
  const auto source = CNNBatchNormalizationState::create(device_, nullptr, 2, nullptr, other);
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, state_, source, {}, to); });
  EXPECT_EQ(valuesOf(to->gamma()), (Values{99, 198}));
  EXPECT_EQ(valuesOf(to->beta()), (Values{27, 36}));
}

TEST_F(BatchNormalizationOptimizer, InPlace) {
  const auto own = WeightsState::create(live_->gamma, live_->beta);
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, state_, {}, own); });
  EXPECT_EQ(valuesOf(state_->gamma()), (Values{9, 18}));
  EXPECT_EQ(valuesOf(state_->beta()), (Values{27, 36}));
}

TEST_F(BatchNormalizationOptimizer, OneVectorLeavesBetaUnchanged) {
  const auto to = result();
  const auto momentum =
      SGD::create(device_, 0.5F, false, NNOptimizerDescriptor(1, 1, NNRegularizationType::None, 0));
  runWith([&](const auto& commandBuffer) { momentum->encode(commandBuffer, state_, zeros(1), to); });
  EXPECT_EQ(valuesOf(to->gamma()), (Values{9, 18}));
  EXPECT_EQ(valuesOf(to->beta()), (Values{30, 40})) << "copied, so that a reload finds them";
}

TEST_F(BatchNormalizationOptimizer, BuffersOfEveryKind) {
  const Vectors squares = zeros();
  runWith([&](const auto& commandBuffer) {
    const auto rmsProp = NNOptimizerRMSProp::create(device_, 0.5, 1, NNOptimizerDescriptor());
    rmsProp->encode(commandBuffer, state_, squares, result());
    rmsProp->encode(commandBuffer, state_, newState(), zeros(), result());
  });
  EXPECT_EQ(valuesOf(squares[0]->data()), (Values{0.5F, 2}));
  EXPECT_EQ(valuesOf(squares[1]->data()), (Values{4.5F, 8}));

  const auto adam = NNOptimizerAdam::create(device_, 0.5, 0.5, 1, 0, NNOptimizerDescriptor());
  const Vectors m = zeros(), u = zeros(), most = zeros();
  runWith([&](const auto& commandBuffer) {
    adam->encode(commandBuffer, state_, m, u, result());
    EXPECT_EQ(adam->timeStep(), 1U) << "gamma and beta together count once";
    adam->encode(commandBuffer, state_, m, u, most, result());
    adam->encode(commandBuffer, state_, newState(), zeros(), zeros(), result());
    adam->encode(commandBuffer, state_, newState(), zeros(), zeros(), zeros(), result());
    EXPECT_EQ(adam->timeStep(), 4U);
  });
  EXPECT_EQ(valuesOf(m[1]->data()), (Values{2.25F, 3}));
  EXPECT_EQ(valuesOf(u[0]->data()), (Values{0.75F, 3}));
  EXPECT_EQ(valuesOf(most[0]->data()), (Values{0.75F, 3}));
}

TEST_F(BatchNormalizationOptimizer, Behaviour03EachEncodeTakesAReadOffEachState) {
  const auto commandBuffer = commands();
  const auto temporary = newState(commandBuffer), source = newState(commandBuffer);
  temporary->setReadCount(2);
  sgd_->encode(commandBuffer, temporary, {}, result());
  EXPECT_EQ(temporary->readCount(), 1U);
  sgd_->encode(commandBuffer, temporary, source, {}, result());
  EXPECT_EQ(temporary->readCount(), 0U);
  EXPECT_EQ(source->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, temporary, {}, result()); }),
                    {"batchNormalizationGradientState", "readCount"}));
}

TEST_F(BatchNormalizationOptimizer, WhatIsRefused) {
  const auto commandBuffer = commands();
  using StatePointer = std::shared_ptr<CNNBatchNormalizationState>;
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, StatePointer(), {}, result()); }), {"null"}));
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, state_, {}, nullptr); }), {"null"}));
  const auto three = WeightsState::create(buffer({1, 2, 3}), buffer({1, 2, 3}));
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, state_, {}, three); }),
                    {"2 and 3 feature channels", "2"}));
  const auto without = CNNBatchNormalizationState::create(device_, nullptr, 2, nullptr, live_);
  EXPECT_TRUE(
      names(errorOf([&] { sgd_->encode(commandBuffer, without, {}, result()); }), {"without gradients"}));
  const auto rmsProp = NNOptimizerRMSProp::create(device_, 1);
  EXPECT_TRUE(names(errorOf([&] { rmsProp->encode(commandBuffer, state_, {}, result()); }),
                    {"velocity", "0 vectors"}));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(BatchNormalizationOptimizer, GammaAndBetaShareNothing) {
  const auto refused = [&](const Vectors& momentum, const std::shared_ptr<WeightsState>& result) {
    return errorOf([&] { SGD::create(device_, 1)->encode(commands(), state_, momentum, result); });
  };
  const auto one = buffer({0, 0});
  EXPECT_TRUE(names(refused({}, WeightsState::create(one, one)),
                    {"result of the weights or gamma", "result of the biases or beta", "memory of its own"}));
  EXPECT_TRUE(names(refused({}, WeightsState::create(live_->beta, one)),
                    {"result of the weights or gamma", "values of the biases or beta"}));
  const auto vector = zeros(1).front();
  EXPECT_TRUE(names(refused({vector, vector}, result()), {"momentum of the weights or gamma"}));
}

}  // namespace
}  // namespace mps::optimizer_batch_normalization_test
