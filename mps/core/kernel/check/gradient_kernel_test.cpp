#include <gtest/gtest.h>

#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/memory.hpp"

/// Gradient kernels.
namespace mps::gradient_kernel_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Scale;
using testing::ScaleGradient;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using testing::WindowSum;

class GradientKernel : public testing::ScaleGradientTest {
 protected:
  Values backward(const std::shared_ptr<Image>& gradient, const std::shared_ptr<Image>& source,
                  const std::shared_ptr<State>& state) {
    const auto buffer = commands();
    const auto result = gradient_->encode(buffer, gradient, source, state);
    run(buffer);
    return valuesOf(*result);
  }
  Values backwardInto(const std::shared_ptr<Image>& result, const std::shared_ptr<Image>& gradient,
                      const std::shared_ptr<Image>& source, const std::shared_ptr<State>& state) {
    const auto buffer = commands();
    gradient_->encode(buffer, gradient, source, state, result);
    run(buffer);
    return valuesOf(*result);
  }
};

TEST_F(GradientKernel, EveryFormGivesTheSame) {
  const auto source = image(sizeOf(3, 2, 4), counted(24));
  const auto g = image(sizeOf(3, 2, 4), counted(24, 100));
  const auto state = forward(source, image(sizeOf(3, 2, 4)));
  Values expected = counted(24, 100);
  for (float& value : expected) value *= 3;
  EXPECT_EQ(backward(g, source, state), expected);
  EXPECT_EQ(backwardInto(poisoned(sizeOf(3, 2, 4)), g, source, state), expected);
  const auto buffer = commands();
  const NNGradientStateBatch states{state, state};
  const auto batch = gradient_->encodeBatch(buffer, ImageBatch{g, g}, ImageBatch{source, source}, states);
  const ImageBatch given{poisoned(sizeOf(3, 2, 4)), poisoned(sizeOf(3, 2, 4))};
  gradient_->encodeBatch(buffer, ImageBatch{g, g}, ImageBatch{source, source}, StateBatch(state, 2), given);
  run(buffer);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(valuesOf(*batch[i]), expected);
    EXPECT_EQ(valuesOf(*given[i]), expected);
  }
}

TEST_F(GradientKernel, TheDestinationHasTheSizeOfTheForwardSourceAndTheFormatOfTheGradient) {
  scale_->setClipRect({{0, 0, 0}, {2, 1, 1}});
  const auto source = image(sizeOf(5, 3, 4), counted(60));
  const auto state = forward(source, image(sizeOf(2, 1, 4)));
  const auto g = Image::create(device_, {ImageFeatureChannelFormat::Float16, 2, 1, 4});
  const auto result = gradient_->encode(commands(), g, source, state);
  EXPECT_EQ(result->width(), 5U);
  EXPECT_EQ(result->height(), 3U);
  EXPECT_EQ(result->featureChannels(), 4U);
  EXPECT_EQ(result->featureChannelFormat(), ImageFeatureChannelFormat::Float16);
}

TEST_F(GradientKernel, GradientsAreOverwrittenNotAccumulated) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto state = forward(source, image(sizeOf(2, 1, 1)));
  const auto g = image(sizeOf(2, 1, 1), {10, 20});
  const auto result = poisoned(sizeOf(2, 1, 1));
  for (int round = 0; round < 2; ++round) EXPECT_EQ(backwardInto(result, g, source, state), (Values{30, 60}));
}

TEST_F(GradientKernel, PixelsThatTheForwardPassDidNotReadGetZero) {
  // Forward: source pixels 1 and 2 of 5 go to result pixels 2 and 3 of 4.
  scale_->setOffset({1, 0, 0});
  scale_->setClipRect({{2, 0, 0}, {2, 1, 1}});
  const auto source = image(sizeOf(5, 1, 1), counted(5));
  const auto state = forward(source, poisoned(sizeOf(4, 1, 1)));
  const auto g = image(sizeOf(4, 1, 1), {1000, 1000, 10, 20});
  const Values expected{0, 30, 60, 0, 0};
  EXPECT_EQ(backward(g, source, state), expected);
  EXPECT_EQ(backwardInto(poisoned(sizeOf(5, 1, 1)), g, source, state), expected);
  EXPECT_EQ(backward(image(sizeOf(2, 1, 1), {10, 20}), source, state), expected)
      << "a gradient of the clip's size";
}

TEST_F(GradientKernel, ReadsBeyondTheSourceHaveNoGradient) {
  scale_->setOffset({-1, 0, 0});
  const auto source = image(sizeOf(3, 1, 1), counted(3));
  const auto state = forward(source, poisoned(sizeOf(5, 1, 1)));
  EXPECT_EQ(backward(image(sizeOf(5, 1, 1), {1, 10, 100, 1000, 10000}), source, state),
            (Values{30, 300, 3000}));
}

TEST_F(GradientKernel, ChannelsThatTheForwardPassDidNotReadGetZero) {
  scale_->setSourceFeatureChannelOffset(4);
  scale_->setSourceFeatureChannelMaxCount(2);
  scale_->setDestinationFeatureChannelOffset(8);
  const auto source = image(sizeOf(1, 1, 12), counted(12));
  const auto state = forward(source, poisoned(sizeOf(1, 1, 12)));
  const auto g = image(sizeOf(1, 1, 12), counted(12, 100));
  const Values expected{0, 0, 0, 0, 324, 327, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(backward(g, source, state), expected);
  EXPECT_EQ(backwardInto(poisoned(sizeOf(1, 1, 12)), g, source, state), expected);
  EXPECT_EQ(backward(image(sizeOf(1, 1, 2), {108, 109}), source, state), expected)
      << "the gradient of the produced channels alone";
}

/// Channels beside those that are written stay as they are.
TEST_F(GradientKernel, GradientsLieSideBySideInAWiderDestination) {
  const auto source = image(sizeOf(2, 1, 4), counted(8));
  const auto state = forward(source, image(sizeOf(2, 1, 4)));
  const auto first = image(sizeOf(2, 1, 4), Values(8, 1));
  const auto second = image(sizeOf(2, 1, 4), Values(8, 2));
  const auto result = poisoned(sizeOf(2, 1, 12));
  const auto buffer = commands();
  gradient_->encode(buffer, first, source, state, result);
  gradient_->setDestinationFeatureChannelOffset(4);
  gradient_->encode(buffer, second, source, state, result);
  run(buffer);
  const Values pixel{3, 3, 3, 3, 6, 6, 6, 6, poison, poison, poison, poison};
  Values expected = pixel;
  expected.insert(expected.end(), pixel.begin(), pixel.end());
  EXPECT_EQ(valuesOf(*result), expected);
}

/// Produced + offset.
TEST_F(GradientKernel, AReturnedGradientBeginsAtTheChannelOffset) {
  scale_->setSourceFeatureChannelOffset(4);
  scale_->setSourceFeatureChannelMaxCount(2);
  const auto source = image(sizeOf(1, 1, 8), counted(8));
  const auto state = forward(source, poisoned(sizeOf(1, 1, 2)));
  gradient_->setDestinationFeatureChannelOffset(4);
  const auto buffer = commands();
  const auto result = gradient_->encode(buffer, image(sizeOf(1, 1, 2), {1, 10}), source, state);
  const auto given = poisoned(sizeOf(1, 1, 12));
  gradient_->encode(buffer, image(sizeOf(1, 1, 2), {1, 10}), source, state, given);
  run(buffer);
  ASSERT_EQ(result->featureChannels(), 12U);
  const Values whole = valuesOf(*result);
  const Values ofSource{0, 0, 0, 0, 3, 30, 0, 0};
  EXPECT_EQ(Values(whole.begin() + 4, whole.end()), ofSource);
  Values expected(4, poison);
  expected.insert(expected.end(), ofSource.begin(), ofSource.end());
  EXPECT_EQ(valuesOf(*given), expected);
}

TEST_F(GradientKernel, StacksPutEachGradientWhereItsSourceWas) {
  // Source images 2 and 3 of 5 went to result images 1 and 2 of 4.
  scale_->setOffset({0, 0, 2});
  mtl::Region clip = RectNoClip;
  clip.origin.z = 1;
  clip.size.depth = 2;
  scale_->setClipRect(clip);
  const auto source = image(sizeOf(1, 1, 1, 5), counted(5));
  const auto state = forward(source, poisoned(sizeOf(1, 1, 1, 4)));
  const Values expected{0, 0, 30, 60, 0};
  const auto whole = image(sizeOf(1, 1, 1, 4), {1000, 10, 20, 1000});
  EXPECT_EQ(backwardInto(poisoned(sizeOf(1, 1, 1, 5)), whole, source, state), expected);
  const auto part = image(sizeOf(1, 1, 1, 2), {10, 20});
  EXPECT_EQ(backwardInto(poisoned(sizeOf(1, 1, 1, 5)), part, source, state), expected);
  EXPECT_TRUE(names(errorOf([&] { backwardInto(image(sizeOf(1, 1, 1, 3)), part, source, state); }),
                    {"destinationGradient", "stack of 3"}));
  EXPECT_NE(errorOf([&] { backwardInto(image(sizeOf(1, 1, 1, 5)), image(sizeOf(1, 1, 1)), source, state); }),
            "");
}

TEST_F(GradientKernel, WrongSizesKindsAndStatesAreRefused) {
  const auto source = image(sizeOf(4, 3, 4), counted(48));
  const auto g = image(sizeOf(4, 3, 4), counted(48));
  const auto state = forward(source, image(sizeOf(4, 3, 4)));
  const auto error = [&](const std::shared_ptr<Image>& gradient, const std::shared_ptr<Image>& from,
                         const std::shared_ptr<State>& with) {
    return errorOf([&] { backward(gradient, from, with); });
  };
  EXPECT_EQ(error(g, source, state), "");
  EXPECT_TRUE(
      names(error(g, image(sizeOf(3, 3, 4)), state), {"ScaleGradient", "sourceImage", "3x3x4", "4x3x4"}));
  EXPECT_NE(error(g, image(sizeOf(4, 3, 5)), state), "");
  EXPECT_TRUE(names(error(image(sizeOf(4, 2, 4)), source, state), {"sourceGradient", "4x2x4"}));
  EXPECT_TRUE(names(error(image(sizeOf(4, 3, 3)), source, state), {"sourceGradient", "feature channels"}));
  EXPECT_TRUE(names(error(nullptr, source, state), {"sourceGradient", "null"}));
  EXPECT_TRUE(names(error(g, nullptr, state), {"sourceImage", "null"}));
  EXPECT_TRUE(names(error(g, source, nullptr), {"gradientState", "null"}));
  EXPECT_TRUE(names(error(g, source, scale_->resultState(source)), {"no forward kernel has encoded"}));
  EXPECT_TRUE(names(error(g, source, State::create(device_, StateResourceList{})), {"another kind"}));
  const auto window = WindowSum::create(device_, 1);
  std::shared_ptr<State> foreign;
  window->encode(commands(), source, foreign, false);
  EXPECT_TRUE(names(error(g, source, foreign), {"WindowSum", "forward kernel"}));
  EXPECT_NE(errorOf([&] {
              gradient_->encodeBatch(commands(), ImageBatch{g}, ImageBatch{source}, StateBatch(state, 2));
            }),
            "");
  EXPECT_NE(
      errorOf([&] {
        gradient_->encodeBatch(commands(), ImageBatch{g}, ImageBatch{source, source}, StateBatch(state, 1));
      }),
      "");
  EXPECT_NE(errorOf([&] { backwardInto(image(sizeOf(4, 3, 3)), g, source, state); }), "");
  EXPECT_NE(errorOf([&] {
              backwardInto(image(ImageDescriptor(ImageFeatureChannelFormat::Unorm8, 4, 3, 4)), g, source,
                           state);
            }),
            "");
}

TEST_F(GradientKernel, AnEmptyBatchIsNamed) {
  gradient_->setLabel("none");
  const ImageBatch none;
  const auto buffer = commands();
  const std::vector<std::string> expected{"ScaleGradient \"none\"", "sourceGradients", "an empty batch"};
  EXPECT_TRUE(names(errorOf([&] { gradient_->encodeBatch(buffer, none, none, StateBatch()); }), expected));
  EXPECT_TRUE(
      names(errorOf([&] { gradient_->encodeBatch(buffer, none, none, StateBatch(), none); }), expected));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(GradientKernel, ExchangedImagesAreToldByTheirSizes) {
  scale_->setClipRect({{0, 0, 0}, {2, 1, 1}});
  gradient_->setLabel("layer");
  const auto source = image(sizeOf(5, 3, 4), counted(60));
  const auto state = forward(source, image(sizeOf(2, 1, 4)));
  const auto g = image(sizeOf(2, 1, 4), counted(8));
  const std::vector<std::string> expected{"ScaleGradient \"layer\"",
                                          "sourceGradient and sourceImage look exchanged", "float32 5x3x4",
                                          "float32 2x1x4"};
  const auto buffer = commands();
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(buffer, source, g, state); }), expected));
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(buffer, source, g, state, poisoned(sizeOf(5, 3, 4))); }),
                    expected));
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(buffer, g, image(sizeOf(5, 2, 4)), state); }),
                    {"sourceImage", "5x2x4", "5x3x4"}))
      << "a wrong size is no exchange";
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(GradientKernel, ExchangedImagesOfOneSizeAreToldByTheForwardSource) {
  gradient_->setLabel("layer");
  const auto source = image(sizeOf(3, 2, 4), counted(24));
  const auto state = forward(source, image(sizeOf(3, 2, 4)));
  const auto g = image(sizeOf(3, 2, 4), counted(24));
  const auto buffer = commands();
  EXPECT_TRUE(names(
      errorOf([&] { gradient_->encode(buffer, source, g, state); }),
      {"ScaleGradient \"layer\"", "sourceGradient and sourceImage look exchanged", "the forward source"}));
  EXPECT_EQ(errorOf([&] { gradient_->encode(buffer, source, source, state); }), "") << "may be meant";
}

TEST_F(GradientKernel, StatesOfDifferentCallsAreNoBatch) {
  const auto sources = batch(sizeOf(2, 2, 4), 2, counted(32));
  auto stateWith = [&](const std::function<void(Scale&)>& change) {
    const auto kernel = Scale::create(device_);
    change(*kernel);
    auto state = kernel->resultState(sources[0]);
    kernel->encode(commands(), sources[0], state, image(sizeOf(2, 2, 8)));
    return state;
  };
  const auto plain = stateWith([](Scale&) {});
  const auto refused = [&](const std::function<void(Scale&)>& change) {
    return errorOf([&] {
      gradient_->encodeBatch(commands(), ImageBatch::create(device_, sizeOf(2, 2, 8), 2), sources,
                             StateBatch{plain, stateWith(change)});
    });
  };
  EXPECT_EQ(refused([](Scale&) {}), "");
  EXPECT_NE(refused([](Scale& kernel) { kernel.setOffset({1, 0, 0}); }), "");
  EXPECT_NE(refused([](Scale& kernel) { kernel.setEdgeMode(ImageEdgeMode::Clamp); }), "");
  EXPECT_NE(refused([](Scale& kernel) { kernel.setDestinationFeatureChannelOffset(4); }), "");
  EXPECT_NE(refused([](Scale& kernel) { kernel.setSourceFeatureChannelMaxCount(2); }), "");
  EXPECT_NE(refused([](Scale& kernel) { kernel.setClipRect({{0, 0, 0}, {2, 1, 1}}); }), "");
}

TEST_F(GradientKernel, D9PropertiesAreShownAfterTheDescriptorCall) {
  const auto window = Scale::create(device_);
  window->setOffset({-2, 5, 0});
  window->setClipRect({{1, 2, 0}, {3, 2, 1}});
  window->setEdgeMode(ImageEdgeMode::Clamp);
  window->setSourceFeatureChannelOffset(4);
  window->setSourceFeatureChannelMaxCount(3);
  window->setDestinationFeatureChannelOffset(8);
  const auto source = image(sizeOf(6, 5, 8));
  const auto state = window->resultState(source);
  window->encode(commands(), source, state, image(sizeOf(7, 6, 12)));
  const std::shared_ptr<Image> images[] = {image(sizeOf(7, 6, 12)), source};
  const std::shared_ptr<State> states[] = {state};
  const auto descriptor = gradient_->destinationImageDescriptor(images, states);
  EXPECT_EQ(descriptor.width(), 6U);
  EXPECT_EQ(descriptor.height(), 5U);
  EXPECT_EQ(descriptor.featureChannels(), 8U);
  EXPECT_EQ(gradient_->primaryOffset(), (Offset{1, 2, 0}));
  EXPECT_EQ(gradient_->secondaryOffset(), (Offset{-2, 5, 0}));
  EXPECT_EQ(gradient_->kernelOffsetX(), 0);
  EXPECT_EQ(gradient_->secondaryEdgeMode(), ImageEdgeMode::Clamp);
  EXPECT_EQ(gradient_->secondarySourceFeatureChannelOffset(), 4U);
  EXPECT_EQ(gradient_->secondarySourceFeatureChannelMaxCount(), 3U);
  EXPECT_EQ(gradient_->primarySourceFeatureChannelOffset(), 8U);
  EXPECT_EQ(gradient_->primarySourceFeatureChannelMaxCount(), 3U);
  EXPECT_NE(errorOf([&] { gradient_->destinationImageDescriptor(std::span(images).first(1), states); }), "");
}

TEST_F(GradientKernel, InheritedEncodesWithoutAStateUseThePropertiesAsTheyAre) {
  gradient_->setPrimaryOffset({1, 0, 0});
  gradient_->setSecondaryOffset({2, 0, 0});
  const auto g = image(sizeOf(4, 1, 1), {1, 10, 100, 1000});
  const auto source = image(sizeOf(5, 1, 1));
  const auto result = poisoned(sizeOf(5, 1, 1));
  const auto buffer = commands();
  static_cast<CNNBinaryKernel&>(*gradient_).encode(buffer, g, source, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{0, 0, 10, 100, 1000}));
}

/// What the base class has serves gradients of every class.
TEST_F(GradientKernel, WorksThroughItsBaseClass) {
  const std::shared_ptr<CNNGradientKernel> kernel = gradient_;
  EXPECT_EQ(kernel->kernelOffsetX(), 0);
  EXPECT_EQ(kernel->kernelOffsetY(), 0);
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto g = image(sizeOf(2, 1, 1), {10, 20});
  const auto state = forward(source, image(sizeOf(2, 1, 1)));
  const auto given = poisoned(sizeOf(2, 1, 1));
  const auto buffer = commands();
  const auto returned = kernel->encode(buffer, g, source, state);
  kernel->encode(buffer, g, source, state, given);
  run(buffer);
  EXPECT_EQ(valuesOf(*returned), (Values{30, 60}));
  EXPECT_EQ(valuesOf(*given), (Values{30, 60}));
  kernel->setKernelOffsetX(3);
  kernel->setKernelOffsetY(-4);
  EXPECT_EQ(kernel->kernelOffsetX(), 3);
  EXPECT_EQ(kernel->kernelOffsetY(), -4);
}

TEST_F(GradientKernel, ACopyKeepsWhatWasSet) {
  gradient_->setKernelOffsetX(3);
  gradient_->setPrimaryOffset({1, 1, 1});
  const auto other = mtl::newCPUDevice(1);
  const auto copy = detail::copyAs(*gradient_, other);
  EXPECT_EQ(copy->device(), other);
  EXPECT_EQ(copy->kernelOffsetX(), 3);
  EXPECT_EQ(copy->primaryOffset(), (Offset{1, 1, 1}));
}

TEST_F(GradientKernel, InPlaceTheResultIsTheSame) {
  const auto source = image(sizeOf(3, 2, 4), counted(24));
  const auto state = forward(source, image(sizeOf(3, 2, 4)));
  const auto g = image(sizeOf(3, 2, 4), counted(24, 100));
  const Values expected = backward(g, source, state);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(commands(), g, source, state, g); }),
                    {"destination", "sourceGradient"}));
  gradient_->setWorksInPlace(true);
  EXPECT_EQ(backwardInto(g, g, source, state), expected);
}

TEST_F(GradientKernel, InPlaceEveryPixelMustStayWhereItIs) {
  gradient_->setWorksInPlace(true);
  const auto source = image(sizeOf(4, 4, 8), counted(128));
  const auto g = image(sizeOf(4, 4, 8), counted(128));
  scale_->setOffset({1, 0, 0});
  auto state = forward(source, image(sizeOf(4, 4, 8)));
  EXPECT_NE(errorOf([&] { gradient_->encode(commands(), g, source, state, g); }), "") << "shifted by a pixel";
  scale_->setOffset({});
  scale_->setClipRect({{0, 0, 0}, {4, 3, 1}});
  state = forward(source, image(sizeOf(4, 4, 8)));
  EXPECT_NE(errorOf([&] { gradient_->encode(commands(), g, source, state, g); }), "") << "the rest is zeroed";
}

TEST_F(GradientKernel, AccumulatingAddsToTheDestination) {
  const auto source = batch(sizeOf(3, 2, 4), 2, counted(48));
  const auto states = scale_->resultStateBatch(source);
  auto buffer = commands();
  scale_->encodeBatch(buffer, source, states, ImageBatch::create(device_, sizeOf(3, 2, 4), 2));
  run(buffer);
  const auto g = batch(sizeOf(3, 2, 4), 2, counted(48, 100));
  const auto result = batch(sizeOf(3, 2, 4), 2, counted(48, 7));
  buffer = commands();
  EXPECT_TRUE(names(errorOf([&] { gradient_->encodeBatchAccumulating(buffer, g, source, states, result); }),
                    {"ScaleGradient", "destinationGradients"}))
      << "its plans cannot add";
  EXPECT_EQ(buffer->commandCount(), 0U);
}

}  // namespace
}  // namespace mps::gradient_kernel_test
