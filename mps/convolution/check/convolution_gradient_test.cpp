#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "mps/convolution/check/test_source.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_node.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/memory.hpp"

/// States, options and weights of the convolution's gradient.
namespace mps::convolution_gradient_test {
namespace {

using testing::ArraySource;
using testing::bufferOf;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum CNNConvolutionGradientOption;

/// out[x] = 1 in[x] + 10 in[x + 1], two pixels wide; in = 3, 5.
class ConvolutionGradient : public testing::DeviceTest {
 protected:
  ConvolutionGradient() {
    kernel_->setPadding(NNDefaultPadding::padding(NNPaddingMethod::SizeValidOnly));
    kernel_->setDestinationImageAllocator(Image::defaultAllocator());
    gradient_->setDestinationImageAllocator(Image::defaultAllocator());
  }
  std::shared_ptr<State> forward(const std::shared_ptr<Image>& in) {
    std::shared_ptr<State> state;
    const auto buffer = commands();
    kernel_->encode(buffer, in, state, false);
    run(buffer);
    return state;
  }
  /// dIn for a source gradient of one pixel.
  Values backward(const std::shared_ptr<State>& state, float e = 1) {
    const auto buffer = commands();
    const auto dIn = gradient_->encode(buffer, pixel(e), in_, state);
    run(buffer);
    return valuesOf(*dIn);
  }
  [[nodiscard]] std::shared_ptr<Image> pixel(float value) const { return image(sizeOf(1, 1, 1), {value}); }
  /// The result, and the data gradient of 1, of the pixels 3 and 5 on the kernels' device.
  static Values resultAndGradient(CNNConvolution& kernel, CNNConvolutionGradient& gradient) {
    const auto& device = kernel.device();
    kernel.setDestinationImageAllocator(Image::defaultAllocator());
    gradient.setDestinationImageAllocator(Image::defaultAllocator());
    const auto in = Image::create(device, sizeOf(2, 1, 1));
    testing::fill(*in, {3, 5});
    const auto e = Image::create(device, sizeOf(1, 1, 1));
    testing::fill(*e, {1});
    std::shared_ptr<State> state;
    const auto buffer = device->newCommandQueue()->commandBuffer();
    const auto out = kernel.encode(buffer, in, state, false);
    const auto dIn = gradient.encode(buffer, e, in, state);
    buffer->commit();
    buffer->throwIfFailed();
    EXPECT_EQ(weightsOf(state), (Values{3, 5}));
    Values all = valuesOf(*out);
    for (const float value : valuesOf(*dIn)) all.push_back(value);
    return all;
  }
  static CNNConvolutionGradientState& of(const std::shared_ptr<State>& state) {
    return dynamic_cast<CNNConvolutionGradientState&>(*state);
  }
  static Values weightsOf(const std::shared_ptr<State>& state) {
    return valuesOf(of(state).gradientForWeights());
  }
  static Values biasesOf(const std::shared_ptr<State>& state) {
    return valuesOf(of(state).gradientForBiases());
  }
  static void set(const std::shared_ptr<State>& state, float value) {
    for (const auto& buffer : {of(state).gradientForWeights(), of(state).gradientForBiases()})
      for (float& element : buffer->contentsAs<float>()) element = value;
  }

  std::shared_ptr<ArraySource> source_ =
      ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 1, 1, 1), {1, 10});
  std::shared_ptr<CNNConvolution> kernel_ = CNNConvolution::create(device_, source_);
  std::shared_ptr<CNNConvolutionGradient> gradient_ = CNNConvolutionGradient::create(device_, source_);
  std::shared_ptr<Image> in_ = image(sizeOf(2, 1, 1), {3, 5});
};

TEST_F(ConvolutionGradient, TheStateHasItsBuffersInTheLayoutOfTheWeights) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 2, 8, 4);
  descriptor.setGroups(4);
  const auto kernel = CNNConvolution::create(device_, ArraySource::create(descriptor, Values(3 * 2 * 2 * 4)));
  const auto state = kernel->resultState(image(sizeOf(5, 5, 8)));
  EXPECT_EQ(of(state).gradientForWeights()->length(), 4U * 2 * 3 * 2 * sizeof(float));
  EXPECT_EQ(of(state).gradientForBiases()->length(), 4 * sizeof(float)) << "without biases too";
  EXPECT_EQ(of(state).gradientForWeightsLayout(), CNNConvolutionWeightsLayout::OHWI);
  EXPECT_EQ(of(state).convolution(), kernel);
  EXPECT_EQ(state->resourceCount(), 2U);
}

TEST_F(ConvolutionGradient, GradientWithDataLeavesTheStateAlone) {
  const auto state = forward(in_);
  set(state, 77);
  gradient_->setGradientOption(GradientWithData);
  EXPECT_EQ(backward(state), (Values{1, 10}));
  EXPECT_EQ(weightsOf(state), (Values{77, 77}));
  EXPECT_EQ(biasesOf(state), (Values{77}));
  gradient_->setGradientOption(All);
  backward(state);
  EXPECT_EQ(weightsOf(state), (Values{3, 5})) << "the first weight gradient sets";
}

TEST_F(ConvolutionGradient, GradientWithWeightsAndBiasLeavesTheDestinationAlone) {
  const auto state = forward(in_);
  gradient_->setGradientOption(GradientWithWeightsAndBias);
  const auto destination = poisoned(sizeOf(2, 1, 1));
  auto buffer = commands();
  gradient_->encode(buffer, pixel(2), in_, state, destination);
  run(buffer);
  EXPECT_EQ(valuesOf(*destination), (Values{poison, poison}));
  EXPECT_EQ(weightsOf(state), (Values{6, 10}));
  EXPECT_EQ(biasesOf(state), (Values{2}));
  buffer = commands();
  const auto returned = gradient_->encode(buffer, pixel(2), in_, state);
  run(buffer);
  EXPECT_EQ(returned->width(), 2U) << "an image is returned, its content undefined";
}

TEST_F(ConvolutionGradient, OfAWholeResultTheClipRectangleCounts) {
  kernel_->setClipRect({{1, 2, 0}, {2, 1, 1}});
  const auto result = poisoned(sizeOf(4, 3, 1));
  for (const Values& e : {Values{9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 2, 9}, Values{1, 2}}) {
    const auto state = kernel_->resultState(in_);
    const auto buffer = commands();
    kernel_->encode(buffer, in_, state, result);
    const auto size = e.size() == 2 ? sizeOf(2, 1, 1) : sizeOf(4, 3, 1);
    const auto gradient = CNNConvolutionGradient::create(device_, source_);
    gradient->setDestinationImageAllocator(Image::defaultAllocator());
    const auto dIn = gradient->encode(buffer, image(size, e), in_, state);
    run(buffer);
    // result[x] = in[x - 1] + 10 in[x]
    EXPECT_EQ(valuesOf(*dIn), (Values{12, 20})) << e.size();
    EXPECT_EQ(weightsOf(state), (Values{6, 13})) << e.size();
    EXPECT_EQ(biasesOf(state), (Values{3})) << e.size();
  }
}

TEST_F(ConvolutionGradient, BehindAnEmptyForwardClipRectangleEverythingIsZero) {
  struct Layer {
    std::size_t kernel, stride, channels, groups, multiplier;
  };
  const Layer layers[] = {{3, 1, 16, 1, 0}, {1, 4, 16, 1, 0}, {3, 8, 3, 1, 0}, {1, 1, 16, 1, 0},
                          {3, 5, 16, 4, 0}, {3, 1, 8, 1, 1},  {3, 9, 8, 1, 2}};
  for (const Layer& layer : layers)
    for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp}) {
      SCOPED_TRACE(std::to_string(layer.kernel) + " stride " + std::to_string(layer.stride));
      const std::size_t outputs = layer.multiplier == 0 ? 8 : layer.multiplier * layer.channels;
      CNNConvolutionDescriptor descriptor = layer.multiplier == 0
                                                ? CNNConvolutionDescriptor::cnnConvolutionDescriptor(
                                                      layer.kernel, layer.kernel, layer.channels, outputs)
                                                : CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(
                                                      layer.kernel, layer.kernel, layer.channels, outputs);
      descriptor.setStrideInPixelsX(layer.stride);
      descriptor.setStrideInPixelsY(layer.stride);
      if (layer.groups != 1) descriptor.setGroups(layer.groups);
      const auto source = ArraySource::create(descriptor, Values(descriptor.weightCount(), 1.0F));
      const auto kernel = CNNConvolution::create(device_, source);
      kernel->setClipRect({{20, 20, 0}, {5, 5, 1}});
      kernel->setEdgeMode(edgeMode);
      const auto in = image(sizeOf(9, 9, layer.channels), Values(81 * layer.channels, 2));
      const auto result = poisoned(sizeOf(9, 9, outputs));
      const auto state = kernel->resultState(in);
      set(state, 77);
      const auto gradient = CNNConvolutionGradient::create(device_, source);
      for (int encode = 0; encode < 2; ++encode) {
        const auto dIn = poisoned(sizeOf(9, 9, layer.channels));
        const auto buffer = commands();
        if (encode == 0) kernel->encode(buffer, in, state, result);
        gradient->encode(buffer, result, in, state, dIn);
        run(buffer);
        EXPECT_EQ(valuesOf(*dIn), Values(81 * layer.channels, 0));
        EXPECT_EQ(weightsOf(state), Values(descriptor.weightCount(), 0));
        EXPECT_EQ(biasesOf(state), Values(outputs, 0));
      }
      EXPECT_EQ(valuesOf(*result), Values(81 * outputs, poison)) << "the forward pass has written nothing";
    }
}

TEST_F(ConvolutionGradient, AClipRectangleBesideTheDestinationLeavesItAloneAndSumsTheWeights) {
  const auto destination = poisoned(sizeOf(2, 1, 1));
  gradient_->setClipRect({{20, 0, 0}, {4, 4, 1}});
  for (const auto option : {All, GradientWithWeightsAndBias, GradientWithData}) {
    const auto state = forward(in_);
    set(state, 77);
    const auto storage = [&] {
      return gradient_->encodingStorageSize(pixel(2), in_, std::span(&state, 1), destination);
    };
    gradient_->setGradientOption(GradientWithWeightsAndBias);
    const std::size_t storageOfSums = storage();
    gradient_->setGradientOption(option);
    const auto buffer = commands();
    gradient_->encode(buffer, pixel(2), in_, state, destination);
    gradient_->encode(buffer, pixel(1), in_, state, destination);
    run(buffer);
    const bool sums = option != GradientWithData;
    EXPECT_EQ(storage(), sums ? storageOfSums : 0) << "none for the data";
    EXPECT_EQ(weightsOf(state), sums ? (Values{9, 15}) : (Values{77, 77}));
    EXPECT_EQ(biasesOf(state), Values{sums ? 3.0F : 77.0F});
    EXPECT_EQ(valuesOf(*destination), Values(2, poison));
  }
}

TEST_F(ConvolutionGradient, AClipRectangleCutsTheGradientOfTheSource) {
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 2, 1, 1);
  descriptor.setStrideInPixelsX(2);
  const auto source = ArraySource::create(descriptor, {1, 2, 3, 4, 5, 6});
  const auto kernel = CNNConvolution::create(device_, source);
  const auto in = image(sizeOf(5, 4, 1), testing::counted(20));
  std::shared_ptr<State> state;
  auto buffer = commands();
  const auto result = kernel->encode(buffer, in, state, false);
  const auto e = image(sizeOf(result->width(), result->height(), 1),
                       testing::counted(result->width() * result->height()));
  const auto gradient = CNNConvolutionGradient::create(device_, source);
  gradient->setGradientOption(GradientWithData);
  gradient->setDestinationImageAllocator(Image::defaultAllocator());
  const auto whole = gradient->encode(buffer, e, in, state);
  run(buffer);
  for (const auto [left, top, width, height] :
       {std::array<std::size_t, 4>{0, 0, 2, 4}, {1, 0, 3, 2}, {2, 3, 3, 1}, {4, 1, 9, 9}}) {
    gradient->setClipRect({{left, top, 0}, {width, height, 1}});
    const auto clipped = poisoned(sizeOf(5, 4, 1));
    buffer = commands();
    gradient->encode(buffer, e, in, state, clipped);
    run(buffer);
    Values expected = valuesOf(*whole);
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (i % 5 < left || i % 5 >= left + width || i / 5 < top || i / 5 >= top + height) expected[i] = poison;
    EXPECT_EQ(valuesOf(*clipped), expected) << left << ", " << top;
  }
  // Without a state the formula counts from clipRect.origin.
  const auto alone = CNNConvolutionGradient::create(device_, source);
  alone->setGradientOption(GradientWithData);
  alone->setPrimaryStrideInPixelsX(2);
  alone->setKernelOffsetX(gradient->kernelOffsetX());
  alone->setKernelOffsetY(gradient->kernelOffsetY());
  alone->setClipRect({{2, 0, 0}, {3, 4, 1}});
  const auto shifted = poisoned(sizeOf(5, 4, 1));
  buffer = commands();
  alone->encode(buffer, e, in, shifted);
  run(buffer);
  for (std::size_t x = 0; x < 3; ++x) EXPECT_EQ(valuesOf(*shifted)[x + 2], valuesOf(*whole)[x]) << x;
}

TEST_F(ConvolutionGradient, AClipRectangleOfAPassThatRepeatedTheEdgeIsRefused) {
  kernel_->setEdgeMode(ImageEdgeMode::Clamp);
  const auto state = forward(in_);
  gradient_->setClipRect({{1, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(
      names(errorOf([&] { gradient_->encode(commands(), pixel(1), in_, state, poisoned(sizeOf(2, 1, 1))); }),
            {"CNNConvolutionGradient: clipRect", "edgeMode Clamp"}));
  gradient_->setGradientOption(GradientWithWeightsAndBias);
  EXPECT_EQ(errorOf([&] { gradient_->encode(commands(), pixel(1), in_, state, poisoned(sizeOf(2, 1, 1))); }),
            "");
  gradient_->setGradientOption(GradientWithData);
  gradient_->setClipRect({{0, 0, 0}, {2, 1, 1}});
  EXPECT_EQ(errorOf([&] { gradient_->encode(commands(), pixel(1), in_, state, poisoned(sizeOf(2, 1, 1))); }),
            "");
}

TEST_F(ConvolutionGradient, AFirstEncodeThatDoesNotRunAddsNothing) {
  const auto left = forward(in_);
  set(left, 77);
  const auto buffer = CommandBuffer::create(queue_);
  buffer->setPredicate(Predicate::create(device_));  // 0
  gradient_->encode(buffer, pixel(4), in_, left);
  run(buffer);
  EXPECT_EQ(weightsOf(left), (Values{0, 0})) << "the sum of what ran";
  backward(left, 1);
  EXPECT_EQ(weightsOf(left), (Values{3, 5}));
  EXPECT_EQ(biasesOf(left), (Values{1}));

  const auto dropped = forward(in_);
  set(dropped, 77);
  gradient_->encode(commands(), pixel(4), in_, dropped);
  backward(dropped, 1);
  backward(dropped, 1);
  EXPECT_EQ(weightsOf(dropped), (Values{6, 10}));
  EXPECT_EQ(biasesOf(dropped), (Values{2}));
}

TEST_F(ConvolutionGradient, AFirstEncodeThatWasEnqueuedAndDroppedTakesNothingFromThoseBehindIt) {
  const auto state = forward(in_);
  set(state, 77);
  auto dropped = commands();
  gradient_->encode(dropped, pixel(4), in_, state);
  dropped->enqueue();
  const auto next = commands();
  gradient_->encode(next, pixel(1), in_, state);
  next->commit();
  dropped = nullptr;
  next->throwIfFailed();
  run(commands());
  EXPECT_EQ(weightsOf(state), (Values{3, 5}));
  EXPECT_EQ(biasesOf(state), (Values{1}));
}

TEST_F(ConvolutionGradient, ALaterEncodeThatDoesNotRunLeavesTheSums) {
  const auto state = forward(in_);
  backward(state, 1);
  const auto buffer = CommandBuffer::create(queue_);
  buffer->setPredicate(Predicate::create(device_));  // 0
  gradient_->encode(buffer, pixel(4), in_, state);
  run(buffer);
  gradient_->encode(commands(), pixel(4), in_, state);
  backward(state, 1);
  EXPECT_EQ(weightsOf(state), (Values{6, 10}));
}

TEST_F(ConvolutionGradient, SumsThatAreInvalidAreNotAddedTo) {
  const auto state = forward(in_);
  backward(state, 1);
  of(state).gradientForWeights()->memory()->setFailure("no luck");
  EXPECT_TRUE(names(errorOf([&] { backward(state, 1); }), {"no luck"}));
}

TEST_F(ConvolutionGradient, EncodesWithOneStateAddUpAndANewStateBeginsAnew) {
  const auto state = forward(in_);
  set(state, 77);
  backward(state, 1);
  EXPECT_EQ(weightsOf(state), (Values{3, 5}));
  backward(state, 10);
  EXPECT_EQ(weightsOf(state), (Values{33, 55}));
  EXPECT_EQ(biasesOf(state), (Values{11}));
  const auto next = forward(in_);
  backward(next, 2);
  EXPECT_EQ(weightsOf(next), (Values{6, 10}));
  EXPECT_EQ(weightsOf(state), (Values{33, 55}));
}

TEST_F(ConvolutionGradient, SubBatchesGiveTheSumsOfTheWholeBatch) {
  const auto in = batch(sizeOf(2, 1, 1), 3, {1, 2, 3, 4, 5, 6});
  const auto e = batch(sizeOf(1, 1, 1), 3, {1, 10, 100});
  const auto gradients = [&](const std::vector<std::size_t>& counts) {
    const CNNConvolutionGradientStateBatch states = kernel_->resultStateBatch(in);
    const auto buffer = commands();
    kernel_->setOffset({1, 0, 0});  // the window begins at pixel 0
    kernel_->encodeBatch(buffer, in, states, ImageBatch::create(device_, sizeOf(1, 1, 1), 3));
    std::size_t first = 0;
    for (const std::size_t count : counts) {
      gradient_->encodeBatch(buffer, e.slice(first, count), in.slice(first, count),
                             states.slice(first, count));
      first += count;
    }
    run(buffer);
    EXPECT_EQ(states.distinct().size(), 1U) << "one state for the batch";
    EXPECT_EQ(biasesOf(states[0]), (Values{111}));
    return weightsOf(states[0]);
  };
  EXPECT_EQ(gradients({3}), (Values{531, 642}));
  EXPECT_EQ(gradients({1, 2}), (Values{531, 642}));
  EXPECT_EQ(gradients({1, 1, 1}), (Values{531, 642}));
}

/// The gradient kernel takes the forward kernel's weights at its first encode.
TEST_F(ConvolutionGradient, WeightsComeFromTheForwardKernelOnceThenByReload) {
  const auto reload = [&](auto& kernel, const Values& weights) {
    const auto buffer = commands();
    kernel.reloadWeightsAndBiases(
        buffer, CNNConvolutionWeightsAndBiasesState::create(bufferOf(device_, weights), nullptr));
    run(buffer);
  };
  reload(*kernel_, {2, 20});
  EXPECT_EQ(backward(forward(in_)), (Values{2, 20}));
  reload(*kernel_, {3, 30});
  EXPECT_EQ(backward(forward(in_)), (Values{2, 20})) << "later only by a reload";
  reload(*gradient_, {4, 40});
  EXPECT_EQ(backward(forward(in_)), (Values{4, 40}));
  source_->setWeights({5, 50});
  gradient_->reloadWeightsAndBiasesFromDataSource();
  EXPECT_EQ(backward(forward(in_)), (Values{5, 50}));

  const auto other = CNNConvolutionGradient::create(device_, source_);
  reload(*other, {6, 60});
  const auto buffer = commands();
  const auto dIn = poisoned(sizeOf(2, 1, 1));
  other->encode(buffer, pixel(1), in_, forward(in_), dIn);
  run(buffer);
  EXPECT_EQ(valuesOf(*dIn), (Values{6, 60})) << "a reload before the first encode counts too";
}

TEST_F(ConvolutionGradient, ARefusedEncodeTakesNoWeights) {
  const auto other = CNNConvolution::create(
      device_, ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 1, 1, 1), {8, 9}));
  other->setPadding(kernel_->padding());
  std::shared_ptr<State> state;
  other->encode(commands(), in_, state, false);
  const auto dIn = poisoned(sizeOf(2, 1, 1));
  gradient_->setDestinationFeatureChannelOffset(4);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(commands(), pixel(1), in_, state, dIn); }),
                    {"CNNConvolutionGradient", "destinationGradient", "1 feature channels", "5"}));
  gradient_->setDestinationFeatureChannelOffset(0);
  EXPECT_EQ(backward(forward(in_)), (Values{1, 10}));
}

/// The checks of sizes and kinds.
TEST_F(ConvolutionGradient, MistakesAreSentences) {
  const auto state = forward(in_);
  const auto dIn = poisoned(sizeOf(2, 1, 1));
  const auto refused = [&](auto&& encode) { return errorOf([&] { encode(commands()); }); };
  EXPECT_TRUE(names(refused([&](const auto& buffer) { gradient_->encode(buffer, pixel(1), in_, dIn); }),
                    {"CNNConvolutionGradient", "gradientOption", "GradientWithData"}));
  gradient_->setGradientOption(GradientWithData);
  EXPECT_EQ(refused([&](const auto& buffer) { gradient_->encode(buffer, pixel(1), in_, dIn); }), "");
  gradient_->setGradientOption(All);
  EXPECT_TRUE(
      names(refused([&](const auto& buffer) { gradient_->encode(buffer, image(sizeOf(1, 1, 2)), in_, dIn); }),
            {"CNNConvolutionGradient", "sourceGradient", "2 feature channels", "1"}));
  gradient_->setPrimarySourceFeatureChannelMaxCount(1);
  EXPECT_TRUE(names(refused([&](const auto& buffer) {
                      gradient_->encode(buffer, pixel(1), image(sizeOf(2, 1, 2)), image(sizeOf(2, 1, 2)));
                    }),
                    {"CNNConvolutionGradient", "sourceImage", "2 feature channels", "1"}));
  EXPECT_TRUE(names(refused([&](const auto& buffer) {
                      gradient_->encode(buffer, pixel(1), in_, NNGradientState::create(device_), dIn);
                    }),
                    {"CNNConvolutionGradient", "gradientState"}))
      << "a state that no forward kernel has filled";
  const auto plain = NNGradientState::create(device_);
  const auto out = poisoned(sizeOf(1, 1, 1));
  kernel_->encode(commands(), in_, plain, out);
  EXPECT_TRUE(
      names(refused([&](const auto& buffer) { gradient_->encode(buffer, pixel(1), in_, plain, dIn); }),
            {"CNNConvolutionGradient", "gradientState", "CNNConvolutionGradientState"}));
  const auto otherShape = CNNConvolutionGradient::create(
      device_,
      ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(3, 1, 1, 1), Values(3)));
  EXPECT_TRUE(
      names(refused([&](const auto& buffer) { otherShape->encode(buffer, pixel(1), in_, state, dIn); }),
            {"CNNConvolutionGradient", "weights", "3x1", "data source of the forward kernel"}));
  const auto inner = CNNFullyConnectedGradient::create(device_, source_);
  EXPECT_TRUE(names(refused([&](const auto& buffer) { inner->encode(buffer, pixel(1), in_, state, dIn); }),
                    {"CNNFullyConnectedGradient", "gradientState", "CNNConvolution"}));
}

/// The buffers of a state have the size of the weights that it was made for.
TEST_F(ConvolutionGradient, TheStateMustBeOfAConvolutionOfTheSameShape) {
  constexpr std::size_t channels = 8;
  const auto plain = [](std::size_t size, std::size_t groups) {
    auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(size, size, channels, channels);
    descriptor.setGroups(groups);
    const Values weights(descriptor.weightCount(), 1);
    return ArraySource::create(std::move(descriptor), weights);
  };
  const auto depthWise = ArraySource::create(
      CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, channels, channels),
      Values(9 * channels, 1));
  const auto x = image(sizeOf(4, 4, channels));
  const auto y = image(sizeOf(4, 4, channels));
  const auto dx = poisoned(sizeOf(4, 4, channels));
  const auto refused = [&](const auto& made, const auto& filled, const auto& gradient, bool adopts = true) {
    const auto state = CNNConvolution::create(device_, made)->resultState(x);
    const auto buffer = commands();
    CNNConvolution::create(device_, filled)->encode(buffer, x, state, y);
    const auto kernel = CNNConvolutionGradient::create(device_, gradient);
    if (!adopts) kernel->reloadWeightsAndBiasesFromDataSource();
    return errorOf([&] { kernel->encode(buffer, y, x, state, dx); });
  };
  const std::vector<std::string> otherSource{"CNNConvolutionGradient", "weights",
                                             "data source of the forward"};
  EXPECT_TRUE(names(refused(plain(3, 8), plain(3, 8), plain(3, 1)), otherSource));
  EXPECT_TRUE(names(refused(plain(1, 2), plain(1, 2), plain(1, 4)), otherSource));
  EXPECT_TRUE(names(refused(depthWise, depthWise, plain(3, 1)), otherSource));
  EXPECT_TRUE(names(refused(plain(1, 1), plain(5, 1), plain(5, 1)),
                    {"CNNConvolutionGradient", "gradientState", "made by a kernel of 1x1", "5x5"}));
  EXPECT_TRUE(names(refused(plain(1, 1), plain(5, 1), plain(5, 1), false),
                    {"CNNConvolutionGradient", "gradientState", "64 weights", "1600"}));
  EXPECT_EQ(refused(plain(3, 2), plain(3, 2), plain(3, 2)), "");
  EXPECT_EQ(refused(depthWise, depthWise, depthWise), "");
}

/// The other modes are the pad kernel's.
TEST_F(ConvolutionGradient, TakesTheEdgeModesOfTheForwardKernel) {
  const auto state = forward(in_);
  gradient_->setSecondaryEdgeMode(ImageEdgeMode::Mirror);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(commands(), pixel(1), in_, state); }),
                    {"CNNConvolutionGradient", "secondaryEdgeMode", "Mirror", "Zero or Clamp"}));
  gradient_->setSecondaryEdgeMode(ImageEdgeMode::Zero);
  EXPECT_EQ(backward(state), (Values{1, 10}));
}

TEST_F(ConvolutionGradient, ATemporaryStateIsReadOnceByEachEncode) {
  const auto buffer = commands();
  std::shared_ptr<State> state;
  kernel_->encode(buffer, in_, state, true);
  EXPECT_TRUE(state->isTemporary());
  EXPECT_EQ(state->readCount(), 1U);
  state->setReadCount(2);
  gradient_->encode(buffer, pixel(1), in_, state);
  EXPECT_EQ(state->readCount(), 1U) << "left for the update";
  gradient_->encode(buffer, pixel(1), in_, state);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(buffer, pixel(1), in_, state); }),
                    {"CNNConvolutionGradient", "readCount is 0"}));
}

/// The second device's source is the copy that the data source gives, or the same one.
TEST_F(ConvolutionGradient, CopiesForAnotherDevice) {
  const auto device = mtl::newCPUDevice(1);
  gradient_->setGradientOption(GradientWithData);
  const auto shared = kernel_->copy(device);
  EXPECT_EQ(shared->dataSource(), source_);
  EXPECT_EQ(gradient_->copy(device)->gradientOption(), GradientWithData);
  gradient_->setGradientOption(All);
  EXPECT_EQ(resultAndGradient(*shared, *gradient_->copy(device)), (Values{53, 1, 10}));

  source_->copied = ArraySource::create(source_->shape, {2, 20});
  const auto copied = kernel_->copy(device);
  const auto copiedGradient = gradient_->copy(device);
  EXPECT_EQ(copied->dataSource(), source_->copied);
  EXPECT_EQ(copiedGradient->dataSource(), source_->copied);
  EXPECT_EQ(resultAndGradient(*copied, *copiedGradient), (Values{106, 2, 20}));
}

/// On the same device, too; only a source that both kernels have leaves the copy what the kernel holds.
TEST_F(ConvolutionGradient, CopiesOnTheSameDevice) {
  const auto buffer = commands();
  kernel_->reloadWeightsAndBiases(
      buffer, CNNConvolutionWeightsAndBiasesState::create(bufferOf(device_, {4, 40}), nullptr));
  run(buffer);
  const auto shared = kernel_->copy();
  EXPECT_EQ(shared->dataSource(), source_);
  EXPECT_EQ(shared->weights(), kernel_->weights()) << "what was reloaded";
  EXPECT_EQ(resultAndGradient(*shared, *gradient_->copy()), (Values{212, 4, 40}));

  for (const auto& device : {std::shared_ptr<mtl::Device>(), device_}) {
    source_->copied = ArraySource::create(source_->shape, {2, 20});
    const auto copied = kernel_->copy(device);
    EXPECT_EQ(copied->dataSource(), source_->copied);
    source_->copied = ArraySource::create(source_->shape, {3, 30});
    const auto copiedGradient = gradient_->copy(device);
    EXPECT_EQ(copiedGradient->dataSource(), source_->copied);
    EXPECT_EQ(resultAndGradient(*copied, *copiedGradient), (Values{106, 2, 20}))
        << "a gradient has the weights of its forward kernel";
  }
  EXPECT_EQ(kernel_->dataSource(), source_) << "the original keeps its own";
  EXPECT_EQ(kernel_->weights(), shared->weights());
}

TEST_F(ConvolutionGradient, CopiesOfUsedKernelsTakeTheWeightsOfTheirForwardKernel) {
  EXPECT_EQ(resultAndGradient(*kernel_, *gradient_), (Values{53, 1, 10}));
  for (const auto& device : {device_, mtl::newCPUDevice(1)}) {
    source_->copied = ArraySource::create(source_->shape, {2, 20});
    const auto copied = kernel_->copy(device);
    source_->copied = ArraySource::create(source_->shape, {3, 30});
    EXPECT_EQ(resultAndGradient(*copied, *gradient_->copy(device)), (Values{106, 2, 20}));
  }
}

TEST(ConvolutionNodes, MakeTheirGradientNodes) {
  const auto source =
      ArraySource::create(CNNConvolutionDescriptor::cnnConvolutionDescriptor(2, 1, 1, 1), {1, 10});
  const auto in = NNImageNode::create();
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionNode::create(in, nullptr); }),
                    {"CNNConvolutionNode", "weights", "null"}));
  const auto node = CNNConvolutionNode::create(in, source);
  const auto inner = CNNFullyConnectedNode::create(in, source);
  EXPECT_EQ(node->trainingStyle(), NNTrainingStyle::UpdateDeviceGPU);
  EXPECT_EQ(node->accumulatorPrecision(), NNConvolutionAccumulatorPrecisionOption::Float);
  EXPECT_EQ(node->convolutionGradientState(), node->resultState());
  EXPECT_TRUE(std::dynamic_pointer_cast<CNNConvolutionGradientStateNode>(node->resultState()));
  EXPECT_TRUE(std::dynamic_pointer_cast<CNNConvolutionGradientStateNode>(inner->resultState()));
  node->setTrainingStyle(NNTrainingStyle::UpdateDeviceNone);
  const auto e = NNImageNode::create();
  const auto gradient = std::dynamic_pointer_cast<CNNConvolutionGradientNode>(node->gradientFilter(e));
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->className(), "CNNConvolutionGradientNode");
  EXPECT_EQ(gradient->trainingStyle(), NNTrainingStyle::UpdateDeviceNone);
  EXPECT_EQ(gradient->weights(), source);
  EXPECT_EQ(gradient->gradientState(), node->resultState());
  EXPECT_EQ(inner->gradientFilter(e)->className(), "CNNFullyConnectedGradientNode");

  const auto byHand = CNNConvolutionGradientNode::create(e, in, node->resultState(), nullptr);
  EXPECT_EQ(byHand->weights(), source) << "that of the forward node";
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionGradientNode::create(e, in, nullptr, nullptr); }),
                    {"CNNConvolutionGradientNode", "weights", "null"}));
  const auto foreign = std::make_shared<NNGradientStateNode>();
  EXPECT_TRUE(names(errorOf([&] { CNNConvolutionGradientNode::create(e, in, foreign, nullptr); }),
                    {"CNNConvolutionGradientNode", "weights", "null"}));

  const auto device = mtl::newCPUDevice(1);
  EXPECT_EQ(node->makeKernel(device)->className(), "CNNConvolution");
  EXPECT_EQ(gradient->makeKernel(device)->className(), "CNNConvolutionGradient");
  EXPECT_EQ(inner->makeKernel(device)->className(), "CNNFullyConnected");
  EXPECT_EQ(inner->gradientFilter(e)->makeKernel(device)->className(), "CNNFullyConnectedGradient");
}

}  // namespace
}  // namespace mps::convolution_gradient_test
