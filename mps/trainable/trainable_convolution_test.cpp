#include "mps/trainable/trainable_convolution.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mps/conform/tolerance.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/weights/safetensors.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::trainable_convolution_test {
namespace {

std::vector<float> weightsOf(const TrainableConvolution& convolution) {
  std::vector<float> values(convolution.weights().size() / sizeof(float));
  std::memcpy(values.data(), convolution.weights().data(), convolution.weights().size());
  return values;
}

class TrainableConvolutionTest : public ::testing::Test {
 protected:
  std::shared_ptr<TrainableConvolution> make(std::uint64_t seed,
                                             WeightInitialization initialization = WeightInitialization::He) {
    return TrainableConvolution::create(device_, descriptor_, "layer", seed, nullptr, initialization);
  }
  std::shared_ptr<mtl::Device> device_ = mtl::createSystemDefaultDevice();
  // 3x3 windows of 4 channels: fanIn = 36, fanOut = 54.
  CNNConvolutionDescriptor descriptor_ = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 4, 6);
};

TEST_F(TrainableConvolutionTest, D23HeStaysWithinItsBoundAndComesNearIt) {
  const auto values = weightsOf(*make(7));
  ASSERT_EQ(values.size(), 216U);
  const auto bound = static_cast<float>(std::sqrt(6.0 / 36));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -bound);
  EXPECT_LE(*most, bound);
  EXPECT_LT(*least, -bound / 2);
  EXPECT_GT(*most, bound / 2);
}

TEST_F(TrainableConvolutionTest, D23GlorotDividesByBothFans) {
  const auto values = weightsOf(*make(7, WeightInitialization::Glorot));
  const auto bound = static_cast<float>(std::sqrt(6.0 / (36 + 54)));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*least, -bound);
  EXPECT_LE(*most, bound);
  EXPECT_GT(*most, bound / 2);
}

TEST_F(TrainableConvolutionTest, D23ConstantGivesOneValueAndBiasesStartAtZero) {
  const auto convolution = make(7, WeightInitialization::Constant);
  for (const float value : weightsOf(*convolution)) EXPECT_EQ(value, TrainableConvolution::constantWeight);
  for (const float value : convolution->biasTerms()) EXPECT_EQ(value, 0);
}

TEST_F(TrainableConvolutionTest, D23TheSeedDecidesTheWeights) {
  EXPECT_EQ(weightsOf(*make(7)), weightsOf(*make(7)));
  EXPECT_NE(weightsOf(*make(7)), weightsOf(*make(8)));
}

TEST_F(TrainableConvolutionTest, D23WeightsComeBackFromAFile) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  const auto written = make(7);
  writeSafetensors(path, written->tensors(false), {});
  const auto read = make(8);
  read->read(SafetensorsFile::read(path), false);
  EXPECT_EQ(weightsOf(*read), weightsOf(*written));
}

/// A file in PyTorch's order whose weights say where they belong: out, row, column, in as decimal digits.
SafetensorsFile writtenByPyTorch(const std::filesystem::path& path, const std::vector<std::uint64_t>& shape,
                                 const CNNConvolutionDescriptor& descriptor, std::size_t biases) {
  std::vector<float> weights;
  const std::size_t inputs =
      descriptor.weightsPerOutputChannel() / (descriptor.kernelWidth() * descriptor.kernelHeight());
  for (std::size_t out = 0; out < descriptor.outputFeatureChannels(); ++out)
    for (std::size_t in = 0; in < inputs; ++in)
      for (std::size_t y = 0; y < descriptor.kernelHeight(); ++y)
        for (std::size_t x = 0; x < descriptor.kernelWidth(); ++x)
          weights.push_back(static_cast<float>(1000 * out + 100 * y + 10 * x + in));
  const std::vector<float> terms(biases, 7);
  writeSafetensors(path,
                   {{"layer.weight", DataType::Float32, shape, std::as_bytes(std::span(weights))},
                    {"layer.bias", DataType::Float32, {biases}, std::as_bytes(std::span(terms))}},
                   {});
  return SafetensorsFile::read(path);
}

TEST_F(TrainableConvolutionTest, PyTorchsWeightsAreTakenInOurOrder) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  const auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 3, 5, 4);
  const auto makeLayer = [&] {
    return TrainableConvolution::create(device_, descriptor, "layer", 1, nullptr);
  };
  for (const std::vector<std::uint64_t>& shape : {std::vector<std::uint64_t>{4, 5, 3, 2}, {4, 30}}) {
    const auto layer = makeLayer();
    layer->readFromPyTorch(writtenByPyTorch(path, shape, descriptor, 4));
    const auto weights = weightsOf(*layer);
    for (std::size_t i = 0; i < weights.size(); ++i)
      ASSERT_EQ(weights[i], 1000 * (i / 30) + 100 * (i / 10 % 3) + 10 * (i / 5 % 2) + i % 5) << i;
    for (const float bias : layer->biasTerms()) EXPECT_EQ(bias, 7);
  }
  const auto layer = makeLayer();
  const auto before = weightsOf(*layer);
  for (const auto& [shape, biases] : {std::pair<std::vector<std::uint64_t>, std::size_t>{{4, 3, 2, 5}, 4},
                                      {{30, 4}, 4},
                                      {{4, 5, 3, 2}, 3},
                                      {{120}, 4}})
    EXPECT_THROW(layer->readFromPyTorch(writtenByPyTorch(path, shape, descriptor, biases)), Error);
  EXPECT_EQ(weightsOf(*layer), before);
}

TEST_F(TrainableConvolutionTest, RefusesAMissingDevice) {
  EXPECT_THROW(TrainableConvolution::create(nullptr, descriptor_, "layer", 1, nullptr), Error);
}

TEST_F(TrainableConvolutionTest, RefusesAFileOfAnotherShape) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  writeSafetensors(path, make(7)->tensors(false), {});
  descriptor_.setOutputFeatureChannels(7);
  const auto other = make(8);
  const auto before = weightsOf(*other);
  EXPECT_THROW(other->read(SafetensorsFile::read(path), false), Error);
  EXPECT_EQ(weightsOf(*other), before);
}

struct UpdateRule {
  const char* name;
  std::shared_ptr<NNOptimizer> optimizer;
  AdamForm form;
  double change;  ///< of a value, by three updates
  std::vector<std::string> tensors;
};

/// Learning rate 0.1, gradients 0.5, -0.25, 1.
std::vector<UpdateRule> updateRules(const std::shared_ptr<mtl::Device>& device) {
  NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(0.1F);
  using SGD = NNOptimizerStochasticGradientDescent;
  const auto adam = [&](double beta2) {
    return NNOptimizerAdam::create(device, 0.9, beta2, 1e-8F, 0, descriptor);
  };
  return {
      {"SGD", SGD::create(device, 0.1F), AdamForm::Adam, 0.875 - 1, {}},
      {"momentum", SGD::create(device, 0.9F, false, descriptor), AdamForm::Adam, 0.812 - 1, {"momentum"}},
      {"Nesterov", SGD::create(device, 0.9F, true, descriptor), AdamForm::Adam, 0.7058 - 1, {"momentum"}},
      {"RMSProp",
       NNOptimizerRMSProp::create(device, 0.9, 1e-8F, descriptor),
       AdamForm::Adam,
       0.549356 - 1,
       {"sumOfSquares"}},
      {"Adam", adam(0.999), AdamForm::Adam, 0.807555 - 1, {"momentum", "velocity", "step"}},
      {"AMSGrad",
       adam(0.5),
       AdamForm::AMSGrad,
       0.819139 - 1,
       {"momentum", "velocity", "maximumVelocity", "step"}},
  };
}

/// Updates weights and biases with the gradient `value` for each of them.
void updateWith(const std::shared_ptr<mtl::Device>& device, TrainableConvolution& layer, float value) {
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  const auto gradient =
      CNNConvolutionGradientState::create(device, nullptr, layer.descriptor(), nullptr, true);
  for (const auto& buffer : {gradient->gradientForWeights(), gradient->gradientForBiases()}) {
    std::ranges::fill(buffer->contentsAs<float>(), value);
    buffer->didModifyRange(0, buffer->length());
  }
  layer.update(commandBuffer, gradient, layer.deviceWeightsAndBiases(device));
  layer.synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

TEST_F(TrainableConvolutionTest, D23EachOptimizerUpdatesWeightsAndBiases) {
  constexpr double printed = 0.5e-6;  // section 13.7 has six digits
  const double within = printed + detail::arithmeticBound(1, 30, 3);
  for (const UpdateRule& rule : updateRules(device_)) {
    const auto layer = TrainableConvolution::create(device_, descriptor_, "layer", 1, rule.optimizer,
                                                    WeightInitialization::Constant, rule.form);
    for (const float gradient : {0.5F, -0.25F, 1.0F}) updateWith(device_, *layer, gradient);
    for (const float weight : weightsOf(*layer))
      ASSERT_NEAR(weight, TrainableConvolution::constantWeight + rule.change, within) << rule.name;
    for (const float bias : layer->biasTerms()) ASSERT_NEAR(bias, rule.change, within) << rule.name;
  }
}

TEST_F(TrainableConvolutionTest, OptimizerStateComesBackFromAFileAndInACopy) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  for (const UpdateRule& rule : updateRules(device_)) {
    const auto make = [&](std::uint64_t seed) {
      return TrainableConvolution::create(device_, descriptor_, "layer", seed, rule.optimizer,
                                          WeightInitialization::He, rule.form);
    };
    const auto layer = make(1);
    for (const float gradient : {0.5F, -0.25F}) updateWith(device_, *layer, gradient);
    writeSafetensors(path, layer->tensors(true), {});
    std::vector<std::string> names{"layer.weight", "layer.bias"};
    for (const std::string& tensor : rule.tensors) {
      if (tensor != "step") names.push_back("layer.weight." + tensor);
      names.push_back(tensor == "step" ? "layer.step" : "layer.bias." + tensor);
    }
    const SafetensorsFile file = SafetensorsFile::read(path);
    EXPECT_EQ(file.tensors().size(), names.size()) << rule.name;
    for (const std::string& name : names) EXPECT_TRUE(file.contains(name)) << rule.name << " " << name;

    const auto copy = std::static_pointer_cast<TrainableConvolution>(layer->copy(device_));
    const auto read = make(2);
    read->read(file, true);
    const auto weightsOnly = make(2);
    weightsOnly->read(file, false);
    for (const auto& each : {layer, copy, read, weightsOnly}) updateWith(device_, *each, 1);
    EXPECT_EQ(weightsOf(*copy), weightsOf(*layer)) << rule.name;
    EXPECT_EQ(weightsOf(*read), weightsOf(*layer)) << rule.name;
    EXPECT_EQ(weightsOf(*weightsOnly) == weightsOf(*layer), rule.tensors.empty()) << rule.name;
  }
}

TEST_F(TrainableConvolutionTest, ALayerWithoutBiasesUpdatesItsWeightsAlone) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  for (const UpdateRule& rule : updateRules(device_)) {
    const auto make = [&](LayerBiases biases) {
      return TrainableConvolution::create(device_, descriptor_, "layer", 1, rule.optimizer,
                                          WeightInitialization::He, rule.form, biases);
    };
    const auto layer = make(LayerBiases::None);
    const auto withBiases = make(LayerBiases::Trained);
    for (const auto& each : {layer, withBiases}) updateWith(device_, *each, 0.5F);
    EXPECT_TRUE(layer->biasTerms().empty());
    EXPECT_EQ(weightsOf(*layer), weightsOf(*withBiases)) << rule.name;

    writeSafetensors(path, layer->tensors(true), {});
    const SafetensorsFile file = SafetensorsFile::read(path);
    EXPECT_EQ(file.tensors().size(), 1 + rule.tensors.size()) << rule.name;
    EXPECT_FALSE(file.contains("layer.bias"));
    const auto read = make(LayerBiases::None);
    read->read(file, true);
    const auto copy = std::static_pointer_cast<TrainableConvolution>(layer->copy(device_));
    EXPECT_TRUE(copy->biasTerms().empty());
    for (const auto& each : {layer, read, copy}) updateWith(device_, *each, 1);
    EXPECT_EQ(weightsOf(*read), weightsOf(*layer)) << rule.name;
    EXPECT_EQ(weightsOf(*copy), weightsOf(*layer)) << rule.name;
  }
}

TEST_F(TrainableConvolutionTest, AFileWithoutOptimizerStateChangesNothing) {
  const detail::TestFolder folder;
  const auto path = folder / "layer.safetensors";
  writeSafetensors(path, make(7)->tensors(true), {});
  const auto layer =
      TrainableConvolution::create(device_, descriptor_, "layer", 8, NNOptimizerAdam::create(device_, 0.1F));
  const auto before = weightsOf(*layer);
  EXPECT_THROW(layer->read(SafetensorsFile::read(path), true), Error);
  EXPECT_EQ(weightsOf(*layer), before);
}

TEST_F(TrainableConvolutionTest, D23AFrozenLayerAndOneWithoutOptimizerStay) {
  const auto frozen =
      TrainableConvolution::create(device_, descriptor_, "layer", 1, NNOptimizerAdam::create(device_, 0.1F));
  EXPECT_FALSE(frozen->isFrozen());
  frozen->setFrozen(true);
  for (const auto& layer : {frozen, make(1)}) {
    const auto before = weightsOf(*layer);
    updateWith(device_, *layer, 1);
    EXPECT_EQ(weightsOf(*layer), before);
  }
}

TEST_F(TrainableConvolutionTest, AMSGradIsAFormOfAdam) {
  const auto create = [&](const std::shared_ptr<NNOptimizer>& optimizer) {
    TrainableConvolution::create(device_, descriptor_, "layer", 1, optimizer, WeightInitialization::He,
                                 AdamForm::AMSGrad);
  };
  EXPECT_NO_THROW(create(NNOptimizerAdam::create(device_, 0.1F)));
  EXPECT_THROW(create(NNOptimizerRMSProp::create(device_, 0.1F)), Error);
  EXPECT_THROW(create(nullptr), Error);
}

TEST_F(TrainableConvolutionTest, RefusesAnOptimizerThatItDoesNotKnow) {
  class OwnOptimizer final : public NNOptimizer {
   public:
    explicit OwnOptimizer(const std::shared_ptr<mtl::Device>& device) : NNOptimizer(device, {}) {}
    [[nodiscard]] std::string className() const override { return "OwnOptimizer"; }

   protected:
    [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
      return std::make_shared<OwnOptimizer>(*this);
    }
  };
  const auto own = std::make_shared<OwnOptimizer>(device_);
  EXPECT_THROW(TrainableConvolution::create(device_, descriptor_, "layer", 1, own), Error);
}

}  // namespace
}  // namespace mps::trainable_convolution_test
