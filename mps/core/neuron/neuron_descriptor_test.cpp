#include "mps/core/neuron/neuron_descriptor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace mps::neuron_descriptor_test {
namespace {

using enum CNNNeuronType;

/// The values are part of the API.
TEST(NeuronDescriptor, TypesHaveAppleValues) {
  constexpr CNNNeuronType inOrder[] = {None,     ReLU,        Linear,    Sigmoid, HardSigmoid, TanH,
                                       Absolute, SoftPlus,    SoftSign,  ELU,     PReLU,       ReLUN,
                                       Power,    Exponential, Logarithm, GeLU,    Count};
  std::set<std::string> names;
  for (std::int32_t value = 0; value < 17; ++value) {
    EXPECT_EQ(static_cast<std::int32_t>(inOrder[value]), value);
    names.insert(name(inOrder[value]));
  }
  EXPECT_EQ(names.size(), 17U);
}

TEST(NeuronDescriptor, DefaultIsTheIdentity) {
  EXPECT_EQ(NNNeuronDescriptor().neuronType(), None);
  EXPECT_EQ(NNNeuronDescriptor(), NNNeuronDescriptor::cnnNeuronDescriptor(None));
}

TEST(NeuronDescriptor, OmittedParametersTakeTheDocumentedDefaults) {
  const auto expectParameters = [](CNNNeuronType type, float a, float b, float c) {
    const NNNeuronDescriptor found = NNNeuronDescriptor::cnnNeuronDescriptor(type);
    EXPECT_EQ(found, NNNeuronDescriptor::cnnNeuronDescriptor(type, a, b, c)) << found.describe();
    EXPECT_EQ(found.a(), a);
    EXPECT_EQ(found.b(), b);
    EXPECT_EQ(found.c(), c);
  };
  for (const CNNNeuronType type : {None, Sigmoid, Absolute, SoftSign, GeLU, ReLU})
    expectParameters(type, 0, 0, 0);
  expectParameters(Linear, 1, 0, 0);
  expectParameters(HardSigmoid, 0.2F, 0.5F, 0);
  expectParameters(TanH, 1, 1, 0);
  expectParameters(SoftPlus, 1, 1, 0);
  expectParameters(ELU, 1, 0, 0);
  expectParameters(ReLUN, 1, 6, 0);
  expectParameters(Power, 1, 0, 1);
  expectParameters(Exponential, 1, 0, -1);
  expectParameters(Logarithm, 1, 0, -1);
}

TEST(NeuronDescriptor, PassedParametersAreKeptAndTheRestDefaults) {
  const auto one = NNNeuronDescriptor::cnnNeuronDescriptor(ReLUN, 0.25F);
  EXPECT_EQ(one.a(), 0.25F);
  EXPECT_EQ(one.b(), 6.0F);
  const auto two = NNNeuronDescriptor::cnnNeuronDescriptor(Exponential, 2.0F, 3.0F);
  EXPECT_EQ(two.a(), 2.0F);
  EXPECT_EQ(two.b(), 3.0F);
  EXPECT_EQ(two.c(), -1.0F);
  const auto three = NNNeuronDescriptor::cnnNeuronDescriptor(Power, 2.0F, 3.0F, 4.0F);
  EXPECT_EQ(three.a(), 2.0F);
  EXPECT_EQ(three.b(), 3.0F);
  EXPECT_EQ(three.c(), 4.0F);
}

TEST(NeuronDescriptor, SlopesAreCopied) {
  std::vector<float> slopes = {0.5F, -1.0F};
  const auto neuron = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes, true);
  slopes[0] = 7;
  EXPECT_EQ(neuron.neuronType(), PReLU);
  ASSERT_EQ(neuron.data().size(), 2U);
  EXPECT_EQ(neuron.data()[0], 0.5F);
  EXPECT_EQ(neuron.data()[1], -1.0F);
}

TEST(NeuronDescriptor, CopiesAreIndependent) {
  const std::vector<float> slopes = {0.5F};
  const auto original = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes);
  NNNeuronDescriptor copy = original;
  EXPECT_EQ(copy, original);
  copy.setData(std::vector<float>{0.75F});
  copy.setA(1);
  EXPECT_EQ(original.data()[0], 0.5F);
  EXPECT_EQ(original.a(), 0.0F);
  EXPECT_NE(copy, original);
}

TEST(NeuronDescriptor, EveryFieldCountsInComparisonAndHash) {
  const std::vector<float> slopes = {0.5F, 0.25F};
  const auto original = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes);
  const auto expectDifferent = [&](auto change) {
    NNNeuronDescriptor changed = original;
    change(changed);
    EXPECT_NE(changed, original) << changed.describe();
    EXPECT_NE(changed.hash(), original.hash()) << changed.describe();
  };
  expectDifferent([](auto& neuron) { neuron.setNeuronType(ReLU); });
  expectDifferent([](auto& neuron) { neuron.setA(1); });
  expectDifferent([](auto& neuron) { neuron.setB(1); });
  expectDifferent([](auto& neuron) { neuron.setC(1); });
  expectDifferent([](auto& neuron) { neuron.setData({}); });
  expectDifferent([](auto& neuron) { neuron.setData(std::vector<float>{0.5F}); });
  expectDifferent([](auto& neuron) { neuron.setData(std::vector<float>{0.5F, 0.125F}); });
  expectDifferent([](auto& neuron) { neuron.setA(-0.0F); });
  EXPECT_EQ(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes), original);
  EXPECT_EQ(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes).hash(), original.hash());
}

TEST(NeuronDescriptor, NotANumberEqualsItselfSoThatACacheFindsIt) {
  const auto neuron =
      NNNeuronDescriptor::cnnNeuronDescriptor(Linear, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(neuron, NNNeuronDescriptor(neuron));
}

TEST(NeuronDescriptor, DescribeNamesTypeAndItsParameters) {
  EXPECT_EQ(NNNeuronDescriptor::cnnNeuronDescriptor(ReLU, 0.5F).describe(), "ReLU a=0.5");
  EXPECT_EQ(NNNeuronDescriptor::cnnNeuronDescriptor(Power, 1, 2, 3).describe(), "Power a=1 b=2 c=3");
  EXPECT_EQ(NNNeuronDescriptor::cnnNeuronDescriptor(GeLU).describe(), "GeLU");
  EXPECT_EQ(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(std::vector<float>(3)).describe(), "PReLU 3 slopes");
}

}  // namespace
}  // namespace mps::neuron_descriptor_test
