#include <gtest/gtest.h>

#include <any>
#include <memory>
#include <vector>

#include "mps/convolution/check/test_source.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_node.hpp"
#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/testing/test_images.hpp"

/// What may change how a convolution is computed, and what its weights look like, 2.5.
namespace mps::convolution_options_test {
namespace {

using detail::ConvolutionProblem;
using testing::ArraySource;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using Precision = NNConvolutionAccumulatorPrecisionOption;

class ConvolutionOptions : public testing::DeviceTest {
 protected:
  /// Results and weight gradients of a step whose values have too many bits for anything below float32.
  struct Step {
    Values result, dIn, weightGradients;
    std::vector<ConvolutionProblem> problems;
  };
  Step step(KernelOptions options, Precision precision = Precision::Float) {
    Values values = counted(6 * 6 * 4);
    for (float& value : values) value = 1.0F / value;
    Values weights = counted(3 * 3 * 4 * 4);
    for (float& weight : weights) weight = 1.0F / (1000.0F - weight);
    const auto source = ArraySource::create(shape_, weights);
    const auto forward = CNNConvolution::create(device_, source);
    const auto backward = CNNConvolutionGradient::create(device_, source);
    forward->setDestinationImageAllocator(Image::defaultAllocator());
    backward->setDestinationImageAllocator(Image::defaultAllocator());
    forward->setOptions(options);
    backward->setOptions(options);
    forward->setAccumulatorPrecisionOption(precision);
    Step step;
    const detail::CallObserver observer(
        [&](const detail::PreparedCall& prepared, const detail::CallOperands&) {
          if (!prepared.plan.problem) return;
          if (const auto* problem = std::any_cast<ConvolutionProblem>(prepared.plan.problem.get()))
            step.problems.push_back(*problem);
        });
    const auto in = image(sizeOf(6, 6, 4), values);
    const auto buffer = commands();
    std::shared_ptr<State> state;
    const auto result = forward->encode(buffer, in, state, false);
    const auto dIn = backward->encode(buffer, in, in, state);
    run(buffer);
    step.result = valuesOf(*result);
    step.dIn = valuesOf(*dIn);
    step.weightGradients =
        testing::valuesOf(dynamic_cast<CNNConvolutionGradientState&>(*state).gradientForWeights());
    return step;
  }

  CNNConvolutionDescriptor shape_ = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 4, 4);
};

TEST_F(ConvolutionOptions, AllowReducedPrecisionReachesEveryProblem) {
  const auto plain = step(KernelOptions::None);
  const auto allowed = step(KernelOptions::AllowReducedPrecision);
  ASSERT_GE(plain.problems.size(), 2U);
  ASSERT_EQ(allowed.problems.size(), plain.problems.size());
  for (const ConvolutionProblem& problem : plain.problems) EXPECT_FALSE(problem.allowReducedPrecision);
  for (const ConvolutionProblem& problem : allowed.problems)
    EXPECT_TRUE(problem.allowReducedPrecision) << problem.describe();
}

TEST_F(ConvolutionOptions, Float32OnTheCPUDoesNotChangeByIt) {
  const auto plain = step(KernelOptions::None);
  const auto allowed = step(KernelOptions::AllowReducedPrecision);
  EXPECT_EQ(allowed.result, plain.result);
  EXPECT_EQ(allowed.dIn, plain.dIn);
  EXPECT_EQ(allowed.weightGradients, plain.weightGradients);
}

TEST_F(ConvolutionOptions, AccumulationIsFloat32WhateverTheAccumulatorPrecisionAllows) {
  const auto source = ArraySource::create(shape_, Values(3 * 3 * 4 * 4));
  const auto kernel = CNNConvolution::create(device_, source);
  EXPECT_EQ(kernel->accumulatorPrecisionOption(), Precision::Float);
  kernel->setAccumulatorPrecisionOption(Precision::Half);
  EXPECT_EQ(kernel->accumulatorPrecisionOption(), Precision::Half);
  EXPECT_EQ(kernel->copy()->accumulatorPrecisionOption(), Precision::Half);
  EXPECT_EQ(step(KernelOptions::None, Precision::Half).result, step(KernelOptions::None).result);
}

TEST_F(ConvolutionOptions, ANodeHandsItsAccumulatorPrecisionToTheKernel) {
  const auto source = ArraySource::create(shape_, Values(3 * 3 * 4 * 4));
  const std::vector<std::shared_ptr<CNNConvolutionNode>> nodes{
      CNNConvolutionNode::create(NNImageNode::create(), source),
      CNNFullyConnectedNode::create(NNImageNode::create(), source)};
  for (const auto& node : nodes) {
    const auto precisionOfKernel = [&] {
      return dynamic_cast<const CNNConvolution&>(*node->makeKernel(device_)).accumulatorPrecisionOption();
    };
    EXPECT_EQ(node->accumulatorPrecision(), Precision::Float);
    EXPECT_EQ(precisionOfKernel(), Precision::Float);
    node->setAccumulatorPrecision(Precision::Half);
    EXPECT_EQ(node->accumulatorPrecision(), Precision::Half);
    EXPECT_EQ(precisionOfKernel(), Precision::Half) << node->describe();
  }
}

TEST_F(ConvolutionOptions, TheOnlyLayoutOfWeightsIsOHWI) {
  class LaidOut final : public ArraySource {
   public:
    using ArraySource::ArraySource;
    [[nodiscard]] CNNConvolutionWeightsLayout weightsLayout() const override { return layout; }
    CNNConvolutionWeightsLayout layout = CNNConvolutionWeightsLayout::OHWI;
  };
  const auto source = std::make_shared<LaidOut>(shape_, Values(3 * 3 * 4 * 4));
  EXPECT_EQ(ArraySource(shape_, {}).weightsLayout(), CNNConvolutionWeightsLayout::OHWI) << "the default";
  EXPECT_EQ(errorOf([&] { CNNConvolution::create(device_, source); }), "");
  source->layout = static_cast<CNNConvolutionWeightsLayout>(7);
  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(device_, source); }),
                    {"CNNConvolution", "weightsLayout", "7", "OHWI"}));
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionGradient::create(device_, source); }), {"weightsLayout"}));
  EXPECT_EQ(source->loads, source->purges) << "also when it throws";
}

}  // namespace
}  // namespace mps::convolution_options_test
