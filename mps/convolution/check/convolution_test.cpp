#include "mps/convolution/convolution.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "mps/convolution/check/test_source.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/testing/test_images.hpp"

/// The public convolution kernels.
namespace mps::convolution_test {
namespace {

using testing::ArraySource;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

template <class KernelType>
std::shared_ptr<KernelType> permanent(std::shared_ptr<KernelType> kernel) {
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  return kernel;
}

CNNConvolutionGradientState& gradientState(const std::shared_ptr<State>& state) {
  return dynamic_cast<CNNConvolutionGradientState&>(*state);
}
Values weightGradients(const std::shared_ptr<State>& state) {
  return valuesOf(gradientState(state).gradientForWeights());
}
Values biasGradients(const std::shared_ptr<State>& state) {
  return valuesOf(gradientState(state).gradientForBiases());
}

class Convolution : public testing::DeviceTest {
 protected:
  /// One row, one channel.
  static CNNConvolutionDescriptor row(std::size_t kernel, std::size_t stride = 1, std::size_t dilation = 1) {
    auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, 1, 1, 1);
    descriptor.setStrideInPixelsX(stride);
    descriptor.setDilationRateX(dilation);
    return descriptor;
  }
  std::shared_ptr<Image> rowImage(const Values& values) { return image(sizeOf(values.size(), 1, 1), values); }
  std::shared_ptr<CNNConvolution> forward(const std::shared_ptr<CNNConvolutionDataSource>& source) {
    return permanent(CNNConvolution::create(device_, source));
  }
  std::shared_ptr<CNNConvolutionGradient> backward(const std::shared_ptr<CNNConvolutionDataSource>& source) {
    return permanent(CNNConvolutionGradient::create(device_, source));
  }
  /// Encodes and waits.
  Values resultOf(const std::shared_ptr<CNNConvolution>& kernel, const std::shared_ptr<Image>& source) {
    const auto buffer = commands();
    const auto result = kernel->encode(buffer, source);
    run(buffer);
    return valuesOf(*result);
  }
};

/// An example: one row, one channel, no bias.
struct Example {
  const char* name;
  std::size_t kernel, stride, dilation;
  std::int64_t offset;
  Values in, weights, out, e, dIn, dW;
  float db;
  std::int64_t kernelOffset, secondaryOffset;
};

void PrintTo(const Example& example, std::ostream* stream) {
  *stream << example.name;
}

class ConvolutionExample : public Convolution, public ::testing::WithParamInterface<Example> {
 protected:
  void SetUp() override {
    kernel_->setOffset({example_.offset, 0, 0});
    expectedState_ = [this](const std::shared_ptr<State>& state, float times) {
      Values dW = example_.dW;
      for (float& value : dW) value *= times;
      EXPECT_EQ(weightGradients(state), dW);
      EXPECT_EQ(biasGradients(state), Values{example_.db * times});
    };
  }

  const Example& example_ = GetParam();
  std::shared_ptr<ArraySource> source_ =
      ArraySource::create(row(example_.kernel, example_.stride, example_.dilation), example_.weights);
  std::shared_ptr<CNNConvolution> kernel_ = forward(source_);
  std::shared_ptr<CNNConvolutionGradient> gradient_ = backward(source_);
  std::function<void(const std::shared_ptr<State>&, float)> expectedState_;
};

TEST_P(ConvolutionExample, IntoGivenDestinations) {
  const auto in = rowImage(example_.in);
  const auto out = poisoned(sizeOf(example_.out.size(), 1, 1));
  const auto dIn = poisoned(sizeOf(example_.in.size(), 1, 1));
  const auto state = kernel_->resultState(in);
  const auto buffer = commands();
  kernel_->encode(buffer, in, state, out);
  gradient_->encode(buffer, rowImage(example_.e), in, state, dIn);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), example_.out);
  EXPECT_EQ(valuesOf(*dIn), example_.dIn);
  expectedState_(state, 1);
  EXPECT_EQ(gradient_->kernelOffsetX(), example_.kernelOffset);
  EXPECT_EQ(gradient_->secondaryOffset().x, example_.secondaryOffset);
  EXPECT_EQ(gradient_->primaryOffset().x, 0);
}

TEST_P(ConvolutionExample, ReturnedGradient) {
  const auto in = rowImage(example_.in);
  const auto out = poisoned(sizeOf(example_.out.size(), 1, 1));
  const auto buffer = commands();
  const auto state = kernel_->resultState(in);
  kernel_->encode(buffer, in, state, out);
  const auto dIn = gradient_->encode(buffer, rowImage(example_.e), in, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*dIn), example_.dIn);
  expectedState_(state, 1);
}

TEST_P(ConvolutionExample, ABatchSumsTheWeightGradientsOfItsImages) {
  const std::size_t count = 3;
  const auto repeated = [&](const Values& values) {
    Values all;
    for (std::size_t i = 0; i < count; ++i) all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  const auto batchOf = [&](const Values& values) {
    return batch(sizeOf(values.size(), 1, 1), count, repeated(values));
  };
  const auto read = [&](const ImageBatch& images, std::size_t each) {
    Values values(count * each);
    images.readBytes(std::span(values), testing::pixelsFirst);
    return values;
  };
  const auto in = batchOf(example_.in);
  const auto out = ImageBatch::create(device_, sizeOf(example_.out.size(), 1, 1), count);
  const auto states = kernel_->resultStateBatch(in);
  const auto buffer = commands();
  kernel_->encodeBatch(buffer, in, states, out);
  const auto dIn = gradient_->encodeBatch(buffer, batchOf(example_.e), in, states);
  run(buffer);
  EXPECT_EQ(read(out, example_.out.size()), repeated(example_.out));
  EXPECT_EQ(read(dIn, example_.in.size()), repeated(example_.dIn));
  expectedState_(states[0], 3);
}

INSTANTIATE_TEST_SUITE_P(
    Spec, ConvolutionExample,
    ::testing::Values(
        Example{"C1",
                3,
                2,
                1,
                0,
                {1, 2, 3, 4, 5},
                {1, 10, 100},
                {210, 432, 54},
                {1, 2, 3},
                {10, 102, 20, 203, 30},
                {16, 22, 10},
                6,
                0,
                -1},
        Example{
            "C2", 2, 1, 1, 0, {1, 2, 3}, {1, 10}, {10, 21, 32}, {1, 2, 3}, {12, 23, 30}, {8, 14}, 6, 1, -1},
        Example{"C3",
                2,
                2,
                3,
                1,
                {1, 2, 3, 4, 5, 6},
                {1, 10},
                {30, 52, 4},
                {1, 2, 3},
                {0, 2, 10, 3, 20, 0},
                {16, 13},
                6,
                0,
                -1}),
    [](const auto& info) { return info.param.name; });

TEST_F(Convolution, DefaultPaddingIsSameSize) {
  const auto kernel = forward(ArraySource::create(row(3, 2), {1, 10, 100}));
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto out = kernel->encode(buffer, rowImage({1, 2, 3, 4, 5}), state, false);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), (Values{210, 432, 54}));
  EXPECT_EQ(gradientState(state).sourceWidth(), 5U);
  EXPECT_EQ(gradientState(state).convolution(), kernel);
  EXPECT_FALSE(state->isTemporary());
}

TEST_F(Convolution, PropertiesAndDefaults) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 3, 4, 8);
  EXPECT_EQ(descriptor.strideInPixelsX(), 1U);
  EXPECT_EQ(descriptor.dilationRateY(), 1U);
  EXPECT_EQ(descriptor.groups(), 1U);
  EXPECT_EQ(descriptor.channelMultiplier(), 0U);
  EXPECT_EQ(descriptor.fusedNeuronDescriptor().neuronType(), CNNNeuronType::None);
  descriptor.setGroups(2);
  descriptor.setStrideInPixelsY(3);
  descriptor.setDilationRateX(5);
  const auto source = ArraySource::create(descriptor, Values(2 * 3 * 2 * 8));
  source->name = "layer1";
  const auto kernel = CNNConvolution::create(device_, source);
  EXPECT_EQ(kernel->kernelWidth(), 2U);
  EXPECT_EQ(kernel->kernelHeight(), 3U);
  EXPECT_EQ(kernel->strideInPixelsY(), 3U);
  EXPECT_EQ(kernel->dilationRateX(), 5U);
  EXPECT_EQ(kernel->inputFeatureChannels(), 4U);
  EXPECT_EQ(kernel->outputFeatureChannels(), 8U);
  EXPECT_EQ(kernel->groups(), 2U);
  EXPECT_EQ(kernel->channelMultiplier(), 0U);
  EXPECT_EQ(kernel->label(), "layer1");
  EXPECT_EQ(kernel->dataSource(), source);
  EXPECT_EQ(kernel->edgeMode(), ImageEdgeMode::Zero);
  EXPECT_EQ(kernel->accumulatorPrecisionOption(), NNConvolutionAccumulatorPrecisionOption::Float);
  EXPECT_TRUE(kernel->isResultStateReusedAcrossBatch());
  const auto gradient = CNNConvolutionGradient::create(device_, source);
  EXPECT_EQ(gradient->gradientOption(), CNNConvolutionGradientOption::All);
  EXPECT_EQ(gradient->sourceGradientFeatureChannels(), 8U);
  EXPECT_EQ(gradient->sourceImageFeatureChannels(), 4U);
  EXPECT_EQ(gradient->groups(), 2U);
  EXPECT_EQ(gradient->label(), "layer1");
  EXPECT_TRUE(gradient->isStateModified());
  EXPECT_EQ(gradient->secondaryKernelHeight(), 3U);
  EXPECT_EQ(gradient->secondaryDilationRateX(), 5U);
}

/// Row q, column p, channel c of filter 0 weighs 8^(its index): the octal digits of the sum show where each
/// went.
TEST_F(Convolution, Behaviour18WeightsAreOutputRowColumnInput) {
  const auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 2, 2, 2);
  const auto source = ArraySource::create(
      descriptor, {1, 8, 64, 512, 4096, 32768, 262144, 2097152, 0, 0, 0, 0, 0, 0, 0, 1}, {0, 0.5F});
  const auto kernel = forward(source);
  kernel->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  const auto in = image(sizeOf(2, 2, 2), counted(8, 0));
  EXPECT_EQ(resultOf(kernel, in), (Values{076543210, 7.5F}));
}

/// Output channel k reads the input channels of its own group.
TEST_F(Convolution, GroupsOfAnySize) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 4, 6);
  descriptor.setGroups(2);
  const auto source = ArraySource::create(descriptor, {1, 10, 2, 20, 3, 30, 1, 10, 2, 20, 3, 30});
  const auto in = image(sizeOf(1, 1, 4), {1, 2, 3, 4});
  const auto kernel = forward(source);
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto out = kernel->encode(buffer, in, state, false);
  const auto dIn = backward(source)->encode(buffer, image(sizeOf(1, 1, 6), {1, 1, 1, 1, 0, 0}), in, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), (Values{21, 42, 63, 43, 86, 129}));
  EXPECT_EQ(valuesOf(*dIn), (Values{6, 60, 1, 10}));
  EXPECT_EQ(weightGradients(state), (Values{1, 2, 1, 2, 1, 2, 3, 4, 0, 0, 0, 0}));
}

/// out[c M + m] = W[c M + m] in[c].
TEST_F(Convolution, DepthWiseWithAMultiplier) {
  auto descriptor = CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(2, 1, 2, 4);
  EXPECT_EQ(descriptor.channelMultiplier(), 2U);
  EXPECT_EQ(descriptor.weightCount(), 8U);
  const auto source = ArraySource::create(descriptor, {1, 10, 2, 20, 3, 30, 4, 40});
  const auto kernel = forward(source);
  EXPECT_EQ(kernel->channelMultiplier(), 2U);
  kernel->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
  const auto in = image(sizeOf(2, 1, 2), {1, 2, 3, 4});
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto out = kernel->encode(buffer, in, state, false);
  const auto dIn = backward(source)->encode(buffer, image(sizeOf(1, 1, 4), {1, 0, 1, 2}), in, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), (Values{31, 62, 126, 168}));
  EXPECT_EQ(valuesOf(*dIn), (Values{1, 11, 10, 110}));
  EXPECT_EQ(weightGradients(state), (Values{1, 3, 0, 0, 2, 4, 4, 8}));
  EXPECT_EQ(biasGradients(state), (Values{1, 0, 1, 2}));
}

/// The exact adjoint: the clamped index is read in dW, and written in dIn.
TEST_F(Convolution, GradientThroughClampedEdges) {
  const auto source = ArraySource::create(row(3), {1, 10, 100});
  const auto kernel = forward(source);
  kernel->setEdgeMode(ImageEdgeMode::Clamp);
  const auto in = rowImage({1, 2, 3});
  std::shared_ptr<State> state;
  const auto buffer = commands();
  const auto out = kernel->encode(buffer, in, state, false);
  const auto dIn = backward(source)->encode(buffer, rowImage({1, 2, 3}), in, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), (Values{211, 321, 332}));
  EXPECT_EQ(valuesOf(*dIn), (Values{13, 123, 530}));
  EXPECT_EQ(weightGradients(state), (Values{9, 14, 17}));
}

TEST_F(Convolution, ChannelRangesOfSourceAndDestination) {
  const auto source =
      ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 1), {1, 10}, {100});
  const auto kernel = CNNConvolution::create(device_, source);
  kernel->setSourceFeatureChannelOffset(4);
  kernel->setDestinationFeatureChannelOffset(4);
  const auto in = image(sizeOf(1, 1, 7), counted(7));
  const auto out = poisoned(sizeOf(1, 1, 6));
  const auto state = kernel->resultState(in);
  const auto buffer = commands();
  kernel->encode(buffer, in, state, out);
  const auto dIn = backward(source)->encode(buffer, image(sizeOf(1, 1, 6), {9, 9, 9, 9, 2, 9}), in, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*out), (Values{poison, poison, poison, poison, 165, poison}));
  EXPECT_EQ(valuesOf(*dIn), (Values{0, 0, 0, 0, 2, 20, 0}));
  EXPECT_EQ(weightGradients(state), (Values{10, 12}));
  EXPECT_EQ(biasGradients(state), (Values{2}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(commands(), image(sizeOf(1, 1, 5)), out); }),
                    {"CNNConvolution", "sourceImage", "1 feature channels", "2"}));
}

TEST_F(Convolution, D29ReadsAllChannelsOfItsSource) {
  auto subPixels = CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 4);
  subPixels.setSubPixelScaleFactor(2);
  const std::vector<std::shared_ptr<CNNConvolution>> kernels{
      forward(ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 1), {1, 10})),
      forward(ArraySource::create(CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 2),
                                  {1, 10})),
      forward(ArraySource::create(subPixels, Values(8, 1))),
      permanent(CNNFullyConnected::create(
          device_,
          ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 1), {1, 10})))};
  for (const auto& kernel : kernels) {
    kernel->setLabel("conv1");
    const auto errorWith = [&](std::size_t channels) {
      return errorOf([&] { kernel->encode(commands(), image(sizeOf(1, 1, channels), Values(channels))); });
    };
    const std::string name = kernel->className() + " \"conv1\"";
    EXPECT_EQ(errorWith(2), "") << name;
    EXPECT_TRUE(names(errorWith(3), {name, "sourceImage", "3 feature channels", "expected 2",
                                     "inputFeatureChannels", "channelAlignment"}));
    EXPECT_TRUE(names(errorWith(1), {name, "sourceImage", "1 feature channels", "expected 2"}));
    kernel->setSourceFeatureChannelMaxCount(2);
    EXPECT_EQ(errorWith(3), "") << name << ": the user says that the rest stays unread";
    EXPECT_TRUE(names(errorWith(1), {name, "1 feature channels", "at least 2"}));
    kernel->setSourceFeatureChannelMaxCount(1);
    EXPECT_TRUE(names(errorWith(3), {name, "1 feature channels", "at least 2"}));
    kernel->setSourceFeatureChannelMaxCount(std::numeric_limits<std::size_t>::max());
    kernel->setSourceFeatureChannelOffset(4);
    EXPECT_EQ(errorWith(7), "") << name;
    EXPECT_TRUE(names(errorWith(5), {name, "1 feature channels from sourceFeatureChannelOffset 4"}));
  }
}

TEST_F(Convolution, AFusedNeuronIsAppliedToTheResultAndRefusedByTheGradient) {
  auto descriptor = row(1);
  descriptor.setFusedNeuronDescriptor(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F));
  const auto source = ArraySource::create(descriptor, {2}, {-6});
  const auto kernel = forward(source);
  EXPECT_EQ(kernel->fusedNeuronDescriptor().neuronType(), CNNNeuronType::ReLU);
  const auto in = rowImage({1, 3, 5});
  EXPECT_EQ(resultOf(kernel, in), (Values{-2, 0, 4}));
  std::shared_ptr<State> state;
  const auto buffer = commands();
  kernel->encode(buffer, in, state, false);
  EXPECT_TRUE(names(errorOf([&] { backward(source)->encode(buffer, in, in, state); }),
                    {"CNNConvolutionGradient", "gradientState", "fused neuron"}));
}

TEST_F(Convolution, AFusedPReLUHasASlopeForEachChannel) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 2);
  const auto of = [&](const Values& slopes) {
    descriptor.setFusedNeuronDescriptor(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes));
    return ArraySource::create(descriptor, {1, 2});
  };
  EXPECT_EQ(resultOf(forward(of({0.5F, 0.25F})), rowImage({-4})), (Values{-2, -2}));
  EXPECT_TRUE(names(errorOf([&] { forward(of({0.5F})); }),
                    {"CNNConvolution", "fusedNeuronDescriptor", "1 slopes", "at least 2"}));
}

/// W' = W gamma / sqrt(variance + epsilon), b' = (b - mean) gamma / sqrt(variance + epsilon) + beta.
TEST_F(Convolution, FoldedNormalisationIsForInference) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 2);
  const Values mean{1, 2}, variance{3, 15}, gamma{4, 8}, beta{10, 20};
  descriptor.setBatchNormalizationParametersForInference(mean, variance, gamma, beta, 1);
  const auto source = ArraySource::create(descriptor, {1, 3}, {5, 6});
  const auto in = rowImage({2});
  EXPECT_EQ(resultOf(forward(source), in), (Values{(2 + 5 - 1) * 2 + 10, (6 + 6 - 2) * 2 + 20}));
  source->shape.setBatchNormalizationParametersForInference({}, variance, {}, {}, 1);
  source->biases.clear();
  EXPECT_EQ(resultOf(forward(source), in), (Values{1, 1.5F})) << "mean 0, gamma 1, beta 0, no bias";

  std::shared_ptr<State> state;
  const auto buffer = commands();
  forward(source)->encode(buffer, in, state, false);
  EXPECT_TRUE(names(errorOf([&] { backward(source)->encode(buffer, image(sizeOf(1, 1, 2)), in, state); }),
                    {"CNNConvolutionGradient", "gradientState", "normalisation"}));
  EXPECT_TRUE(
      names(errorOf([&] {
              source->shape.setBatchNormalizationParametersForInference(Values{1, 2, 3}, {}, {}, {}, 0);
            }),
            {"CNNConvolutionDescriptor", "mean", "3", "2"}));
}

TEST_F(Convolution, HalfAndByteWeightsAreDecoded) {
  const auto in = rowImage({1});
  const auto source = ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 3), {});
  source->type = DataType::Float16;
  source->bytes.resize(6);
  for (std::size_t i = 0; i < 3; ++i) {
    const Float16 half = toFloat16(static_cast<float>(i) + 0.5F);
    std::memcpy(source->bytes.data() + 2 * i, &half, 2);
  }
  EXPECT_EQ(resultOf(forward(source), in), (Values{0.5F, 1.5F, 2.5F}));

  source->type = DataType::UInt8;
  source->bytes = {std::byte{0}, std::byte{51}, std::byte{255}};
  source->quantization = CNNWeightsQuantizationType::Linear;
  source->ranges = {{-3, 5}, {0, 10}, {1, 4}};
  EXPECT_EQ(resultOf(forward(source), in), (Values{-3, 2, 4})) << "u / 255 (max - min) + min";

  source->quantization = CNNWeightsQuantizationType::LookupTable;
  source->table = counted(256, 1000);
  EXPECT_EQ(resultOf(forward(source), in), (Values{1000, 1051, 1255}));

  source->ranges.pop_back();
  source->quantization = CNNWeightsQuantizationType::Linear;
  EXPECT_TRUE(names(errorOf([&] { forward(source); }), {"CNNConvolution", "rangesForUInt8Kernel", "2", "3"}));
  source->quantization = CNNWeightsQuantizationType::None;
  EXPECT_TRUE(names(errorOf([&] { forward(source); }), {"CNNConvolution", "weightsQuantizationType"}));
  source->quantization = CNNWeightsQuantizationType::LookupTable;
  source->table.pop_back();
  EXPECT_TRUE(names(errorOf([&] { forward(source); }), {"CNNConvolution", "weightsQuantizationType", "256"}));
  source->type = DataType::Int8;
  EXPECT_TRUE(names(errorOf([&] { forward(source); }), {"CNNConvolution", "dataType", "Int8", "Float32"}));
}

TEST_F(Convolution, DescriptorsAreChecked) {
  const auto make = [](std::size_t width, std::size_t height, std::size_t in, std::size_t out) {
    return errorOf([&] { CNNConvolutionDescriptor::cnnConvolutionDescriptor(width, height, in, out); });
  };
  EXPECT_TRUE(names(make(0, 1, 1, 1), {"CNNConvolutionDescriptor", "kernelWidth", "0", "1 to 2147483647"}));
  EXPECT_TRUE(names(make(1, 0, 1, 1), {"kernelHeight"}));
  EXPECT_TRUE(names(make(1, 1, 0, 1), {"inputFeatureChannels"}));
  EXPECT_TRUE(names(make(1, 1, 1, 0), {"outputFeatureChannels"}));
  const std::size_t large = 1U << 30U;
  EXPECT_TRUE(names(errorOf([&] {
                      forward(ArraySource::create(
                          CNNConvolutionDescriptor::cnnConvolutionDescriptor(large, large, 1, 8), {}));
                    }),
                    {"CNNConvolution", "weights", "2^60"}));
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1);
  using Setter = void (CNNConvolutionDescriptor::*)(std::size_t);
  const std::vector<std::pair<Setter, const char*>> setters = {
      {&CNNConvolutionDescriptor::setKernelWidth, "kernelWidth"},
      {&CNNConvolutionDescriptor::setKernelHeight, "kernelHeight"},
      {&CNNConvolutionDescriptor::setInputFeatureChannels, "inputFeatureChannels"},
      {&CNNConvolutionDescriptor::setOutputFeatureChannels, "outputFeatureChannels"},
      {&CNNConvolutionDescriptor::setStrideInPixelsX, "strideInPixelsX"},
      {&CNNConvolutionDescriptor::setStrideInPixelsY, "strideInPixelsY"},
      {&CNNConvolutionDescriptor::setGroups, "groups"},
      {&CNNConvolutionDescriptor::setDilationRateX, "dilationRateX"},
      {&CNNConvolutionDescriptor::setDilationRateY, "dilationRateY"}};
  for (const auto& [setter, property] : setters)
    for (const std::size_t value : {std::size_t{0}, std::size_t{1} << 31U}) {
      const std::string error = errorOf([&, set = setter] { (descriptor.*set)(value); });
      EXPECT_TRUE(names(error, {"CNNConvolutionDescriptor", property, std::to_string(value)}));
    }
  EXPECT_TRUE(names(errorOf([] { CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 4, 6); }),
                    {"CNNConvolutionDescriptor", "outputFeatureChannels", "6", "4"}));

  // Properties may be set in any order, so the kernel checks how they fit together.
  const auto refused = [&](auto change) {
    auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 4, 8);
    change(descriptor);
    return errorOf([&] { forward(ArraySource::create(descriptor, Values(32))); });
  };
  EXPECT_TRUE(names(refused([](auto& d) { d.setGroups(3); }), {"CNNConvolution", "groups", "3", "4", "8"}));
  EXPECT_TRUE(names(refused([](auto& d) {
                      d.setBatchNormalizationParametersForInference({}, {}, {}, {}, 1);
                      d.setOutputFeatureChannels(9);
                    }),
                    {"outputFeatureChannels", "9", "8"}));

  const auto depthWise = [&](auto change) {
    CNNConvolutionDescriptor descriptor =
        CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 4, 8);
    change(descriptor);
    return errorOf([&] { forward(ArraySource::create(descriptor, Values(descriptor.weightCount()))); });
  };
  EXPECT_TRUE(names(depthWise([](auto& d) { d.setGroups(2); }), {"groups", "2", "1"}));
  EXPECT_TRUE(names(depthWise([](auto& d) { d.setOutputFeatureChannels(6); }),
                    {"CNNConvolution", "outputFeatureChannels", "6", "4"}));
  EXPECT_EQ(depthWise([](auto& d) { d.setOutputFeatureChannels(12); }), "") << "the multiplier follows";
}

TEST_F(Convolution, DataSourcesAreCheckedLoadedAndPurged) {
  const auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 1, 3, 4);
  const auto source = ArraySource::create(descriptor, Values(24), Values(4));
  CNNConvolution::create(device_, source);
  EXPECT_EQ(source->loads, 1);
  EXPECT_EQ(source->purges, 1);

  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(device_, nullptr); }),
                    {"CNNConvolution", "weights", "null", "a data source"}));
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionGradient::create(device_, nullptr); }),
                    {"CNNConvolutionGradient", "weights", "null"}));
  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(nullptr, source); }), {"device", "null"}));
  source->biases.resize(3);
  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(device_, source); }),
                    {"CNNConvolution", "biasTerms", "3 values", "4 or none"}));
  source->biases.clear();
  source->bytes.resize(95);
  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(device_, source); }),
                    {"CNNConvolution", "weights", "95 bytes", "96", "2x1"}));
  EXPECT_EQ(source->loads, source->purges) << "also when it throws";
  source->loadsWell = false;
  source->name = "layer1";
  EXPECT_TRUE(names(errorOf([&] { CNNConvolution::create(device_, source); }),
                    {"CNNConvolution", "layer1", "load() failed"}));
}

/// docs/decisions.md, D7: with a given destination, what the user set counts.
TEST_F(Convolution, D7OffsetsThatTheUserSetAreUsed) {
  const auto source = ArraySource::create(row(3), {1, 10, 100});
  const auto in = rowImage({1, 2, 3});
  const auto state = forward(source)->resultState(in);
  const auto gradient = backward(source);
  const auto dIn = poisoned(sizeOf(3, 1, 1));
  const auto buffer = commands();
  forward(source)->encode(buffer, in, state, poisoned(sizeOf(3, 1, 1)));
  gradient->setKernelOffsetX(1);  // reads one further to the right
  gradient->setSecondaryOffset({0, 0, 0});
  gradient->encode(buffer, rowImage({1, 2, 3}), in, state, dIn);
  run(buffer);
  EXPECT_EQ(valuesOf(*dIn), (Values{123, 230, 300})) << "in place it would be 12, 123, 230";
  EXPECT_EQ(weightGradients(state), (Values{1 + 4 + 9, 2 + 6, 3})) << "first tap at pixel x instead of x - 1";
}

TEST_F(Convolution, D7StridesThatTheUserSetAreUsed) {
  const auto source = ArraySource::create(row(1, 2), {7});
  const auto in = rowImage({1, 2, 3, 4});
  const auto state = forward(source)->resultState(in);
  const auto gradient = backward(source);
  const auto dIn = poisoned(sizeOf(4, 1, 1));
  const auto buffer = commands();
  forward(source)->encode(buffer, in, state, poisoned(sizeOf(2, 1, 1)));
  gradient->setPrimaryStrideInPixelsX(3);
  gradient->setSecondaryStrideInPixelsX(1);
  gradient->encode(buffer, rowImage({1, 10}), in, state, dIn);
  run(buffer);
  EXPECT_EQ(valuesOf(*dIn), (Values{7, 0, 0, 70}));
  EXPECT_EQ(weightGradients(state), (Values{21}));
}

}  // namespace
}  // namespace mps::convolution_test
