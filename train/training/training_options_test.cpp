#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"
#include "train/training/bars.hpp"
#include "train/training/learning_rate_finder.hpp"
#include "train/training/trainer.hpp"
#include "train/training/weight_average.hpp"

/// Early stopping, class weights, averages, the finder and scores.
namespace unmetal::train::training_options_test {
namespace {

using detail::Bars;
using detail::bytesOf;
using detail::device;
using detail::smallNetwork;
using mps::detail::errorOf;
using ::testing::HasSubstr;

std::vector<float> floatsOf(const Network& network) {
  const std::vector<std::byte> bytes = bytesOf(network);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(EarlyStopping, EndsAfterEpochsThatAreNotBetter) {
  const Bars data(64);
  const Bars validation(30);
  for (const BestBy by : {BestBy::Accuracy, BestBy::Loss}) {
    TrainerOptions options{.epochs = 60, .batchSize = 16, .optimizer = "sgd", .learningRate = 0.3};
    options.bestBy = by;
    options.patience = 3;
    options.keepBest = true;
    const Network network = smallNetwork();
    Trainer trainer(network, options);
    const auto reports = trainer.fit(data, validation);
    ASSERT_LT(reports.size(), 60U);
    ASSERT_GT(reports.size(), 3U);
    const auto value = [&](const EpochReport& report) {
      return by == BestBy::Accuracy ? static_cast<double>(report.validation->correct)
                                    : -report.validation->loss;
    };
    double best = value(reports[0]);
    std::size_t bestEpoch = 0;
    for (std::size_t i = 1; i < reports.size(); ++i) {
      EXPECT_EQ(reports[i].isBest, value(reports[i]) > best) << i;
      if (value(reports[i]) > best) bestEpoch = i;
      best = std::max(best, value(reports[i]));
    }
    EXPECT_EQ(reports.size(), bestEpoch + 1 + 3);
    EXPECT_NEAR(network.evaluate(validation).loss, reports[bestEpoch].validation->loss, 1e-9);
  }
  Trainer without(smallNetwork(), {.batchSize = 16, .patience = 2});
  EXPECT_EQ(errorOf<mps::Error>([&] { without.fit(data); }),
            "Trainer: patience needs validation data, which fit() was not given");
}

/// A step of plain descent: its gradients are those of the weighted losses.
TEST(ClassWeights, AreFactorsOfLossesAndGradients) {
  const Bars data(16);
  const auto step = [&](std::vector<float> weights, double& loss) {
    TrainerOptions options{.epochs = 1, .batchSize = 16, .optimizer = "sgd", .learningRate = 1};
    options.classWeights = std::move(weights);
    options.onStep = [&](const StepReport& report) {
      loss = report.loss;
      return true;
    };
    const Network network({8, 8, 1}, {.seed = 2, .device = device()});
    network.input().convolution(3, 3).relu().dense(2);
    const std::vector<float> before = floatsOf(network);
    Trainer(network, options).fit(data);
    std::vector<float> after = floatsOf(network);
    for (std::size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
    return after;
  };
  double plainLoss = 0;
  double firstLoss = 0;
  double secondLoss = 0;
  double weightedLoss = 0;
  const auto plain = step({}, plainLoss);
  const auto first = step({1, 0}, firstLoss);
  const auto second = step({0, 1}, secondLoss);
  const auto weighted = step({0.5F, 3}, weightedLoss);
  EXPECT_NEAR(plainLoss, firstLoss + secondLoss, 1e-6);
  EXPECT_NEAR(weightedLoss, 0.5 * firstLoss + 3 * secondLoss, 1e-6);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NEAR(plain[i], first[i] + second[i], 1e-5) << i;
    EXPECT_NEAR(weighted[i], 0.5F * first[i] + 3 * second[i], 1e-5) << i;
  }
}

TEST(ClassWeights, Balanced) {
  const MemoryDataset data({1, 1, 1}, std::vector<float>(6), {0, 1, 1, 1, 2, 2});
  EXPECT_EQ(balancedClassWeights(data), (std::vector<float>{2, 2.0F / 3, 1}));
  const MemoryDataset empty({1, 1, 1}, std::vector<float>(2), {0, 2});
  EXPECT_EQ(errorOf<mps::Error>([&] { static_cast<void>(balancedClassWeights(empty)); }),
            "balanced class weights: class 1 has no pictures, expected some");
}

TEST(ClassWeights, WrongOnesAreRefused) {
  const auto trouble = [](std::vector<float> weights) {
    return errorOf<mps::Error>([&] { Trainer(smallNetwork(), {.classWeights = weights}); });
  };
  EXPECT_EQ(trouble({1}), "Trainer: number of classWeights is 1, expected 2, one for each class");
  EXPECT_EQ(trouble({1, -1}), "Trainer: weight of class 1 is -1.000000, expected 0 or more");
  EXPECT_THAT(trouble({1, std::nanf("")}), HasSubstr("weight of class 1 is nan"));
}

TEST(WeightAverage, FollowsTheWeights) {
  const Bars data(48);
  // One step is an epoch.
  TrainerOptions options{.epochs = 1, .batchSize = 48, .optimizer = "sgd", .learningRate = 0.1};
  options.averageDecay = 0.3;
  const Network rawSteps = smallNetwork();
  const Network averagedSteps = smallNetwork();
  TrainerOptions plain = options;
  plain.averageDecay = 0;
  Trainer rawTrainer(rawSteps, plain);
  Trainer averageTrainer(averagedSteps, options);
  const std::vector<float> first = floatsOf(rawSteps);
  std::vector<double> expected(first.begin(), first.end());
  for (int step = 1; step <= 3; ++step) {
    rawTrainer.fit(data);
    averageTrainer.fit(data, data);
    const double decay = std::min(0.3, (1.0 + step) / (10.0 + step));
    const std::vector<float> weights = floatsOf(rawSteps);
    const std::vector<float> found = floatsOf(averagedSteps);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      expected[i] = decay * expected[i] + (1 - decay) * static_cast<double>(weights[i]);
      ASSERT_NEAR(found[i], expected[i], 1e-6) << step << ", " << i;
    }
  }
}

TEST(WeightAverage, GoesOnFromItsTensors) {
  const Bars data(48);
  const Network network = smallNetwork();
  detail::WeightAverage average(network.trainableLayers(), device(), 0.5);
  Trainer(network, {.epochs = 1, .batchSize = 16}).fit(data);
  std::vector<std::string> names;
  std::vector<std::byte> content;
  const mps::detail::TestFolder folder;
  const auto path = folder / "average.safetensors";
  for (const auto& tensor : average.tensors()) {
    names.push_back(tensor.name);
    content.insert(content.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  EXPECT_EQ(names.front().substr(0, 8), "average.");
  mps::writeSafetensors(path, average.tensors(), {});
  detail::WeightAverage other(network.trainableLayers(), device(), 0.5);
  other.read(mps::SafetensorsFile::read(path), 7);
  EXPECT_EQ(other.steps(), 7U);
  std::vector<std::byte> found;
  for (const auto& tensor : other.tensors())
    found.insert(found.end(), tensor.bytes.begin(), tensor.bytes.end());
  EXPECT_EQ(found, content);
  mps::writeSafetensors(path, {}, {});
  EXPECT_THAT(errorOf<mps::Error>([&] { other.read(mps::SafetensorsFile::read(path), 1); }),
              HasSubstr(names.front()));
}

TEST(Trainer, LoadsWithAnyNumberOfThreads) {
  const Bars data(48);
  std::vector<std::vector<float>> weights;
  for (const std::size_t threads : {0U, 1U, 8U}) {
    const Network network = smallNetwork();
    Trainer(network, {.epochs = 2, .batchSize = 16, .augmentation = {.flip = true}, .loaderThreads = threads})
        .fit(data);
    weights.push_back(floatsOf(network));
  }
  EXPECT_EQ(weights[1], weights[0]);
  EXPECT_EQ(weights[2], weights[0]);
}

TEST(WeightAverage, IsWhatValidationSees) {
  const Bars data(64);
  TrainerOptions options{.epochs = 4, .batchSize = 16, .learningRate = 0.01};
  options.averageDecay = 0.9;
  const Network network = smallNetwork();
  Trainer trainer(network, options);
  const auto reports = trainer.fit(data, data);
  EXPECT_NEAR(trainer.evaluate(data).loss, reports.back().validation->loss, 1e-9);
  const Network raw = smallNetwork();
  options.averageDecay = 0;
  const auto rawReports = Trainer(raw, options).fit(data, data);
  EXPECT_EQ(reports.back().loss, rawReports.back().loss) << "the training itself is the same";
  EXPECT_NE(reports.back().validation->loss, rawReports.back().validation->loss);
  EXPECT_NE(bytesOf(network), bytesOf(raw));
  for (const double decay : {-0.1, 1.0, static_cast<double>(std::nanf(""))})
    EXPECT_THAT(errorOf<mps::Error>([&] { Trainer(smallNetwork(), {.averageDecay = decay}); }),
                HasSubstr("expected 0 or more, and below 1"));
}

TEST(LearningRateFinder, SuggestsARateThatLearns) {
  const Bars data(64);
  const Network network = smallNetwork();
  const auto before = bytesOf(network);
  const TrainerOptions options{.batchSize = 16, .optimizer = "adam"};
  const LearningRateCurve curve =
      findLearningRate(network, data, options, {.lowest = 1e-5, .highest = 100, .steps = 80});
  EXPECT_EQ(bytesOf(network), before) << "a copy was trained";
  ASSERT_GT(curve.points.size(), 10U);
  EXPECT_LE(curve.points.size(), 80U);
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    EXPECT_NEAR(curve.points[i].learningRate, 1e-5 * std::pow(1e7, static_cast<double>(i) / 79),
                1e-9 * std::pow(1e7, static_cast<double>(i) / 79));
    EXPECT_TRUE(std::isfinite(curve.points[i].loss));
  }
  EXPECT_GT(curve.suggestion, 1e-4);
  EXPECT_LT(curve.suggestion, 1);
  TrainerOptions suggested{
      .epochs = 12, .batchSize = 16, .optimizer = "adam", .learningRate = curve.suggestion};
  Trainer(network, suggested).fit(data);
  EXPECT_GT(network.evaluate(data).accuracy(), 0.9);
  const LearningRateCurve again =
      findLearningRate(smallNetwork(), data, options, {.lowest = 1e-5, .highest = 100, .steps = 80});
  EXPECT_EQ(again.suggestion, curve.suggestion) << "the same seeds";
}

TEST(LearningRateFinder, EndsWhereLossesAreNotFinite) {
  const LearningRateCurve curve =
      findLearningRate(smallNetwork(), Bars(32), {.batchSize = 16, .optimizer = "sgd"},
                       {.lowest = 1, .highest = 1e30, .steps = 30});
  EXPECT_LT(curve.points.size(), 30U);
}

TEST(LearningRateFinder, WrongRangesAreRefused) {
  const auto trouble = [](const LearningRateRange& range) {
    return errorOf<mps::Error>(
        [&] { static_cast<void>(findLearningRate(smallNetwork(), Bars(80), {}, range)); });
  };
  EXPECT_THAT(trouble({.lowest = 0}), HasSubstr("expected a positive rate and a larger one"));
  EXPECT_THAT(trouble({.lowest = 1, .highest = 1}), HasSubstr("expected a positive rate and a larger one"));
  EXPECT_EQ(trouble({.steps = 1}), "findLearningRate: steps is 1, expected at least 2");
}

TEST(Evaluation, ScoresOfEachClass) {
  Evaluation evaluation;
  evaluation.classCount = 4;
  // Class 0: 3 right, 1 taken for 1. Class 1: 2 right, 2 taken for 0. Class 2: 1, taken for 0. Class 3: no pictures.
  evaluation.confusion = {{{0, 0}, 3}, {{0, 1}, 1}, {{1, 1}, 2}, {{1, 0}, 2}, {{2, 0}, 1}};
  const auto scores = evaluation.classScores();
  ASSERT_EQ(scores.size(), 4U);
  EXPECT_EQ(scores[0].count, 4U);
  EXPECT_DOUBLE_EQ(scores[0].precision, 0.5);
  EXPECT_DOUBLE_EQ(scores[0].recall, 0.75);
  EXPECT_DOUBLE_EQ(scores[0].f1, 0.6);
  EXPECT_DOUBLE_EQ(scores[1].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(scores[1].recall, 0.5);
  EXPECT_DOUBLE_EQ(scores[1].f1, 4.0 / 7);
  EXPECT_EQ(scores[2].precision, 0) << "nothing was taken for it";
  EXPECT_EQ(scores[3].count, 0U);
  EXPECT_EQ(scores[3].f1, 0);
  EXPECT_DOUBLE_EQ(evaluation.macroF1(), (0.6 + 4.0 / 7) / 4);
  EXPECT_EQ(Evaluation().macroF1(), 0);
}

TEST(Evaluation, CountsWhatIsTakenForWhat) {
  const Bars data(20);
  const Network network = smallNetwork();
  const Evaluation evaluation = network.evaluate(data);
  EXPECT_EQ(evaluation.classCount, 2U);
  std::size_t all = 0;
  std::size_t right = 0;
  for (const auto& [classes, pictures] : evaluation.confusion) {
    all += pictures;
    if (classes.first == classes.second) right += pictures;
  }
  EXPECT_EQ(all, 20U);
  EXPECT_EQ(right, evaluation.correct);
  EXPECT_EQ(evaluation.classScores()[0].count, 10U);
}

}  // namespace
}  // namespace unmetal::train::training_options_test
