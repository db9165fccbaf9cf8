#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "mps/core/testing/test_images.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/loss_node.hpp"

/// Labels in all their forms, and what the loss refuses.
namespace mps::loss_labels_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum DataLayout;

CNNLossDescriptor squared(CNNReductionType reduction = CNNReductionType::Sum) {
  return CNNLossDescriptor::cnnLossDescriptor(CNNLossType::MeanSquaredError, reduction);
}
CNNLossDescriptor softMax() {
  return CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
}

class LossLabels : public testing::DeviceTest {
 protected:
  /// Gradients of a batch of single pixels, and the losses behind them.
  Values resultsOf(const CNNLossDescriptor& descriptor, const ImageBatch& y, const StateBatch& targets) {
    const auto loss = CNNLoss::create(device_, descriptor);
    const auto gradients = ImageBatch::create(device_, y.descriptor(), y.count());
    const auto buffer = commands();
    loss->encodeBatch(buffer, y, targets, gradients);
    run(buffer);
    Values values;
    for (std::size_t i = 0; i < y.count(); ++i)
      for (const float value : valuesOf(*gradients[i])) values.push_back(value);
    for (std::size_t i = 0; i < y.count(); ++i)
      values.push_back(valuesOf(*std::dynamic_pointer_cast<CNNLossLabels>(targets[i])->lossImage())[0]);
    return values;
  }
  std::string errorOfEncode(const CNNLossDescriptor& descriptor, const ImageBatch& y,
                            const StateBatch& targets) {
    const auto buffer = commands();
    return errorOf([&] { CNNLoss::create(device_, descriptor)->encodeBatch(buffer, y, targets); });
  }
  [[nodiscard]] ImageBatch one(std::size_t channels) const {
    return batch(sizeOf(1, 1, channels), 1, Values(channels));
  }
  [[nodiscard]] StateBatch targetsOf(const ImageDescriptor& size,
                                     const mtl::Size& lossSize = {1, 1, 1}) const {
    return StateBatch{CNNLossLabels::create(device_, lossSize, image(size), nullptr)};
  }
};

TEST_F(LossLabels, DataIsCopiedFromEitherLayout) {
  Values data = counted(12);
  const mtl::Size size{3, 2, 2};
  const auto descriptor =
      CNNLossDataDescriptor::cnnLossDataDescriptor(data, HeightxWidthxFeatureChannels, size);
  EXPECT_EQ(descriptor.layout(), HeightxWidthxFeatureChannels);
  EXPECT_EQ(descriptor.bytesPerRow(), 24U);
  EXPECT_EQ(descriptor.bytesPerImage(), 48U);
  const auto interleaved = CNNLossLabels::create(device_, descriptor);
  const auto planes = CNNLossDataDescriptor::cnnLossDataDescriptor(data, FeatureChannelsxHeightxWidth, size);
  EXPECT_EQ(planes.bytesPerRow(), 12U);
  EXPECT_EQ(planes.bytesPerImage(), 24U);
  const auto planar = CNNLossLabels::create(device_, {1, 1, 1}, planes, descriptor);
  data.assign(12, 0);
  EXPECT_EQ(valuesOf(*interleaved->labelsImage()), counted(12));
  EXPECT_EQ(interleaved->weightsImage(), nullptr);
  EXPECT_EQ(interleaved->lossImage()->width(), 1U);
  EXPECT_EQ(valuesOf(*planar->labelsImage()), (Values{1, 7, 2, 8, 3, 9, 4, 10, 5, 11, 6, 12}));
  EXPECT_EQ(valuesOf(*planar->weightsImage()), counted(12));
  EXPECT_FALSE(planar->isTemporary());
}

TEST_F(LossLabels, StridesOfTheData) {
  const Values data = counted(16);
  auto rows = CNNLossDataDescriptor::cnnLossDataDescriptor(data, HeightxWidthxFeatureChannels, {1, 2, 3});
  rows.setBytesPerRow(16);
  EXPECT_EQ(valuesOf(*CNNLossLabels::create(device_, rows)->labelsImage()), (Values{1, 2, 3, 5, 6, 7}));
  auto planes = CNNLossDataDescriptor::cnnLossDataDescriptor(data, FeatureChannelsxHeightxWidth, {2, 2, 2});
  planes.setBytesPerRow(12);
  planes.setBytesPerImage(40);
  EXPECT_EQ(valuesOf(*CNNLossLabels::create(device_, planes)->labelsImage()),
            (Values{1, 11, 2, 12, 4, 14, 5, 15}));
}

TEST_F(LossLabels, DataThatIsTooShortIsRefused) {
  const Values data = counted(8);
  const auto make = [&](const mtl::Size& size) {
    return errorOf(
        [&] { CNNLossDataDescriptor::cnnLossDataDescriptor(data, HeightxWidthxFeatureChannels, size); });
  };
  EXPECT_EQ(make({2, 2, 2}), "");
  EXPECT_TRUE(names(make({3, 1, 3}), {"CNNLossDataDescriptor", "data", "8 values", "3x1x3"}));
  EXPECT_TRUE(names(make({0, 1, 1}), {"CNNLossDataDescriptor", "size", "0", "1"}));
  EXPECT_TRUE(names(make({std::size_t{1} << 32U, std::size_t{1} << 32U, 1}),
                    {"CNNLossDataDescriptor", "data", "8 values"}))
      << "a product that overflows";
  for (const DataLayout layout : {HeightxWidthxFeatureChannels, FeatureChannelsxHeightxWidth}) {
    auto descriptor = CNNLossDataDescriptor::cnnLossDataDescriptor(data, layout, {2, 2, 2});
    descriptor.setBytesPerRow(1000);
    EXPECT_TRUE(names(errorOf([&] { CNNLossLabels::create(device_, descriptor); }),
                      {"CNNLossDataDescriptor", "data", "32 bytes", "10"}));
  }
  auto planes = CNNLossDataDescriptor::cnnLossDataDescriptor(data, FeatureChannelsxHeightxWidth, {2, 2, 2});
  planes.setBytesPerImage(20);
  EXPECT_TRUE(names(errorOf([&] { CNNLossLabels::create(device_, planes); }),
                    {"CNNLossDataDescriptor", "data", "32 bytes", "36"}));
  planes.setBytesPerImage(~std::size_t{0} - 3);
  EXPECT_NE(errorOf([&] { CNNLossLabels::create(device_, planes); }), "");
}

/// 12 floats for 10 classes; with numberOfClasses only those count.
TEST_F(LossLabels, Behaviour09LabelsMayBePadded) {
  Values oneHot(12);
  oneHot[3] = 1;
  oneHot[10] = oneHot[11] = 77;  // must not be looked at
  const auto padded = [&] {
    return StateBatch{CNNLossLabels::create(device_, CNNLossDataDescriptor::cnnLossDataDescriptor(
                                                         oneHot, HeightxWidthxFeatureChannels, {1, 1, 12}))};
  };
  const StateBatch exact{CNNLossLabels::create(
      device_, CNNLossDataDescriptor::cnnLossDataDescriptor(std::span(oneHot).first(10),
                                                            HeightxWidthxFeatureChannels, {1, 1, 10}))};
  const auto y = batch(sizeOf(1, 1, 10), 1, counted(10, -4));
  const Values expected = resultsOf(softMax(), y, exact);
  EXPECT_EQ(resultsOf(softMax(), y, padded()), expected) << "10 predictions, 12 labels";

  auto tenClasses = softMax();
  tenClasses.setNumberOfClasses(10);
  EXPECT_EQ(resultsOf(tenClasses, y, padded()), expected);
  Values wide = counted(10, -4);
  wide.insert(wide.end(), {1000, 1000});
  Values expectedWide = expected;
  expectedWide.insert(expectedWide.begin() + 10, {0, 0});
  EXPECT_EQ(resultsOf(tenClasses, batch(sizeOf(1, 1, 12), 1, wide), padded()), expectedWide)
      << "12 predictions of which 10 count";
}

TEST_F(LossLabels, Behaviour10OneLossImageForEachElementOfTheBatch) {
  const Values t{1, 2};
  std::vector<std::shared_ptr<State>> targets;
  for (std::size_t i = 0; i < 2; ++i)
    targets.push_back(CNNLossLabels::create(
        device_, CNNLossDataDescriptor::cnnLossDataDescriptor(std::span(t).subspan(i, 1),
                                                              HeightxWidthxFeatureChannels, {1, 1, 1})));
  const auto y = batch(sizeOf(1, 1, 1), 2, {4, 4});
  for (const auto reduction : {CNNReductionType::Sum, CNNReductionType::Mean}) {
    const Values results = resultsOf(squared(reduction), y, StateBatch(targets));
    EXPECT_EQ(Values(results.begin() + 2, results.end()), (Values{9, 4})) << "one float each";
  }
  const auto elements = CNNLossLabels::create(device_, {3, 1, 2}, image(sizeOf(3, 1, 2)), nullptr);
  EXPECT_EQ(elements->lossImage()->width(), 3U);
  EXPECT_EQ(elements->lossImage()->featureChannels(), 2U);
  EXPECT_NE(std::dynamic_pointer_cast<CNNLossLabels>(targets[0])->lossImage(),
            std::dynamic_pointer_cast<CNNLossLabels>(targets[1])->lossImage());
}

/// docs/decisions.md, D16: unorm formats are sources and labels.
TEST_F(LossLabels, D16UnormLabels) {
  const auto t = Image::create(device_, {ImageFeatureChannelFormat::Unorm8, 1, 1, 3});
  const std::vector<std::uint8_t> codes{0, 255, 0};
  t->writeBytes(std::span(codes), HeightxWidthxFeatureChannels);
  const StateBatch unorm{CNNLossLabels::create(device_, {1, 1, 1}, t, nullptr)};
  const StateBatch dense{
      CNNLossLabels::create(device_, {1, 1, 1}, image(sizeOf(1, 1, 3), {0, 1, 0}), nullptr)};
  const auto y = batch(sizeOf(1, 1, 3), 1, {1, 2, 3});
  EXPECT_EQ(resultsOf(softMax(), y, unorm), resultsOf(softMax(), y, dense));
}

TEST_F(LossLabels, ClassIndicesAreOneHotLabels) {
  const auto y = batch(sizeOf(1, 1, 3), 3, {1, 2, 3, 1, 2, 3, 0, 0, 0});
  const auto indices = CNNLossLabels::createClassBatch(device_, 3);
  CNNLossLabels::writeClassIndices(indices, std::vector<std::uint8_t>{2, 0, 1});
  const auto dense =
      CNNLossLabels::createBatch(device_, {1, 1, 1}, batch(sizeOf(1, 1, 3), 3, {0, 0, 1, 1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(resultsOf(softMax(), y, indices), resultsOf(softMax(), y, dense));
  EXPECT_EQ(resultsOf(squared(), y, indices), resultsOf(squared(), y, dense));
  EXPECT_EQ(std::dynamic_pointer_cast<CNNLossLabels>(indices[0])->labelsImage(), nullptr);

  const Values all = resultsOf(softMax(), y, indices);
  const Values last = resultsOf(softMax(), y.slice(2, 1), indices.slice(2, 1));
  EXPECT_EQ(last, (Values{all[6], all[7], all[8], all[11]})) << "a slice takes its own indices";
  EXPECT_EQ(resultsOf(softMax(), y.slice(2, 1), StateBatch{indices[2]}), last);
}

TEST_F(LossLabels, D28AClassIndexOutOfRangeIsAnError) {
  const auto y = batch(sizeOf(1, 1, 3), 3, Values(9));
  const auto loss = CNNLoss::create(device_, softMax());
  loss->setLabel("loss1");
  const auto targets = CNNLossLabels::createClassBatch(device_, 3);
  const auto gradients = ImageBatch::create(device_, y.descriptor(), y.count());
  const auto messageOf = [&](const std::vector<std::uint32_t>& indices) {
    CNNLossLabels::writeClassIndices(targets, indices);
    const auto buffer = commands();
    loss->encodeBatch(buffer, y, targets, gradients);
    buffer->commit();
    buffer->waitUntilCompleted();
    return buffer->error() ? buffer->error()->message : std::string();
  };
  for (const std::uint32_t wrong : {3U, 255U, 256U, 4294967295U}) {
    const std::string message = messageOf({0, 2, wrong});
    EXPECT_TRUE(
        names(message, {"CNNLoss \"loss1\"", "labels", "image 2", std::to_string(wrong), "less than 3"}));
    EXPECT_TRUE(names(errorOf([&] { valuesOf(*gradients[0]); }), {"invalid", "image 2", "class index"}));
    EXPECT_TRUE(names(errorOf([&] { valuesOf(*CNNLossLabels::lossImages(targets)[2]); }),
                      {"invalid", "image 2", "class index"}));
  }
  EXPECT_EQ(messageOf({2, 0, 1}), "") << "right ones make all good again";
  EXPECT_EQ(valuesOf(*gradients[1]).size(), 3U);

  auto fewer = softMax();
  fewer.setNumberOfClasses(2);
  const auto ofTwo = CNNLoss::create(device_, fewer);
  const auto buffer = commands();
  ofTwo->encodeBatch(buffer, y, targets, gradients);
  buffer->commit();
  buffer->waitUntilCompleted();
  ASSERT_TRUE(buffer->error()) << "two channels count";
  EXPECT_TRUE(names(buffer->error()->message, {"image 0", "class index 2", "less than 2"}));
}

TEST_F(LossLabels, D28WhereTheClassesAreKnownTheHostRefusesAtOnce) {
  const auto targets = CNNLossLabels::createClassBatch(device_, 2, 3);
  CNNLossLabels::writeClassIndices(targets, std::vector<std::uint32_t>{2, 1});
  EXPECT_TRUE(names(errorOf([&] {
                      CNNLossLabels::writeClassIndices(targets, std::vector<std::uint32_t>{0, 3});
                    }),
                    {"CNNLossLabels", "image 1", "class index 3", "less than 3"}));
  EXPECT_TRUE(names(errorOf([&] {
                      CNNLossLabels::writeClassIndices(targets, std::vector<std::uint8_t>{255, 0});
                    }),
                    {"CNNLossLabels", "image 0", "class index 255", "less than 3"}));
  const auto y = batch(sizeOf(1, 1, 3), 2, Values(6));
  const Values results = resultsOf(squared(), y, targets);
  EXPECT_EQ(results, (Values{0, 0, -2, 0, -2, 0, 1, 1})) << "those from before";
  EXPECT_TRUE(names(errorOfEncode(squared(), batch(sizeOf(1, 1, 2), 2, Values(4)), targets),
                    {"CNNLoss", "labels", "3 classes", "at most 2"}));
}

TEST_F(LossLabels, ManyClassesHaveIndicesOf32Bits) {
  for (const std::size_t classes : {std::size_t{257}, std::size_t{1000}, std::size_t{65536}}) {
    const auto targets = CNNLossLabels::createClassBatch(device_, 2);
    const auto last = static_cast<std::uint32_t>(classes - 1);
    CNNLossLabels::writeClassIndices(targets, std::vector<std::uint32_t>{last, 256});
    Values expected(2 * classes);
    expected[last] = expected[classes + 256] = -2;
    expected.insert(expected.end(), {1, 1});
    EXPECT_EQ(resultsOf(squared(), batch(sizeOf(1, 1, classes), 2, Values(2 * classes)), targets), expected)
        << classes;
  }
}

TEST_F(LossLabels, BatchesMayBeSlicedShuffledAndPutTogether) {
  const auto t = batch(sizeOf(1, 1, 1), 3, {1, 2, 4});
  const CNNLossLabelsBatch targets = CNNLossLabels::createBatch(device_, {1, 1, 1}, t);
  const auto y = batch(sizeOf(1, 1, 1), 3, {0, 0, 0});
  EXPECT_EQ(resultsOf(squared(), y, targets), (Values{-2, -4, -8, 1, 4, 16}));
  EXPECT_EQ(resultsOf(squared(), y.slice(0, 2), targets.slice(1, 2)), (Values{-4, -8, 4, 16}));
  EXPECT_EQ(resultsOf(squared(), y, StateBatch{targets[2], targets[0], targets[1]}),
            (Values{-8, -2, -4, 16, 1, 4}));
  const auto single = CNNLossLabels::create(device_, {1, 1, 1}, image(sizeOf(1, 1, 1), {3}), nullptr);
  EXPECT_EQ(resultsOf(squared(), y.slice(0, 2), StateBatch{single, targets[1]}), (Values{-6, -4, 9, 4}));
}

TEST_F(LossLabels, BatchesAreChecked) {
  const auto t = batch(sizeOf(1, 1, 1), 2, {1, 2});
  EXPECT_TRUE(names(errorOf([&] {
                      CNNLossLabels::createBatch(nullptr, {1, 1, 1}, t);
                    }),
                    {"CNNLossLabels", "device", "null"}));
  EXPECT_TRUE(names(errorOf([&] { CNNLossLabels::createClassBatch(nullptr, 2); }),
                    {"CNNLossLabels", "device", "null"}));
  EXPECT_TRUE(names(errorOf([&] {
                      CNNLossLabels::createBatch(device_, {1, 1, 1}, t, t.slice(0, 1));
                    }),
                    {"CNNLossLabels", "weightsImages", "1", "2"}));
  EXPECT_TRUE(names(errorOf([&] {
                      CNNLossLabels::create(device_, {1, 1, 1}, nullptr, nullptr);
                    }),
                    {"CNNLossLabels", "labelsImage", "null"}));
  EXPECT_TRUE(names(errorOf([&] {
                      CNNLossLabels::create(nullptr, {1, 1, 1}, t[0], nullptr);
                    }),
                    {"CNNLossLabels", "device", "null"}));
  const Values data{1};
  const auto descriptor =
      CNNLossDataDescriptor::cnnLossDataDescriptor(data, HeightxWidthxFeatureChannels, {1, 1, 1});
  EXPECT_TRUE(names(errorOf([&] { CNNLossLabels::create(nullptr, descriptor); }),
                    {"CNNLossLabels", "device", "null"}));
  const auto indices = CNNLossLabels::createClassBatch(device_, 2);
  const std::vector<std::uint8_t> three(3);
  EXPECT_TRUE(names(errorOf([&] { CNNLossLabels::writeClassIndices(indices, three); }),
                    {"CNNLossLabels", "indices", "3", "2"}));
  const auto dense = CNNLossLabels::createBatch(device_, {1, 1, 1}, t);
  EXPECT_TRUE(names(errorOf([&] { CNNLossLabels::writeClassIndices(dense, three); }),
                    {"CNNLossLabels", "labels", "dense", "createClassBatch"}));
  const StateBatch foreign{State::create(device_, StateResourceList{4})};
  EXPECT_TRUE(names(errorOf([&] { CNNLossLabels::lossImages(foreign); }), {"CNNLossLabels", "labels"}));
}

TEST_F(LossLabels, LabelsThatDoNotFitAreRefused) {
  EXPECT_TRUE(names(errorOfEncode(squared(), one(3), targetsOf(sizeOf(1, 1, 2))),
                    {"CNNLoss", "labels", "1x1x2", "3 channels"}));
  EXPECT_TRUE(
      names(errorOfEncode(squared(), batch(sizeOf(3, 1, 1), 1, Values(3)), targetsOf(sizeOf(2, 1, 1))),
            {"CNNLoss", "labels", "2x1x1", "3x1"}));
  EXPECT_TRUE(names(errorOfEncode(squared(), one(1), targetsOf(sizeOf(1, 1, 1, 2))), {"CNNLoss", "labels"}))
      << "a stack of two for one image";
  EXPECT_TRUE(
      names(errorOfEncode(squared(), batch(sizeOf(1, 1, 1), 2, Values(2)), targetsOf(sizeOf(1, 1, 1))),
            {"CNNLoss", "labels", "1", "2"}));
  EXPECT_TRUE(
      names(errorOfEncode(squared(), one(1), StateBatch{State::create(device_, StateResourceList{4})}),
            {"CNNLoss", "labels", "CNNLossLabels"}));
  const auto weights = [&](const ImageDescriptor& size) {
    return StateBatch{CNNLossLabels::create(device_, {1, 1, 1}, image(sizeOf(1, 1, 3)), image(size))};
  };
  EXPECT_TRUE(
      names(errorOfEncode(squared(), one(3), weights(sizeOf(1, 1, 2))), {"CNNLoss", "weights", "1x1x2"}));
  EXPECT_TRUE(
      names(errorOfEncode(squared(), one(3), weights(sizeOf(2, 1, 3))), {"CNNLoss", "weights", "2x1x3"}));
  EXPECT_NE(errorOfEncode(squared(), one(3), weights(sizeOf(1, 1, 3, 2))), "");
  EXPECT_TRUE(names(errorOfEncode(squared(), one(3), targetsOf(sizeOf(1, 1, 3), {1, 1, 2})),
                    {"CNNLoss", "lossImageSize", "1x1x2", "1x1x1", "1x1x3"}));
  EXPECT_TRUE(
      names(errorOfEncode(squared(CNNReductionType::None), one(3), targetsOf(sizeOf(1, 1, 3), {1, 1, 2})),
            {"CNNLoss", "lossImageSize", "1x1x2", "1x1x3"}));
  const ImageBatch square = batch(sizeOf(2, 2, 1), 1, Values(4));
  EXPECT_TRUE(names(errorOfEncode(squared(), square, targetsOf(sizeOf(1, 1, 1))),
                    {"CNNLoss", "labels", "1x1x1", "2x2", "broadcastsLabels"}));
  auto broadcasting = squared();
  broadcasting.setBroadcastsLabels(true);
  EXPECT_EQ(errorOfEncode(broadcasting, square, targetsOf(sizeOf(1, 1, 1))), "");
  const auto indices = CNNLossLabels::createClassBatch(device_, 1);
  EXPECT_TRUE(names(errorOfEncode(softMax(), batch(sizeOf(2, 1, 3), 1, Values(6)), indices),
                    {"CNNLoss", "labels", "class index", "dense"}));
  const auto two = CNNLossLabels::createClassBatch(device_, 2);
  EXPECT_TRUE(
      names(errorOfEncode(softMax(), batch(sizeOf(1, 1, 3), 2, Values(6)), StateBatch{two[1], two[0]}),
            {"CNNLoss", "labels", "class indices"}));
  const auto with = weights(sizeOf(1, 1, 3))[0];
  EXPECT_TRUE(names(errorOfEncode(squared(), batch(sizeOf(1, 1, 3), 2, Values(6)),
                                  StateBatch{with, targetsOf(sizeOf(1, 1, 3))[0]}),
                    {"CNNLoss", "labels", "without weights"}));
}

TEST_F(LossLabels, WhatTheKernelRefuses) {
  const auto refused = [&](auto change) {
    auto descriptor = squared();
    change(descriptor);
    return errorOf([&] { CNNLoss::create(device_, descriptor); });
  };
  EXPECT_TRUE(
      names(refused([](auto& d) { d.setNumberOfClasses(0); }), {"CNNLoss", "numberOfClasses", "0", "1"}));
  EXPECT_TRUE(names(refused([](auto& d) { d.setEpsilon(0); }), {"CNNLoss", "epsilon", "0"}));
  EXPECT_TRUE(
      names(refused([](auto& d) { d.setLossType(CNNLossType::Count); }), {"CNNLoss", "lossType", "10"}));
  EXPECT_TRUE(names(refused([](auto& d) { d.setReductionType(CNNReductionType::Count); }),
                    {"CNNLoss", "reductionType", "4"}));
  EXPECT_TRUE(names(refused([](auto& d) {
                      d.setLossType(CNNLossType::CosineDistance);
                      d.setReductionType(CNNReductionType::Mean);
                    }),
                    {"CNNLoss", "reductionType", "Mean", "Sum"}));

  const auto loss = CNNLoss::create(device_, squared());
  const auto y = image(sizeOf(1, 1, 1));
  const auto t = std::dynamic_pointer_cast<CNNLossLabels>(targetsOf(sizeOf(1, 1, 1))[0]);
  const auto gradient = image(sizeOf(1, 1, 1));
  const std::shared_ptr<CNNLossLabels> none;
  EXPECT_TRUE(names(errorOf([&] { loss->encode(commands(), y, none); }), {"CNNLoss", "labels", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { loss->encode(commands(), y, none, gradient); }), {"CNNLoss", "labels", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { loss->encode(commands(), nullptr, t); }), {"CNNLoss", "sourceImage", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { loss->encode(commands(), nullptr, t, gradient); }), {"CNNLoss", "sourceImage"}));
  EXPECT_TRUE(
      names(errorOf([&] { loss->encode(commands(), y, t, nullptr); }), {"CNNLoss", "destinationImage"}));
  EXPECT_TRUE(names(errorOf([&] { loss->encode(commands(), y, t, image(sizeOf(1, 1, 2))); }),
                    {"CNNLoss", "destinationImages", "1x1x2", "1x1x1"}));
  EXPECT_NE(errorOf([&] { loss->encode(commands(), y, t, image(sizeOf(1, 1, 1, 2))); }), "") << "a stack";
  EXPECT_TRUE(names(errorOf([&] { loss->encode(commands(), image(sizeOf(1, 1, 1, 2)), t); }),
                    {"CNNLoss", "sourceImage", "stack"}));
  EXPECT_TRUE(names(errorOf([&] { static_cast<CNNKernel&>(*loss).encode(commands(), y, gradient); }),
                    {"CNNLoss", "without labels"}));
  EXPECT_TRUE(names(errorOf([&] { loss->encode(nullptr, y, t); }), {"CNNLoss", "commandBuffer", "null"}));
  loss->setOffset({1, 0, 0});
  EXPECT_TRUE(
      names(errorOf([&] { loss->encode(commands(), y, t, gradient); }), {"CNNLoss", "offset and clipRect"}));
  loss->setOffset({});
  loss->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf([&] { loss->encode(commands(), y, t); }), {"CNNLoss", "offset and clipRect"}));
  loss->setClipRect(RectNoClip);
  EXPECT_EQ(errorOf([&] { loss->encode(commands(), y, t); }), "");
  const auto ranged = [&](const auto& change) {
    const auto kernel = CNNLoss::create(device_, squared());
    change(*kernel);
    return errorOf([&] { kernel->encode(commands(), y, t, gradient); });
  };
  const std::vector<std::string> allChannels{"CNNLoss", "sourceFeatureChannelOffset", "all channels"};
  EXPECT_TRUE(names(ranged([](auto& kernel) { kernel.setSourceFeatureChannelOffset(4); }), allChannels));
  EXPECT_TRUE(names(ranged([](auto& kernel) { kernel.setSourceFeatureChannelMaxCount(1); }), allChannels));
  EXPECT_TRUE(names(ranged([](auto& kernel) { kernel.setDestinationFeatureChannelOffset(4); }), allChannels));
}

/// The ranges of what Huber and smoothed labels use.
TEST_F(LossLabels, DeltaAndLabelSmoothingHaveRanges) {
  const auto refused = [&](float delta, float labelSmoothing) {
    auto descriptor = squared();
    descriptor.setDelta(delta);
    descriptor.setLabelSmoothing(labelSmoothing);
    return errorOf([&] { CNNLoss::create(device_, descriptor); });
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(names(refused(-1, 0), {"CNNLoss", "delta", "-1", "at least 0"}));
  EXPECT_TRUE(names(refused(nan, 0), {"CNNLoss", "delta", "nan"}));
  EXPECT_TRUE(names(refused(1, 1.5F), {"CNNLoss", "labelSmoothing", "1.5", "at most 1"}));
  EXPECT_TRUE(names(refused(1, nan), {"CNNLoss", "labelSmoothing", "nan"}));
  EXPECT_EQ(refused(0, 1), "");
}

TEST_F(LossLabels, TheGradientIsNeitherLabelsNorWeights) {
  const auto y = image(sizeOf(2, 1, 1));
  const auto t = image(sizeOf(2, 1, 1));
  const auto weights = image(sizeOf(2, 1, 1));
  const auto targets = CNNLossLabels::create(device_, {1, 1, 1}, t, weights);
  const auto loss = CNNLoss::create(device_, squared());
  EXPECT_TRUE(names(errorOf([&] { loss->encode(commands(), y, targets, t); }), {"CNNLoss", "labels"}));
  EXPECT_TRUE(names(errorOf([&] { loss->encode(commands(), y, targets, weights); }), {"CNNLoss", "weights"}));
  EXPECT_EQ(errorOf([&] { loss->encode(commands(), y, targets, image(sizeOf(2, 1, 1))); }), "");
}

TEST(LossLabelsOfABatch, AreSynchronizedByOneCopyAtMost) {
  for (const auto& device : mtl::copyAllDevices()) {
    constexpr std::size_t count = 100;
    const auto labels = CNNLossLabels::createClassBatch(device, count);
    const auto loss = CNNLoss::create(device, softMax());
    auto predictions = ImageBatch::create(device, {ImageFeatureChannelFormat::Float32, 1, 1, 2}, count);
    predictions.writeBytes(std::span<const float>(std::vector<float>(2 * count, 1.0F)),
                           DataLayout::HeightxWidthxFeatureChannels);
    const auto commandBuffer = device->newCommandQueue()->commandBuffer();
    loss->encodeBatch(commandBuffer, predictions, labels);
    const std::size_t before = commandBuffer->commandCount();
    StateBatchSynchronize(labels, commandBuffer);
    EXPECT_LE(commandBuffer->commandCount(), before + 1) << device->name();
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    for (std::size_t i = 0; i < count; ++i) {
      float found = 0;
      std::static_pointer_cast<CNNLossLabels>(labels[i])->lossImage()->readBytes(
          std::span(&found, 1), DataLayout::HeightxWidthxFeatureChannels);
      EXPECT_GT(found, 0.0F) << device->name() << ", " << i;
    }
  }
}

TEST(LossNode, ItsResultIsTheGradient) {
  auto descriptor = softMax();
  descriptor.setWeight(0.5F);
  const auto node = CNNLossNode::create(NNImageNode::create(), descriptor);
  descriptor.setWeight(3);
  EXPECT_EQ(node->descriptor().weight(), 0.5F) << "copied";
  EXPECT_TRUE(static_cast<const NNFilterNode&>(*node).isItsOwnGradient());
  const std::shared_ptr<NNLabelsNode>& labels = node->inputLabels();
  EXPECT_EQ(labels->producer(), nullptr);
  ASSERT_EQ(node->sourceStates().size(), 1U);
  EXPECT_EQ(node->sourceStates()[0], labels);
  const auto kernel = std::dynamic_pointer_cast<CNNLoss>(node->makeKernel(mtl::newCPUDevice(1)));
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->weight(), 0.5F);
  EXPECT_NE(errorOf([&] { node->gradientFilter(node->resultImage()); }), "");
  EXPECT_TRUE(names(errorOf([&] { CNNLossNode::create(nullptr, descriptor); }), {"source", "null"}));
}

}  // namespace
}  // namespace mps::loss_labels_test
