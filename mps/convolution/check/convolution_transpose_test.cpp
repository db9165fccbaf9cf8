#include "mps/convolution/convolution_transpose.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "mps/convolution/check/test_source.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_node.hpp"
#include "mps/core/image/forward_record.hpp"
#include "mps/core/testing/test_images.hpp"

/// The public kernels of transposed convolution.
namespace mps::convolution_transpose_test {
namespace {

using testing::ArraySource;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

CNNConvolutionTransposeGradientState& stateOf(const std::shared_ptr<State>& state) {
  return dynamic_cast<CNNConvolutionTransposeGradientState&>(*state);
}

/// Of one row of pixels.
CNNConvolutionDescriptor rowDescriptor(std::size_t kernel, std::size_t stride, std::size_t dilation = 1) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, 1, 1, 1);
  descriptor.setStrideInPixelsX(stride);
  descriptor.setDilationRateX(dilation);
  return descriptor;
}

Values reversed(Values values) {
  return {values.rbegin(), values.rend()};
}

class ConvolutionTranspose : public testing::DeviceTest {
 protected:
  /// One channel.
  std::shared_ptr<CNNConvolutionTranspose> row(std::size_t kernel, std::size_t stride, const Values& weights,
                                               NNPaddingMethod size = NNPaddingMethod::SizeSame,
                                               std::size_t dilation = 1) {
    auto made = CNNConvolutionTranspose::create(
        device_, ArraySource::create(rowDescriptor(kernel, stride, dilation), weights));
    made->setPadding(NNDefaultPadding::padding(size));
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  std::shared_ptr<CNNConvolutionTransposeGradient> gradientOf(const CNNConvolutionTranspose& kernel) {
    auto made = CNNConvolutionTransposeGradient::create(device_, kernel.dataSource());
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  std::shared_ptr<Image> rowImage(const Values& values) { return image(sizeOf(values.size(), 1, 1), values); }
  template <class... Arguments>
  Values resultOf(CNNConvolutionTranspose& kernel, const Arguments&... arguments) {
    const auto buffer = commands();
    const auto result = kernel.encode(buffer, arguments...);
    run(buffer);
    return valuesOf(*result);
  }
  /// The state of a convolution of a row of `size` pixels.
  std::shared_ptr<State> stateOfConvolution(CNNConvolution& kernel, std::size_t size) {
    const auto buffer = commands();
    std::shared_ptr<State> state;
    kernel.encode(buffer, rowImage(Values(size, 1)), state, false);
    run(buffer);
    return state;
  }

  const Values weights_{1, 10, 100};
};

TEST_F(ConvolutionTranspose, D29ReadsAllChannelsOfItsSource) {
  const auto kernel = CNNConvolutionTranspose::create(
      device_, ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 1), {1, 10}));
  kernel->setLabel("up");
  const auto errorWith = [&](std::size_t channels) {
    return errorOf([&] { kernel->encode(commands(), image(sizeOf(1, 1, channels), Values(channels))); });
  };
  EXPECT_EQ(errorWith(2), "");
  EXPECT_TRUE(names(errorWith(3), {"CNNConvolutionTranspose \"up\"", "sourceImage", "3 feature channels",
                                   "expected 2", "inputFeatureChannels"}));
  kernel->setSourceFeatureChannelMaxCount(2);
  EXPECT_EQ(errorWith(3), "");
}

TEST_F(ConvolutionTranspose, ExampleT1) {
  EXPECT_EQ(resultOf(*row(3, 2, weights_), rowImage({1, 2})), (Values{10, 201, 20}));
  EXPECT_EQ(resultOf(*row(3, 2, weights_, NNPaddingMethod::SizeFull), rowImage({1, 2})),
            (Values{100, 10, 201, 20, 2}));
  EXPECT_EQ(resultOf(*row(3, 2, weights_, NNPaddingMethod::SizeValidOnly), rowImage({1, 2, 3})),
            (Values{201, 20, 302}));
}

TEST_F(ConvolutionTranspose, ExampleT1Gradient) {
  const auto kernel = row(3, 2, weights_);
  const auto gradient = gradientOf(*kernel);
  const auto in = rowImage({1, 2});
  const auto buffer = commands();
  std::shared_ptr<State> state;
  kernel->encode(buffer, in, state, false);
  const auto returned = gradient->encode(buffer, rowImage({1, 2, 3}), in, state);
  const auto given = poisoned(sizeOf(2, 1, 1));
  gradient->encode(buffer, rowImage({1, 2, 3}), in, state, given);
  run(buffer);
  EXPECT_EQ(valuesOf(*returned), (Values{12, 230}));
  EXPECT_EQ(valuesOf(*given), (Values{12, 230}));
  EXPECT_EQ(testing::valuesOf(stateOf(state).gradientForWeights()), (Values{4, 14, 8}))
      << "two encodes add up";
  EXPECT_EQ(testing::valuesOf(stateOf(state).gradientForBiases()), (Values{12}));
  EXPECT_EQ(stateOf(state).convolutionTranspose(), kernel);
  EXPECT_EQ(stateOf(state).convolution(), nullptr);
  EXPECT_EQ(stateOf(state).sourceWidth(), 2U);
}

TEST_F(ConvolutionTranspose, PropertiesAndDefaults) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 2, 4, 6);
  descriptor.setStrideInPixelsX(2);
  descriptor.setStrideInPixelsY(3);
  descriptor.setDilationRateX(4);
  descriptor.setDilationRateY(5);
  descriptor.setGroups(2);
  const auto source = ArraySource::create(descriptor, Values(3 * 2 * 2 * 6));
  source->name = "up";
  const auto kernel = CNNConvolutionTranspose::create(device_, source);
  EXPECT_TRUE(kernel->isBackwards());
  EXPECT_TRUE(kernel->isResultStateReusedAcrossBatch());
  EXPECT_EQ(kernel->label(), "up");
  EXPECT_EQ(kernel->dataSource(), source);
  EXPECT_EQ(kernel->inputFeatureChannels(), 4U);
  EXPECT_EQ(kernel->outputFeatureChannels(), 6U);
  EXPECT_EQ(kernel->groups(), 2U);
  EXPECT_EQ(kernel->kernelOffsetX(), 0);
  EXPECT_EQ(kernel->kernelOffsetY(), 0);
  EXPECT_EQ(kernel->accumulatorPrecisionOption(), NNConvolutionAccumulatorPrecisionOption::Float);
  EXPECT_EQ(kernel->kernelWidth(), 3U);
  EXPECT_EQ(kernel->kernelHeight(), 2U);
  EXPECT_EQ(kernel->strideInPixelsX(), 2U);
  EXPECT_EQ(kernel->strideInPixelsY(), 3U);
  EXPECT_EQ(kernel->dilationRateX(), 4U);
  EXPECT_EQ(kernel->dilationRateY(), 5U);
  const auto gradient = gradientOf(*kernel);
  EXPECT_EQ(gradient->gradientOption(), CNNConvolutionGradientOption::All);
  EXPECT_EQ(gradient->sourceGradientFeatureChannels(), 6U);
  EXPECT_EQ(gradient->sourceImageFeatureChannels(), 4U);
  EXPECT_EQ(gradient->groups(), 2U);
  EXPECT_TRUE(gradient->isStateModified());
}

/// The rows of the even-kernel trap. The result is right where kernelOffset is as needed.
TEST_F(ConvolutionTranspose, D19SizesByPolicyAndTheInverseOfAPolicy) {
  struct Row {
    std::size_t kernel;
    NNPaddingMethod forward;
    std::int64_t needed;
  };
  const auto bottomRight = NNPaddingMethod::AddRemainderToBottomRight;
  for (const Row& line :
       {Row{2, NNPaddingMethod::SizeSame, 1}, Row{2, NNPaddingMethod::SizeSame | bottomRight, 0},
        Row{4, NNPaddingMethod::SizeSame, 1}, Row{3, NNPaddingMethod::SizeSame, 0},
        Row{5, NNPaddingMethod::SizeSame | bottomRight, 0}}) {
    const auto kernel = row(line.kernel, 1, Values(line.kernel, 1));
    kernel->setPadding(NNDefaultPadding::padding(line.forward)->inverse());
    resultOf(*kernel, rowImage({1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(kernel->kernelOffsetX(), line.needed) << line.kernel;
    EXPECT_EQ(kernel->offset(), Offset{});
  }
}

/// With rotated weights, and placed by the convolution's state, it is the convolution's data gradient.
TEST_F(ConvolutionTranspose, TheStateOfAConvolutionSizesAndPlacesTheResult) {
  for (const std::size_t kernel : {1U, 2U, 3U, 4U})
    for (const std::size_t stride : {1U, 2U, 3U})
      for (const std::size_t dilation : {1U, 2U})
        for (const std::size_t size : {8U, 9U, 10U})
          for (const auto method :
               {NNPaddingMethod::SizeSame, NNPaddingMethod::SizeValidOnly, NNPaddingMethod::SizeFull,
                NNPaddingMethod::SizeSame | NNPaddingMethod::AddRemainderToBottomRight}) {
            SCOPED_TRACE(::testing::Message() << kernel << " " << stride << " " << dilation << " " << size
                                              << " " << static_cast<int>(method));
            const Values weights = counted(kernel);
            const auto source = ArraySource::create(rowDescriptor(kernel, stride, dilation), weights);
            const auto convolution = CNNConvolution::create(device_, source);
            convolution->setPadding(NNDefaultPadding::padding(method));
            const auto state = stateOfConvolution(*convolution, size);
            const auto gradient = CNNConvolutionGradient::create(device_, source);
            gradient->setDestinationImageAllocator(Image::defaultAllocator());
            const auto transpose =
                row(kernel, stride, reversed(weights), NNPaddingMethod::SizeSame, dilation);
            const auto record = std::dynamic_pointer_cast<NNGradientState>(state)->record();
            const auto small = rowImage(counted(record->destination.width()));
            const auto buffer = commands();
            const auto expected = gradient->encode(buffer, small, rowImage(Values(size, 1)), state);
            run(buffer);
            EXPECT_EQ(resultOf(*transpose, small, state), valuesOf(*expected));
          }
}

TEST_F(ConvolutionTranspose, AGivenDestinationTakesWhatIsNotSetFromTheState) {
  const auto convolution =
      CNNConvolution::create(device_, ArraySource::create(rowDescriptor(2, 1), {1, 1}));  // offset 0: needs 1
  const auto undone = stateOfConvolution(*convolution, 3);
  const auto in = rowImage({1, 2, 3});
  const auto into = [&](CNNConvolutionTranspose& kernel, const std::shared_ptr<State>& state) {
    const auto result = poisoned(sizeOf(3, 1, 1));
    const auto buffer = commands();
    kernel.encode(buffer, in, state, result);
    run(buffer);
    return valuesOf(*result);
  };
  EXPECT_EQ(into(*row(2, 1, {1, 10}), undone), (Values{21, 32, 3}));
  const auto set = row(2, 1, {1, 10});
  set->setKernelOffsetX(0);
  EXPECT_EQ(into(*set, undone), (Values{10, 21, 32})) << "docs/decisions.md, D7";
  EXPECT_FALSE(std::dynamic_pointer_cast<CNNConvolutionTransposeGradientState>(undone));

  const auto trained = row(2, 1, {1, 10});
  const std::shared_ptr<State> sources[] = {undone};
  const auto state = trained->resultState(in, sources);
  EXPECT_EQ(stateOf(state).convolution(), convolution);
  EXPECT_EQ(into(*trained, state), (Values{21, 32, 3}));
  EXPECT_EQ(stateOf(state).sourceWidth(), 3U) << "the encode left its record";
  const auto gradient = gradientOf(*trained);
  const auto buffer = commands();
  const auto dIn = gradient->encode(buffer, rowImage({1, 2, 3}), in, state);
  run(buffer);
  // result[u] = in[u] + 10 in[u + 1]
  EXPECT_EQ(valuesOf(*dIn), (Values{1, 12, 23}));
  EXPECT_EQ(testing::valuesOf(stateOf(state).gradientForWeights()), (Values{14, 8}));
}

TEST_F(ConvolutionTranspose, OffsetCountsSourcePixels) {
  const auto kernel = row(3, 2, weights_);
  const auto into = [&](std::int64_t offset, std::int64_t kernelOffset) {
    kernel->setOffset({offset, 0, 0});
    kernel->setKernelOffsetX(kernelOffset);
    const auto result = poisoned(sizeOf(3, 1, 1));
    const auto buffer = commands();
    kernel->encode(buffer, rowImage({1, 2, 3}), result);
    run(buffer);
    return valuesOf(*result);
  };
  EXPECT_EQ(into(0, 2), into(1, 0));
  EXPECT_EQ(into(1, -1), (Values{201, 20, 302}));
}

/// The gradient of a clipped pass takes the whole gradient image or the clipped part of it.
TEST_F(ConvolutionTranspose, KernelOffsetsBeyond32BitsAreRefused) {
  const auto kernel = row(3, 2, weights_);
  const auto encode = [&] { kernel->encode(commands(), rowImage({1, 2}), rowImage({0, 0, 0})); };
  kernel->setKernelOffsetX(std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(names(errorOf(encode), {"CNNConvolutionTranspose: kernelOffsetX is"}));
  kernel->setKernelOffsetX(0);
  kernel->setKernelOffsetY(std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(names(errorOf(encode), {"CNNConvolutionTranspose: kernelOffsetY is"}));
}

TEST_F(ConvolutionTranspose, WithoutPixelsGradientsAreZeroOrSumTheWeights) {
  for (const std::size_t stride : {std::size_t{1}, std::size_t{5}}) {
    const auto kernel = row(3, stride, {1, 2, 3});
    const auto in = rowImage({2, 4, 8});
    const auto result = poisoned(sizeOf(6, 1, 1));
    const auto backward = [&](const mtl::Region& forwardClip, const mtl::Region& gradientClip) {
      kernel->setClipRect(forwardClip);
      const auto state = kernel->resultState(in);
      for (const auto& sums : {stateOf(state).gradientForWeights(), stateOf(state).gradientForBiases()})
        for (float& element : sums->contentsAs<float>()) element = 77;
      const auto gradient = gradientOf(*kernel);
      gradient->setClipRect(gradientClip);
      const auto dIn = poisoned(sizeOf(3, 1, 1));
      const auto buffer = commands();
      kernel->encode(buffer, in, state, result);
      gradient->encode(buffer, image(sizeOf(6, 1, 1), Values(6, 1)), in, state, dIn);
      run(buffer);
      return std::array{valuesOf(*dIn), valuesOf(stateOf(state).gradientForWeights()),
                        valuesOf(stateOf(state).gradientForBiases())};
    };
    const mtl::Region beside{{20, 0, 0}, {4, 4, 1}};
    EXPECT_EQ(backward(beside, RectNoClip), (std::array{Values(3, 0), Values(3, 0), Values(1, 0)}));
    const auto whole = backward(RectNoClip, RectNoClip);
    EXPECT_NE(whole[1], Values(3, 0));
    EXPECT_EQ(backward(RectNoClip, beside), (std::array{Values(3, poison), whole[1], whole[2]}));
  }
}

TEST_F(ConvolutionTranspose, AClipRectangleCutsTheGradientOfTheSource) {
  const auto kernel = row(3, 2, weights_);
  const auto in = rowImage({1, 2, 3, 4});
  std::shared_ptr<State> state;
  auto buffer = commands();
  const auto result = kernel->encode(buffer, in, state, false);
  const auto g = rowImage(testing::counted(result->width()));
  const auto gradient = gradientOf(*kernel);
  gradient->setGradientOption(CNNConvolutionGradientOption::GradientWithData);
  const auto whole = gradient->encode(buffer, g, in, state);
  run(buffer);
  for (const std::size_t first : {0U, 1U, 3U}) {
    gradient->setClipRect({{first, 0, 0}, {2, 1, 1}});
    const auto clipped = poisoned(sizeOf(4, 1, 1));
    buffer = commands();
    gradient->encode(buffer, g, in, state, clipped);
    run(buffer);
    Values expected(4, poison);
    for (std::size_t i = first; i < std::min<std::size_t>(4, first + 2); ++i)
      expected[i] = valuesOf(*whole)[i];
    EXPECT_EQ(valuesOf(*clipped), expected) << first;
  }
}

TEST_F(ConvolutionTranspose, AClipRectangleCountsInTheGradient) {
  const auto kernel = row(3, 2, weights_);
  kernel->setClipRect({{1, 0, 0}, {3, 1, 1}});
  const auto in = rowImage({1, 2});
  const auto result = poisoned(sizeOf(6, 1, 1));
  const auto state = kernel->resultState(in);
  auto buffer = commands();
  kernel->encode(buffer, in, state, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 10, 201, 20, poison, poison}));
  for (const Values& g : {Values{77, 1, 2, 3, 77, 77}, Values{1, 2, 3}}) {
    buffer = commands();
    const auto fresh = kernel->resultState(in);
    kernel->encode(buffer, in, fresh, result);
    const auto dIn = gradientOf(*kernel)->encode(buffer, rowImage(g), in, fresh);
    run(buffer);
    EXPECT_EQ(valuesOf(*dIn), (Values{12, 230}));
    EXPECT_EQ(testing::valuesOf(stateOf(fresh).gradientForWeights()), (Values{2, 7, 4}));
    EXPECT_EQ(testing::valuesOf(stateOf(fresh).gradientForBiases()), (Values{6}));
  }
}

/// W[out][kH][kW][in / groups], grouped by output channel.
TEST_F(ConvolutionTranspose, GroupsAreThoseOfTheResult) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 4, 2);
  descriptor.setGroups(2);
  const auto kernel = CNNConvolutionTranspose::create(
      device_, ArraySource::create(descriptor, {1, 10, 100, 1000}, {0.5F, 0.25F}));
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  EXPECT_EQ(resultOf(*kernel, image(sizeOf(1, 1, 4), {1, 2, 3, 4})), (Values{21.5F, 4300.25F}));
}

TEST_F(ConvolutionTranspose, BatchesAndTheFusedNeuron) {
  auto descriptor = rowDescriptor(3, 2);
  descriptor.setFusedNeuronDescriptor(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F));
  const auto kernel =
      CNNConvolutionTranspose::create(device_, ArraySource::create(descriptor, weights_, {-20}));
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const ImageBatch in = batch(sizeOf(2, 1, 1), 2, {1, 2, 2, 4});
  const auto buffer = commands();
  CNNConvolutionTransposeGradientStateBatch states;
  const ImageBatch out = kernel->encodeBatch(buffer, in, states, false);
  run(buffer);
  Values values(6);
  out.readBytes(std::span(values), testing::pixelsFirst);
  EXPECT_EQ(values, (Values{-5, 181, 0, 0, 382, 20}));
  EXPECT_TRUE(std::dynamic_pointer_cast<CNNConvolutionTransposeGradientState>(states.sharedState()));
  const auto gradient = gradientOf(*kernel);
  EXPECT_TRUE(names(errorOf([&] { gradient->encodeBatch(commands(), out, in, states); }),
                    {"CNNConvolutionTransposeGradient", "gradientState", "fused neuron"}));
}

TEST_F(ConvolutionTranspose, OptionsOfTheGradient) {
  const auto kernel = row(3, 2, weights_);
  const auto gradient = gradientOf(*kernel);
  const auto in = rowImage({1, 2});
  const auto g = rowImage({1, 2, 3});
  auto buffer = commands();
  std::shared_ptr<State> state;
  kernel->encode(buffer, in, state, false);
  const auto destination = poisoned(sizeOf(2, 1, 1));
  gradient->setGradientOption(CNNConvolutionGradientOption::GradientWithWeightsAndBias);
  gradient->encode(buffer, g, in, state, destination);
  run(buffer);
  EXPECT_EQ(valuesOf(*destination), (Values{poison, poison}));
  EXPECT_EQ(testing::valuesOf(stateOf(state).gradientForWeights()), (Values{2, 7, 4}));
  EXPECT_TRUE(names(errorOf([&] { gradient->encode(commands(), g, in, destination); }),
                    {"gradientOption", "GradientWithData"}));

  gradient->setGradientOption(CNNConvolutionGradientOption::GradientWithData);
  buffer = commands();
  gradient->encode(buffer, g, in, state, destination);
  run(buffer);
  EXPECT_EQ(valuesOf(*destination), (Values{12, 230}));
  EXPECT_EQ(testing::valuesOf(stateOf(state).gradientForWeights()), (Values{2, 7, 4})) << "left alone";

  const auto alone = gradientOf(*kernel);  // without a state: kernelOffset is T
  alone->setGradientOption(CNNConvolutionGradientOption::GradientWithData);
  alone->setKernelOffsetX(1);
  buffer = commands();
  alone->encode(buffer, g, rowImage({1, 2, 3}), destination);
  run(buffer);
  // T = 1: u(x, p) = 2 x - p
  EXPECT_EQ(valuesOf(*destination), (Values{1, 123}));
}

TEST_F(ConvolutionTranspose, WeightsAreReloadedExportedAndAdopted) {
  const auto source = ArraySource::create(rowDescriptor(1, 1), {2}, {0});
  const auto kernel = CNNConvolutionTranspose::create(device_, source);
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const auto gradient = gradientOf(*kernel);
  const auto in = rowImage({1});
  source->setWeights({3});
  EXPECT_EQ(resultOf(*kernel, in), (Values{2}));
  kernel->reloadWeightsAndBiasesFromDataSource();
  EXPECT_EQ(resultOf(*kernel, in), (Values{3}));
  auto buffer = commands();
  std::shared_ptr<State> state;
  kernel->encode(buffer, in, state, false);
  auto dIn = gradient->encode(buffer, rowImage({1}), in, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*dIn), (Values{3})) << "the forward kernel's";
  const auto given = CNNConvolutionWeightsAndBiasesState::create(testing::bufferOf(device_, {5}),
                                                                 testing::bufferOf(device_, {0.5F}));
  buffer = commands();
  kernel->reloadWeightsAndBiases(buffer, given);
  const auto exported = kernel->exportWeightsAndBiases(buffer, false);
  run(buffer);
  EXPECT_EQ(resultOf(*kernel, in), (Values{5.5F}));
  EXPECT_EQ(testing::valuesOf(exported->weights()), (Values{5}));
  EXPECT_EQ(testing::valuesOf(exported->biases()), (Values{0.5F}));
  gradient->reloadWeightsAndBiasesFromDataSource();
  buffer = commands();
  dIn = gradient->encode(buffer, rowImage({1}), in, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*dIn), (Values{3}));
}

TEST_F(ConvolutionTranspose, ATemporaryStateOfTheConvolutionIsReadOnce) {
  const auto convolution =
      CNNConvolution::create(device_, ArraySource::create(rowDescriptor(3, 2), weights_));
  const auto kernel = row(3, 2, weights_);
  for (const bool trains : {false, true}) {
    const auto buffer = commands();
    std::shared_ptr<State> undone;
    const auto small = convolution->encode(buffer, rowImage(counted(6)), undone, true);
    std::shared_ptr<State> state;
    const auto result =
        trains ? kernel->encode(buffer, small, undone, state, true) : kernel->encode(buffer, small, undone);
    EXPECT_EQ(undone->readCount(), 0U);
    EXPECT_EQ(result->width(), 6U);
    if (!trains) continue;
    EXPECT_TRUE(state->isTemporary());
    EXPECT_EQ(stateOf(state).convolution(), convolution);
    EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, rowImage(counted(3)), undone); }),
                      {"convolutionGradientStates"}));
    run(buffer);
  }
}

TEST_F(ConvolutionTranspose, MistakesAreSentences) {
  const auto kernel = row(3, 2, weights_);
  const auto in = rowImage({1, 2});
  const auto refused = [&](const std::shared_ptr<State>& state) {
    return errorOf([&] { kernel->encode(commands(), in, state); });
  };
  EXPECT_TRUE(names(refused(NNGradientState::create(device_)), {"convolutionGradientState", "another kind"}));
  const auto convolution =
      CNNConvolution::create(device_, ArraySource::create(rowDescriptor(3, 2), weights_));
  EXPECT_TRUE(names(refused(convolution->resultState(in)), {"convolutionGradientState", "encoded"}));
  std::shared_ptr<State> own;
  auto buffer = commands();
  kernel->encode(buffer, in, own, false);
  run(buffer);
  EXPECT_TRUE(names(refused(own), {"convolutionGradientState", "another kernel"}));
  EXPECT_TRUE(names(
      errorOf([&] { kernel->encodeBatch(commands(), ImageBatch(), CNNConvolutionGradientStateBatch()); }),
      {"CNNConvolutionTranspose", "sourceImages", "an empty batch"}));
  const std::shared_ptr<State> foreign[] = {NNGradientState::create(device_)};
  EXPECT_TRUE(names(errorOf([&] { static_cast<void>(kernel->resultState(in, foreign)); }), {"sourceStates"}));
  CNNKernel& base = *kernel;
  EXPECT_TRUE(names(errorOf([&] {
                      base.encode(commands(), in, foreign[0], rowImage({0, 0, 0}));
                    }),
                    {"destinationState", "CNNConvolutionTransposeGradientState"}));

  kernel->setEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(commands(), in); }), {"edgeMode", "Zero"}));
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionTranspose::create(device_, nullptr); }),
                    {"CNNConvolutionTranspose", "weights", "null"}));
  EXPECT_TRUE(names(
      errorOf([&] {
        CNNConvolutionTranspose::create(
            device_, ArraySource::create(
                         CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 2, 2), {1, 1}));
      }),
      {"CNNConvolutionTranspose", "depth-wise", "groups"}));

  const auto gradient = gradientOf(*kernel);
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(commands(), rowImage({1, 2, 3}), image(sizeOf(2, 1, 2)), own);
                    }),
                    {"CNNConvolutionTransposeGradient", "sourceImage"}));
  gradient->setGradientOption(CNNConvolutionGradientOption::GradientWithData);
  gradient->setPrimaryOffset({-1, 0, 0});
  EXPECT_TRUE(names(errorOf([&] {
                      gradient->encode(commands(), rowImage({1, 2, 3}), in, rowImage({0, 0}));
                    }),
                    {"primaryOffset", "-1"}));
}

/// As of the state of a convolution.
TEST_F(ConvolutionTranspose, TheStateMustBeOfATransposedConvolutionOfTheSameShape) {
  const auto source = [](std::size_t size, std::size_t groups) {
    auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(size, size, 8, 8);
    descriptor.setGroups(groups);
    const Values weights(descriptor.weightCount(), 1);
    return ArraySource::create(std::move(descriptor), weights);
  };
  const auto x = image(sizeOf(4, 4, 8));
  const auto y = image(sizeOf(4, 4, 8));
  const auto refused = [&](const auto& made, const auto& filled, const auto& gradient, bool adopts = true) {
    const auto state = CNNConvolutionTranspose::create(device_, made)->resultState(x);
    const auto buffer = commands();
    CNNConvolutionTranspose::create(device_, filled)->encode(buffer, x, state, y);
    const auto kernel = CNNConvolutionTransposeGradient::create(device_, gradient);
    if (!adopts) kernel->reloadWeightsAndBiasesFromDataSource();
    return errorOf([&] { kernel->encode(buffer, y, x, state, poisoned(sizeOf(4, 4, 8))); });
  };
  EXPECT_TRUE(names(refused(source(3, 8), source(3, 8), source(3, 1)),
                    {"CNNConvolutionTransposeGradient", "weights", "data source of the forward"}));
  EXPECT_TRUE(names(refused(source(1, 1), source(5, 1), source(5, 1)),
                    {"CNNConvolutionTransposeGradient", "gradientState", "made by a kernel of 1x1", "5x5"}));
  EXPECT_TRUE(names(refused(source(1, 1), source(5, 1), source(5, 1), false),
                    {"CNNConvolutionTransposeGradient", "gradientState", "64 weights", "1600"}));
  EXPECT_EQ(refused(source(3, 2), source(3, 2), source(3, 2)), "");
}

TEST_F(ConvolutionTranspose, CopiesForAnotherDevice) {
  const auto kernel = row(3, 2, weights_);
  kernel->setKernelOffsetX(1);
  const auto device = mtl::newCPUDevice(1);
  const auto copied = kernel->copy(device);
  EXPECT_EQ(copied->device(), device);
  EXPECT_EQ(copied->kernelOffsetX(), 1);
  EXPECT_EQ(copied->dataSource(), kernel->dataSource());
  EXPECT_EQ(gradientOf(*kernel)->copy(device)->device(), device);
}

TEST(ConvolutionTransposeNodes, MakeTheirKernelsAndGradientNodes) {
  const auto source = ArraySource::create(rowDescriptor(3, 2), {1, 10, 100});
  const auto in = NNImageNode::create();
  const auto convolution = CNNConvolutionNode::create(in, source);
  const auto node =
      CNNConvolutionTransposeNode::create(convolution->resultImage(), convolution->resultState(), source);
  EXPECT_EQ(node->className(), "CNNConvolutionTransposeNode");
  ASSERT_EQ(node->sourceStates().size(), 1U);
  EXPECT_EQ(node->sourceStates()[0], convolution->resultState());
  EXPECT_TRUE(dynamic_cast<CNNConvolutionTransposeGradientStateNode*>(node->resultState().get()));
  EXPECT_TRUE(CNNConvolutionTransposeNode::create(in, nullptr, source)->sourceStates().empty());
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionTransposeNode::create(in, node->resultState(), source); }),
                    {"CNNConvolutionTransposeNode", "convolutionGradientState"}));
  node->setTrainingStyle(NNTrainingStyle::UpdateDeviceCPU);
  const auto gradient = std::dynamic_pointer_cast<CNNConvolutionTransposeGradientNode>(
      node->gradientFilter(NNImageNode::create()));
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->trainingStyle(), NNTrainingStyle::UpdateDeviceCPU);
  EXPECT_EQ(gradient->gradientState(), node->resultState());
  const auto device = mtl::newCPUDevice(1);
  EXPECT_EQ(node->makeKernel(device)->className(), "CNNConvolutionTranspose");
  EXPECT_EQ(gradient->makeKernel(device)->className(), "CNNConvolutionTransposeGradient");
}

}  // namespace
}  // namespace mps::convolution_transpose_test
