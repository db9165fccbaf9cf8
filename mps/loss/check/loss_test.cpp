#include "mps/loss/loss.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/loss/check/loss_check_values.hpp"

/// The public loss kernel.
namespace mps::loss_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

constexpr auto kLayout = DataLayout::HeightxWidthxFeatureChannels;

class Loss : public testing::DeviceTest {
 protected:
  static Values floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }
  static void expectNear(const Values& found, const std::vector<double>& expected, const char* what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], detail::kLossPrecision * std::max(1.0, std::abs(expected[i])))
          << what << " element " << i;
  }
  [[nodiscard]] std::shared_ptr<Image> pixel(const Values& values) const {
    return image(sizeOf(1, 1, values.size()), values);
  }
  /// Labels of one pixel. @param lossChannels of the loss image; weights may be empty
  [[nodiscard]] std::shared_ptr<CNNLossLabels> labels(const Values& values, std::size_t lossChannels = 1,
                                                      const Values& weights = {}) const {
    return CNNLossLabels::create(device_, {1, 1, lossChannels}, pixel(values),
                                 weights.empty() ? nullptr : pixel(weights));
  }
  [[nodiscard]] std::shared_ptr<CNNLoss> kernel(const CNNLossDescriptor& descriptor) const {
    auto loss = CNNLoss::create(device_, descriptor);
    loss->setDestinationImageAllocator(Image::defaultAllocator());
    return loss;
  }
  /// Encodes, waits, returns the gradient.
  Values gradientOf(const CNNLossDescriptor& descriptor, const Values& y,
                    const std::shared_ptr<CNNLossLabels>& targets) {
    const auto buffer = commands();
    const auto gradient = kernel(descriptor)->encode(buffer, pixel(y), targets);
    run(buffer);
    return valuesOf(*gradient);
  }
  static Values lossOf(const std::shared_ptr<CNNLossLabels>& targets) {
    return valuesOf(*targets->lossImage());
  }
  static Values lossesOf(const StateBatch& targets) {
    Values values(targets.count());
    CNNLossLabels::lossImages(targets).readBytes(std::span(values), kLayout);
    return values;
  }
  static CNNLossDescriptor squared(CNNReductionType reduction = CNNReductionType::Sum) {
    return CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, reduction);
  }
  static CNNLossDescriptor softMax(CNNReductionType reduction = CNNReductionType::Sum) {
    return CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, reduction);
  }
};

class LossExample : public Loss, public ::testing::WithParamInterface<detail::LossCheckValueRow> {
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

TEST_P(LossExample, SumAndGradient) {
  const auto& row = GetParam();
  const auto targets = labels(floats(row.t));
  expectNear(gradientOf(descriptor(CNNReductionType::Sum), floats(row.y), targets), row.gradient, "gradient");
  expectNear(lossOf(targets), {row.sum}, "sum");
}

TEST_P(LossExample, LossOfEachElement) {
  const auto& row = GetParam();
  if (row.losses.empty()) {  // defined as a sum only
    EXPECT_THROW(static_cast<void>(kernel(descriptor(CNNReductionType::None))), Error);
    return;
  }
  const auto targets = labels(floats(row.t), 4);
  expectNear(gradientOf(descriptor(CNNReductionType::None), floats(row.y), targets), row.gradient,
             "gradient");
  expectNear(lossOf(targets), row.losses, "losses");
}

TEST_P(LossExample, InABatchIntoGivenGradients) {
  const auto& row = GetParam();
  const std::size_t count = 3;
  const auto repeated = [&](const std::vector<double>& values) {
    Values all;
    for (std::size_t i = 0; i < count; ++i) all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  const auto y = batch(sizeOf(1, 1, 4), count, repeated(row.y));
  const auto t = batch(sizeOf(1, 1, 4), count, repeated(row.t));
  const auto targets = CNNLossLabels::createBatch(device_, {1, 1, 1}, t);
  const auto gradients = ImageBatch::create(device_, sizeOf(1, 1, 4), count);
  const auto buffer = commands();
  kernel(descriptor(CNNReductionType::Sum))->encodeBatch(buffer, y, targets, gradients);
  run(buffer);
  for (std::size_t i = 0; i < count; ++i) expectNear(valuesOf(*gradients[i]), row.gradient, "gradient");
  expectNear(lossesOf(targets), {row.sum, row.sum, row.sum}, "sums");
}

INSTANTIATE_TEST_SUITE_P(Section11_8, LossExample, ::testing::ValuesIn(detail::lossCheckValues()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Loss, DescriptorsHaveTheirDefaultsAndKernelsCopyThem) {
  auto descriptor = softMax(CNNReductionType::Mean);
  const auto plain = CNNLoss::create(device_, descriptor);
  EXPECT_EQ(plain->lossType(), CNNLossType::SoftMaxCrossEntropy);
  EXPECT_EQ(plain->reductionType(), CNNReductionType::Mean);
  EXPECT_FALSE(plain->reduceAcrossBatch());
  EXPECT_EQ(plain->weight(), 1);
  EXPECT_EQ(plain->labelSmoothing(), 0);
  EXPECT_EQ(plain->numberOfClasses(), 1U);
  EXPECT_EQ(plain->epsilon(), 1e-7F);
  EXPECT_EQ(plain->delta(), 1);
  EXPECT_FALSE(plain->descriptor().exactSoftMaxGradient());
  descriptor.setWeight(2);
  descriptor.setReduceAcrossBatch(true);
  descriptor.setNumberOfClasses(7);
  EXPECT_EQ(plain->weight(), 1) << "the descriptor was copied";
  const auto copy = CNNLoss::create(device_, descriptor)->copy(mtl::newCPUDevice(1));
  EXPECT_EQ(copy->weight(), 2);
  EXPECT_EQ(copy->descriptor(), descriptor);
  EXPECT_NE(copy->device(), device_);
}

/// "Reductions of the MSE case" of section 11.8: the gradient is the same in all three.
TEST_F(Loss, ReductionsOfWeightedElements) {
  const auto expectLoss = [&](CNNReductionType reduction, float expected) {
    const auto targets = labels(floats(detail::kOneHot), 1, {2, 0, 0.5F, 0});
    EXPECT_EQ(gradientOf(squared(reduction), floats(detail::kLogits), targets), (Values{-2, 0, 2, 0}));
    EXPECT_EQ(lossOf(targets), Values{expected});
  };
  expectLoss(CNNReductionType::Sum, 2.5F);
  expectLoss(CNNReductionType::Mean, 0.625F);
  expectLoss(CNNReductionType::SumByNonZeroWeights, 1.25F);
  const auto targets = labels(floats(detail::kOneHot), 4, {2, 0, 0.5F, 0});
  EXPECT_EQ(gradientOf(squared(CNNReductionType::None), floats(detail::kLogits), targets),
            (Values{-2, 0, 2, 0}));
  EXPECT_EQ(lossOf(targets), (Values{0.5F, 0, 2, 0}));
}

TEST_F(Loss, ByNonZeroWeightsWithoutWeightsAndWithZerosOnly) {
  const auto reduction = CNNReductionType::SumByNonZeroWeights;
  const auto without = labels({0, 0});
  gradientOf(squared(reduction), {1, 3}, without);
  EXPECT_EQ(lossOf(without), Values{5}) << "the number of elements";
  const auto zeros = labels({0, 0}, 1, {0, 0});
  EXPECT_EQ(gradientOf(squared(reduction), {1, 3}, zeros), (Values{0, 0}));
  EXPECT_EQ(lossOf(zeros), Values{0});
}

TEST_F(Loss, TheMeanOfASoftMaxDividesByPixels) {
  const auto targets = labels(floats(detail::kOneHot));
  gradientOf(softMax(CNNReductionType::Mean), floats(detail::kLogits), targets);
  expectNear(lossOf(targets), {1.869279}, "one pixel of four channels");
  const auto two = CNNLossLabels::create(device_, {1, 1, 1}, image(sizeOf(2, 1, 1), {1, 1}), nullptr);
  const auto buffer = commands();
  kernel(squared(CNNReductionType::Mean))->encode(buffer, image(sizeOf(2, 1, 1), {3, 5}), two);
  run(buffer);
  EXPECT_EQ(lossOf(two), Values{10}) << "(4 + 16) / 2";
}

/// "reduceAcrossBatch" of section 11.8: sums of 5.3125 and 1.
TEST_F(Loss, ReduceAcrossBatchGivesTheFirstImageTheLossOfAll) {
  const auto y = batch(sizeOf(1, 1, 4), 2, {0.5F, -1, 2, 0.25F, 1, 0, 0, 0});
  const auto t = batch(sizeOf(1, 1, 4), 2, {1, 0, 0, 0, 0, 0, 0, 0});
  const auto w = batch(sizeOf(1, 1, 4), 2, {2, 0, 0.5F, 0, 1, 1, 1, 0});
  const auto losses = [&](CNNReductionType reduction, const ImageBatch& weights = {}) {
    auto descriptor = squared(reduction);
    descriptor.setReduceAcrossBatch(true);
    const auto targets = CNNLossLabels::createBatch(device_, {1, 1, 1}, t, weights);
    const auto buffer = commands();
    kernel(descriptor)->encodeBatch(buffer, y, targets);
    run(buffer);
    return lossesOf(targets);
  };
  EXPECT_EQ(losses(CNNReductionType::Sum), (Values{6.3125F, 0}));
  EXPECT_EQ(losses(CNNReductionType::Mean), (Values{0.7890625F, 0}));
  EXPECT_EQ(losses(CNNReductionType::SumByNonZeroWeights, w), (Values{3.5F / 5, 0}));

  auto none = squared(CNNReductionType::None);
  none.setReduceAcrossBatch(true);
  const auto targets = CNNLossLabels::createBatch(device_, {1, 1, 4}, t);
  const auto buffer = commands();
  kernel(none)->encodeBatch(buffer, y, targets);
  run(buffer);
  EXPECT_EQ(valuesOf(*CNNLossLabels::lossImages(targets)[1]), (Values{1, 0, 0, 0})) << "no effect";
}

/// "1/batch with sum" is the usual spelling of a batch mean.
TEST_F(Loss, Behaviour19TheWeightScalesLossAndGradient) {
  auto descriptor = squared();
  descriptor.setWeight(0.25F);
  const auto targets = labels({1, 0});
  EXPECT_EQ(gradientOf(descriptor, {3, 2}, targets), (Values{1, 1}));
  EXPECT_EQ(lossOf(targets), Values{2});

  const auto y = batch(sizeOf(1, 1, 1), 4, {1, 2, 3, 4});
  const auto zeros = CNNLossLabels::createBatch(device_, {1, 1, 1}, batch(sizeOf(1, 1, 1), 4, Values(4)));
  descriptor.setReduceAcrossBatch(true);
  const auto buffer = commands();
  const auto gradients = kernel(descriptor)->encodeBatch(buffer, y, zeros);
  run(buffer);
  EXPECT_EQ(lossesOf(zeros), (Values{(1 + 4 + 9 + 16) / 4.0F, 0, 0, 0}));
  EXPECT_EQ(valuesOf(*gradients[3]), Values{2});
}

TEST_F(Loss, AWeightForEachPixelAndRepeatedAxes) {
  const auto y = image(sizeOf(2, 1, 2), {1, 2, 3, 4});
  const auto gradient = [&](const ImageDescriptor& size, const Values& weights) {
    const auto targets =
        CNNLossLabels::create(device_, {1, 1, 1}, image(sizeOf(2, 1, 2)), image(size, weights));
    const auto buffer = commands();
    const auto result = kernel(squared())->encode(buffer, y, targets);
    run(buffer);
    return valuesOf(*result);
  };
  EXPECT_EQ(gradient(sizeOf(2, 1, 1), {1, 10}), (Values{2, 4, 60, 80})) << "one for all channels of a pixel";
  EXPECT_EQ(gradient(sizeOf(1, 1, 2), {1, 10}), (Values{2, 40, 6, 80})) << "the same at each pixel";
  EXPECT_EQ(gradient(sizeOf(1, 1, 1), {3}), (Values{6, 12, 18, 24}));
}

/// The printed rule w_k (p_k - t_k), and the derivative p_k sum(w t) - w_k t_k (section 11.6).
TEST_F(Loss, TheExactSoftMaxGradientIsASwitch) {
  auto descriptor = softMax();
  const Values y{0, 0}, t{1, 0}, w{4, 8};
  EXPECT_EQ(gradientOf(descriptor, y, labels(t, 1, w)), (Values{-2, 4}));
  descriptor.setExactSoftMaxGradient(true);
  EXPECT_EQ(gradientOf(descriptor, y, labels(t, 1, w)), (Values{-2, 2}));
}

/// Of a larger loss image the first element gets the value (section 11.5).
TEST_F(Loss, AReducedLossInALossImageOfTheSizeOfThePredictions) {
  const auto targets = labels({0, 0, 0}, 3);
  gradientOf(squared(), {1, 2, 3}, targets);
  EXPECT_EQ(lossOf(targets), (Values{14, 0, 0}));
}

TEST_F(Loss, D25LabelsOfTheDescriptorAloneTrainWithEveryReduction) {
  const Values t{1, 0, 0, 0};
  const auto targets =
      CNNLossLabels::create(device_, CNNLossDataDescriptor::cnnLossDataDescriptor(t, kLayout, {2, 1, 2}));
  const auto y = image(sizeOf(2, 1, 2), {3, 1, 0, 2});
  const std::vector<std::pair<CNNReductionType, float>> rows{{CNNReductionType::None, 9},
                                                             {CNNReductionType::Sum, 9},
                                                             {CNNReductionType::Mean, 2.25F},
                                                             {CNNReductionType::SumByNonZeroWeights, 2.25F}};
  for (const auto& [reduction, loss] : rows) {
    const auto buffer = commands();
    const auto gradient = kernel(squared(reduction))->encode(buffer, y, targets);
    run(buffer);
    EXPECT_EQ(valuesOf(*gradient), (Values{4, 2, 0, 4})) << static_cast<int>(reduction);
    EXPECT_EQ(lossOf(targets), Values{loss}) << static_cast<int>(reduction);
  }
}

/// Labels 0 and 1.
TEST_F(Loss, D27HingeIsTheOneWhoseGradientIsPrinted) {
  const auto hinge = CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Hinge, CNNReductionType::None);
  const auto targets = labels({1, 0, 0, 0}, 4);
  EXPECT_EQ(gradientOf(hinge, {0.5F, -1, 2, 0.25F}, targets), (Values{-1, 0, 1, 1}));
  EXPECT_EQ(lossOf(targets), (Values{0.5F, 0, 3, 1.25F})) << "and not 0.5, 1, 1, 1, which is max(1 - t y, 0)";
}

TEST_F(Loss, AnEmptyBatchIsNamed) {
  const auto loss = CNNLoss::create(device_, squared());
  loss->setLabel("none");
  const CNNLossLabelsBatch labels;
  const auto buffer = commands();
  const std::vector<std::string> expected{"CNNLoss \"none\"", "sourceImages", "an empty batch"};
  EXPECT_TRUE(names(errorOf([&] { loss->encodeBatch(buffer, ImageBatch(), labels); }), expected));
  EXPECT_TRUE(
      names(errorOf([&] { loss->encodeBatch(buffer, ImageBatch(), labels, ImageBatch()); }), expected));
  EXPECT_EQ(buffer->commandCount(), 0U);
}

TEST_F(Loss, LabelsMayBeUsedAgain) {
  const auto targets = labels({1});
  EXPECT_EQ(targets->readCount(), 0U);
  gradientOf(squared(), {3}, targets);
  EXPECT_EQ(lossOf(targets), Values{4});
  gradientOf(squared(), {1}, targets);
  EXPECT_EQ(lossOf(targets), Values{0}) << "overwritten";
  testing::fill(*targets->labelsImage(), {5});
  gradientOf(squared(), {3}, targets);
  EXPECT_EQ(lossOf(targets), Values{4}) << "the labels image is the caller's, not copied";
}

TEST_F(Loss, GradientsFollowTheFormatOfThePredictions) {
  const auto encode = [&](ImageFeatureChannelFormat format) {
    const auto y = Image::create(device_, {format, 1, 1, 2});
    const auto buffer = commands();
    const auto gradient = kernel(squared())->encode(buffer, y, labels({1, 2}));
    run(buffer);
    EXPECT_EQ(valuesOf(*gradient), (Values{-2, -4}));
    return gradient->featureChannelFormat();
  };
  EXPECT_EQ(encode(ImageFeatureChannelFormat::Float32), ImageFeatureChannelFormat::Float32);
  EXPECT_EQ(encode(ImageFeatureChannelFormat::Float16), ImageFeatureChannelFormat::Float16);
  EXPECT_EQ(encode(ImageFeatureChannelFormat::Unorm8), ImageFeatureChannelFormat::Float32)
      << "docs/decisions.md, D16";
}

TEST_F(Loss, AnEncodeTakesOneReadOffTemporaryPredictions) {
  const auto buffer = commands();
  const auto y = TemporaryImage::create(buffer, sizeOf(1, 1, 1));
  y->setReadCount(2);
  const auto loss = CNNLoss::create(device_, squared());
  const auto gradient = std::dynamic_pointer_cast<TemporaryImage>(loss->encode(buffer, y, labels({1})));
  ASSERT_TRUE(gradient) << "temporary unless the allocator says otherwise";
  EXPECT_EQ(gradient->readCount(), 1U);
  EXPECT_EQ(y->readCount(), 1U);
}

TEST_F(Loss, ALossScaleMultipliesTheGradientAndNotTheLoss) {
  const auto scale = LossScale::create(device_, {.initialScale = 8});
  for (auto descriptor : {squared(), softMax(CNNReductionType::Mean)}) {
    descriptor.setWeight(0.5F);
    const auto plain = labels({0, 1, 0});
    const Values expected = gradientOf(descriptor, {0.5F, 2, -1}, plain);
    descriptor.setLossScale(scale);
    const auto scaled = labels({0, 1, 0});
    const Values found = gradientOf(descriptor, {0.5F, 2, -1}, scaled);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(found[i], 8 * expected[i]);
    EXPECT_EQ(lossOf(scaled), lossOf(plain));
  }
}

TEST_F(Loss, ALossScaleOfABatchIsThatOfEachImage) {
  auto descriptor = squared();
  descriptor.setLossScale(LossScale::create(device_, {.initialScale = 4}));
  const auto sources = ImageBatch::create(device_, sizeOf(1, 1, 2), 3);
  sources.writeBytes(std::span<const float>(Values{1, 2, 3, 4, 5, 6}), kLayout);
  const auto targets = ImageBatch::create(device_, sizeOf(1, 1, 2), 3);
  targets.writeBytes(std::span<const float>(Values(6)), kLayout);
  const auto buffer = commands();
  const ImageBatch gradients =
      kernel(descriptor)
          ->encodeBatch(buffer, sources, CNNLossLabels::createBatch(device_, {1, 1, 1}, targets));
  run(buffer);
  Values found(6);
  gradients.readBytes(std::span(found), kLayout);
  EXPECT_EQ(found, (Values{8, 16, 24, 32, 40, 48}));
}

TEST_F(Loss, OfADestinationThatAppearsSeveralTimesTheLastOneStays) {
  constexpr std::size_t each = std::size_t{64} * 64 * 4;
  const ImageDescriptor size = sizeOf(64, 64, 4);
  const auto sources = ImageBatch::create(device_, size, 3);
  const auto targets = ImageBatch::create(device_, size, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    testing::fill(*sources[i], Values(each, static_cast<float>(i + 1)));
    testing::fill(*targets[i], Values(each));
  }
  const auto gradient = poisoned(size);
  const auto buffer = commands();
  kernel(squared())->encodeBatch(buffer, sources, CNNLossLabels::createBatch(device_, {1, 1, 1}, targets),
                                 ImageBatch{gradient, gradient, gradient});
  run(buffer);
  EXPECT_EQ(valuesOf(*gradient), Values(each, 6));
}

TEST_F(Loss, ACopyOnAnotherDeviceHasTheSameLossScale) {
  auto descriptor = squared(CNNReductionType::Sum);
  descriptor.setLossScale(LossScale::create(device_, {.initialScale = 4, .growthInterval = 3}));
  descriptor.lossScale()->set(8, 1, 2);
  const auto kernel = CNNLoss::create(device_, descriptor);
  EXPECT_EQ(kernel->copy()->descriptor().lossScale(), descriptor.lossScale());

  const auto other = mtl::newCPUDevice(2);
  const auto copy = kernel->copy(other);
  const auto scale = copy->descriptor().lossScale();
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->device(), other);
  EXPECT_EQ(scale->finiteSteps(), 1U);
  EXPECT_EQ(scale->options().growthInterval, 3U);
  const auto gradientOf = [](const std::shared_ptr<CNNLoss>& loss) {
    const auto& device = loss->device();
    const auto image = [&](float value) {
      auto made = Image::create(device, ImageDescriptor{ImageFeatureChannelFormat::Float32, 1, 1, 1});
      made->writeBytes(std::span<const float>(&value, 1), kLayout);
      return made;
    };
    const auto buffer = device->newCommandQueue()->commandBuffer();
    const auto gradient = image(0);
    loss->encode(buffer, image(3), CNNLossLabels::create(device, {1, 1, 1}, image(1), nullptr), gradient);
    buffer->commit();
    buffer->throwIfFailed();
    float found = 0;
    gradient->readBytes(std::span(&found, 1), kLayout);
    return found;
  };
  EXPECT_EQ(gradientOf(kernel), 8 * 4);
  EXPECT_EQ(gradientOf(copy), 8 * 4);
}

TEST_F(Loss, RefusesALossScaleWithoutReduction) {
  auto descriptor = squared(CNNReductionType::None);
  descriptor.setLossScale(LossScale::create(device_));
  EXPECT_TRUE(names(errorOf([&] { CNNLoss::create(device_, descriptor); }), {"lossScale", "reduction"}));
}

}  // namespace
}  // namespace mps::loss_test
