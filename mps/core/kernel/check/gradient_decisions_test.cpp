#include <gtest/gtest.h>

#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

/// The decisions (docs/decisions.md) about gradient kernels and states.
namespace mps::gradient_decisions_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Scale;
using testing::ScaleGradient;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class GradientDecisions : public testing::ScaleGradientTest {
 protected:
  /// States of a batch and their sources, in one block.
  std::pair<StateBatch, ImageBatch> forwardBatch(std::size_t count) {
    auto sources = batch(sizeOf(1, 1, 1), count, counted(count));
    auto states = scale_->resultStateBatch(sources);
    const auto buffer = commands();
    scale_->encodeBatch(buffer, sources, states, ImageBatch::create(device_, sizeOf(1, 1, 1), count));
    run(buffer);
    return {states, sources};
  }
  Values backwardBatch(const Values& gradients, const ImageBatch& sources, const StateBatch& states) {
    const auto buffer = commands();
    const auto results =
        gradient_->encodeBatch(buffer, batch(sizeOf(1, 1, 1), gradients.size(), gradients), sources, states);
    run(buffer);
    Values values(gradients.size());
    results.readBytes(std::span(values), testing::pixelsFirst);
    return values;
  }
};

TEST_F(GradientDecisions, D7UnsetGeometryComesFromTheState) {
  scale_->setOffset({2, 0, 0});
  scale_->setClipRect({{1, 0, 0}, {2, 1, 1}});
  const auto source = image(sizeOf(5, 1, 1), counted(5));
  const auto state = forward(source, poisoned(sizeOf(3, 1, 1)));
  const auto g = image(sizeOf(3, 1, 1), {1, 10, 100});
  const auto into = [&] {
    const auto result = poisoned(sizeOf(5, 1, 1));
    const auto buffer = commands();
    gradient_->encode(buffer, g, source, state, result);
    run(buffer);
    return valuesOf(*result);
  };
  EXPECT_EQ(into(), (Values{0, 0, 30, 300, 0}));
  gradient_->setSecondaryOffset({0, 0, 0});  // the default, but set
  EXPECT_EQ(into(), (Values{30, 300, 0, 0, 0}));
  gradient_->setPrimaryOffset({0, 0, 0});
  EXPECT_EQ(into(), (Values{3, 30, 0, 0, 0}));
}

TEST_F(GradientDecisions, D7TransferredValuesAreTakenAnewFromEachState) {
  const auto g = image(sizeOf(2, 1, 1), {1, 10});
  const auto source = image(sizeOf(4, 1, 1), counted(4));
  for (const std::int64_t offset : {0, 2, 1}) {
    scale_->setOffset({offset, 0, 0});
    const auto state = forward(source, poisoned(sizeOf(2, 1, 1)));
    Values expected(4, 0);
    expected[static_cast<std::size_t>(offset)] = 3;
    expected[static_cast<std::size_t>(offset) + 1] = 30;
    const auto buffer = commands();
    const auto result = gradient_->encode(buffer, g, source, state);
    run(buffer);
    EXPECT_EQ(valuesOf(*result), expected);
    EXPECT_EQ(gradient_->secondaryOffset().x, offset);
  }
}

TEST_F(GradientDecisions, D8KernelsWithoutAWindowRefuseAKernelOffset) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto state = forward(source, image(sizeOf(2, 1, 1)));
  gradient_->setKernelOffsetX(1);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(commands(), image(sizeOf(2, 1, 1)), source, state); }),
                    {"ScaleGradient", "kernelOffset", "1, 0"}));
  gradient_->setKernelOffsetX(0);
  gradient_->setKernelOffsetY(-2);
  EXPECT_NE(errorOf([&] { gradient_->encode(commands(), image(sizeOf(2, 1, 1)), source, state); }), "");
  gradient_->setKernelOffsetY(0);
  EXPECT_EQ(errorOf([&] { gradient_->encode(commands(), image(sizeOf(2, 1, 1)), source, state); }), "");
}

TEST_F(GradientDecisions, D9AStateKeepsWhatTheKernelHadWhenItEncoded) {
  scale_->setOffset({1, 0, 0});
  const auto source = image(sizeOf(3, 1, 1), counted(3));
  const auto state = forward(source, poisoned(sizeOf(2, 1, 1)));
  scale_->setFactor(100);
  scale_->setOffset({0, 0, 0});
  scale_->setEdgeMode(ImageEdgeMode::Clamp);
  const auto buffer = commands();
  const auto result = gradient_->encode(buffer, image(sizeOf(2, 1, 1), {1, 10}), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{0, 3, 30}));
  EXPECT_EQ(gradient_->secondaryEdgeMode(), ImageEdgeMode::Zero);
}

TEST_F(GradientDecisions, D9TheCombinedEncodeEqualsTheSeparateSteps) {
  scale_->setOffset({1, -1, 0});
  scale_->setClipRect({{1, 0, 0}, {3, 2, 1}});
  scale_->setSourceFeatureChannelOffset(4);
  const auto source = image(sizeOf(4, 3, 8), counted(96));
  const auto state = forward(source, poisoned(sizeOf(4, 2, 4)));
  const auto g = image(sizeOf(4, 2, 4), counted(32, 7));
  const auto buffer = commands();
  const auto combined = gradient_->encode(buffer, g, source, state);
  const auto separate = ScaleGradient::create(device_);
  const std::shared_ptr<Image> images[] = {g, source};
  const std::shared_ptr<State> states[] = {state};
  const auto result = Image::create(device_, separate->destinationImageDescriptor(images, states));
  testing::fill(*result, Values(testing::elementsOf(result->descriptor()), poison));
  separate->encode(buffer, g, source, state, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*combined), valuesOf(*result));
  EXPECT_EQ(gradient_->primaryOffset(), separate->primaryOffset());
  EXPECT_EQ(gradient_->secondaryOffset(), separate->secondaryOffset());
}

TEST_F(GradientDecisions, D10WhereOnlyTheSizeCountsAnUnwrittenTemporaryImageTakesNoMemory) {
  gradient_->setReadsSource(false);
  const auto state = forward(image(sizeOf(64, 64, 1)), image(sizeOf(64, 64, 1)));
  const auto buffer = commands();
  const auto stand = TemporaryImage::create(buffer, sizeOf(64, 64, 1));
  gradient_->encode(buffer, image(sizeOf(64, 64, 1)), stand, state);
  EXPECT_EQ(queue_->heap()->peakBytes(), 0U);
  EXPECT_EQ(stand->readCount(), 0U) << "it is read all the same, as far as counts go";
  const auto wrong = TemporaryImage::create(buffer, sizeOf(64, 63, 1));
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(buffer, image(sizeOf(64, 64, 1)), wrong, state); }),
                    {"sourceImage"}));
  run(buffer);
}

TEST_F(GradientDecisions, D11AnotherImageOfTheRightSizeIsComputedWithWithoutSavedFields) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto state = forward(source, image(sizeOf(2, 1, 1)));
  const auto g = image(sizeOf(2, 1, 1), {1, 10});
  const auto with = [&](const std::shared_ptr<Image>& image) {
    const auto buffer = commands();
    const auto result = gradient_->encode(buffer, g, image, state);
    run(buffer);
    EXPECT_EQ(valuesOf(*result), (Values{3, 30}));
    return gradient_->usedSavedFields();
  };
  EXPECT_TRUE(with(source));
  EXPECT_FALSE(with(image(sizeOf(2, 1, 1), {8, 9})));
}

TEST_F(GradientDecisions, D11TheForwardResultInPlaceOfTheSourceIsRecognised) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto result = image(sizeOf(2, 1, 1));
  const auto state = forward(source, result);
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(commands(), image(sizeOf(2, 1, 1)), result, state); }),
                    {"sourceImage", "forward result", "forward source"}));
}

TEST_F(GradientDecisions, D14SavedFieldsServeTheirOwnImagesOnly) {
  const auto [states, sources] = forwardBatch(4);
  const Values g{1, 10, 100, 1000};
  const Values expected{3, 30, 300, 3000};
  const auto used = [&](const ImageBatch& images, const StateBatch& with) {
    const Values part(g.begin(), g.begin() + static_cast<std::ptrdiff_t>(images.count()));
    const Values result = backwardBatch(part, images, with);
    EXPECT_TRUE(std::equal(result.begin(), result.end(), expected.begin()));
    return gradient_->usedSavedFields();
  };
  EXPECT_TRUE(used(sources, states));
  EXPECT_TRUE(used(sources.slice(1, 2), states.slice(1, 2)));
  EXPECT_TRUE(used(ImageBatch{sources[0], sources[1], sources[2], sources[3]}, states));
  EXPECT_TRUE(used(sources, StateBatch{states[0], states[1], states[2], states[3]}));
  EXPECT_TRUE(used(ImageBatch{sources[2]}, StateBatch{states[2]}));
  EXPECT_FALSE(used(sources.slice(1, 2), states.slice(0, 2))) << "shifted";
  EXPECT_FALSE(used(sources, StateBatch{states[1], states[0], states[2], states[3]})) << "exchanged";
  EXPECT_FALSE(used(ImageBatch{sources[0], sources[2]}, states.slice(0, 2))) << "the second is another image";
  EXPECT_FALSE(used(ImageBatch{sources[0], sources[0]}, states.slice(0, 2)));
  EXPECT_FALSE(used(ImageBatch{image(sizeOf(1, 1, 1)), image(sizeOf(1, 1, 1))}, states.slice(0, 2)));
}

TEST_F(GradientDecisions, D14SavedFieldsOfASlicedForwardBatch) {
  const auto sources = batch(sizeOf(1, 1, 1), 6, counted(6)).slice(2, 3);
  const auto states = scale_->resultStateBatch(sources);
  const auto buffer = commands();
  scale_->encodeBatch(buffer, sources, states, ImageBatch::create(device_, sizeOf(1, 1, 1), 3));
  run(buffer);
  EXPECT_EQ(backwardBatch({1, 10, 100}, sources, states), (Values{3, 30, 300}));
  EXPECT_TRUE(gradient_->usedSavedFields());
  EXPECT_EQ(backwardBatch({10}, sources.slice(1, 1), states.slice(1, 1)), Values{30});
  EXPECT_TRUE(gradient_->usedSavedFields());
}

TEST_F(GradientDecisions, D14EachSavedFieldGoesWithItsImage) {
  // Two forward calls with other factors: the saved factor is the one that counts.
  const auto [states, sources] = forwardBatch(2);
  scale_->setFactor(5);
  const auto [otherStates, otherSources] = forwardBatch(2);
  EXPECT_EQ(backwardBatch({1, 1}, sources, states), (Values{3, 3}));
  EXPECT_EQ(backwardBatch({1, 1}, otherSources, otherStates), (Values{5, 5}));
}

TEST_F(GradientDecisions, D14SavedFieldsOfAFailedForwardPassStopTheGradient) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto state = scale_->resultState(source);
  scale_->setFailure("no luck");
  const auto broken = commands();
  scale_->encode(broken, source, state, image(sizeOf(2, 1, 1)));
  const auto buffer = commands();
  const auto result = gradient_->encode(buffer, image(sizeOf(2, 1, 1), {1, 10}), source, state);
  broken->commit();
  buffer->commit();
  EXPECT_EQ(errorOf([&] { buffer->throwIfFailed(); }), "Scale: no luck");
  EXPECT_NE(errorOf([&] { valuesOf(*result); }), "");
}

TEST_F(GradientDecisions, D14AForwardPassUnderAPredicateSavesNothing) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto buffer = CommandBuffer::create(queue_);
  buffer->setPredicate(Predicate::create(device_));  // 0: the forward pass is left out
  std::shared_ptr<State> state;
  scale_->encode(buffer, source, state, false);
  buffer->setPredicate(nullptr);
  const auto result = gradient_->encode(buffer, image(sizeOf(2, 1, 1), {1, 10}), source, state);
  EXPECT_FALSE(gradient_->usedSavedFields());
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{3, 30}));
}

TEST_F(GradientDecisions, D13AStateOutlivesItsKernel) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  std::shared_ptr<State> state;
  StateBatch states;
  const auto sources = batch(sizeOf(1, 1, 1), 2, {1, 2});
  {
    const auto kernel = Scale::create(device_, 4);
    const auto buffer = commands();
    kernel->encode(buffer, source, state, false);
    kernel->encodeBatch(buffer, sources, states, false);
    run(buffer);
  }
  const auto buffer = commands();
  const auto result = gradient_->encode(buffer, image(sizeOf(2, 1, 1), {1, 10}), source, state);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{4, 40}));
  EXPECT_NE(states[1], nullptr) << "made only now";
}

}  // namespace
}  // namespace mps::gradient_decisions_test
