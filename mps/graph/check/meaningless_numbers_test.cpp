#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/yolo_loss.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/normalization/normalization.hpp"
#include "mps/reduction/reduction.hpp"

/// Numbers that no kernel can compute with are refused where they are given, with a sentence.
namespace mps::meaningless_numbers_test {
namespace {

using testing::errorOf;
using testing::names;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float notANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float neither[] = {notANumber, infinity, -infinity};

class MeaninglessNumbers : public testing::DeviceTest {
 protected:
  /// Each of the numbers is refused by name.
  template <class Numbers>
  static void expectRefused(const char* property, const Numbers& numbers,
                            const std::function<void(float)>& give) {
    for (const float number : numbers)
      EXPECT_TRUE(names(errorOf([&] { give(number); }), {property, std::to_string(number), "expected"}))
          << property;
  }
  static void expectFinite(const char* property, const std::function<void(float)>& give) {
    expectRefused(property, neither, give);
    EXPECT_EQ(errorOf([&] { give(0.5F); }), "") << property;
  }
  [[nodiscard]] std::shared_ptr<NNOptimizerAdam> adam(double beta1, double beta2, float epsilon,
                                                      const NNOptimizerDescriptor& descriptor = {}) const {
    return NNOptimizerAdam::create(device_, beta1, beta2, epsilon, 0, descriptor);
  }
};

TEST_F(MeaninglessNumbers, LearningRates) {
  const auto optimizer = NNOptimizerAdam::create(device_, 0.1F);
  expectFinite("learningRate", [&](float rate) { optimizer->setLearningRate(rate); });
  optimizer->setLearningRate(-0.25F);
  EXPECT_EQ(optimizer->learningRate(), -0.25F);
  expectRefused("learningRate", neither, [&](float rate) { optimizer->setLearningRate(rate); });
  EXPECT_EQ(optimizer->learningRate(), -0.25F);
  expectFinite("learningRate", [&](float rate) { NNOptimizerAdam::create(device_, rate); });
  expectFinite("learningRate", [&](float rate) { NNOptimizerRMSProp::create(device_, rate); });
  expectFinite("learningRate",
               [&](float rate) { NNOptimizerStochasticGradientDescent::create(device_, rate); });
}

TEST_F(MeaninglessNumbers, OfOptimizerDescriptors) {
  const auto with = [&](void (NNOptimizerDescriptor::*set)(float)) {
    return [this, set](float number) {
      NNOptimizerDescriptor descriptor;
      (descriptor.*set)(number);
      (void)adam(0.9, 0.999, 1e-8F, descriptor);
    };
  };
  expectFinite("gradientRescale", with(&NNOptimizerDescriptor::setGradientRescale));
  expectFinite("regularizationScale", with(&NNOptimizerDescriptor::setRegularizationScale));
  const float nan[] = {notANumber};
  expectRefused("gradientClipMin", nan, with(&NNOptimizerDescriptor::setGradientClipMin));
  expectRefused("gradientClipMax", nan, with(&NNOptimizerDescriptor::setGradientClipMax));
  EXPECT_EQ(errorOf([&] { with (&NNOptimizerDescriptor::setGradientClipMax)(infinity); }), "") << "no limit";
}

TEST_F(MeaninglessNumbers, LimitsInTheWrongOrder) {
  NNOptimizerDescriptor descriptor(0.1F, 1, true, -1, 1, NNRegularizationType::None, 0);
  const auto optimizer = NNOptimizerStochasticGradientDescent::create(device_, 0, false, descriptor);
  const auto vector = Vector::create(device_, VectorDescriptor::vectorDescriptor(2, DataType::Float32));
  const auto values = Vector::create(device_, VectorDescriptor::vectorDescriptor(2, DataType::Float32));
  EXPECT_TRUE(names(errorOf([&] { optimizer->encode(commands(), vector, values, nullptr, values); }),
                    {"gradientClipMin", "1", "gradientClipMax", "-1"}));
  optimizer->setApplyGradientClipping(false);
  EXPECT_EQ(errorOf([&] { optimizer->encode(commands(), vector, values, nullptr, values); }), "");
}

TEST_F(MeaninglessNumbers, OfAdamAndRMSProp) {
  const float outside[] = {notANumber, infinity, -infinity, 1, 2, -0.5F};
  expectRefused("beta1", outside, [&](float beta) { (void)adam(static_cast<double>(beta), 0.999, 1e-8F); });
  expectRefused("beta2", outside, [&](float beta) { (void)adam(0.9, static_cast<double>(beta), 1e-8F); });
  expectRefused("decay", outside, [&](float decay) {
    (void)NNOptimizerRMSProp::create(device_, static_cast<double>(decay), 1e-8F, {});
  });
  const float notAnEpsilon[] = {notANumber, infinity, -1};
  expectRefused("epsilon", notAnEpsilon, [&](float epsilon) { (void)adam(0.9, 0.999, epsilon); });
  expectRefused("epsilon", notAnEpsilon,
                [&](float epsilon) { (void)NNOptimizerRMSProp::create(device_, 0.9, epsilon, {}); });
  EXPECT_EQ(errorOf([&] { (void)adam(0, 0, 0); }), "");
  expectFinite("momentumScale", [&](float momentum) {
    (void)NNOptimizerStochasticGradientDescent::create(device_, momentum, false, {});
  });
}

TEST_F(MeaninglessNumbers, OfCodedOptimizers) {
  const auto optimizer = adam(0.5, 0.25, 1e-8F);
  KeyedArchiver archiver;
  optimizer->encode(archiver);
  auto bytes = archiver.encodedData();
  // CBOR: the key, then 0xfa and a float32 or 0xfb and a float64, the most significant byte first.
  const std::string key = "beta1";
  const auto found =
      std::search(bytes.begin(), bytes.end(), key.begin(), key.end(),
                  [](std::byte byte, char letter) { return byte == static_cast<std::byte>(letter); });
  ASSERT_NE(found, bytes.end());
  const auto value = found + static_cast<std::ptrdiff_t>(key.size());
  ASSERT_TRUE(*value == std::byte{0xfa} || *value == std::byte{0xfb});
  value[1] = std::byte{0x3f};
  value[2] = *value == std::byte{0xfa} ? std::byte{0x80} : std::byte{0xf0};  // 0.5 becomes 1
  KeyedUnarchiver unarchiver(bytes, device_);
  EXPECT_TRUE(names(errorOf([&] { NNOptimizerAdam::decode(unarchiver); }), {"beta1", "1.0", "below 1"}));
}

TEST_F(MeaninglessNumbers, StridesThatNoMemoryHas) {
  constexpr std::size_t huge = std::size_t{1} << 62U;
  EXPECT_TRUE(names(errorOf([] { MatrixDescriptor::rowBytes(huge, DataType::Float32); }),
                    {"MatrixDescriptor", "too large"}));
  EXPECT_TRUE(names(errorOf([] { MatrixDescriptor::rowBytes(huge - 1, DataType::Float32); }), {"too large"}));
  EXPECT_TRUE(
      names(errorOf([] { MatrixDescriptor::rowBytes(~std::size_t{0}, DataType::UInt8); }), {"too large"}));
  EXPECT_TRUE(names(errorOf([] { VectorDescriptor::vectorBytes(huge, DataType::Float32); }),
                    {"VectorDescriptor", "too large"}));
  EXPECT_EQ(MatrixDescriptor::rowBytes(5, DataType::Float32), 32U);
  EXPECT_EQ(VectorDescriptor::vectorBytes(0, DataType::Float32), 0U);
}

TEST_F(MeaninglessNumbers, OfLosses) {
  const auto with = [&](void (CNNLossDescriptor::*set)(float)) {
    return [this, set](float number) {
      auto descriptor = CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Huber, CNNReductionType::Sum);
      (descriptor.*set)(number);
      (void)CNNLoss::create(device_, descriptor);
      (void)NNForwardLoss::create(device_, descriptor);
    };
  };
  expectFinite("weight", with(&CNNLossDescriptor::setWeight));
  expectFinite("labelSmoothing", with(&CNNLossDescriptor::setLabelSmoothing));
  expectFinite("epsilon", with(&CNNLossDescriptor::setEpsilon));
  expectFinite("delta", with(&CNNLossDescriptor::setDelta));
  const auto ofYOLO = [&](void (CNNYOLOLossDescriptor::*set)(float)) {
    return [this, set](float number) {
      const std::vector<float> anchors{1, 2};
      auto descriptor = CNNYOLOLossDescriptor::cnnLossDescriptor(
          CNNLossType::MeanSquaredError, CNNLossType::Huber, CNNLossType::SigmoidCrossEntropy,
          CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum, anchors, 1);
      (descriptor.*set)(number);
      (void)CNNYOLOLoss::create(device_, descriptor);
    };
  };
  expectFinite("scaleXY", ofYOLO(&CNNYOLOLossDescriptor::setScaleXY));
  expectFinite("scaleWH", ofYOLO(&CNNYOLOLossDescriptor::setScaleWH));
  expectFinite("scaleNoObject", ofYOLO(&CNNYOLOLossDescriptor::setScaleNoObject));
  expectFinite("scaleObject", ofYOLO(&CNNYOLOLossDescriptor::setScaleObject));
  expectFinite("scaleClass", ofYOLO(&CNNYOLOLossDescriptor::setScaleClass));
  expectFinite("minIOUForObjectPresence", ofYOLO(&CNNYOLOLossDescriptor::setMinIOUForObjectPresence));
  expectFinite("maxIOUForObjectAbsence", ofYOLO(&CNNYOLOLossDescriptor::setMaxIOUForObjectAbsence));
}

TEST_F(MeaninglessNumbers, OfNeurons) {
  const auto neuron = [&](CNNNeuronType type, float a, float b, float c) {
    (void)CNNNeuron::create(device_, NNNeuronDescriptor::cnnNeuronDescriptor(type, a, b, c));
  };
  expectFinite(".a", [&](float a) { neuron(CNNNeuronType::Linear, a, 0, 0); });
  expectFinite(".b", [&](float b) { neuron(CNNNeuronType::Linear, 1, b, 0); });
  expectFinite(".c", [&](float c) { neuron(CNNNeuronType::Power, 1, 0, c); });
  EXPECT_EQ(errorOf([&] { neuron(CNNNeuronType::ReLU, 0.5F, notANumber, notANumber); }), "") << "it has one";
  EXPECT_EQ(errorOf([&] { neuron(CNNNeuronType::ReLUN, 0, infinity, 0); }), "") << "no limit";
  const auto ofMatrices = MatrixNeuron::create(device_);
  expectFinite("parameters.a", [&](float a) { ofMatrices->setNeuronType(CNNNeuronType::Linear, a, 0, 0); });
  const auto fused = std::make_shared<detail::FixedBatchNormalization>(2);
  EXPECT_NE(errorOf([&] {
              CNNBatchNormalization::create(
                  device_, fused, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, notANumber));
            }),
            "");
}

TEST_F(MeaninglessNumbers, OfNormalisations) {
  const auto local = CNNCrossChannelNormalization::create(device_, 3);
  expectFinite("alpha", [&](float alpha) { local->setAlpha(alpha); });
  expectFinite("beta", [&](float beta) { local->setBeta(beta); });
  expectFinite("delta", [&](float delta) { local->setDelta(delta); });
  expectFinite("epsilon", [&](float epsilon) {
    const auto source = std::make_shared<detail::FixedBatchNormalization>(2);
    source->epsilonValue = epsilon;
    (void)CNNBatchNormalization::create(device_, source);
  });
  const auto matrix = MatrixBatchNormalization::create(device_);
  expectFinite("epsilon", [&](float epsilon) { matrix->setEpsilon(epsilon); });
}

TEST_F(MeaninglessNumbers, OfArithmetic) {
  const auto encode = [&](void (CNNArithmetic::*set)(float)) {
    return [this, set](float number) {
      const auto add = CNNAdd::create(device_);
      (add.get()->*set)(number);
      const auto pixels = image(testing::sizeOf(1, 1, 1), {1});
      add->encode(commands(), pixels, pixels);
    };
  };
  expectFinite("primaryScale", encode(&CNNArithmetic::setPrimaryScale));
  expectFinite("secondaryScale", encode(&CNNArithmetic::setSecondaryScale));
  expectFinite("bias", encode(&CNNArithmetic::setBias));
  const auto compare = NNCompare::create(device_);
  expectFinite("threshold", [&](float threshold) { compare->setThreshold(threshold); });
}

TEST_F(MeaninglessNumbers, OfProductsAndSums) {
  const auto product = [&](float alpha, float beta) {
    (void)MatrixMultiplication::create(device_, false, false, 1, 1, 1, static_cast<double>(alpha),
                                       static_cast<double>(beta));
    (void)MatrixVectorMultiplication::create(device_, false, 1, 1, static_cast<double>(alpha),
                                             static_cast<double>(beta));
  };
  expectFinite("alpha", [&](float alpha) { product(alpha, 0); });
  expectFinite("beta", [&](float beta) { product(1, beta); });
  EXPECT_TRUE(names(errorOf([&] { MatrixMultiplication::create(device_, false, false, 1, 1, 1, 1e300, 0); }),
                    {"alpha"}))
      << "no float32";
  const auto dense = MatrixFullyConnected::create(device_);
  expectFinite("alpha", [&](float alpha) { dense->setAlpha(static_cast<double>(alpha)); });
  const auto neuron = MatrixNeuron::create(device_);
  expectFinite("alpha", [&](float alpha) { neuron->setAlpha(static_cast<double>(alpha)); });
  const auto gram = NNGramMatrixCalculation::create(device_, 1);
  expectFinite("alpha", [&](float alpha) { gram->setAlpha(alpha); });
  expectFinite("alpha", [&](float alpha) { (void)NNGramMatrixCalculation::create(device_, alpha); });
  expectFinite("alpha", [&](float alpha) { (void)NNGramMatrixCalculationGradient::create(device_, alpha); });
  const auto sum = NNReduceFeatureChannelsSum::create(device_);
  expectFinite("weight", [&](float weight) { sum->setWeight(weight); });
}

}  // namespace
}  // namespace mps::meaningless_numbers_test
