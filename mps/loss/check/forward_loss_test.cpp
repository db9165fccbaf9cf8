#include "mps/loss/forward_loss.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/loss/check/loss_check_values.hpp"
#include "mps/loss/loss_node.hpp"

/// Losses as images.
namespace mps::forward_loss_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

CNNLossDescriptor squared(CNNReductionType reduction = CNNReductionType::Sum) {
  return CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, reduction);
}

class ForwardLoss : public testing::DeviceTest {
 protected:
  static Values floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }
  static void expectNear(const Values& found, const std::vector<double>& expected, const char* what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], detail::kLossPrecision * std::max(1.0, std::abs(expected[i])))
          << what << " element " << i;
  }
  /// One pixel for each image.
  [[nodiscard]] ImageBatch pixels(std::size_t count, const Values& values) const {
    return batch(sizeOf(1, 1, values.size() / count), count, values);
  }
  [[nodiscard]] std::shared_ptr<NNForwardLoss> forward(const CNNLossDescriptor& descriptor) const {
    auto kernel = NNForwardLoss::create(device_, descriptor);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  [[nodiscard]] std::shared_ptr<NNLossGradient> gradient(const CNNLossDescriptor& descriptor) const {
    auto kernel = NNLossGradient::create(device_, descriptor);
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  Values lossOf(const CNNLossDescriptor& descriptor, const ImageBatch& y, const ImageBatch& t,
                const ImageBatch& weights = {}) {
    const auto buffer = commands();
    const ImageBatch losses = forward(descriptor)->encodeBatch(buffer, y, t, weights);
    run(buffer);
    return valuesOf(losses);
  }
  /// With an incoming gradient of ones.
  Values gradientOf(const CNNLossDescriptor& descriptor, const ImageBatch& y, const ImageBatch& t,
                    const ImageBatch& weights = {}) {
    return gradientOf(*gradient(descriptor), y, t, weights);
  }
  Values gradientOf(NNLossGradient& kernel, const ImageBatch& y, const ImageBatch& t,
                    const ImageBatch& weights = {}, const StateBatch& states = {}) {
    const bool perElement = kernel.reductionType() == CNNReductionType::None;
    const ImageDescriptor size = perElement ? y.descriptor() : sizeOf(1, 1, 1);
    const ImageBatch ones = batch(size, y.count(), Values(testing::elementsOf(size) * y.count(), 1));
    const auto buffer = commands();
    const ImageBatch result = kernel.encodeBatch(buffer, ones, y, t, weights, states);
    run(buffer);
    return valuesOf(result);
  }
};

class ForwardLossExample : public ForwardLoss,
                           public ::testing::WithParamInterface<detail::LossCheckValueRow> {
 protected:
  static CNNLossDescriptor descriptor(CNNReductionType reduction) {
    const auto& row = GetParam();
    auto result = CNNLossDescriptor::cnnLossDescriptor(row.type, reduction);
    result.setLabelSmoothing(static_cast<float>(row.labelSmoothing));
    result.setNumberOfClasses(static_cast<std::size_t>(row.numberOfClasses));
    result.setDelta(static_cast<float>(row.delta));
    return result;
  }
};

TEST_P(ForwardLossExample, GivesTheCheckValuesOfSection11_8) {
  const auto& row = GetParam();
  const ImageBatch y = pixels(1, floats(row.y));
  const ImageBatch t = pixels(1, floats(row.t));
  expectNear(lossOf(descriptor(CNNReductionType::Sum), y, t), {row.sum}, "sum");
  expectNear(gradientOf(descriptor(CNNReductionType::Sum), y, t), row.gradient, "gradient");
  if (row.losses.empty()) return;
  expectNear(lossOf(descriptor(CNNReductionType::None), y, t), row.losses, "losses");
  expectNear(gradientOf(descriptor(CNNReductionType::None), y, t), row.gradient, "gradient of each");
}

INSTANTIATE_TEST_SUITE_P(Section11_8, ForwardLossExample, ::testing::ValuesIn(detail::lossCheckValues()),
                         [](const auto& row) { return row.param.name; });

TEST_F(ForwardLoss, TheMeanIsDividedAndSoIsItsGradient) {
  const ImageBatch y = pixels(1, {3, 1, 0, 2});
  const ImageBatch t = pixels(1, {1, 1, 0, 0});
  EXPECT_EQ(lossOf(squared(CNNReductionType::Mean), y, t), (Values{2}));
  EXPECT_EQ(gradientOf(squared(CNNReductionType::Mean), y, t), (Values{1, 0, 0, 1}));
  const auto undivided = gradient(squared(CNNReductionType::Mean));
  EXPECT_TRUE(undivided->dividesByCount());
  undivided->setDividesByCount(false);
  EXPECT_EQ(gradientOf(*undivided, y, t), (Values{4, 0, 0, 4}))
      << "the formula of Apple's header, read literally";
}

TEST_F(ForwardLoss, WeightsThatAreNotZeroAreCounted) {
  const ImageBatch y = pixels(1, {3, 1, 0, 2});
  const ImageBatch t = pixels(1, {1, 0, 0, 0});
  const ImageBatch w = pixels(1, {2, 0, 0, 1});
  EXPECT_EQ(lossOf(squared(CNNReductionType::SumByNonZeroWeights), y, t, w), (Values{6}));
  EXPECT_EQ(gradientOf(squared(CNNReductionType::SumByNonZeroWeights), y, t, w), (Values{4, 0, 0, 2}));
}

TEST_F(ForwardLoss, AcrossTheBatchTheFirstImageHasTheLossAndTheIncomingGradient) {
  auto descriptor = squared(CNNReductionType::Mean);
  descriptor.setReduceAcrossBatch(true);
  const ImageBatch y = pixels(2, {1, 2, 3, 4});
  const ImageBatch t = pixels(2, {0, 2, 3, 2});
  EXPECT_EQ(lossOf(descriptor, y, t), (Values{1.25F, 0}));
  const auto buffer = commands();
  const ImageBatch incoming = pixels(2, {2, -50});
  const ImageBatch result = gradient(descriptor)->encodeBatch(buffer, incoming, y, t, {}, {});
  run(buffer);
  EXPECT_EQ(valuesOf(result), (Values{1, 0, 0, 2}));
}

TEST_F(ForwardLoss, TheIncomingGradientMultiplies) {
  const ImageBatch y = pixels(2, {1, 2, 3, 4});
  const ImageBatch t = pixels(2, {0, 0, 0, 0});
  const auto buffer = commands();
  const ImageBatch ofSums = gradient(squared())->encodeBatch(buffer, pixels(2, {1, -2}), y, t, {}, {});
  const ImageBatch ofEach =
      gradient(squared(CNNReductionType::None))->encodeBatch(buffer, pixels(2, {1, 2, 3, 4}), y, t, {}, {});
  run(buffer);
  EXPECT_EQ(valuesOf(ofSums), (Values{2, 4, -12, -16}));
  EXPECT_EQ(valuesOf(ofEach), (Values{2, 8, 18, 32}));
}

TEST_F(ForwardLoss, LabelsHaveGradients) {
  const auto kernel = gradient(squared());
  EXPECT_FALSE(kernel->computeLabelGradients());
  const detail::ImageKernel& ofGraph = *kernel;
  EXPECT_EQ(ofGraph.derivativeTraits().forwardSource, 0U);
  kernel->setComputeLabelGradients(true);
  EXPECT_EQ(ofGraph.derivativeTraits().forwardSource, 1U);
  EXPECT_EQ(gradientOf(*kernel, pixels(1, {3, 1}), pixels(1, {1, 2})), (Values{-4, 2}));
}

/// The state carries the numbers of its encode to the gradient; docs/decisions.md, D9.
TEST_F(ForwardLoss, D9TheStateKeepsTheNumbersOfTheEncode) {
  auto descriptor = CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Huber, CNNReductionType::Sum);
  descriptor.setDelta(2);
  descriptor.setWeight(0.5F);
  const ImageBatch y = pixels(1, {3, 1});
  const ImageBatch t = pixels(1, {0, 0});
  for (const bool isTemporary : {false, true}) {
    const auto kernel = forward(descriptor);
    const auto buffer = commands();
    StateBatch states;
    kernel->encodeBatch(buffer, y, t, {}, states, isTemporary);
    kernel->setDelta(1);
    kernel->setWeight(100);
    const ImageBatch result =
        gradient(CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Huber, CNNReductionType::Sum))
            ->encodeBatch(buffer, pixels(1, {1}), y, t, {}, states);
    run(buffer);
    EXPECT_EQ(valuesOf(result), (Values{1, 0.5F})) << isTemporary;
  }
  const auto own = gradient(descriptor);
  EXPECT_EQ(gradientOf(*own, y, t), (Values{1, 0.5F})) << "without a state the kernel's count";
  own->setWeight(1);
  own->setDelta(1);
  EXPECT_EQ(gradientOf(*own, y, t), (Values{1, 1}));
}

/// Gives one weight after the other.
class CountedWeight : public NNLossCallback {
 public:
  float scalarWeight(const std::shared_ptr<Image>& sourceImage,
                     const std::shared_ptr<Image>& destinationImage) override {
    seen.push_back({sourceImage->featureChannels(), destinationImage->featureChannels()});
    return static_cast<float>(++calls_);
  }
  std::vector<std::pair<std::size_t, std::size_t>> seen;

 private:
  int calls_ = 0;
};

TEST_F(ForwardLoss, TheCallBackGivesTheWeightOfAnEncodeAndTheStateKeepsIt) {
  const auto weight = std::make_shared<CountedWeight>();
  const auto kernel = forward(squared());
  kernel->setPropertyCallBack(weight);
  const ImageBatch y = pixels(2, {1, 2, 3, 4});
  const ImageBatch t = pixels(2, {0, 0, 0, 0});
  const auto buffer = commands();
  StateBatch states;
  const ImageBatch first = kernel->encodeBatch(buffer, y, t);
  const ImageBatch second = kernel->encodeBatch(buffer, y, t, {}, states, false);
  run(buffer);
  EXPECT_EQ(valuesOf(first), (Values{5, 25}));
  EXPECT_EQ(valuesOf(second), (Values{10, 50}));
  const std::vector<std::pair<std::size_t, std::size_t>> twice(2, {2, 1});
  EXPECT_EQ(weight->seen, twice) << "once for each encode";
  const auto backward = gradient(squared());
  EXPECT_EQ(gradientOf(*backward, y, t, {}, states), (Values{4, 8, 12, 16}));
  backward->setPropertyCallBack(weight);
  EXPECT_EQ(gradientOf(*backward, y, t, {}, states), (Values{6, 12, 18, 24})) << "its own is asked";
  EXPECT_EQ(weight->seen.back(), (std::pair<std::size_t, std::size_t>{2, 2}));
}

TEST_F(ForwardLoss, LabelsOfSizeOneAreRepeatedWhereAskedForAndWeightsAlways) {
  const ImageBatch y = batch(sizeOf(2, 1, 2), 1, {1, 2, 3, 4});
  const ImageBatch t = batch(sizeOf(1, 1, 2), 1, {1, 0});
  const ImageBatch w = batch(sizeOf(2, 1, 1), 1, {1, 2});
  auto descriptor = squared(CNNReductionType::None);
  EXPECT_TRUE(names(errorOf([&] { lossOf(descriptor, y, t, w); }),
                    {"NNForwardLoss", "labels", "1x1x2", "2x1", "broadcastsLabels"}));
  EXPECT_TRUE(names(errorOf([&] { gradientOf(descriptor, y, t, w); }),
                    {"NNLossGradient", "labels", "1x1x2", "2x1", "broadcastsLabels"}));
  descriptor.setBroadcastsLabels(true);
  EXPECT_EQ(lossOf(descriptor, y, t, w), (Values{0, 4, 8, 32}));
  EXPECT_EQ(gradientOf(descriptor, y, t, w), (Values{0, 4, 8, 16}));
}

TEST_F(ForwardLoss, ImagesThatLieApartAreTaken) {
  const auto one = [&](const Values& values) { return image(sizeOf(1, 1, values.size()), values); };
  const ImageBatch y{one({1, 2}), one({3, 4})};
  const ImageBatch t{one({0, 2}), one({3, 3})};
  const ImageBatch w{one({1, 1}), one({1, 5})};
  const ImageBatch losses{poisoned(sizeOf(1, 1, 1)), poisoned(sizeOf(1, 1, 1))};
  const ImageBatch result{poisoned(sizeOf(1, 1, 2)), poisoned(sizeOf(1, 1, 2))};
  const auto ofLabels = gradient(squared());
  ofLabels->setComputeLabelGradients(true);
  const auto buffer = commands();
  forward(squared())->encodeBatch(buffer, y, t, w, {}, losses);
  gradient(squared())->encodeBatch(buffer, ImageBatch{one({1}), one({2})}, y, t, w, {}, result);
  const ImageBatch labelResult{poisoned(sizeOf(1, 1, 2)), poisoned(sizeOf(1, 1, 2))};
  ofLabels->encodeBatch(buffer, ImageBatch{one({1}), one({2})}, y, t, w, {}, labelResult);
  run(buffer);
  EXPECT_EQ(valuesOf(losses), (Values{1, 5}));
  EXPECT_EQ(valuesOf(result), (Values{2, 0, 0, 20}));
  EXPECT_EQ(valuesOf(labelResult), (Values{-2, 0, 0, -20}));
}

TEST_F(ForwardLoss, EachEncodeTakesOneReadOffItsTemporaryImages) {
  const auto buffer = commands();
  const auto temporary = [&](std::size_t channels) {
    auto made = TemporaryImage::create(buffer, sizeOf(1, 1, channels));
    made->setReadCount(2);
    NNInitialGradient::create(device_)->encode(buffer, image(sizeOf(1, 1, channels), Values(channels, 1)),
                                               made);
    return made;
  };
  const auto y = temporary(2), t = temporary(2), w = temporary(2), g = temporary(1);
  forward(squared())->encodeBatch(buffer, ImageBatch{y}, ImageBatch{t}, ImageBatch{w});
  for (const auto& read : {y, t, w}) EXPECT_EQ(read->readCount(), 1U);
  gradient(squared())->encodeBatch(buffer, ImageBatch{g}, ImageBatch{y}, ImageBatch{t}, ImageBatch{w}, {});
  for (const auto& read : {y, t, w}) EXPECT_EQ(read->readCount(), 0U);
  EXPECT_EQ(g->readCount(), 1U);
  run(buffer);
}

TEST_F(ForwardLoss, AnEmptyBatchIsNamed) {
  const auto buffer = commands();
  StateBatch states;
  const auto isNamed = [](const std::string& error) {
    return names(error, {"sourceImages", "an empty batch"});
  };
  EXPECT_TRUE(isNamed(errorOf([&] { forward(squared())->encodeBatch(buffer, {}, {}); })));
  EXPECT_TRUE(isNamed(errorOf([&] { forward(squared())->encodeBatch(buffer, {}, {}, {}, states, false); })));
  EXPECT_TRUE(isNamed(errorOf([&] { gradient(squared())->encodeBatch(buffer, {}, {}, {}, {}, {}); })));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(ForwardLoss, CopiesKeepTheirProperties) {
  const auto callback = std::make_shared<CountedWeight>();
  const auto kernel = forward(squared(CNNReductionType::Mean));
  kernel->setWeight(3);
  kernel->setLabelSmoothing(0.25F);
  kernel->setEpsilon(0.5F);
  kernel->setDelta(7);
  kernel->setPropertyCallBack(callback);
  const auto copy = kernel->copy();
  EXPECT_EQ(copy->weight(), 3);
  EXPECT_EQ(copy->labelSmoothing(), 0.25F);
  EXPECT_EQ(copy->epsilon(), 0.5F);
  EXPECT_EQ(copy->delta(), 7);
  EXPECT_EQ(copy->propertyCallBack(), callback);
  EXPECT_EQ(copy->reductionType(), CNNReductionType::Mean);
  EXPECT_EQ(copy->lossType(), CNNLossType::MeanSquaredError);
  const auto backward = gradient(squared(CNNReductionType::Mean));
  backward->setComputeLabelGradients(true);
  backward->setDividesByCount(false);
  backward->setEpsilon(0.5F);
  backward->setLabelSmoothing(0.25F);
  EXPECT_TRUE(backward->copy()->computeLabelGradients());
  EXPECT_FALSE(backward->copy()->dividesByCount());
  EXPECT_EQ(backward->copy()->descriptor(), backward->descriptor());
}

TEST_F(ForwardLoss, WrongDescriptorsAreNamed) {
  auto scaled = squared();
  scaled.setLossScale(LossScale::create(device_));
  EXPECT_TRUE(
      names(errorOf([&] { NNForwardLoss::create(device_, scaled); }), {"NNForwardLoss", "lossScale"}));
  EXPECT_TRUE(
      names(errorOf([&] { NNLossGradient::create(device_, scaled); }), {"NNLossGradient", "lossScale"}));
  auto none = squared();
  none.setNumberOfClasses(0);
  EXPECT_TRUE(
      names(errorOf([&] { NNForwardLoss::create(device_, none); }), {"NNForwardLoss", "numberOfClasses"}));
  EXPECT_TRUE(
      names(errorOf([&] { NNLossGradient::create(device_, none); }), {"NNLossGradient", "numberOfClasses"}));
}

TEST_F(ForwardLoss, WrongEncodesAreNamed) {
  const auto buffer = commands();
  const ImageBatch y = pixels(2, {1, 2, 3, 4}), t = pixels(2, {1, 2, 3, 4}), one = pixels(2, {1, 1});
  const ImageBatch wide = pixels(2, {1, 2, 3, 4, 5, 6}), single = pixels(1, {1, 2});
  const auto kernel = forward(squared());
  const auto expectError = [&](const auto& encode, const std::vector<std::string>& words) {
    EXPECT_TRUE(names(errorOf(encode), words));
  };
  CNNKernel& base = *kernel;
  expectError([&] { base.encodeBatch(buffer, y); }, {"NNForwardLoss", "without labels"});
  expectError([&] { kernel->encodeBatch(buffer, y, single); }, {"labels", "1", "2"});
  expectError([&] { kernel->encodeBatch(buffer, y, t, single); }, {"weights", "1", "2"});
  expectError([&] { kernel->encodeBatch(buffer, y, one); }, {"labels", "1x1x1", "2 channels"});
  expectError([&] { kernel->encodeBatch(buffer, y, t, {}, {}, t); }, {"labels"});
  expectError([&] { kernel->encodeBatch(buffer, y, t, {}, {}, wide); },
              {"destinationImages", "1x1x3", "1x1x1"});
  expectError([&] { forward(squared(CNNReductionType::None))->encodeBatch(buffer, y, t, {}, {}, one); },
              {"destinationImages", "1x1x1", "1x1x2"});
  expectError([&] { kernel->encodeBatch(nullptr, y, t); }, {"commandBuffer"});
  kernel->setOffset({1, 0, 0});
  expectError([&] { kernel->encodeBatch(buffer, y, t, {}, {}, one); }, {"offset"});

  const auto backward = gradient(squared());
  CNNGradientKernel& baseGradient = *backward;
  expectError([&] { baseGradient.CNNBinaryKernel::encodeBatch(buffer, one, y); },
              {"NNLossGradient", "without labels"});
  expectError(
      [&] {
        backward->encodeBatch(buffer, pixels(2, {1, 2, 3, 4}), y, t, {}, {});
      },
      {"sourceGradients", "1x1x2", "1x1x1"});
  expectError([&] { gradient(squared(CNNReductionType::None))->encodeBatch(buffer, one, y, t, {}, {}); },
              {"sourceGradients", "1x1x1", "1x1x2"});
  expectError([&] { backward->encodeBatch(buffer, single, y, t, {}, {}); }, {"sourceGradients"});
  expectError([&] { backward->encodeBatch(buffer, one, y, t, {}, {}, wide); },
              {"destinationImages", "1x1x3"});
  expectError([&] { backward->encodeBatch(buffer, one, y, t, {}, {}, y); }, {"sourceImages"});
  const ImageBatch shared = pixels(2, {1, 1});
  expectError([&] { backward->encodeBatch(buffer, shared, shared, one, {}, {}, shared); }, {"sourceImages"});
  const auto labelGradient = gradient(squared());
  labelGradient->setComputeLabelGradients(true);
  expectError([&] { labelGradient->encodeBatch(buffer, one, y, t, {}, {}, wide); },
              {"destinationImages", "1x1x3"});
  StateBatch states;
  forward(squared())->encodeBatch(buffer, wide, wide, {}, states, false);
  expectError([&] { backward->encodeBatch(buffer, one, y, t, {}, states); }, {"sourceImages", "forward"});
  const StateBatch foreign{NNGradientState::create(device_), NNGradientState::create(device_)};
  expectError([&] { backward->encodeBatch(buffer, one, y, t, {}, foreign); }, {"NNLossGradient"});
  backward->setPrimaryOffset({1, 0, 0});
  expectError([&] { backward->encodeBatch(buffer, one, y, t, {}, {}); }, {"offsets"});
  EXPECT_FALSE(static_cast<const detail::ImageKernel&>(*backward).acceptsForward("CNNLoss"));
}

TEST_F(ForwardLoss, CoversAllChannels) {
  const auto buffer = commands();
  const ImageBatch y = pixels(1, {1, 2}), t = pixels(1, {1, 2}), one = pixels(1, {1});
  const auto refused = [&](const auto& change) {
    const auto kernel = forward(squared());
    change(*kernel);
    return errorOf([&] { kernel->encodeBatch(buffer, y, t, {}, {}, one); });
  };
  const std::vector<std::string> words{"NNForwardLoss", "sourceFeatureChannelOffset", "all channels"};
  EXPECT_TRUE(names(refused([](auto& kernel) { kernel.setSourceFeatureChannelOffset(4); }), words));
  EXPECT_TRUE(names(refused([](auto& kernel) { kernel.setSourceFeatureChannelMaxCount(1); }), words));
  EXPECT_TRUE(names(refused([](auto& kernel) { kernel.setDestinationFeatureChannelOffset(4); }), words));
  const auto refusedGradient = [&](const auto& change) {
    const auto kernel = gradient(squared());
    change(*kernel);
    return errorOf([&] { kernel->encodeBatch(buffer, one, y, t, {}, {}, pixels(1, {0, 0})); });
  };
  const std::vector<std::string> all{"NNLossGradient", "all channels"};
  EXPECT_TRUE(
      names(refusedGradient([](auto& kernel) { kernel.setPrimarySourceFeatureChannelOffset(4); }), all));
  EXPECT_TRUE(
      names(refusedGradient([](auto& kernel) { kernel.setSecondarySourceFeatureChannelMaxCount(1); }), all));
  EXPECT_TRUE(
      names(refusedGradient([](auto& kernel) { kernel.setDestinationFeatureChannelOffset(4); }), all));
  EXPECT_EQ(refusedGradient([](auto&) {}), "");
}

/// Numbers that change between encodes have the ranges of the descriptor's.
TEST_F(ForwardLoss, NumbersAreCheckedByEachEncode) {
  const auto buffer = commands();
  const ImageBatch y = pixels(1, {1, 2}), t = pixels(1, {1, 2}), one = pixels(1, {1});
  const auto kernel = forward(squared());
  const auto backward = gradient(squared());
  StateBatch states;
  kernel->encodeBatch(buffer, y, t, {}, states, false);
  kernel->setEpsilon(-1);
  backward->setEpsilon(-1);
  EXPECT_TRUE(names(errorOf([&] { kernel->encodeBatch(buffer, y, t); }), {"NNForwardLoss", "epsilon", "-1"}));
  EXPECT_TRUE(names(errorOf([&] { backward->encodeBatch(buffer, one, y, t, {}, {}); }),
                    {"NNLossGradient", "epsilon", "-1"}));
  EXPECT_EQ(errorOf([&] { backward->encodeBatch(buffer, one, y, t, {}, states); }), "")
      << "the state's numbers count";
}

/// A gradient of labels has the size of the predictions, and so have they.
TEST_F(ForwardLoss, RepeatedLabelsHaveNoGradient) {
  auto descriptor = squared();
  descriptor.setBroadcastsLabels(true);
  const auto kernel = gradient(descriptor);
  kernel->setComputeLabelGradients(true);
  const ImageBatch y = batch(sizeOf(2, 1, 1), 1, {1, 2});
  EXPECT_TRUE(
      names(errorOf([&] { kernel->encodeBatch(commands(), pixels(1, {1}), y, pixels(1, {0}), {}, {}); }),
            {"NNLossGradient", "labels", "1x1x1", "2x1x1"}));
}

TEST_F(ForwardLoss, AStateOfAnotherKernelIsRefused) {
  const auto buffer = commands();
  const ImageBatch y = pixels(1, {1, 2});
  auto record = std::make_shared<detail::ForwardRecord>();
  record->kernelClass = "CNNSoftMax";
  record->source = y.descriptor();
  record->imageCount = 1;
  const auto state = NNGradientState::create(device_);
  state->setRecord(record, 0);
  EXPECT_TRUE(names(
      errorOf([&] { gradient(squared())->encodeBatch(buffer, pixels(1, {1}), y, y, {}, StateBatch{state}); }),
      {"sourceStates", "CNNSoftMax", "NNForwardLoss"}));
}

TEST_F(ForwardLoss, TheInitialGradientIsOne) {
  const auto kernel = NNInitialGradient::create(device_);
  EXPECT_TRUE(static_cast<const CNNKernel&>(*kernel).isItsOwnGradient());
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const auto buffer = commands();
  StateBatch states;
  const ImageBatch result = kernel->copy()->encodeBatch(buffer, pixels(2, {1, 2, std::nanf(""), 4}));
  kernel->encodeBatch(buffer, pixels(2, {1, 2, 3, 4}), states, false);
  run(buffer);
  EXPECT_EQ(valuesOf(result), (Values{1, 1, 1, 1})) << "the source is not read";
  EXPECT_TRUE(states.empty());
}

TEST(ForwardLossNode, KeepsWhatItIsMadeWith) {
  auto descriptor = squared();
  descriptor.setWeight(0.5F);
  const auto node = NNForwardLossNode::create(NNImageNode::create(), NNImageNode::create(), descriptor);
  descriptor.setWeight(3);
  EXPECT_EQ(node->weight(), 0.5F) << "copied";
  EXPECT_EQ(node->sources().size(), 2U);
  EXPECT_EQ(node->lossType(), CNNLossType::MeanSquaredError);
  EXPECT_EQ(node->reductionType(), CNNReductionType::Sum);
  const auto callback = std::make_shared<CountedWeight>();
  node->setPropertyCallBack(callback);
  const auto kernel = std::dynamic_pointer_cast<NNForwardLoss>(node->makeKernel(mtl::newCPUDevice(1)));
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->weight(), 0.5F);
  EXPECT_EQ(kernel->propertyCallBack(), callback);
  EXPECT_EQ(NNForwardLossNode::create(NNImageNode::create(), NNImageNode::create(), NNImageNode::create(),
                                      descriptor)
                ->sources()
                .size(),
            3U);
}

/// The singular form gives the predictions' gradient, the plural forms that of the labels, too.
TEST(ForwardLossNode, GivesTheGradientsOfPredictionsAndLabels) {
  const auto node = NNForwardLossNode::create(NNImageNode::create(), NNImageNode::create(),
                                              NNImageNode::create(), squared());
  const auto incoming = NNImageNode::create();
  const auto predictions = std::dynamic_pointer_cast<NNLossGradientNode>(node->gradientFilter(incoming));
  ASSERT_TRUE(predictions);
  EXPECT_FALSE(predictions->isLabelsGradientFilter());
  EXPECT_EQ(predictions->sources().size(), 4U);
  EXPECT_EQ(predictions->gradientState(), node->resultState());
  const auto both = node->gradientFilters(incoming);
  ASSERT_EQ(both.size(), 2U);
  const auto labels = std::dynamic_pointer_cast<NNLossGradientNode>(both[1]);
  EXPECT_TRUE(labels->isLabelsGradientFilter());
  const auto kernel = std::dynamic_pointer_cast<NNLossGradient>(labels->makeKernel(mtl::newCPUDevice(1)));
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(kernel->computeLabelGradients());
  EXPECT_TRUE(names(errorOf([&] { labels->gradientFilter(incoming); }), {"no second derivatives"}));
}

TEST(ForwardLossNode, WrongNumbersOfSourcesAreNamed) {
  const std::vector one{NNImageNode::create()};
  EXPECT_TRUE(names(errorOf([&] { NNForwardLossNode::create(one, squared()); }), {"sources", "1", "2 or 3"}));
  EXPECT_TRUE(names(errorOf([&] { NNLossGradientNode::create(one, nullptr, squared(), false); }),
                    {"sources", "1", "3 or 4"}));
  EXPECT_TRUE(
      names(errorOf([&] { NNForwardLossNode::create(nullptr, one[0], squared()); }), {"source", "null"}));
  EXPECT_TRUE(names(errorOf([&] { NNInitialGradientNode::create(nullptr); }), {"source", "null"}));
}

TEST(InitialGradientNode, HasNoGradientOfItsOwn) {
  const auto node = NNInitialGradientNode::create(NNImageNode::create());
  EXPECT_TRUE(static_cast<const NNFilterNode&>(*node).isItsOwnGradient());
  EXPECT_NE(errorOf([&] { node->gradientFilter(node->resultImage()); }), "");
  EXPECT_TRUE(names(errorOf([&] { node->gradientFilters(node->resultImage()); }), {"no gradient"}));
}

}  // namespace
}  // namespace mps::forward_loss_test
