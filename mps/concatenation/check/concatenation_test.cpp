#include "mps/concatenation/concatenation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "mps/concatenation/concatenation_node.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/testing/test_images.hpp"

/// The public classes, and the decisions of docs/decisions.md. The arithmetic over all shapes is
/// tested with the plans, whole graphs in mps/graph.
namespace mps::concatenation_test {
namespace {

using testing::counted;
using testing::DeviceTest;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;

using Images = std::vector<std::shared_ptr<Image>>;

class Concatenation : public DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<NNConcatenation> concatenation(std::size_t sources,
                                                               std::size_t alignment = 4) const {
    auto kernel = NNConcatenation::create(device_, sources);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    kernel->setChannelAlignment(alignment);
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<NNConcatenationGradient> gradientOf(std::size_t source) const {
    auto kernel = NNConcatenationGradient::create(device_, source);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<Image> pixel(const Values& values) const {
    return image(sizeOf(1, 1, values.size()), values);
  }
  /// 23, 5 and 8 channels.
  [[nodiscard]] Images threeSources() const {
    return {pixel(counted(23, 100)), pixel(counted(5, 200)), pixel(counted(8, 300))};
  }
};

TEST_F(Concatenation, ExampleChannels23And5And8) {
  const auto buffer = commands();
  const auto aligned = concatenation(3)->encode(buffer, threeSources());
  const auto adjacent = concatenation(3, 1)->encode(buffer, threeSources());
  run(buffer);
  ASSERT_EQ(aligned->featureChannels(), 40U);
  Values expected = counted(23, 100);
  expected.push_back(0);
  for (const float value : counted(5, 200)) expected.push_back(value);
  expected.insert(expected.end(), 3, 0);
  for (const float value : counted(8, 300)) expected.push_back(value);
  EXPECT_EQ(valuesOf(*aligned), expected);
  expected.erase(expected.begin() + 29, expected.begin() + 32);
  expected.erase(expected.begin() + 23);
  ASSERT_EQ(adjacent->featureChannels(), 36U);
  EXPECT_EQ(valuesOf(*adjacent), expected);
}

TEST_F(Concatenation, Behaviour13SevenAndElevenChannelsGive20AndTheGradientUndoesIt) {
  const Images sources{pixel(counted(7)), pixel(counted(11, 50))};
  const auto buffer = commands();
  std::shared_ptr<State> state;
  const auto result = concatenation(2)->encode(buffer, sources, state, false);
  const auto g = pixel(counted(20, 1000));
  const auto dA = gradientOf(0)->encode(buffer, g, sources[0], state);
  const auto dB = gradientOf(1)->encode(buffer, g, sources[1], state);
  run(buffer);
  EXPECT_EQ(result->featureChannels(), 20U);
  EXPECT_EQ(valuesOf(*dA), counted(7, 1000));
  EXPECT_EQ(valuesOf(*dB), counted(11, 1008));
}

TEST_F(Concatenation, D18ChannelAlignmentIsOneOrFour) {
  const auto kernel = NNConcatenation::create(device_, 2);
  EXPECT_EQ(kernel->channelAlignment(), 4U);
  kernel->setChannelAlignment(1);
  EXPECT_EQ(kernel->copy()->channelAlignment(), 1U);
  EXPECT_EQ(kernel->copy()->sourceCount(), 2U);
  EXPECT_EQ(gradientOf(3)->copy()->sourceIndex(), 3U);
  for (const std::size_t wrong : {0U, 2U, 8U}) {
    EXPECT_TRUE(names(errorOf([&] { kernel->setChannelAlignment(wrong); }),
                      {"NNConcatenation", "channelAlignment is " + std::to_string(wrong), "1 or 4"}));
    const auto node = NNConcatenationNode::create({NNImageNode::create()});
    EXPECT_TRUE(names(errorOf([&] { node->setChannelAlignment(wrong); }),
                      {"NNConcatenationNode", "channelAlignment is " + std::to_string(wrong)}));
  }
}

TEST_F(Concatenation, D18WithAlignmentOneTheSliceBeginsAnywhere) {
  const Images sources{pixel(counted(3)), pixel(counted(2, 50)), pixel(counted(4, 70))};
  const auto buffer = commands();
  std::shared_ptr<State> state;
  const auto result = concatenation(3, 1)->encode(buffer, sources, state, false);
  const auto g = pixel(counted(9, 10));
  std::vector<std::shared_ptr<Image>> gradients;
  for (std::size_t i = 0; i < 3; ++i)
    gradients.push_back(gradientOf(i)->encode(buffer, g, sources[i], state));
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{1, 2, 3, 50, 51, 70, 71, 72, 73}));
  EXPECT_EQ(valuesOf(*gradients[0]), (Values{10, 11, 12}));
  EXPECT_EQ(valuesOf(*gradients[1]), (Values{13, 14}));
  EXPECT_EQ(valuesOf(*gradients[2]), (Values{15, 16, 17, 18}));
}

TEST_F(Concatenation, RangesOfChannelsAndPixels) {
  const auto a = image(sizeOf(3, 1, 5), counted(15));
  const auto b = image(sizeOf(3, 1, 2), counted(6, 100));
  const Images sources{a, b};
  const auto kernel = concatenation(2, 1);
  kernel->setSourceFeatureChannelOffset(4, 0);
  kernel->setSourceFeatureChannelMaxCount(1, 1);
  kernel->setDestinationFeatureChannelOffset(4);
  kernel->setOffset({1, 0, 0}, 0);
  kernel->setOffset({0, 0, 0}, 1);
  kernel->setClipRect({{1, 0, 0}, {2, 1, 1}});
  const auto result = poisoned(sizeOf(3, 1, 7));
  const std::vector<ImageBatch> batches{ImageBatch::of(a), ImageBatch::of(b)};
  const StateBatch states = kernel->resultStateBatch(batches);
  const auto buffer = commands();
  kernel->encodeBatch(buffer, batches, states, ImageBatch::of(result));
  const auto g = image(sizeOf(3, 1, 7), counted(21));
  const auto dA = gradientOf(0)->encode(buffer, g, a, states[0]);
  const auto dB = gradientOf(1)->encode(buffer, g, b, states[0]);
  run(buffer);
  Values expected(21, poison);
  expected[11] = 10;
  expected[12] = 100;
  expected[18] = 15;
  expected[19] = 102;
  EXPECT_EQ(valuesOf(*result), expected);
  Values expectedA(15, 0);
  expectedA[9] = 12;
  expectedA[14] = 19;
  EXPECT_EQ(valuesOf(*dA), expectedA);
  EXPECT_EQ(valuesOf(*dB), (Values{13, 0, 20, 0, 0, 0}));
}

TEST_F(Concatenation, FormatsMayDiffer) {
  const auto codes = Image::create(device_, ImageDescriptor(Unorm8, 1, 1, 2));
  const std::vector<std::uint8_t> bytes{255, 0};
  codes->writeBytes(std::span<const std::uint8_t>(bytes), testing::pixelsFirst);
  const auto half = image(ImageDescriptor(Float16, 1, 1, 1), {0.5F});
  const auto buffer = commands();
  const auto result = concatenation(2, 1)->encode(buffer, Images{codes, half});
  EXPECT_NE(errorOf([&] { concatenation(1, 1)->encode(buffer, Images{half}, codes); }), "");
  run(buffer);
  EXPECT_EQ(result->featureChannelFormat(), Float32);
  EXPECT_EQ(valuesOf(*result), (Values{1, 0, 0.5F}));
}

/// docs/decisions.md, D16.
TEST_F(Concatenation, D16Stacks) {
  const auto a = image(sizeOf(1, 1, 1, 3), {1, 2, 3});
  const auto b = image(sizeOf(1, 1, 1, 2), {10, 20});
  const auto result = poisoned(sizeOf(1, 1, 2, 3));
  const auto kernel = concatenation(2, 1);
  kernel->setOffset({0, 0, 1}, 0);
  kernel->setClipRect({{0, 0, 1}, {1, 1, 2}});
  const auto buffer = commands();
  kernel->encode(buffer, Images{a, b}, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, poison, 2, 10, 3, 20}));
}

TEST_F(Concatenation, WrongUseIsNamed) {
  const auto a = pixel(counted(4));
  const auto wide = image(sizeOf(2, 1, 4), counted(8));
  const auto buffer = commands();
  const auto encode = [&](const std::shared_ptr<NNConcatenation>& kernel, const Images& sources) {
    return errorOf([&] { kernel->encode(buffer, sources); });
  };
  EXPECT_TRUE(names(encode(concatenation(2), {a, wide}),
                    {"NNConcatenation", "sourceImages", "source 1", "1x1 pixels, as source 0"}));
  EXPECT_TRUE(names(encode(concatenation(3), {a, a}), {"sourceImages", "2 sources", "3"}));
  EXPECT_TRUE(names(errorOf([&] { NNConcatenation::create(device_, 0); }), {"sourceCount", "at least 1"}));
  EXPECT_TRUE(names(errorOf([&] {
                      concatenation(2)->encode(buffer, Images{a, a}, a);
                    }),
                    {"destination", "sharing memory"}));
  EXPECT_TRUE(names(errorOf([&] {
                      concatenation(2)->encode(buffer, Images{a, a}, pixel(counted(7)));
                    }),
                    {"destinationImage", "7 feature channels", "at least 8", "channelAlignment 4"}));
  auto kernel = concatenation(1);
  kernel->setSourceFeatureChannelOffset(4, 0);
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, Images{a}, pixel(counted(4))); }),
                    {"sourceImages", "4 feature channels", "channel offset 4"}));
  kernel->setSourceFeatureChannelOffset(2, 0);
  EXPECT_TRUE(names(encode(kernel, {a}), {"sourceFeatureChannelOffset", "2", "multiple of 4"}));
  kernel = concatenation(1);
  kernel->setDestinationFeatureChannelOffset(3);
  EXPECT_TRUE(names(encode(kernel, {a}), {"destinationFeatureChannelOffset", "3", "multiple of 4"}));
  kernel = concatenation(1);
  kernel->setStrideInPixelsX(2, 0);
  EXPECT_TRUE(names(encode(kernel, {a}), {"stride", "source 0", "no window"}));
  kernel = concatenation(1);
  kernel->setOffset({1, 0, 0}, 0);
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, Images{a}, pixel(counted(4))); }),
                    {"sourceImages", "source 0", "offset 1, 0"}));
}

TEST_F(Concatenation, WrongGradientsAreNamed) {
  const Images sources{pixel(counted(3)), pixel(counted(4))};
  const auto buffer = commands();
  std::shared_ptr<State> state;
  const auto result = concatenation(2)->encode(buffer, sources, state, false);
  EXPECT_TRUE(names(errorOf([&] { gradientOf(2)->encode(buffer, result, sources[0], state); }),
                    {"NNConcatenationGradient", "sourceIndex is 2", "2 sources"}));
  EXPECT_TRUE(names(errorOf([&] { gradientOf(1)->encode(buffer, result, sources[0], state); }),
                    {"NNConcatenationGradient", "sourceImage"}));
  EXPECT_TRUE(names(errorOf([&] { gradientOf(0)->encode(buffer, pixel(counted(2)), sources[0], state); }),
                    {"sourceGradient", "1x1x2", "at least 3"}));
  const auto without = poisoned(sizeOf(1, 1, 4));
  EXPECT_TRUE(names(errorOf([&] { gradientOf(0)->encode(buffer, sources[0], sources[1], without); }),
                    {"sourceGradient", "3 feature channels", "4"}));
}

/// Without a state the properties say where the slice begins.
TEST_F(Concatenation, GradientWithoutAState) {
  const auto kernel = gradientOf(0);
  kernel->setPrimarySourceFeatureChannelOffset(4);
  const auto result = poisoned(sizeOf(1, 1, 3));
  const auto buffer = commands();
  kernel->encode(buffer, pixel(counted(8)), pixel({0, 0, 0}), result);
  kernel->setPrimarySourceFeatureChannelOffset(3);
  EXPECT_TRUE(names(errorOf([&] {
                      kernel->encode(buffer, pixel(counted(8)), pixel({0, 0, 0}), result);
                    }),
                    {"primarySourceFeatureChannelOffset", "3", "multiple of 4"}));
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{5, 6, 7}));
}

/// Two sources of a concatenation of three, two images of 2x1 pixels each.
class TwoGradients : public Concatenation {
 protected:
  TwoGradients() { concatenate(1); }

  void concatenate(std::size_t alignment) {
    kernel_ = concatenation(3, alignment);
    const ImageDescriptor result =
        kernel_->destinationImageDescriptor(std::vector{sources_[0][0], sources_[1][0], sources_[2][0]}, {});
    states_ = kernel_->resultStateBatch(sources_);
    const auto buffer = commands();
    kernel_->encodeBatch(buffer, sources_, states_, ImageBatch::create(device_, result, 2));
    run(buffer);
    gradient_ = batch(result, 2, counted(4 * result.featureChannels()));
  }
  [[nodiscard]] ImageBatch like(std::size_t source) const {
    return ImageBatch::create(device_, sources_[source].descriptor(), 2);
  }
  /// Encodes the gradients of source `first` and the one behind it, and returns how many calls that takes.
  int encodeFrom(std::size_t first, std::span<const ImageBatch> destinations) {
    int calls = 0;
    const auto buffer = commands();
    {
      const detail::CallObserver observer([&](const auto&, const auto&) { ++calls; });
      gradientOf(first)->encodeBatchWithNext(buffer, gradient_, std::span(sources_).subspan(first, 2),
                                             states_, destinations);
    }
    run(buffer);
    return calls;
  }
  void expectBoth(std::size_t first, std::span<const ImageBatch> found) {
    for (std::size_t i = 0; i < 2; ++i) {
      const ImageBatch alone = like(first + i);
      const auto buffer = commands();
      gradientOf(first + i)->encodeBatch(buffer, gradient_, sources_[first + i], states_, alone);
      run(buffer);
      for (std::size_t n = 0; n < 2; ++n) EXPECT_EQ(valuesOf(*found[i][n]), valuesOf(*alone[n])) << i;
    }
  }

  std::vector<ImageBatch> sources_{batch(sizeOf(2, 1, 4), 2, counted(16)),
                                   batch(sizeOf(2, 1, 3), 2, counted(12)),
                                   batch(sizeOf(2, 1, 8), 2, counted(32))};
  std::shared_ptr<NNConcatenation> kernel_;
  StateBatch states_;
  ImageBatch gradient_;
};

TEST_F(TwoGradients, OfSlicesSideBySideAreOneCall) {
  for (const std::size_t first : {0U, 1U}) {
    const std::array found{like(first), like(first + 1)};
    EXPECT_EQ(encodeFrom(first, found), 1);
    expectBoth(first, found);
  }
}

TEST_F(TwoGradients, WithPaddingBetweenThemAreTwoCalls) {
  concatenate(4);
  const std::array adjacent{like(0), like(1)};
  EXPECT_EQ(encodeFrom(0, adjacent), 1);
  expectBoth(0, adjacent);
  const std::array apart{like(1), like(2)};
  EXPECT_EQ(encodeFrom(1, apart), 2);
  expectBoth(1, apart);
}

TEST_F(TwoGradients, OfPartsOfSourcesAreTwoCalls) {
  kernel_->setSourceFeatureChannelMaxCount(2, 1);
  states_ = kernel_->resultStateBatch(sources_);
  const auto buffer = commands();
  kernel_->encodeBatch(buffer, sources_, states_, ImageBatch::create(device_, sizeOf(2, 1, 14), 2));
  run(buffer);
  gradient_ = batch(sizeOf(2, 1, 14), 2, counted(56));
  const std::array found{like(0), like(1)};
  EXPECT_GT(encodeFrom(0, found), 1);
  expectBoth(0, found);
}

TEST_F(TwoGradients, AreOfLooseImagesAndGoToSuch) {
  const ImageDescriptor size = gradient_.descriptor();
  const Values values = counted(2 * size.featureChannels());
  gradient_ = ImageBatch({image(size, values), image(size, values)});
  const std::array<ImageBatch, 2> found{ImageBatch({poisoned(sizeOf(2, 1, 4)), poisoned(sizeOf(2, 1, 4))}),
                                        ImageBatch({poisoned(sizeOf(2, 1, 3)), poisoned(sizeOf(2, 1, 3))})};
  encodeFrom(0, found);
  expectBoth(0, found);
}

TEST_F(TwoGradients, TakeTheReadsOfTwoEncodes) {
  const auto buffer = commands();
  const ImageDescriptor size = gradient_.descriptor();
  const auto incoming = TemporaryImage::create(buffer, size);
  const auto copied = ImageBatch::of(incoming);
  incoming->setReadCount(3);
  const std::vector first{ImageBatch::of(sources_[0][0]), ImageBatch::of(sources_[1][0])};
  const std::vector results{ImageBatch::of(poisoned(sizeOf(2, 1, 4))),
                            ImageBatch::of(poisoned(sizeOf(2, 1, 3)))};
  gradientOf(0)->encodeBatchWithNext(buffer, copied, first, StateBatch{states_[0]}, results);
  EXPECT_EQ(incoming->readCount(), 1U);
}

TEST_F(TwoGradients, WrongUseIsNamed) {
  const auto buffer = commands();
  const std::array destinations{like(0), like(1)};
  const auto encode = [&](std::size_t first, std::span<const ImageBatch> sources,
                          std::span<const ImageBatch> results) {
    return errorOf(
        [&] { gradientOf(first)->encodeBatchWithNext(buffer, gradient_, sources, states_, results); });
  };
  const std::span sources(sources_);
  EXPECT_TRUE(names(encode(0, sources, destinations), {"NNConcatenationGradient", "sourceImages", "3", "2"}));
  EXPECT_TRUE(names(encode(0, sources.first(2), std::span(destinations).first(1)),
                    {"destinationGradients", "1", "2"}));
  EXPECT_TRUE(names(encode(2, sources.first(2), destinations), {"sourceImage"}));
  EXPECT_TRUE(names(encode(0, sources.subspan(1), destinations), {"sourceImage"}));
  EXPECT_TRUE(names(encode(0, sources.first(2), std::array{like(1), like(1)}),
                    {"destinationGradient", "3 feature channels", "4"}));
  const ImageBatch both = ImageBatch::create(device_, sizeOf(2, 1, 4), 2);
  EXPECT_TRUE(names(encode(0, std::array{sources_[0], sources_[0]}, std::array{both, both}), {"source"}));
}

TEST_F(Concatenation, TwoGradientsNeedMemoryOfTheirOwn) {
  const std::vector sources{ImageBatch::of(pixel(counted(4))), ImageBatch::of(pixel(counted(4)))};
  const StateBatch states = concatenation(2)->resultStateBatch(sources);
  const auto buffer = commands();
  concatenation(2)->encodeBatch(buffer, sources, states, ImageBatch::of(poisoned(sizeOf(1, 1, 8))));
  const ImageBatch gradient = ImageBatch::of(pixel(counted(8)));
  const ImageBatch one = ImageBatch::of(poisoned(sizeOf(1, 1, 4)));
  EXPECT_TRUE(
      names(errorOf([&] {
              gradientOf(0)->encodeBatchWithNext(buffer, gradient, sources, states, std::array{one, one});
            }),
            {"NNConcatenationGradient", "sharing memory with destinationGradients"}));
}

TEST_F(Concatenation, NodesNameTheirSources) {
  const auto a = NNImageNode::create();
  const auto b = NNImageNode::create();
  const auto node = NNConcatenationNode::create({a, b, a});
  node->setChannelAlignment(1);
  node->setLabel("join");
  const auto kernel = std::dynamic_pointer_cast<NNConcatenation>(node->makeKernel(device_));
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->sourceCount(), 3U);
  EXPECT_EQ(kernel->channelAlignment(), 1U);
  EXPECT_EQ(kernel->label(), "join");
  const auto gradients = node->gradientFilters(NNImageNode::create());
  ASSERT_EQ(gradients.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto slice = std::dynamic_pointer_cast<NNConcatenationGradientNode>(gradients[i]);
    ASSERT_NE(slice, nullptr);
    EXPECT_EQ(slice->sourceIndex(), i);
    EXPECT_EQ(slice->sourceImage(), i == 1 ? b : a);
    EXPECT_EQ(slice->label(), "join gradient");
    EXPECT_EQ(std::dynamic_pointer_cast<NNConcatenationGradient>(slice->makeKernel(device_))->sourceIndex(),
              i);
  }
  EXPECT_TRUE(names(errorOf([&] { node->gradientFilter(NNImageNode::create()); }), {"gradientFilters"}));
  const auto byHand = NNConcatenationGradientNode::create(NNImageNode::create(), b, node->resultState());
  EXPECT_EQ(byHand->sourceIndex(), 1U);
  EXPECT_TRUE(names(
      errorOf([&] { NNConcatenationGradientNode::create(a, NNImageNode::create(), node->resultState()); }),
      {"NNConcatenationGradientNode", "sourceImage", "join"}));
  EXPECT_TRUE(names(errorOf([&] { NNConcatenationGradientNode::create(a, b, node->resultState(), 2); }),
                    {"sourceImage", "source 2"}));
  EXPECT_TRUE(names(errorOf([&] { NNConcatenationGradientNode::create(a, b, nullptr); }), {"gradientState"}));
  EXPECT_TRUE(names(errorOf([] { NNConcatenationNode::create({}); }), {"sources", "at least 1"}));
}

TEST_F(Concatenation, OffsetsBeyond32BitsAreRefused) {
  const auto kernel = concatenation(2);
  kernel->setOffset({std::numeric_limits<std::int64_t>::max(), 0, 0}, 1);
  EXPECT_TRUE(names(errorOf([&] {
                      kernel->encode(commands(), Images{pixel({1}), pixel({2})}, pixel(Values(8, 0)));
                    }),
                    {"NNConcatenation", "offset"}));
}

}  // namespace
}  // namespace mps::concatenation_test
