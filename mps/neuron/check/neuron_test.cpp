#include "mps/neuron/neuron.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "mps/core/neuron/neuron_check_values.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/neuron/neuron_node.hpp"

/// The public neuron kernels.
namespace mps::neuron_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum CNNNeuronType;

template <class... Parameters>
NNNeuronDescriptor neuron(CNNNeuronType type, Parameters... parameters) {
  return NNNeuronDescriptor::cnnNeuronDescriptor(type, parameters...);
}

class Neuron : public testing::DeviceTest {
 protected:
  template <class KernelType>
  static std::shared_ptr<KernelType> permanent(std::shared_ptr<KernelType> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  struct Results {
    Values y, dx;
  };
  /// Forward and gradient of one pixel, a channel for each value.
  Results resultsOf(const NNNeuronDescriptor& descriptor, const Values& x, const Values& dy) {
    const auto source = image(sizeOf(1, 1, x.size()), x);
    const auto buffer = commands();
    std::shared_ptr<State> state;
    const auto y = permanent(CNNNeuron::create(device_, descriptor))->encode(buffer, source, state, false);
    const auto dx = permanent(CNNNeuronGradient::create(device_, descriptor))
                        ->encode(buffer, image(sizeOf(1, 1, x.size()), dy), source, state);
    run(buffer);
    return {valuesOf(*y), valuesOf(*dx)};
  }
};

TEST_F(Neuron, TableOfSection11_5) {
  const auto expectNear = [](const Values& found, const std::array<double, 4>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], detail::neuronPrecision(expected[i])) << "argument " << i;
  };
  const Values x(detail::kNeuronArguments.begin(), detail::kNeuronArguments.end());
  for (const auto& row : detail::neuronCheckValues()) {
    SCOPED_TRACE(row.neuron.describe());
    NNNeuronDescriptor descriptor = row.neuron;
    if (descriptor.neuronType() == PReLU) descriptor.setData(Values(4, 0.25F));
    const Results results = resultsOf(descriptor, x, {1, 1, 1, 1});
    expectNear(results.y, row.values);
    expectNear(results.dx, row.derivatives);
  }
}

TEST_F(Neuron, HardSigmoidBoundsAreInclusive) {
  const Results results = resultsOf(neuron(HardSigmoid), {-3, -2.5F, 2.5F, 3}, {1, 1, 1, 1});
  EXPECT_EQ(results.y, (Values{0, 0, 1, 1}));
  EXPECT_EQ(results.dx, (Values{0, 0.2F, 0.2F, 0}));
}

/// The worked examples of section 11.8.
TEST_F(Neuron, ExampleOfLeakyReLU) {
  const Results results = resultsOf(neuron(ReLU, 0.1F), {-2, 0, 3}, {5, 5, 5});
  EXPECT_EQ(results.y, (Values{-0.2F, 0, 3}));
  EXPECT_EQ(results.dx, (Values{0.5F, 5, 5}));
}

TEST_F(Neuron, ExampleOfPReLU) {
  const Results results =
      resultsOf(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{0.5F, -1}), {-2, -3}, {1, 1});
  EXPECT_EQ(results.y, (Values{-1, 3}));
  EXPECT_EQ(results.dx, (Values{0.5F, -1}));
}

TEST_F(Neuron, BatchesAndGivenDestinations) {
  const auto relu = CNNNeuron::create(device_, neuron(ReLU));
  const auto gradient = CNNNeuronGradient::create(device_, neuron(ReLU));
  const auto x = batch(sizeOf(2, 1, 1), 3, {-1, 2, 3, -4, -5, -6});
  const auto y = ImageBatch::create(device_, sizeOf(2, 1, 1), 3);
  const auto dx = ImageBatch::create(device_, sizeOf(2, 1, 1), 3);
  const auto states = relu->resultStateBatch(x);
  const auto buffer = commands();
  relu->encodeBatch(buffer, x, states, y);
  gradient->encodeBatch(buffer, batch(sizeOf(2, 1, 1), 3, {1, 2, 3, 4, 5, 6}), x, states, dx);
  run(buffer);
  const auto read = [](const ImageBatch& images) {
    Values values(6);
    images.readBytes(std::span(values), testing::pixelsFirst);
    return values;
  };
  EXPECT_EQ(read(y), (Values{0, 2, 3, 0, 0, 0}));
  EXPECT_EQ(read(dx), (Values{0, 2, 3, 0, 0, 0}));
}

TEST_F(Neuron, InPlace) {
  const auto x = image(sizeOf(1, 1, 3), {-1, 0, 2});
  const auto g = image(sizeOf(1, 1, 3), {1, 2, 3});
  const auto source = image(sizeOf(1, 1, 3), {-1, 0, 2});
  const auto relu = CNNNeuron::create(device_, neuron(ReLU));
  const auto state = relu->resultState(source);
  const auto buffer = commands();
  relu->encode(buffer, x, x);
  relu->encode(buffer, source, state, image(sizeOf(1, 1, 3)));
  CNNNeuronGradient::create(device_, neuron(ReLU))->encode(buffer, g, source, state, g);
  run(buffer);
  EXPECT_EQ(valuesOf(*x), (Values{0, 0, 2}));
  EXPECT_EQ(valuesOf(*g), (Values{0, 2, 3}));
}

/// ReLU and PReLU save on which side of 0 each value was (docs/decisions.md, D14): the source may change meanwhile.
TEST_F(Neuron, TheGradientGoesByWhatTheForwardKernelSaw) {
  for (const auto& descriptor :
       {neuron(ReLU, 0.5F), NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values(4, 0.5F))}) {
    const auto x = image(sizeOf(1, 2, 4), {-1, 2, -3, 4, 5, -6, 0, 8});
    const auto other = image(sizeOf(1, 2, 4), {-1, -1, -1, -1, 1, 1, 1, 1});
    const auto g = image(sizeOf(1, 2, 4), Values(8, 2));
    const auto gradient = permanent(CNNNeuronGradient::create(device_, descriptor));
    std::shared_ptr<State> state;
    auto buffer = commands();
    permanent(CNNNeuron::create(device_, descriptor))->encode(buffer, x, state, false);
    run(buffer);
    testing::fill(*x, Values(8, 1));
    buffer = commands();
    const auto dx = gradient->encode(buffer, g, x, state);
    // What was saved belongs to one image only, and to all of it.
    const auto ofOther = gradient->encode(buffer, g, other, state);
    const auto clipped = CNNNeuronGradient::create(device_, descriptor);
    clipped->setClipRect({{0, 1, 0}, {1, 1, 1}});
    const auto row = poisoned(sizeOf(1, 2, 4));
    clipped->encode(buffer, g, x, state, row);
    run(buffer);
    EXPECT_EQ(valuesOf(*dx), (Values{1, 2, 1, 2, 2, 1, 2, 2})) << descriptor.describe();
    EXPECT_EQ(valuesOf(*ofOther), (Values{1, 1, 1, 1, 2, 2, 2, 2})) << descriptor.describe();
    const Values found = valuesOf(*row);
    EXPECT_EQ(Values(found.begin() + 4, found.end()), Values(4, 2)) << descriptor.describe();
  }
}

TEST_F(Neuron, WhatWasSavedIsOfThePixelsAndChannelsRead) {
  const auto relu = CNNNeuron::create(device_, neuron(ReLU));
  relu->setOffset({1, 0, 0});
  relu->setSourceFeatureChannelOffset(4);
  const auto x = image(sizeOf(2, 1, 8), {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, 1, -1, 1});
  const auto y = image(sizeOf(1, 1, 4));
  const auto state = relu->resultState(x);
  const auto buffer = commands();
  relu->encode(buffer, x, state, y);
  const auto dx = permanent(CNNNeuronGradient::create(device_, neuron(ReLU)))
                      ->encode(buffer, image(sizeOf(1, 1, 4), {5, 6, 7, 8}), x, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*y), (Values{0, 1, 0, 1}));
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 8}));
}

TEST_F(Neuron, SlopesBelongToTheChannelsRead) {
  const auto prelu = CNNNeuronPReLU::create(device_, Values{0.5F, 2});
  EXPECT_EQ(prelu->neuronType(), PReLU);
  EXPECT_EQ(Values(prelu->data().begin(), prelu->data().end()), (Values{0.5F, 2}));
  const auto y = poisoned(sizeOf(1, 1, 2));
  prelu->setSourceFeatureChannelOffset(4);
  const auto buffer = commands();
  prelu->encode(buffer, image(sizeOf(1, 1, 6), {-1, -1, -1, -1, -1, -1}), y);
  run(buffer);
  EXPECT_EQ(valuesOf(*y), (Values{-0.5F, -2}));
  EXPECT_TRUE(
      names(errorOf([&] { prelu->encode(commands(), image(sizeOf(1, 1, 7)), image(sizeOf(1, 1, 3))); }),
            {"CNNNeuron", "data", "2 slopes", "3"}));
}

TEST_F(Neuron, KernelsCopyTheirDescriptor) {
  auto descriptor = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{0.5F});
  const auto kernel = CNNNeuron::create(device_, descriptor);
  const auto gradient = CNNNeuronGradient::create(device_, descriptor);
  descriptor.setData(Values{7});
  descriptor.setNeuronType(Absolute);
  EXPECT_EQ(kernel->neuronType(), PReLU);
  EXPECT_EQ(kernel->data()[0], 0.5F);
  EXPECT_EQ(gradient->neuronType(), PReLU);
  EXPECT_EQ(gradient->data()[0], 0.5F);
}

TEST_F(Neuron, SubclassesAreDescriptors) {
  const auto expectSame = [](const CNNNeuron& kernel, const NNNeuronDescriptor& descriptor) {
    EXPECT_EQ(kernel.descriptor(), descriptor) << kernel.descriptor().describe();
    EXPECT_EQ(kernel.className(), "CNNNeuron");
  };
  expectSame(*CNNNeuronLinear::create(device_, 2, 3), neuron(Linear, 2.0F, 3.0F));
  expectSame(*CNNNeuronReLU::create(device_, 0.5F), neuron(ReLU, 0.5F));
  expectSame(*CNNNeuronSigmoid::create(device_), neuron(Sigmoid));
  expectSame(*CNNNeuronHardSigmoid::create(device_, 0.25F, 0.75F), neuron(HardSigmoid, 0.25F, 0.75F));
  expectSame(*CNNNeuronTanH::create(device_, 2, 3), neuron(TanH, 2.0F, 3.0F));
  expectSame(*CNNNeuronAbsolute::create(device_), neuron(Absolute));
  expectSame(*CNNNeuronSoftPlus::create(device_, 2, 3), neuron(SoftPlus, 2.0F, 3.0F));
  expectSame(*CNNNeuronSoftSign::create(device_), neuron(SoftSign));
  expectSame(*CNNNeuronELU::create(device_, 2), neuron(ELU, 2.0F));
  expectSame(*CNNNeuronReLUN::create(device_, 0, 6), neuron(ReLUN, 0.0F, 6.0F));
  expectSame(*CNNNeuronPower::create(device_, 1, 2, 3), neuron(Power, 1.0F, 2.0F, 3.0F));
  expectSame(*CNNNeuronExponential::create(device_, 1, 2, 3), neuron(Exponential, 1.0F, 2.0F, 3.0F));
  expectSame(*CNNNeuronLogarithm::create(device_, 1, 2, 3), neuron(Logarithm, 1.0F, 2.0F, 3.0F));
  const auto power = CNNNeuronGradient::create(device_, neuron(Power, 1.0F, 2.0F, 3.0F));
  EXPECT_EQ(power->a(), 1);
  EXPECT_EQ(power->b(), 2);
  EXPECT_EQ(power->c(), 3);
  EXPECT_EQ(CNNNeuronPower::create(device_, 1, 2, 3)->c(), 3);
}

TEST_F(Neuron, CopiesForAnotherDevice) {
  const auto device = mtl::newCPUDevice(1);
  const auto kernel = CNNNeuronPReLU::create(device_, Values{0.5F})->copy(device);
  const auto gradient = CNNNeuronGradient::create(device_, kernel->descriptor())->copy(device);
  EXPECT_EQ(kernel->device(), device);
  EXPECT_EQ(gradient->device(), device);
  EXPECT_EQ(gradient->descriptor(), kernel->descriptor());
  const auto x = Image::create(device, sizeOf(1, 1, 1));
  testing::fill(*x, {-4});
  const auto y = Image::create(device, sizeOf(1, 1, 1));
  const auto buffer = device->newCommandQueue()->commandBuffer();
  kernel->encode(buffer, x, y);
  buffer->commit();
  buffer->throwIfFailed();
  EXPECT_EQ(valuesOf(*y), Values{-2});
}

TEST_F(Neuron, MistakesAreSentences) {
  const auto make = [&](const NNNeuronDescriptor& descriptor) {
    return errorOf([&] { CNNNeuron::create(device_, descriptor); });
  };
  EXPECT_TRUE(names(make(neuron(PReLU)), {"CNNNeuron", "neuronDescriptor", "PReLU without slopes"}));
  EXPECT_TRUE(names(make(neuron(Count)), {"CNNNeuron", "neuronType", "16"}));
  EXPECT_TRUE(names(make(neuron(static_cast<CNNNeuronType>(-1))), {"CNNNeuron", "neuronType", "-1"}));
  EXPECT_TRUE(names(errorOf([&] { CNNNeuronGradient::create(device_, neuron(PReLU)); }),
                    {"CNNNeuronGradient", "neuronDescriptor"}));
  EXPECT_TRUE(names(errorOf([&] { CNNNeuronGradient::create(device_, neuron(Count)); }),
                    {"CNNNeuronGradient", "neuronType"}));
}

TEST_F(Neuron, AGradientWithOtherParametersIsRefused) {
  const auto x = image(sizeOf(1, 1, 2), {-1, 1});
  const auto encode = [&](const NNNeuronDescriptor& forward, const NNNeuronDescriptor& gradient) {
    std::shared_ptr<State> state;
    const auto buffer = commands();
    CNNNeuron::create(device_, forward)->encode(buffer, x, state, false);
    return errorOf([&] { CNNNeuronGradient::create(device_, gradient)->encode(buffer, x, x, state); });
  };
  EXPECT_TRUE(names(encode(neuron(ReLU, 0.5F), neuron(ReLU, 0.25F)),
                    {"CNNNeuronGradient", "neuronDescriptor", "ReLU a=0.25", "ReLU a=0.5"}));
  EXPECT_TRUE(names(encode(neuron(ReLU), neuron(Sigmoid)), {"neuronDescriptor", "Sigmoid", "ReLU"}));
  EXPECT_TRUE(names(encode(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{1, 2}),
                           NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{1, 3})),
                    {"neuronDescriptor"}));
  EXPECT_EQ(encode(neuron(Sigmoid), neuron(Sigmoid, 1.0F, 2.0F, 3.0F)), "") << "a Sigmoid has no parameters";

  const auto gradient = CNNNeuronGradient::create(device_, neuron(ReLU));
  const auto relu = CNNNeuron::create(device_, neuron(ReLU));
  std::shared_ptr<State> state;
  relu->encode(commands(), x, state, false);
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(commands(), image(sizeOf(2, 1, 2)), x, state); }),
                    {"CNNNeuronGradient", "sourceGradient", "2x1"}));
}

TEST(NeuronNodes, DefaultsAndGradients) {
  const auto source = NNImageNode::create();
  const auto device = mtl::newCPUDevice(1);
  const auto expectNode = [&](const std::shared_ptr<CNNNeuronNode>& node, const char* name,
                              const NNNeuronDescriptor& descriptor) {
    SCOPED_TRACE(name);
    EXPECT_EQ(node->className(), name);
    EXPECT_EQ(node->descriptor(), descriptor);
    EXPECT_EQ(node->a(), descriptor.a());
    EXPECT_EQ(node->b(), descriptor.b());
    EXPECT_EQ(node->c(), descriptor.c());
    EXPECT_EQ(std::dynamic_pointer_cast<CNNNeuron>(node->makeKernel(device))->descriptor(), descriptor);
    const auto gradient = node->gradientFilter(NNImageNode::create());
    EXPECT_EQ(gradient->sourceImage(), source);
    EXPECT_EQ(gradient->gradientState(), node->resultState());
    const auto kernel = std::dynamic_pointer_cast<CNNNeuronGradient>(gradient->makeKernel(device));
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->descriptor(), descriptor);
    EXPECT_EQ(CNNNeuronNode::create(source, descriptor)->className(), name);
  };
  expectNode(CNNNeuronLinearNode::create(source), "CNNNeuronLinearNode", neuron(Linear));
  expectNode(CNNNeuronReLUNode::create(source), "CNNNeuronReLUNode", neuron(ReLU));
  expectNode(CNNNeuronReLUNode::create(source, 0.1F), "CNNNeuronReLUNode", neuron(ReLU, 0.1F));
  expectNode(CNNNeuronSigmoidNode::create(source), "CNNNeuronSigmoidNode", neuron(Sigmoid));
  expectNode(CNNNeuronHardSigmoidNode::create(source), "CNNNeuronHardSigmoidNode", neuron(HardSigmoid));
  expectNode(CNNNeuronTanHNode::create(source), "CNNNeuronTanHNode", neuron(TanH));
  expectNode(CNNNeuronAbsoluteNode::create(source), "CNNNeuronAbsoluteNode", neuron(Absolute));
  expectNode(CNNNeuronSoftPlusNode::create(source), "CNNNeuronSoftPlusNode", neuron(SoftPlus));
  expectNode(CNNNeuronSoftSignNode::create(source), "CNNNeuronSoftSignNode", neuron(SoftSign));
  expectNode(CNNNeuronELUNode::create(source), "CNNNeuronELUNode", neuron(ELU));
  expectNode(CNNNeuronReLUNNode::create(source), "CNNNeuronReLUNNode", neuron(ReLUN));
  expectNode(CNNNeuronPowerNode::create(source), "CNNNeuronPowerNode", neuron(Power));
  expectNode(CNNNeuronExponentialNode::create(source), "CNNNeuronExponentialNode", neuron(Exponential));
  expectNode(CNNNeuronLogarithmNode::create(source), "CNNNeuronLogarithmNode", neuron(Logarithm));
  expectNode(CNNNeuronGeLUNode::create(source), "CNNNeuronGeLUNode", neuron(GeLU));
  const Values slopes{1, 2};
  expectNode(CNNNeuronPReLUNode::create(source, slopes), "CNNNeuronPReLUNode",
             NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes));
}

TEST_F(Neuron, ParametersOfManyDigitsAreToldApart) {
  const auto x = image(sizeOf(1, 1, 2), {-1, 1});
  std::shared_ptr<State> state;
  const auto buffer = commands();
  CNNNeuron::create(device_, neuron(ReLU, 1234567.0F))->encode(buffer, x, state, false);
  EXPECT_TRUE(
      names(errorOf([&] {
              CNNNeuronGradient::create(device_, neuron(ReLU, 1234574.0F))->encode(buffer, x, x, state);
            }),
            {"ReLU a=1234574", "ReLU a=1234567"}));
}

TEST_F(Neuron, GradientsOfOtherNumbersOfChannelsAreRefused) {
  const auto x = image(sizeOf(1, 1, 8), Values(8, 1));
  const auto gradient = permanent(CNNNeuronGradient::create(device_, neuron(ReLU)));
  const auto buffer = commands();
  const auto dx = poisoned(sizeOf(1, 1, 8));
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(buffer, image(sizeOf(1, 1, 4), Values(4, 1)), x, dx); }),
                    {"CNNNeuronGradient", "sourceGradient", "4, 8 and 8 feature channels"}));
  std::shared_ptr<State> state;
  CNNNeuron::create(device_, neuron(ReLU))->encode(buffer, x, state, false);
  gradient->setPrimarySourceFeatureChannelMaxCount(1);
  EXPECT_TRUE(
      names(errorOf([&] { gradient->encode(buffer, x, x, state); }), {"1, 8 and 8 feature channels"}));
  gradient->setPrimarySourceFeatureChannelMaxCount(8);
  gradient->setSecondarySourceFeatureChannelMaxCount(1);
  EXPECT_TRUE(
      names(errorOf([&] { gradient->encode(buffer, x, x, state); }), {"8, 1 and 8 feature channels"}));
}

/// Where primaryOffset is negative the first pixels of the source have no gradient.
TEST_F(Neuron, NoGradientLiesBeforeTheGradientImage) {
  const auto x = image(sizeOf(2, 3, 1), Values(6, 1));
  const auto g = image(sizeOf(2, 3, 1), {1, 2, 3, 4, 5, 6});
  const auto gradient = CNNNeuronGradient::create(device_, neuron(ReLU));
  gradient->setPrimaryOffset({0, -1, 0});
  const auto dx = poisoned(sizeOf(2, 3, 1));
  const auto buffer = commands();
  gradient->encode(buffer, g, x, dx);
  run(buffer);
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, 1, 2, 3, 4}));
}

TEST_F(Neuron, OffsetsBeyond32BitsAreRefused) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const auto x = image(sizeOf(2, 1, 1), {1, 1});
  const auto relu = CNNNeuron::create(device_, neuron(ReLU));
  const auto gradient = CNNNeuronGradient::create(device_, neuron(ReLU));
  const auto buffer = commands();
  const auto forward = [&] { relu->encode(buffer, x, image(sizeOf(2, 1, 1))); };
  const auto backward = [&] { gradient->encode(buffer, x, x, image(sizeOf(2, 1, 1))); };
  for (const Offset& offset : {Offset{most, 0, 0}, Offset{0, -most, 0}, Offset{0, 0, most}}) {
    relu->setOffset(offset);
    EXPECT_TRUE(names(errorOf(forward), {"CNNNeuron: offset is", "-2^31 to 2^31"}));
    gradient->setPrimaryOffset(offset);
    EXPECT_TRUE(names(errorOf(backward), {"CNNNeuronGradient: primaryOffset is"}));
    gradient->setPrimaryOffset({});
    gradient->setSecondaryOffset(offset);
    EXPECT_TRUE(names(errorOf(backward), {"CNNNeuronGradient: secondaryOffset is"}));
    gradient->setSecondaryOffset({});
  }
  gradient->setKernelOffsetX(most);
  EXPECT_TRUE(names(errorOf(backward), {"kernelOffsetX is"}));
  gradient->setKernelOffsetX(0);
  gradient->setKernelOffsetY(-most);
  EXPECT_TRUE(names(errorOf(backward), {"kernelOffsetY is"}));
  gradient->setKernelOffsetY(0);
  gradient->setSecondaryStrideInPixelsX(static_cast<std::size_t>(most));
  EXPECT_TRUE(names(errorOf(backward), {"strideInPixelsX is", "at most 2^31"}));
  gradient->setSecondaryStrideInPixelsX(1);
  gradient->setPrimaryStrideInPixelsY(static_cast<std::size_t>(most));
  EXPECT_TRUE(names(errorOf(backward), {"strideInPixelsY is"}));
  EXPECT_EQ(buffer->commandCount(), 0U);

  relu->setOffset({std::int64_t{1} << 31U, 0, 0});
  const auto y = poisoned(sizeOf(2, 1, 1));
  relu->encode(buffer, x, y);
  run(buffer);
  EXPECT_EQ(valuesOf(*y), (Values{0, 0}));
}

/// A forward pass that repeats the edge gives its pixels several gradients, which these kernels do not add.
TEST_F(Neuron, TheGradientOfARepeatedEdgeIsRefused) {
  const auto x = image(sizeOf(3, 1, 1), {1, 2, 3});
  const auto linear = CNNNeuron::create(device_, neuron(Linear, 2.0F));
  const auto gradient = permanent(CNNNeuronGradient::create(device_, neuron(Linear, 2.0F)));
  linear->setOffset({1, 0, 0});
  for (const auto edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp}) {
    linear->setEdgeMode(edgeMode);
    const auto state = linear->resultState(x);
    const auto buffer = commands();
    const auto y = poisoned(sizeOf(3, 1, 1));
    linear->encode(buffer, x, state, y);
    if (edgeMode == ImageEdgeMode::Clamp) {
      EXPECT_TRUE(names(errorOf([&] { gradient->encode(buffer, y, x, state); }),
                        {"CNNNeuronGradient", "gradientState", "Clamp"}));
      continue;
    }
    const auto dx = gradient->encode(buffer, image(sizeOf(3, 1, 1), {1, 10, 100}), x, state);
    run(buffer);
    EXPECT_EQ(valuesOf(*dx), (Values{0, 2, 20}));
  }
}

}  // namespace
}  // namespace mps::neuron_test
