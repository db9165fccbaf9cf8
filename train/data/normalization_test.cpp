#include "train/data/normalization.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/loss/loss.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/device.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/training/class_weights.hpp"
#include "train/training/trainer.hpp"

namespace unmetal::train::normalization_test {
namespace {

using mps::detail::errorOf;
using mps::detail::TestFolder;

/// Two pictures of one row and two channels.
MemoryDataset twoChannels() {
  return {{1, 2, 2}, std::vector<float>{1, 5, 3, 5, 1, 5, 3, 5}, {0, 1}};
}

Network smallNetwork(const Shape& pictures) {
  Network network(pictures);
  network.input().dense(2);
  return network;
}

TEST(NormalizationTest, IsComputedForEachChannel) {
  EXPECT_EQ(Normalization::of(twoChannels()), (Normalization{{2, 5}, {1, 1}}));
  const MemoryDataset bytes({1, 2, 1}, std::vector<std::uint8_t>{0, 255, 255, 0}, {0, 1});
  EXPECT_EQ(Normalization::of(bytes), (Normalization{{0.5F}, {0.5F}}));
}

TEST(NormalizationTest, PicturesOfBatchesAreNormalized) {
  const auto valuesOf = [](const MemoryDataset& data, const Normalization& normalization) {
    Batch batch;
    fillBatch(detail::sourceFrom(data, {.pictures = data.shape(), .normalization = normalization}),
              std::vector<std::uint32_t>{0}, batch);
    std::vector<float> values(batch.images.size() / sizeof(float));
    std::memcpy(values.data(), batch.images.data(), batch.images.size());
    return values;
  };
  EXPECT_EQ(valuesOf(twoChannels(), {{2, 1}, {1, 4}}), (std::vector<float>{-1, 1, 1, 1}));
  const MemoryDataset bytes({1, 1, 3}, std::vector<std::uint8_t>{0, 51, 255}, {0});
  const std::vector<float> found = valuesOf(bytes, Normalization::imagenet());
  const std::vector<float> expected{(0 - 0.485F) / 0.229F, (0.2F - 0.456F) / 0.224F, (1 - 0.406F) / 0.225F};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(found[i], expected[i]);
}

TEST(NormalizationTest, ANetworkAppliesItAndItsFilesHaveIt) {
  const Shape pictures{1, 2, 2};
  const Network network = smallNetwork(pictures);
  const MemoryDataset data = twoChannels();
  const std::vector<float> given{1, 5, 3, 6};
  const std::vector<float> normalized{(1 - 0.3F) / 2, (5 - 0.1F) / 4, (3 - 0.3F) / 2, (6 - 0.1F) / 4};
  const std::vector<float> expected = network.predict(normalized);
  Network same = network;
  const Normalization normalization{{0.3F, 0.1F}, {2, 4}};
  same.setNormalization(normalization);
  EXPECT_EQ(same.predict(given), expected);
  EXPECT_NE(same.predict(normalized), expected);
  const std::vector<float> ofData = same.predict(data);
  const double loss = same.evaluate(data).loss;

  const TestFolder folder;
  same.save(folder / "network");
  const Network loaded = Network::load(folder / "network");
  EXPECT_EQ(loaded.normalization(), normalization);
  EXPECT_EQ(loaded.predict(given), expected);
  EXPECT_EQ(loaded.predict(data), ofData);
  EXPECT_EQ(loaded.evaluate(data).loss, loss);
  Network other = smallNetwork(pictures);
  other.loadWeights(folder / "network");
  EXPECT_EQ(other.normalization(), normalization);
  same.setNormalization(std::nullopt);
  same.save(folder / "network");
  EXPECT_EQ(Network::load(folder / "network").normalization(), std::nullopt);
  other.loadWeights(folder / "network");
  EXPECT_EQ(other.normalization(), std::nullopt);
}

TEST(NormalizationTest, WhatCannotBeIsRefused) {
  Network network = smallNetwork({1, 2, 2});
  const auto trouble = [&](const Normalization& normalization) {
    return errorOf<mps::Error>([&] { network.setNormalization(normalization); });
  };
  EXPECT_EQ(trouble(Normalization::imagenet()),
            "normalization: there are 3 means and 3 deviations, expected one for each channel of 1x2x2");
  EXPECT_EQ(trouble({{0, 0}, {1, 0}}), "normalization: a deviation is not a number above 0");
  EXPECT_EQ(trouble({{0, std::nanf("")}, {1, 1}}), "normalization: a mean is not finite");
  EXPECT_EQ(network.normalization(), std::nullopt);
}

TEST(StepLabels, AreClassesOrShares) {
  const auto device = mtl::createSystemDefaultDevice();
  Batch batch;
  batch.labels = {2, 0};
  detail::StepLabels classes(device, 2, 3, {}, {.flip = true});
  classes.write(batch);
  EXPECT_EQ(std::dynamic_pointer_cast<mps::CNNLossLabels>(classes.states()[0])->labelsImage(), nullptr);

  batch.others = {{1, 0.25F}, {0, 0.5F}};
  const std::vector<float> classWeights{1, 2, 4};
  detail::StepLabels shares(device, 2, 3, classWeights, {.mixup = 1, .labelSmoothing = 0.3});
  shares.write(batch);
  const std::vector<std::vector<float>> expected{{0.1F, 0.275F, 0.625F}, {0.8F, 0.1F, 0.1F}};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto labels = std::dynamic_pointer_cast<mps::CNNLossLabels>(shares.states()[i]);
    std::vector<float> found(3);
    labels->labelsImage()->readBytes(std::span(found), mps::DataLayout::HeightxWidthxFeatureChannels);
    for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(found[k], expected[i][k], 1e-6F);
    labels->weightsImage()->readBytes(std::span(found), mps::DataLayout::HeightxWidthxFeatureChannels);
    EXPECT_EQ(found, std::vector<float>(3, i == 0 ? 3.5F : 1));
  }
}

TEST(StepLabels, SmoothedOnesRaiseTheLossOfASureNetwork) {
  const MemoryDataset data({1, 1, 1}, std::vector<float>{-1, 1}, {0, 1});
  const auto lossWith = [&](const Augmentation& augmentation) {
    Network network({1, 1, 1});
    network.input().dense(2);
    Trainer trainer(
        network,
        {.epochs = 200, .batchSize = 2, .optimizer = "sgd", .learningRate = 1, .augmentation = augmentation});
    return trainer.fit(data).back().loss;
  };
  EXPECT_LT(lossWith({}), 0.05);
  // The least that a network can reach: the entropy of 0.9 and 0.1.
  const double least = -(0.9 * std::log(0.9) + 0.1 * std::log(0.1));
  EXPECT_NEAR(lossWith({.labelSmoothing = 0.2}), least, 0.005);
  EXPECT_GT(lossWith({.mixup = 1}), 0.1);
}

}  // namespace
}  // namespace unmetal::train::normalization_test
