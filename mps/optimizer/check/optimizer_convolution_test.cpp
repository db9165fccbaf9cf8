#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/testing/test_images.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"

/// The optimisers on convolution states.
namespace mps::optimizer_convolution_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;
using SGD = NNOptimizerStochasticGradientDescent;
using WeightsState = CNNConvolutionWeightsAndBiasesState;
using VectorPointer = std::shared_ptr<Vector>;
using Vectors = std::vector<VectorPointer>;

/// Three weights with gradients 1, 2, 3 and a bias with gradient 4.
class ConvolutionOptimizer : public testing::DeviceTest {
 protected:
  ConvolutionOptimizer() { fillGradient(*gradient_); }
  static void fillGradient(CNNConvolutionGradientState& state) {
    set(state.gradientForWeights(), {1, 2, 3});
    set(state.gradientForBiases(), {4});
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
  [[nodiscard]] std::shared_ptr<WeightsState> weights(const Values& values = {10, 20, 30},
                                                      float bias = 40) const {
    return WeightsState::create(buffer(values), buffer({bias}));
  }
  [[nodiscard]] VectorPointer zeros(std::size_t count) const {
    return Vector::create(device_, VectorDescriptor::vectorDescriptor(count, DataType::Float32));
  }
  template <class Encode>
  void runWith(Encode&& encode) {
    const auto commandBuffer = commands();
    encode(commandBuffer);
    run(commandBuffer);
  }

  CNNConvolutionDescriptor shape_ = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 1, 1, 1);
  std::shared_ptr<CNNConvolutionGradientState> gradient_ =
      CNNConvolutionGradientState::create(device_, nullptr, shape_, nullptr, true);
  std::shared_ptr<SGD> sgd_ = SGD::create(device_, 1);
};

TEST_F(ConvolutionOptimizer, WeightsAndBiasesIntoAnotherState) {
  const auto source = weights();
  const auto result = WeightsState::create(device_, shape_);
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, gradient_, source, {}, result); });
  EXPECT_EQ(valuesOf(result->weights()), (Values{9, 18, 27}));
  EXPECT_EQ(valuesOf(result->biases()), Values{36});
  EXPECT_EQ(valuesOf(source->weights()), (Values{10, 20, 30}));
}

/// The state lies on the very buffers that weights() returns, or it is allocated and
/// never filled.
TEST_F(ConvolutionOptimizer, Behaviour07InPlaceAndIntoAStateThatWasNeverFilled) {
  const auto own = weights();
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, gradient_, own, {}, own); });
  EXPECT_EQ(valuesOf(own->weights()), (Values{9, 18, 27}));
  EXPECT_EQ(valuesOf(own->biases()), Values{36});

  const auto shared = WeightsState::create(own->weights(), own->biases());
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, gradient_, own, {}, shared); });
  EXPECT_EQ(valuesOf(own->weights()), (Values{8, 16, 24})) << "two states over the same buffers";

  const auto unfilled = WeightsState::create(device_, shape_);
  runWith([&](const auto& commandBuffer) {
    sgd_->encode(commandBuffer, gradient_, weights(), {zeros(3), zeros(1)}, unfilled);
  });
  EXPECT_EQ(valuesOf(unfilled->weights()), (Values{9, 18, 27})) << "the values come from the source state";
}

TEST_F(ConvolutionOptimizer, OneVectorLeavesTheBiasesUnchanged) {
  const auto result = WeightsState::create(device_, shape_);
  runWith([&](const auto& commandBuffer) {
    sgd_->encode(commandBuffer, gradient_, weights(), {zeros(3)}, result);
  });
  EXPECT_EQ(valuesOf(result->weights()), (Values{9, 18, 27}));
  EXPECT_EQ(valuesOf(result->biases()), Values{40}) << "copied, so that a reload finds them";
  const auto own = weights();
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, gradient_, own, {zeros(3)}, own); });
  EXPECT_EQ(valuesOf(own->biases()), Values{40});
}

TEST_F(ConvolutionOptimizer, LayersWithoutBiases) {
  const auto source = WeightsState::create(buffer({10, 20, 30}), nullptr);
  const auto result = WeightsState::create(buffer({0, 0, 0}), nullptr);
  runWith([&](const auto& commandBuffer) {
    sgd_->encode(commandBuffer, gradient_, source, {zeros(3), zeros(1)}, result);
  });
  EXPECT_EQ(valuesOf(result->weights()), (Values{9, 18, 27}));
}

TEST_F(ConvolutionOptimizer, StatesOverRangesOfBuffers) {
  const auto memory = buffer({-1, 10, 20, 30, 40, -1});
  const auto own = WeightsState::create(memory, 4, memory, 16, shape_);
  runWith([&](const auto& commandBuffer) { sgd_->encode(commandBuffer, gradient_, own, {}, own); });
  EXPECT_EQ(valuesOf(memory), (Values{-1, 9, 18, 27, 36, -1}));
}

TEST_F(ConvolutionOptimizer, BuffersOfEveryKind) {
  const auto momentum = zeros(3), biasMomentum = zeros(1);
  runWith([&](const auto& commandBuffer) {
    SGD::create(device_, 0.5F, false, NNOptimizerDescriptor(2, 1, NNRegularizationType::None, 0))
        ->encode(commandBuffer, gradient_, weights(), {momentum, biasMomentum}, weights());
  });
  EXPECT_EQ(valuesOf(momentum->data()), (Values{2, 4, 6}));
  EXPECT_EQ(valuesOf(biasMomentum->data()), Values{8});

  const auto squares = zeros(3), biasSquares = zeros(1);
  runWith([&](const auto& commandBuffer) {
    NNOptimizerRMSProp::create(device_, 0.5, 1, NNOptimizerDescriptor())
        ->encode(commandBuffer, gradient_, weights(), {squares, biasSquares}, weights());
  });
  EXPECT_EQ(valuesOf(squares->data()), (Values{0.5F, 2, 4.5F}));
  EXPECT_EQ(valuesOf(biasSquares->data()), Values{8});

  const auto adam = NNOptimizerAdam::create(device_, 0.5, 0.5, 1, 0, NNOptimizerDescriptor());
  const Vectors m{zeros(3), zeros(1)}, u{zeros(3), zeros(1)}, x{zeros(3), zeros(1)};
  runWith([&](const auto& commandBuffer) {
    adam->encode(commandBuffer, gradient_, weights(), m, u, weights());
    EXPECT_EQ(adam->timeStep(), 1U) << "weights and biases together count once";
    adam->encode(commandBuffer, gradient_, weights(), m, u, x, weights());
  });
  EXPECT_EQ(adam->timeStep(), 2U);
  EXPECT_EQ(valuesOf(m[0]->data()), (Values{0.75F, 1.5F, 2.25F}));
  EXPECT_EQ(valuesOf(u[1]->data()), Values{12});
  EXPECT_EQ(valuesOf(x[1]->data()), Values{12});
}

TEST_F(ConvolutionOptimizer, WeightsAndBiasesShareNothing) {
  const auto shape = CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 1, 1, 2);
  const auto gradient = CNNConvolutionGradientState::create(device_, nullptr, shape, nullptr, true);
  const auto memory = buffer(Values(16));
  const auto state = [&](std::size_t weights, std::size_t biases) {
    return WeightsState::create(memory, weights, memory, biases, shape);
  };
  const auto vectorAt = [&](std::size_t byte, std::size_t count) {
    return Vector::create(memory, VectorDescriptor::vectorDescriptor(count, DataType::Float32), byte);
  };
  const auto refused = [&](const std::shared_ptr<WeightsState>& source, const Vectors& momentum,
                           const std::shared_ptr<WeightsState>& result) {
    const auto commandBuffer = commands();
    std::string error = errorOf([&] { sgd_->encode(commandBuffer, gradient, source, momentum, result); });
    EXPECT_TRUE(error.empty() || commandBuffer->commandCount() == 0);
    return error;
  };
  const auto own = state(0, 16);
  EXPECT_EQ(refused(own, {vectorAt(24, 4), vectorAt(40, 2)}, own), "");
  EXPECT_TRUE(names(refused(own, {vectorAt(24, 4), vectorAt(36, 2)}, own),
                    {"momentum of the weights or gamma", "momentum of the biases or beta"}));
  EXPECT_TRUE(names(refused(own, {vectorAt(16, 4), vectorAt(40, 2)}, own),
                    {"momentum of the weights or gamma", "values of the biases or beta"}));
  EXPECT_TRUE(names(refused(own, {vectorAt(24, 4), vectorAt(8, 2)}, own),
                    {"values of the weights or gamma", "momentum of the biases or beta"}));
  EXPECT_TRUE(names(refused(state(0, 16), {}, state(12, 32)),
                    {"result of the weights or gamma", "values of the weights or gamma", "the very same"}));
  EXPECT_TRUE(names(refused(state(0, 16), {}, state(32, 0)),
                    {"result of the biases or beta", "values of the weights or gamma"}));
  EXPECT_TRUE(names(refused(state(0, 16), {vectorAt(48, 4)}, state(32, 20)),
                    {"result of the biases or beta", "values of the biases or beta", "the very same"}))
      << "biases that are only copied";
  const auto one = zeros(3);
  const auto square = CNNConvolutionGradientState::create(
      device_, nullptr, CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 3), nullptr, true);
  EXPECT_TRUE(names(errorOf([&] {
                      const auto three = WeightsState::create(buffer({1, 2, 3}), buffer({1, 2, 3}));
                      sgd_->encode(commands(), square, three, {one, one}, three);
                    }),
                    {"momentum of the weights or gamma", "momentum of the biases or beta"}));
}

/// Each distinct state that is read loses one read, and the result none.
TEST_F(ConvolutionOptimizer, ReadCountsOfTemporaryStates) {
  const auto commandBuffer = commands();
  const auto gradient = CNNConvolutionGradientState::create(device_, commandBuffer, shape_, nullptr, true);
  const auto source = WeightsState::createTemporary(commandBuffer, shape_);
  const auto result = WeightsState::createTemporary(commandBuffer, shape_);
  gradient->setReadCount(2);
  sgd_->encode(commandBuffer, gradient, source, {}, result);
  EXPECT_EQ(gradient->readCount(), 1U);
  EXPECT_EQ(source->readCount(), 0U);
  EXPECT_EQ(result->readCount(), 1U);
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, gradient, source, {}, result); }),
                    {"NNOptimizerStochasticGradientDescent", "convolutionSourceState", "readCount is 0"}));
  EXPECT_EQ(gradient->readCount(), 1U) << "a refused encode takes nothing";
  sgd_->encode(commandBuffer, gradient, weights(), {}, result);
  EXPECT_TRUE(names(errorOf([&] { sgd_->encode(commandBuffer, gradient, weights(), {}, result); }),
                    {"convolutionGradientState", "readCount is 0"}));
}

TEST_F(ConvolutionOptimizer, MistakesAreSentences) {
  const std::string name = "NNOptimizerStochasticGradientDescent";
  const auto refused = [&](const std::shared_ptr<CNNConvolutionGradientState>& gradient,
                           const std::shared_ptr<WeightsState>& source, const Vectors& momentum,
                           const std::shared_ptr<WeightsState>& result) {
    return errorOf([&] { sgd_->encode(commands(), gradient, source, momentum, result); });
  };
  EXPECT_EQ(refused(gradient_, weights(), {}, weights()), "");
  EXPECT_TRUE(names(refused(nullptr, weights(), {}, weights()), {name, "state", "null"}));
  EXPECT_TRUE(names(refused(gradient_, nullptr, {}, weights()), {name, "state", "null"}));
  EXPECT_TRUE(names(refused(gradient_, weights(), {}, nullptr), {name, "state", "null"}));
  EXPECT_TRUE(names(refused(gradient_, weights({1, 2}), {}, weights()),
                    {name, "convolutionSourceState and resultState", "2 and 3 weights", "3"}));
  EXPECT_TRUE(
      names(refused(gradient_, weights(), {}, weights({1, 2, 3, 4})), {name, "3 and 4 weights", "3"}));
  const auto twoBiases = WeightsState::create(buffer({1, 2, 3}), buffer({1, 2}));
  EXPECT_TRUE(names(refused(gradient_, weights(), {}, twoBiases), {name, "1 and 2 biases", "1"}));
  EXPECT_TRUE(names(refused(gradient_, twoBiases, {}, twoBiases), {name, "2 and 2 biases", "1"}));
  EXPECT_TRUE(names(refused(gradient_, weights(), {zeros(3), zeros(1), zeros(1)}, weights()),
                    {name, "momentum", "3 vectors", "1", "2"}));
  EXPECT_TRUE(names(refused(gradient_, weights(), {nullptr}, weights()), {name, "momentum", "null"}));
  EXPECT_TRUE(
      names(refused(gradient_, weights(), {zeros(2)}, weights()), {name, "momentum", "2 values", "3"}));
  EXPECT_TRUE(names(refused(gradient_, weights(), {zeros(3), zeros(2)}, weights()),
                    {name, "momentum", "2 values", "1"}));
  const auto half = Vector::create(device_, VectorDescriptor::vectorDescriptor(3, DataType::Float16));
  EXPECT_TRUE(
      names(refused(gradient_, weights(), {half}, weights()), {name, "momentum", "Float16", "Float32"}));
  const auto gaps = Vector::create(device_, VectorDescriptor::vectorDescriptor(1, 3, 16, DataType::Float32));
  EXPECT_TRUE(names(refused(gradient_, weights(), {gaps}, weights()), {name, "momentum", "with gaps"}));
  const auto device = mtl::newCPUDevice(1);
  const auto foreign = WeightsState::create(device, shape_);
  EXPECT_TRUE(names(refused(gradient_, foreign, {}, weights()), {name, "convolutionSourceState", "device"}));
  EXPECT_TRUE(names(refused(gradient_, weights(), {}, foreign), {name, "resultState", "device"}));
  const auto foreignVector = Vector::create(device, VectorDescriptor::vectorDescriptor(3, DataType::Float32));
  EXPECT_TRUE(names(refused(gradient_, weights(), {foreignVector}, weights()), {name, "momentum", "device"}));

  const auto adam = NNOptimizerAdam::create(device_, 1);
  EXPECT_TRUE(
      names(errorOf([&] { adam->encode(commands(), gradient_, weights(), {}, {zeros(3)}, weights()); }),
            {"NNOptimizerAdam", "momentum", "0 vectors"}));
  EXPECT_TRUE(
      names(errorOf([&] { adam->encode(commands(), gradient_, weights(), {zeros(3)}, {}, weights()); }),
            {"NNOptimizerAdam", "velocity", "0 vectors"}));
  EXPECT_EQ(adam->timeStep(), 0U);
  EXPECT_TRUE(
      names(errorOf([&] {
              NNOptimizerRMSProp::create(device_, 1)->encode(commands(), gradient_, weights(), {}, weights());
            }),
            {"NNOptimizerRMSProp", "velocity", "0 vectors"}));
}

}  // namespace
}  // namespace mps::optimizer_convolution_test
