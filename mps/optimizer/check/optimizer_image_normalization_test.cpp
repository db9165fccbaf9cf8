#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"

/// The optimisers on states of instance and group normalisation.
namespace mps::optimizer_image_normalization_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;
using testing::valuesOf;
using SGD = NNOptimizerStochasticGradientDescent;
using State = CNNInstanceNormalizationGradientState;
using WeightsState = CNNNormalizationGammaAndBetaState;
using Vectors = std::vector<std::shared_ptr<Vector>>;

/// Two channels: gamma 100, 200, beta 300, 400. The gradients of image i are those of image 0, gamma 1, 2 and beta
/// 3, 4, times 10 to the power i.
class ImageNormalizationOptimizer : public testing::DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<mtl::Buffer> buffer(const Values& values) const {
    return device_->newBuffer(std::as_bytes(std::span(values)));
  }
  [[nodiscard]] std::shared_ptr<detail::ForwardRecord> newRecord() const {
    auto record = std::make_shared<detail::ForwardRecord>();
    record->family = detail::ImageNormalizationParameters{gamma_, beta_, 2, 0, false};
    return record;
  }
  /// As a forward and a gradient encode leave them.
  [[nodiscard]] StateBatch states(std::size_t count,
                                  const std::shared_ptr<mtl::CommandBuffer>& commandBuffer = nullptr) const {
    auto gradients = std::make_shared<detail::ImageNormalizationGradients>(device_, commandBuffer, count, 2);
    StateBatch batch([=](std::size_t row) { return State::create(commandBuffer, gradients, row, nullptr); },
                     count, gradients);
    batch.setRecord(newRecord());
    gradients->didEncodeGradient(0, count);
    float factor = 1;
    for (std::size_t i = 0; i < count && !commandBuffer; ++i, factor *= 10) {
      const auto state = std::static_pointer_cast<State>(batch[i]);
      std::ranges::copy(Values{factor, 2 * factor}, state->gradientForGamma()->contentsAs<float>().begin());
      std::ranges::copy(Values{3 * factor, 4 * factor},
                        state->gradientForBeta()->contentsAs<float>().begin());
    }
    return batch;
  }
  [[nodiscard]] std::shared_ptr<WeightsState> result() const {
    return WeightsState::create(buffer({0, 0}), buffer({0, 0}));
  }
  [[nodiscard]] Vectors zeros() const {
    Vectors vectors;
    for (int i = 0; i < 2; ++i)
      vectors.push_back(Vector::create(device_, VectorDescriptor::vectorDescriptor(2, DataType::Float32)));
    return vectors;
  }
  /// Gamma, then beta, after a step of gradient descent with rate 1.
  Values updated(const StateBatch& batch) {
    const auto to = result();
    const auto commandBuffer = commands();
    sgd_->encode(commandBuffer, batch, {}, to);
    run(commandBuffer);
    Values values = valuesOf(to->gamma());
    for (const float value : valuesOf(to->beta())) values.push_back(value);
    return values;
  }

  std::shared_ptr<mtl::Buffer> gamma_ = buffer({100, 200}), beta_ = buffer({300, 400});
  std::shared_ptr<SGD> sgd_ = SGD::create(device_, 1);
};

TEST_F(ImageNormalizationOptimizer, SumsTheGradientsOfTheImages) {
  EXPECT_EQ(updated(states(1)), (Values{99, 198, 297, 396}));
  const StateBatch three = states(3);
  const Values ofThree{-11, -22, -33, -44};
  EXPECT_EQ(updated(three), ofThree);
  EXPECT_EQ(updated({three[2], three[0], three[1]}), ofThree) << "in any order";
  EXPECT_EQ(updated(three.slice(1, 2)), (Values{-10, -20, -30, -40}));
  EXPECT_EQ(updated({states(1)[0], three[2]}), (Values{-1, -2, -3, -4})) << "of different batches";
  EXPECT_EQ(updated(StateBatch(states(1)[0], 3)), (Values{99, 198, 297, 396})) << "one state has sums";
}

TEST_F(ImageNormalizationOptimizer, InPlaceAndOneVector) {
  const auto own = WeightsState::create(gamma_, beta_);
  const auto momentum =
      SGD::create(device_, 0.5F, false, NNOptimizerDescriptor(1, 1, NNRegularizationType::None, 0));
  const auto commandBuffer = commands();
  momentum->encode(commandBuffer, states(2), Vectors{zeros()[0]}, own);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(gamma_), (Values{89, 178}));
  EXPECT_EQ(valuesOf(beta_), (Values{300, 400}));
}

TEST_F(ImageNormalizationOptimizer, BuffersOfEveryKind) {
  const Vectors squares = zeros(), m = zeros(), u = zeros(), most = zeros();
  const auto rmsProp = NNOptimizerRMSProp::create(device_, 0.5, 1, NNOptimizerDescriptor());
  const auto adam = NNOptimizerAdam::create(device_, 0.5, 0.5, 1, 0, NNOptimizerDescriptor());
  const auto commandBuffer = commands();
  rmsProp->encode(commandBuffer, states(2), squares, result());
  adam->encode(commandBuffer, states(2), m, u, Vectors(), result());
  EXPECT_EQ(adam->timeStep(), 1U) << "gamma and beta together count once";
  adam->encode(commandBuffer, states(2), zeros(), zeros(), most, result());
  EXPECT_EQ(adam->timeStep(), 2U);
  run(commandBuffer);
  EXPECT_EQ(valuesOf(squares[0]->data()), (Values{60.5F, 242}));
  EXPECT_EQ(valuesOf(m[1]->data()), (Values{16.5F, 22}));
  EXPECT_EQ(valuesOf(u[0]->data()), (Values{60.5F, 242}));
  EXPECT_EQ(valuesOf(most[0]->data()), (Values{60.5F, 242}));
}

TEST_F(ImageNormalizationOptimizer, EachEncodeTakesAReadOffEachState) {
  const auto commandBuffer = commands();
  const StateBatch temporary = states(2, commandBuffer);
  StateBatchIncrementReadCount(temporary, 1);
  sgd_->encode(commandBuffer, temporary, {}, result());
  EXPECT_EQ(temporary[1]->readCount(), 1U);
  sgd_->encode(commandBuffer, temporary, {}, result());
  EXPECT_EQ(temporary[0]->readCount(), 0U);
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, temporary, {}, result()); }),
                    {"normalizationStates", "readCount"}));
}

TEST_F(ImageNormalizationOptimizer, WhatIsRefused) {
  const auto commandBuffer = commands();
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, StateBatch(), {}, result()); }),
                    {"normalizationStates", "empty"}));
  EXPECT_TRUE(
      names(errorOf([&] { sgd_->encode(commandBuffer, states(1), {}, nullptr); }), {"resultState", "null"}));
  const auto three = WeightsState::create(buffer({1, 2, 3}), buffer({1, 2, 3}));
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, states(1), {}, three); }),
                    {"resultState", "3 feature channels", "2"}));
  auto gradients = std::make_shared<detail::ImageNormalizationGradients>(device_, nullptr, 1, 2);
  const StateBatch without{State::create(nullptr, gradients, 0, nullptr)};
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, without, {}, result()); }),
                    {"normalizationStates", "without gradients"}));
  EXPECT_TRUE(names(errorOf([&] {
                      sgd_->encode(commandBuffer, StateBatch{NNGradientState::create(device_)}, {}, result());
                    }),
                    {"another kind"}));
  const auto rmsProp = NNOptimizerRMSProp::create(device_, 1);
  EXPECT_TRUE(names(errorOf([&] { rmsProp->encode(commandBuffer, states(2), {}, result()); }),
                    {"velocity", "0 vectors"}));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

}  // namespace
}  // namespace mps::optimizer_image_normalization_test
