#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/concatenation/concatenation.hpp"
#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/convolution/check/convolution_fixed_weights.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mps/normalization/normalization.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/pooling/pooling.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/softmax/matrix_softmax.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "mps/upsampling/upsampling.hpp"
#include "mps/upsampling/upsampling_node.hpp"

/// Every class of kernels encodes, and decodes on another device to one that computes the same bits
/// (docs/decisions.md, D1).
namespace mps::kernel_coding_test {
namespace {

using nlohmann::json;
using test::Bytes;
using test::channels;
using test::Device;
using test::encoded;
using test::everyKernel;
using test::forward;
using test::KernelSample;
using test::ran;
using testing::errorOf;
using testing::names;
using testing::Values;

json treeOf(const Bytes& bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return json::from_cbor(first, first + bytes.size());
}

Bytes bytesOf(const json& tree) {
  const std::vector<std::uint8_t> cbor = json::to_cbor(tree);
  const auto bytes = std::as_bytes(std::span(cbor));
  return {bytes.begin(), bytes.end()};
}

Values nextNumbers(MatrixRandom& random) {
  const auto result = test::vector(random.device(), 0, 1000);
  ran(random, [&](const auto& buffer) {
    random.encode(buffer, result);
    return 0;
  });
  return testing::valuesOf(result->data());
}

class KernelCoding : public testing::DeviceTest {
 protected:
  Device other_ = mtl::newCPUDevice(2);
};

TEST_F(KernelCoding, D1DecodedOnAnotherDeviceTheyComputeTheSameBits) {
  for (const KernelSample& one : everyKernel(device_)) {
    SCOPED_TRACE(one.kernel->className());
    const Bytes bytes = encoded(*one.kernel);
    KeyedUnarchiver unarchiver(bytes);
    const auto decoded = one.decode(unarchiver, other_);
    EXPECT_EQ(decoded->device(), other_);
    EXPECT_EQ(decoded->describe(), one.kernel->describe());
    EXPECT_EQ(encoded(*decoded), bytes);
    for (const int seed : {1, 2}) {
      const Values expected = one.compute(*one.kernel, seed);
      const Values found = one.compute(*decoded, seed);
      ASSERT_EQ(found.size(), expected.size());
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0);
    }
  }
}

TEST_F(KernelCoding, D1TheDeviceIsTheGivenOneOrTheCodersOrTheDefault) {
  const Bytes bytes = encoded(*CNNPoolingMax::create(device_, 2, 2));
  KeyedUnarchiver withDevice(bytes, other_);
  EXPECT_EQ(withDevice.mpsMTLDevice(), other_);
  EXPECT_EQ(CNNPoolingMax::decode(withDevice)->device(), other_);
  EXPECT_EQ(CNNPoolingMax::decode(withDevice, device_)->device(), device_);
  KeyedUnarchiver without(bytes);
  EXPECT_EQ(CNNPoolingMax::decode(without)->device(), mtl::createSystemDefaultDevice());
}

/// What a property was changed by, and that the data has changed: nothing is left out.
void expectCoded(Kernel& kernel, const std::vector<std::function<void()>>& changes) {
  std::vector<Bytes> seen{encoded(kernel)};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    changes[i]();
    const Bytes now = encoded(kernel);
    EXPECT_NE(now, seen.back()) << kernel.className() << ", change " << i;
    seen.push_back(now);
  }
}

TEST_F(KernelCoding, EveryPropertyIsCoded) {
  const auto average = CNNPoolingAverage::create(device_, 2, 2);
  expectCoded(*average, {[&] { average->setOptions(KernelOptions::AllowReducedPrecision); },
                         [&] { average->setLabel("pool"); },
                         [&] {
                           average->setOffset({1, -2, 3});
                         },
                         [&] {
                           average->setClipRect({{1, 2, 3}, {4, 5, 6}});
                         },
                         [&] { average->setDestinationFeatureChannelOffset(4); },
                         [&] { average->setSourceFeatureChannelOffset(8); },
                         [&] { average->setSourceFeatureChannelMaxCount(12); },
                         [&] { average->setEdgeMode(ImageEdgeMode::Clamp); },
                         [&] { average->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeFull)); },
                         [&] { average->setDestinationImageAllocator(Image::defaultAllocator()); },
                         [&] { average->setZeroPadSizeX(1); }, [&] { average->setZeroPadSizeY(1); }});
  const auto gradient = CNNPoolingAverageGradient::create(device_, 2, 2);
  // Set to what they are: which properties the user has set counts, too (docs/decisions.md, D7).
  expectCoded(*gradient, {[&] { gradient->setPrimaryOffset({}); },
                          [&] { gradient->setSecondaryOffset({}); },
                          [&] { gradient->setClipRect(RectNoClip); },
                          [&] { gradient->setDestinationFeatureChannelOffset(4); },
                          [&] { gradient->setPrimarySourceFeatureChannelOffset(0); },
                          [&] { gradient->setSecondarySourceFeatureChannelOffset(0); },
                          [&] { gradient->setPrimarySourceFeatureChannelMaxCount(4); },
                          [&] { gradient->setSecondarySourceFeatureChannelMaxCount(4); },
                          [&] { gradient->setPrimaryEdgeMode(ImageEdgeMode::Zero); },
                          [&] { gradient->setSecondaryEdgeMode(ImageEdgeMode::Zero); },
                          [&] { gradient->setPrimaryStrideInPixelsX(3); },
                          [&] { gradient->setPrimaryStrideInPixelsY(3); },
                          [&] { gradient->setSecondaryStrideInPixelsX(3); },
                          [&] { gradient->setSecondaryStrideInPixelsY(3); },
                          [&] { gradient->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeFull)); },
                          [&] { gradient->setDestinationImageAllocator(Image::defaultAllocator()); },
                          [&] { gradient->setKernelOffsetX(0); },
                          [&] { gradient->setKernelOffsetY(0); },
                          [&] {
                            gradient->setSourceSize({1, 2, 3});
                          },
                          [&] { gradient->setZeroPadSizeX(0); },
                          [&] { gradient->setZeroPadSizeY(0); }});
  const auto concatenation = NNConcatenation::create(device_, 2);
  expectCoded(
      *concatenation,
      {[&] {
         concatenation->setOffset({1, 0, 0}, 1);
       },
       [&] { concatenation->setSourceFeatureChannelOffset(4, 1); },
       [&] { concatenation->setSourceFeatureChannelMaxCount(4, 1); },
       [&] { concatenation->setEdgeMode(ImageEdgeMode::Clamp, 1); },
       [&] { concatenation->setKernelWidth(2, 1); }, [&] { concatenation->setKernelHeight(2, 1); },
       [&] { concatenation->setStrideInPixelsX(2, 1); }, [&] { concatenation->setStrideInPixelsY(2, 1); },
       [&] { concatenation->setDilationRateX(2, 1); }, [&] { concatenation->setDilationRateY(2, 1); },
       [&] {
         concatenation->setClipRect({{0, 0, 0}, {1, 1, 1}});
       },
       [&] { concatenation->setDestinationFeatureChannelOffset(4); },
       [&] { concatenation->setChannelAlignment(1); }});
  const auto add = CNNAdd::create(device_);
  expectCoded(*add, {[&] { add->setPrimaryScale(2); }, [&] { add->setSecondaryScale(2); },
                     [&] { add->setBias(2); }, [&] { add->setMinimumValue(-2); },
                     [&] { add->setMaximumValue(2); }, [&] { add->setPrimaryStrideInFeatureChannels(0); },
                     [&] { add->setSecondaryStrideInFeatureChannels(0); }});
  const auto product = MatrixMultiplication::create(device_, 2, 2, 2);
  expectCoded(*product, {[&] { product->setBatchStart(1); }, [&] { product->setBatchSize(1); },
                         [&] {
                           product->setLeftMatrixOrigin({1, 1, 0});
                         },
                         [&] {
                           product->setRightMatrixOrigin({1, 1, 0});
                         },
                         [&] {
                           product->setResultMatrixOrigin({1, 1, 0});
                         }});
  const auto rows = MatrixSoftMax::create(device_);
  expectCoded(*rows, {[&] { rows->setSourceRows(1); }, [&] { rows->setSourceColumns(1); },
                      [&] {
                        rows->setSourceMatrixOrigin({1, 1, 0});
                      },
                      [&] {
                        rows->setResultMatrixOrigin({1, 1, 0});
                      }});
  const auto neuron = MatrixNeuronGradient::create(device_);
  expectCoded(*neuron, {[&] { neuron->setAlpha(2); }, [&] { neuron->setSourceNumberOfFeatureVectors(2); },
                        [&] { neuron->setSourceInputFeatureChannels(2); },
                        [&] { neuron->setNeuronType(CNNNeuronType::TanH, 1, 2, 3); },
                        [&] {
                          neuron->setSecondarySourceMatrixOrigin({1, 1, 0});
                        },
                        [&] {
                          neuron->setNeuronToPReLU(Values{1, 2});
                        }});
  const auto columns = MatrixBatchNormalization::create(device_);
  expectCoded(*columns, {[&] { columns->setComputeStatistics(true); }, [&] { columns->setEpsilon(2); },
                         [&] { columns->setNeuronType(CNNNeuronType::ReLU, 1, 2, 3); }});
  const auto connected = MatrixFullyConnected::create(device_);
  expectCoded(*connected,
              {[&] { connected->setAlpha(2); }, [&] { connected->setSourceOutputFeatureChannels(2); },
               [&] { connected->setNeuronType(CNNNeuronType::ReLU, 1, 2, 3); }});
  const auto normalization = CNNLocalContrastNormalizationGradient::create(device_, 3, 3);
  expectCoded(*normalization, {[&] { normalization->setAlpha(2); }, [&] { normalization->setBeta(2); },
                               [&] { normalization->setDelta(2); }, [&] { normalization->setP0(2); },
                               [&] { normalization->setPm(2); }, [&] { normalization->setPs(2); }});
  const auto adam = NNOptimizerAdam::create(device_, 0.5F);
  expectCoded(*adam,
              {[&] { adam->setLearningRate(2); }, [&] { adam->setApplyGradientClipping(true); },
               [&] { adam->setTimeStep(3); }, [&] { adam->setLossScale(LossScale::create(device_)); }});
}

/// Random sequences go on where they were.
TEST_F(KernelCoding, RandomSequencesGoOn) {
  const auto philox = MatrixRandomPhilox::create(device_, DataType::Float32, 3);
  nextNumbers(*philox);
  KeyedUnarchiver unarchiver(encoded(*philox));
  const auto other = MatrixRandomPhilox::decode(unarchiver, other_);
  EXPECT_EQ(nextNumbers(*other), nextNumbers(*philox));

  const auto mersenne = MatrixRandomMTGP32::create(device_, DataType::Float32, 3);
  nextNumbers(*mersenne);
  ran(*mersenne, [&](const auto& buffer) {
    mersenne->synchronizeState(buffer);
    return 0;
  });
  KeyedUnarchiver second(encoded(*mersenne));
  EXPECT_EQ(nextNumbers(*MatrixRandomMTGP32::decode(second, other_)), nextNumbers(*mersenne));
}

/// What was reloaded from a state since the data source was read belongs to the kernel.
TEST_F(KernelCoding, ReloadedWeightsAreCoded) {
  const auto convolution = CNNConvolution::create(device_, detail::sampleWeights(3, channels, 3));
  const std::size_t without = encoded(*convolution).size();
  const auto state = CNNConvolutionWeightsAndBiasesState::create(device_, convolution->descriptor());
  for (float& value : state->weights()->contentsAs<float>()) value = 0.5F;
  state->weights()->didModifyRange(0, state->weights()->length());
  ran(*convolution, [&](const auto& buffer) {
    convolution->reloadWeightsAndBiases(buffer, state);
    return 0;
  });
  const Bytes bytes = encoded(*convolution);
  EXPECT_GT(bytes.size(), without);
  KeyedUnarchiver unarchiver(bytes);
  const auto decoded = CNNConvolution::decode(unarchiver, other_);
  EXPECT_EQ(encoded(*decoded), bytes);
  EXPECT_EQ(forward(*decoded, 1), forward(*convolution, 1));
  decoded->reloadWeightsAndBiasesFromDataSource();
  convolution->reloadWeightsAndBiasesFromDataSource();
  EXPECT_EQ(forward(*decoded, 1), forward(*convolution, 1));

  json tree = treeOf(bytes);
  tree["weights"] = json::binary({0, 0, 0, 0});
  KeyedUnarchiver shortened(bytesOf(tree));
  EXPECT_TRUE(
      names(errorOf([&] { CNNConvolution::decode(shortened); }), {"CNNConvolution", "weights", "1 values"}));
}

TEST_F(KernelCoding, ReloadedParametersAreCoded) {
  const auto normalization =
      CNNBatchNormalization::create(device_, detail::FixedBatchNormalization::create(channels));
  const Values gamma{4, 3, 2, 1};
  const Values beta{0, 1, 0, -1};
  const auto state =
      CNNNormalizationGammaAndBetaState::create(device_->newBuffer(std::as_bytes(std::span(gamma))),
                                                device_->newBuffer(std::as_bytes(std::span(beta))));
  ran(*normalization, [&](const auto& buffer) {
    normalization->reloadGammaAndBeta(buffer, state);
    return 0;
  });
  normalization->setEpsilon(0.5F);
  KeyedUnarchiver unarchiver(encoded(*normalization));
  const auto decoded = CNNBatchNormalization::decode(unarchiver, other_);
  EXPECT_EQ(forward(*decoded, 1), forward(*normalization, 1));
  EXPECT_EQ(decoded->epsilon(), 0.5F);
}

/// A ready-made data source is coded itself; forward and gradient kernel share one again.
TEST_F(KernelCoding, TrainableSourcesAreShared) {
  const auto layer = test::layer(device_, 3, channels, 2, "conv");
  KeyedArchiver archiver;
  archiver.encode("forward", std::static_pointer_cast<Kernel>(CNNConvolution::create(device_, layer)));
  archiver.encode("gradient",
                  std::static_pointer_cast<Kernel>(CNNConvolutionGradient::create(device_, layer)));
  const Bytes bytes = archiver.encodedData();
  const auto add = [](Coder& coder) {
    coder.setDecoder("CNNConvolution",
                     [](Coder& data, const Device& d) { return CNNConvolution::decode(data, d); });
    coder.setDecoder("CNNConvolutionGradient",
                     [](Coder& data, const Device& d) { return CNNConvolutionGradient::decode(data, d); });
  };
  KeyedUnarchiver unarchiver(bytes, other_);
  add(unarchiver);
  addTrainableDecoders(unarchiver);
  std::shared_ptr<CNNConvolution> forwardKernel;
  std::shared_ptr<CNNConvolutionGradient> gradient;
  unarchiver.decode("forward", forwardKernel);
  unarchiver.decode("gradient", gradient);
  EXPECT_EQ(forwardKernel->device(), other_);
  EXPECT_EQ(forwardKernel->dataSource(), gradient->dataSource());
  const auto source = std::dynamic_pointer_cast<TrainableConvolution>(forwardKernel->dataSource());
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(forwardKernel->weights()->weights(), gradient->weights()->weights());

  KeyedUnarchiver ignorant(bytes, other_);
  add(ignorant);
  EXPECT_TRUE(names(errorOf([&] { ignorant.decode("forward", forwardKernel); }),
                    {"dataSource", "TrainableConvolution", "setDecoder"}));
}

TEST_F(KernelCoding, D1AnotherClassThrows) {
  const Bytes bytes = encoded(*CNNPoolingMax::create(device_, 2, 2));
  for (const KernelSample& one : everyKernel(device_)) {
    if (one.kernel->className() == "CNNPoolingMax") continue;
    KeyedUnarchiver unarchiver(bytes);
    EXPECT_TRUE(
        names(errorOf([&] { one.decode(unarchiver, other_); }), {one.kernel->className(), "CNNPoolingMax"}));
  }
}

/// A coder that encodes would be written to, and properties would be read from a kernel that has none.
TEST_F(KernelCoding, DecodingByAnArchiverThrows) {
  for (const KernelSample& one : everyKernel(device_)) {
    KeyedArchiver archiver;
    EXPECT_TRUE(names(errorOf([&] { one.decode(archiver, other_); }),
                      {one.kernel->className(), "coder", "one that encodes"}));
    const Bytes bytes = archiver.encodedData();
    EXPECT_EQ(bytes, KeyedArchiver().encodedData()) << "nothing is written";
  }
}

/// A key that is missing, one too many, another version, a value of another type: each in every class.
TEST_F(KernelCoding, WrongPropertiesThrow) {
  for (const KernelSample& one : everyKernel(device_)) {
    SCOPED_TRACE(one.kernel->className());
    const json tree = treeOf(encoded(*one.kernel));
    const auto error = [&](const json& wrong) {
      return errorOf([&] {
        KeyedUnarchiver unarchiver(bytesOf(wrong));
        one.decode(unarchiver, other_);
      });
    };
    EXPECT_EQ(error(tree), "");
    json wrong = tree;
    wrong["version"] = 2U;
    EXPECT_TRUE(names(error(wrong), {"version", "2"}));
    wrong = tree;
    wrong["other"] = 1U;
    EXPECT_TRUE(names(error(wrong), {"other", "no such property"}));
    for (const auto& [key, value] : tree.items()) {
      wrong = tree;
      wrong.erase(key);
      EXPECT_FALSE(error(wrong).empty()) << "without " << key;
      wrong = tree;
      wrong[key] = json::array({nullptr});
      EXPECT_FALSE(error(wrong).empty()) << key << " of another type";
    }
  }
}

TEST_F(KernelCoding, AnEpsilonThatIsNoneThrows) {
  std::size_t kernels = 0;
  for (const KernelSample& one : everyKernel(device_)) {
    if (one.kernel->className().find("Normalization") == std::string::npos) continue;
    json tree = treeOf(encoded(*one.kernel));
    if (!tree.contains("epsilon")) continue;
    SCOPED_TRACE(one.kernel->className());
    ++kernels;
    for (const float epsilon : {-1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
      tree["epsilon"] = epsilon;
      KeyedUnarchiver unarchiver(bytesOf(tree));
      EXPECT_TRUE(names(errorOf([&] { one.decode(unarchiver, other_); }), {"epsilon", "at least 0"}));
    }
  }
  EXPECT_EQ(kernels, 5U) << "batch, instance and group normalisation, of matrices and its gradient";
}

/// Kernels that somebody makes have no such limits.
TEST_F(KernelCoding, WhatADecodedKernelTakesHasALimit) {
  const auto sized = [&](Kernel& kernel, const CodingLimits& limits) {
    const Bytes bytes = encoded(kernel);
    return errorOf([&] {
      KeyedUnarchiver unarchiver(bytes, other_, limits);
      const auto decoded = std::dynamic_pointer_cast<CNNKernel>(
          kernel.className() == "CNNPoolingMax"
              ? std::shared_ptr<Kernel>(CNNPoolingMax::decode(unarchiver, other_))
              : std::shared_ptr<Kernel>(CNNUpsamplingNearest::decode(unarchiver, other_)));
      forward(*std::static_pointer_cast<CNNKernel>(decoded->copy()), 1);
    });
  };
  CodingLimits limits;
  const auto pool = CNNPoolingMax::create(device_, 5, 4, 1, 1);
  limits.windowElements = 20;
  EXPECT_EQ(sized(*pool, limits), "");
  limits.windowElements = 19;
  EXPECT_TRUE(names(sized(*pool, limits), {"kernelWidth", "5 x 4", "at most 19 elements"}));
  limits = {};
  limits.size = 4;
  EXPECT_TRUE(names(sized(*pool, limits), {"kernelWidth", "5", "at most 4 (CodingLimits::size)"}));
  limits = {};
  const auto scale = CNNUpsamplingNearest::create(device_, 10, 10);
  constexpr std::size_t bytes = 10 * 10 * test::side * test::side * channels * sizeof(float);
  limits.bytes = bytes;
  EXPECT_EQ(sized(*scale, limits), "");
  limits.bytes = bytes - 1;
  EXPECT_TRUE(names(sized(*scale, limits), {"CNNUpsamplingNearest", "destinationImage", std::to_string(bytes),
                                            "CodingLimits::bytes"}));
  forward(*scale, 1);
}

/// A graph plans the memory of its images before one is made.
TEST_F(KernelCoding, WhatADecodedGraphTakesHasALimit) {
  const auto image = NNImageNode::create();
  const auto scale = CNNUpsamplingNearestNode::create(image, 100, 100);
  const auto graph =
      NNGraph::create(device_, CNNPoolingMaxNode::create(scale->resultImage(), 3, 3)->resultImage());
  const Bytes bytes = encoded(*graph);
  CodingLimits limits;
  limits.bytes = 1 << 20;
  KeyedUnarchiver unarchiver(bytes, other_, limits);
  const auto decoded = NNGraph::decode(unarchiver, other_);
  const auto buffer = other_->newCommandQueue()->commandBuffer();
  EXPECT_TRUE(names(errorOf([&] { decoded->encodeBatch(buffer, {ImageBatch{test::source(*decoded, 1)}}); }),
                    {"CNNUpsamplingNearest", "CodingLimits::bytes"}));
}

/// Truncated at every byte, and with bytes changed at random: an error or a kernel, never a crash.
TEST_F(KernelCoding, DamagedDataThrowsOrDecodes) {
  const std::uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const KernelSample& one : everyKernel(device_)) {
    SCOPED_TRACE(one.kernel->className());
    const Bytes bytes = encoded(*one.kernel);
    const auto decode = [&](std::span<const std::byte> data) {
      KeyedUnarchiver unarchiver(data);
      one.decode(unarchiver, other_);
    };
    const std::size_t step = bytes.size() < 1500 ? 1 : 13;
    for (std::size_t length = 0; length < bytes.size(); length += step)
      EXPECT_FALSE(errorOf([&] { decode(std::span(bytes).first(length)); }).empty()) << length << " bytes";
    for (int i = 0; i < 60; ++i) {
      Bytes damaged = bytes;
      for (std::size_t n = random() % 3 + 1; n > 0; --n)
        damaged[random() % damaged.size()] = static_cast<std::byte>(random() % 256);
      errorOf([&] { decode(damaged); });
    }
  }
}

}  // namespace
}  // namespace mps::kernel_coding_test
