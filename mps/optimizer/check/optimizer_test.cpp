#include "mps/optimizer/optimizer.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/optimizer/check/optimizer_check_values.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

/// The public optimisers on vectors.
namespace mps::optimizer_test {
namespace {

using detail::OptimizerKind;
using testing::errorOf;
using testing::names;
using testing::Values;
using SGD = NNOptimizerStochasticGradientDescent;
using VectorPointer = std::shared_ptr<Vector>;

class Optimizer : public testing::DeviceTest {
 protected:
  [[nodiscard]] VectorPointer vector(const Values& values) const {
    return Vector::create(device_->newBuffer(std::as_bytes(std::span(values))),
                          VectorDescriptor::vectorDescriptor(values.size(), DataType::Float32));
  }
  static Values valuesOf(const VectorPointer& vector) {
    const auto values = vector->data()->contentsAs<const float>();
    return {values.begin(), values.end()};
  }
  static NNOptimizerDescriptor rate(float learningRate) {
    NNOptimizerDescriptor descriptor;
    descriptor.setLearningRate(learningRate);
    return descriptor;
  }
  template <class Encode>
  void runWith(Encode&& encode) {
    const auto buffer = commands();
    encode(buffer);
    run(buffer);
  }
};

class OptimizerExample : public Optimizer, public ::testing::WithParamInterface<detail::OptimizerCheckRow> {
 protected:
  static NNOptimizerDescriptor descriptor() {
    const auto& row = GetParam();
    const auto number = [](double value) { return static_cast<float>(value); };
    return {0.1F,
            number(row.numbers.gradientRescale),
            row.clips,
            number(row.numbers.gradientClipMax),
            number(row.numbers.gradientClipMin),
            row.regularizationType,
            number(row.numbers.regularizationScale)};
  }
  std::shared_ptr<SGD> sgd() {
    return SGD::create(device_, static_cast<float>(GetParam().numbers.decay),
                       GetParam().kind == OptimizerKind::SGDNesterov, descriptor());
  }
  std::shared_ptr<NNOptimizerRMSProp> rmsProp() {
    const auto& numbers = GetParam().numbers;
    return NNOptimizerRMSProp::create(device_, numbers.decay, static_cast<float>(numbers.epsilon),
                                      descriptor());
  }
  std::shared_ptr<NNOptimizerAdam> adam() {
    const auto& numbers = GetParam().numbers;
    return NNOptimizerAdam::create(device_, numbers.decay, numbers.beta2, static_cast<float>(numbers.epsilon),
                                   0, descriptor());
  }
};

TEST_P(OptimizerExample, Section13_7) {
  const auto& row = GetParam();
  const auto value = vector({1});
  const auto momentum = vector({0});
  const auto velocity = vector({0});
  const auto largest = vector({0});
  const auto gradient = vector({0});
  const auto sgdKernel = sgd();
  const auto rmsKernel = rmsProp();
  const auto adamKernel = adam();
  for (std::size_t step = 0; step < 3; ++step) {
    gradient->data()->contentsAs<float>()[0] = static_cast<float>(detail::kOptimizerGradients[step]);
    runWith([&](const auto& buffer) {
      switch (row.kind) {
        case OptimizerKind::SGD:
          return sgdKernel->encode(buffer, gradient, value, VectorPointer(), value);
        case OptimizerKind::SGDMomentum:
        case OptimizerKind::SGDNesterov:
          return sgdKernel->encode(buffer, gradient, value, momentum, value);
        case OptimizerKind::RMSProp:
          return rmsKernel->encode(buffer, gradient, value, velocity, value);
        case OptimizerKind::Adam:
          return adamKernel->encode(buffer, gradient, value, momentum, velocity, value);
        case OptimizerKind::AMSGrad:
          return adamKernel->encode(buffer, gradient, value, momentum, velocity, largest, value);
      }
    });
    EXPECT_NEAR(valuesOf(value)[0], row.values[step], detail::kOptimizerPrecision) << "step " << step;
  }
  EXPECT_NEAR(valuesOf(momentum)[0], row.momentum, detail::kOptimizerPrecision);
  EXPECT_NEAR(valuesOf(velocity)[0], row.velocity, detail::kOptimizerPrecision);
  const bool counts = row.kind == OptimizerKind::Adam || row.kind == OptimizerKind::AMSGrad;
  EXPECT_EQ(adamKernel->timeStep(), counts ? 3U : 0U);
}

INSTANTIATE_TEST_SUITE_P(Spec, OptimizerExample, ::testing::ValuesIn(detail::optimizerCheckValues()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Optimizer, DefaultsAreThoseOfTheTable) {
  const NNOptimizerDescriptor descriptor;
  EXPECT_EQ(descriptor.learningRate(), 0.001F);
  EXPECT_EQ(descriptor.gradientRescale(), 1);
  EXPECT_FALSE(descriptor.applyGradientClipping());
  EXPECT_EQ(descriptor.gradientClipMax(), 0);
  EXPECT_EQ(descriptor.gradientClipMin(), 0);
  EXPECT_EQ(descriptor.regularizationScale(), 0);
  EXPECT_EQ(descriptor.regularizationType(), NNRegularizationType::None);
  const auto sgd = SGD::create(device_, 0.5F);
  EXPECT_EQ(sgd->learningRate(), 0.5F);
  EXPECT_EQ(sgd->momentumScale(), 0);
  EXPECT_FALSE(sgd->useNesterovMomentum());
  EXPECT_TRUE(SGD::create(device_, 0, true, descriptor)->useNestrovMomentum()) << "both spellings";
  const auto rmsProp = NNOptimizerRMSProp::create(device_, 0.5F);
  EXPECT_EQ(rmsProp->decay(), 0.9);
  EXPECT_EQ(rmsProp->epsilon(), 1e-8F);
  const auto adam = NNOptimizerAdam::create(device_, 0.5F);
  EXPECT_EQ(adam->beta1(), 0.9);
  EXPECT_EQ(adam->beta2(), 0.999);
  EXPECT_EQ(adam->epsilon(), 1e-8F);
  EXPECT_EQ(adam->timeStep(), 0U);
}

/// The maximum comes before the minimum, in both twins.
TEST_F(Optimizer, DescriptorsOfEveryForm) {
  const NNOptimizerDescriptor clipped(1, 2, true, 3, -4, NNRegularizationType::L1, 5);
  EXPECT_EQ(NNOptimizerDescriptor::optimizerDescriptor(1, 2, true, 3, -4, NNRegularizationType::L1, 5),
            clipped);
  const auto plain = NNOptimizerDescriptor::optimizerDescriptor(1, 2, NNRegularizationType::L2, 5);
  EXPECT_EQ(NNOptimizerDescriptor(1, 2, NNRegularizationType::L2, 5), plain);
  EXPECT_FALSE(plain.applyGradientClipping());
  const auto kernel = SGD::create(device_, 0.25F, true, clipped);
  EXPECT_EQ(kernel->learningRate(), 1);
  EXPECT_EQ(kernel->gradientRescale(), 2);
  EXPECT_TRUE(kernel->applyGradientClipping());
  EXPECT_EQ(kernel->gradientClipMax(), 3);
  EXPECT_EQ(kernel->gradientClipMin(), -4);
  EXPECT_EQ(kernel->regularizationType(), NNRegularizationType::L1);
  EXPECT_EQ(kernel->regularizationScale(), 5);
  EXPECT_EQ(kernel->momentumScale(), 0.25F);
}

TEST_F(Optimizer, EachSetterOfADescriptorCounts) {
  NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(1);
  descriptor.setGradientRescale(2);
  descriptor.setApplyGradientClipping(true);
  descriptor.setGradientClipMax(3);
  descriptor.setGradientClipMin(-4);
  descriptor.setRegularizationType(NNRegularizationType::L2);
  descriptor.setRegularizationScale(0.5F);
  EXPECT_EQ(descriptor, NNOptimizerDescriptor(1, 2, true, 3, -4, NNRegularizationType::L2, 0.5F));
  const auto stepFrom10 = [&](float gradient) {
    const auto value = vector({10});
    const auto sgd = SGD::create(device_, 0, false, descriptor);
    runWith(
        [&](const auto& buffer) { sgd->encode(buffer, vector({gradient}), value, VectorPointer(), value); });
    return valuesOf(value)[0];
  };
  EXPECT_EQ(stepFrom10(8), 10 - (3 * 2 + 5)) << "clipped, rescaled, half the value added";
  EXPECT_EQ(stepFrom10(-8), 10 - (-4 * 2 + 5));
  descriptor.setRegularizationType(NNRegularizationType::L1);
  EXPECT_EQ(stepFrom10(1), 10 - (1 * 2 + 0.5F));
  descriptor.setApplyGradientClipping(false);
  EXPECT_EQ(stepFrom10(8), 10 - (8 * 2 + 0.5F));
}

TEST_F(Optimizer, PropertiesAreTakenWhenEncoding) {
  const auto sgd =
      SGD::create(device_, 0, false, NNOptimizerDescriptor(1, 1, true, 2, -2, NNRegularizationType::None, 0));
  const auto g = vector({8});
  const auto first = vector({0}), second = vector({0}), third = vector({0}), v = vector({0});
  runWith([&](const auto& buffer) {
    sgd->encode(buffer, g, v, VectorPointer(), first);
    sgd->setLearningRate(10);
    sgd->encode(buffer, g, v, VectorPointer(), second);
    sgd->setApplyGradientClipping(false);
    sgd->encode(buffer, g, v, VectorPointer(), third);
    sgd->setLearningRate(77);
  });
  EXPECT_EQ(valuesOf(first), Values{-2});
  EXPECT_EQ(valuesOf(second), Values{-20});
  EXPECT_EQ(valuesOf(third), Values{-80});
  EXPECT_EQ(valuesOf(v), Values{0}) << "only the result is written";
}

/// With a buffer and momentum 0 the buffer holds lr g (section 13.6).
TEST_F(Optimizer, AMomentumOf0WithABuffer) {
  const auto v = vector({1}), m = vector({5});
  runWith([&](const auto& buffer) { SGD::create(device_, 0.5F)->encode(buffer, vector({4}), v, m, v); });
  EXPECT_EQ(valuesOf(v), Values{-1});
  EXPECT_EQ(valuesOf(m), Values{2});
}

/// Running averages are made with SGD.
TEST_F(Optimizer, Behaviour04NegativeRatesAndScalesMakeRunningAverages) {
  const NNOptimizerDescriptor descriptor(-0.25F, 1, NNRegularizationType::L2, -1);
  const auto average = vector({8, -4}), statistic = vector({16, 4});
  const auto sgd = SGD::create(device_, 0, false, descriptor);
  runWith([&](const auto& buffer) { sgd->encode(buffer, statistic, average, VectorPointer(), average); });
  EXPECT_EQ(valuesOf(average), (Values{0.75F * 8 + 0.25F * 16, 0.75F * -4 + 0.25F * 4}));
}

/// One per encode, and one object over ten layers goes up by ten.
TEST_F(Optimizer, Behaviour01EachEncodeAdvancesTheTimeStepByOne) {
  const auto adam = NNOptimizerAdam::create(device_, 0.1F);
  const auto g = vector({1}), v = vector({1}), m = vector({0}), u = vector({0}), x = vector({0});
  runWith([&](const auto& buffer) {
    for (std::size_t i = 1; i <= 10; ++i) {
      if (i % 2 == 0) adam->encode(buffer, g, v, m, u, v);
      if (i % 2 == 1) adam->encode(buffer, g, v, m, u, x, v);
      EXPECT_EQ(adam->timeStep(), i);
    }
  });
  EXPECT_NE(errorOf([&] { adam->encode(commands(), g, v, m, vector({1, 2}), v); }), "");
  EXPECT_EQ(adam->timeStep(), 10U) << "a refused encode does not count";
}

/// The arrays m, u, v and g are separate; v may be the result.
TEST_F(Optimizer, ABufferIsNoOtherArgument) {
  const auto g = vector({1, 2}), v = vector({1, 2}), m = vector({0, 0}), u = vector({0, 0}),
             x = vector({0, 0});
  const auto adam = NNOptimizerAdam::create(device_, 0.1F);
  const auto refused = [&](const VectorPointer& momentum, const VectorPointer& velocity,
                           const VectorPointer& maximum) {
    return errorOf([&] { adam->encode(commands(), g, v, momentum, velocity, maximum, v); });
  };
  EXPECT_TRUE(names(refused(m, m, nullptr), {"NNOptimizerAdam", "velocity", "memory of its own"}));
  EXPECT_TRUE(names(refused(m, u, m), {"NNOptimizerAdam", "maximumVelocity"}));
  EXPECT_TRUE(names(refused(g, u, nullptr), {"NNOptimizerAdam", "momentum"}));
  EXPECT_TRUE(names(refused(v, u, x), {"NNOptimizerAdam", "momentum"}));
  EXPECT_EQ(adam->timeStep(), 0U);
  EXPECT_EQ(refused(m, u, x), "");
}

TEST_F(Optimizer, TheTimeStepIsWhereACheckpointGoesOn) {
  const auto gradients = vector({1}), m = vector({0}), u = vector({0}), v = vector({1});
  const auto adam = NNOptimizerAdam::create(device_, 0.1F);
  const auto step = [&](NNOptimizerAdam& kernel, const VectorPointer& value, const VectorPointer& momentum,
                        const VectorPointer& velocity) {
    runWith([&](const auto& buffer) { kernel.encode(buffer, gradients, value, momentum, velocity, value); });
  };
  step(*adam, v, m, u);
  const auto resumed = NNOptimizerAdam::create(device_, 0.9, 0.999, 1e-8F, 1, rate(0.1F));
  const auto v2 = vector(valuesOf(v)), m2 = vector(valuesOf(m)), u2 = vector(valuesOf(u));
  const auto copy = adam->copy();
  EXPECT_EQ(copy->timeStep(), 1U);
  step(*adam, v, m, u);
  step(*resumed, v2, m2, u2);
  EXPECT_EQ(valuesOf(v2), valuesOf(v));
  resumed->setTimeStep(7);
  EXPECT_EQ(resumed->timeStep(), 7U);
}

TEST_F(Optimizer, SeveralVectorsWithGapsBetweenThem) {
  const auto make = [&](const Values& values, std::size_t stride) {
    return Vector::create(
        device_->newBuffer(std::as_bytes(std::span(values))),
        VectorDescriptor::vectorDescriptor(2, 2, stride * sizeof(float), DataType::Float32));
  };
  const auto g = make({1, 2, -99, 3, 4}, 3);
  const auto v = make({10, 20, 30, 40}, 2);
  const auto result = make({0, 0, 7, 7, 0, 0}, 4);
  runWith(
      [&](const auto& buffer) { SGD::create(device_, 1)->encode(buffer, g, v, VectorPointer(), result); });
  EXPECT_EQ(valuesOf(result), (Values{9, 18, 7, 7, 27, 36}));
}

TEST_F(Optimizer, TemporaryVectorsAreCounted) {
  const auto values = vector({1, 2});
  const auto one = SGD::create(device_, 1);
  runWith([&](const auto& commandBuffer) {
    const auto descriptor = VectorDescriptor::vectorDescriptor(2, DataType::Float32);
    const auto temporary = TemporaryVector::create(commandBuffer, descriptor);
    const auto moved = TemporaryVector::create(commandBuffer, descriptor);
    one->encode(commandBuffer, vector({0.5F, 1}), values, nullptr, temporary);  // 0.5 1
    one->encode(commandBuffer, vector({1, 1}), temporary, nullptr, temporary);  // -0.5 0
    EXPECT_EQ(temporary->readCount(), 1U) << "what is written too stays";
    one->encode(commandBuffer, vector({1, 2}), temporary, nullptr, moved);  // -1.5 -2
    EXPECT_EQ(temporary->readCount(), 0U);
    one->encode(commandBuffer, moved, values, nullptr, values);
    EXPECT_EQ(moved->readCount(), 0U);
    EXPECT_TRUE(names(errorOf([&] { one->encode(commandBuffer, moved, values, nullptr, values); }),
                      {"inputGradientVector", "readCount is 0"}));
  });
  EXPECT_EQ(valuesOf(values), (Values{2.5F, 4}));
}

TEST_F(Optimizer, VectorsAreChecked) {
  const auto g = vector({1, 2});
  const auto one = vector({1});
  const auto sgd = SGD::create(device_, 1);
  const auto adam = NNOptimizerAdam::create(device_, 1);
  const auto half = Vector::create(device_, VectorDescriptor::vectorDescriptor(2, DataType::Float16));
  const auto foreign =
      Vector::create(mtl::newCPUDevice(1), VectorDescriptor::vectorDescriptor(2, DataType::Float32));
  const auto otherBuffer = commands();
  const auto temporary =
      TemporaryVector::create(otherBuffer, VectorDescriptor::vectorDescriptor(2, DataType::Float32));
  const VectorPointer none;
  const auto refused = [&](const VectorPointer& gradient, const VectorPointer& values,
                           const VectorPointer& momentum, const VectorPointer& result) {
    return errorOf([&] { sgd->encode(commands(), gradient, values, momentum, result); });
  };
  const std::string name = "NNOptimizerStochasticGradientDescent";
  EXPECT_TRUE(names(refused(none, g, none, g), {name, "inputGradientVector", "null"}));
  EXPECT_TRUE(names(refused(g, none, none, g), {name, "inputValuesVector", "null"}));
  EXPECT_TRUE(names(refused(g, g, none, none), {name, "resultValuesVector", "null"}));
  EXPECT_TRUE(names(refused(g, one, none, g), {name, "inputValuesVector", "1 x 1", "1 x 2"}));
  EXPECT_TRUE(names(refused(g, g, one, g), {name, "momentum", "1 x 1"}));
  EXPECT_TRUE(names(refused(g, g, none, one), {name, "resultValuesVector", "1 x 1"}));
  EXPECT_TRUE(names(refused(g, half, none, g), {name, "inputValuesVector", "Float16", "Float32"}));
  EXPECT_TRUE(names(refused(g, foreign, none, g), {name, "inputValuesVector", "device"}));
  EXPECT_TRUE(names(refused(g, g, temporary, g), {name, "momentum", "command buffer"}));
  EXPECT_TRUE(names(errorOf([&] { sgd->encode(nullptr, g, g, none, g); }), {name, "commandBuffer", "null"}));
  const auto rmsProp = NNOptimizerRMSProp::create(device_, 1);
  EXPECT_TRUE(names(errorOf([&] { rmsProp->encode(commands(), g, g, none, g); }),
                    {"NNOptimizerRMSProp", "velocity", "null"}));
  EXPECT_TRUE(names(errorOf([&] { adam->encode(commands(), g, g, none, g, g); }),
                    {"NNOptimizerAdam", "momentum", "null"}));
  EXPECT_TRUE(names(errorOf([&] { adam->encode(commands(), g, g, g, none, g); }),
                    {"NNOptimizerAdam", "velocity", "null"}));
  EXPECT_TRUE(names(errorOf([&] { adam->encode(commands(), g, g, g, g, one, g); }),
                    {"NNOptimizerAdam", "maximumVelocity", "1 x 1"}));
  EXPECT_EQ(refused(g, g, none, g), "");
}

TEST_F(Optimizer, CopiesForAnotherDevice) {
  const auto device = mtl::newCPUDevice(1);
  const auto sgd = SGD::create(device_, 0.5F, true, rate(3))->copy(device);
  EXPECT_EQ(sgd->device(), device);
  EXPECT_EQ(sgd->learningRate(), 3);
  EXPECT_TRUE(sgd->useNesterovMomentum());
  const auto rmsProp = NNOptimizerRMSProp::create(device_, 0.25, 0.5F, rate(3))->copy(device);
  EXPECT_EQ(rmsProp->decay(), 0.25);
  EXPECT_EQ(rmsProp->epsilon(), 0.5F);
  const auto adam = NNOptimizerAdam::create(device_, 0.25, 0.5, 0.75F, 9, rate(3))->copy(device);
  EXPECT_EQ(adam->beta1(), 0.25);
  EXPECT_EQ(adam->beta2(), 0.5);
  EXPECT_EQ(adam->epsilon(), 0.75F);
  EXPECT_EQ(adam->timeStep(), 9U);
  const auto v = Vector::create(device, VectorDescriptor::vectorDescriptor(1, DataType::Float32));
  const auto g = Vector::create(device, VectorDescriptor::vectorDescriptor(1, DataType::Float32));
  g->data()->contentsAs<float>()[0] = 2;
  const auto buffer = device->newCommandQueue()->commandBuffer();
  sgd->encode(buffer, g, v, VectorPointer(), v);
  buffer->commit();
  buffer->throwIfFailed();
  EXPECT_EQ(valuesOf(v), Values{-6});
}

TEST_F(Optimizer, ALossScaleIsTakenOutBeforeClipping) {
  const auto scale = LossScale::create(device_, {.initialScale = 8});
  const NNOptimizerDescriptor descriptor(0.5F, 2, true, 1, -1, NNRegularizationType::L2, 0.25F);
  const auto update = [&](float factor, const std::shared_ptr<LossScale>& lossScale) {
    const auto adam = NNOptimizerAdam::create(device_, 0.9, 0.99, 1e-6F, 0, descriptor);
    adam->setLossScale(lossScale);
    EXPECT_EQ(adam->lossScale(), lossScale);
    const auto values = vector({1, -2, 3});
    const auto momentum = vector({0.5F, 0.25F, -0.5F});
    const auto velocity = vector({1, 2, 3});
    const auto gradient = vector({0.75F * factor, -1.5F * factor, 0.125F * factor});
    runWith([&](const auto& buffer) { adam->encode(buffer, gradient, values, momentum, velocity, values); });
    Values all = valuesOf(values);
    for (const auto& slot : {momentum, velocity})
      for (const float value : valuesOf(slot)) all.push_back(value);
    return all;
  };
  EXPECT_EQ(update(8, scale), update(1, nullptr));
  EXPECT_NE(update(8, nullptr), update(1, nullptr));
}

TEST_F(Optimizer, AnUpdateWhoseGradientsAreNotFiniteIsLeftOut) {
  const auto scale = LossScale::create(device_, {.initialScale = 4});
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto sgd = SGD::create(device_, 0.9F, false, rate(0.1F));
    sgd->setLossScale(scale);
    const auto momentum = vector({5, 6, 7});
    const auto result = vector({0, 0, 0});
    runWith([&](const auto& buffer) {
      sgd->encode(buffer, vector({1, bad, 1}), vector({1, 2, 3}), momentum, result);
    });
    EXPECT_EQ(valuesOf(result), (Values{1, 2, 3})) << "the old values";
    EXPECT_EQ(valuesOf(momentum), (Values{5, 6, 7}));
    runWith([&](const auto& buffer) { scale->update(buffer); });
    runWith([&](const auto& buffer) {
      sgd->encode(buffer, vector({4, 8, 12}), vector({1, 2, 3}), nullptr, result);
    });
    EXPECT_NE(valuesOf(result), (Values{1, 2, 3})) << "the next step counts";
  }
  EXPECT_EQ(scale->skippedSteps(), 2U);
}

TEST_F(Optimizer, ALossScaleIsOfTheOptimizersDevice) {
  const auto sgd = SGD::create(device_, 0.1F);
  const auto other = mtl::newCPUDevice(1);
  EXPECT_TRUE(
      names(errorOf([&] { sgd->setLossScale(LossScale::create(other)); }), {"lossScale", other->name()}));
  EXPECT_EQ(sgd->lossScale(), nullptr);
  sgd->setLossScale(LossScale::create(device_));
  EXPECT_EQ(sgd->copy()->lossScale(), sgd->lossScale());
  const auto copy = sgd->copy(other);
  ASSERT_NE(copy->lossScale(), nullptr);
  EXPECT_EQ(copy->lossScale()->device(), other);
}

}  // namespace
}  // namespace mps::optimizer_test
