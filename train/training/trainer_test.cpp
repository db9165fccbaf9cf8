#include "train/training/trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "mps/conform/tolerance.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/types/error.hpp"
#include "mps/loss/loss.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/training/bars.hpp"

namespace unmetal::train::trainer_test {
namespace {

using detail::Bars;
using detail::bytesOf;
using detail::device;
using detail::smallNetwork;
using mps::detail::errorOf;
using ::testing::HasSubstr;

TEST(Trainer, LearnsAndPredicts) {
  const Bars data(128);
  const Network network = smallNetwork();
  Trainer trainer(network, {.epochs = 12, .batchSize = 16, .optimizer = "adam", .learningRate = 0.01});
  const auto reports = trainer.fit(data, data);
  ASSERT_EQ(reports.size(), 12U);
  EXPECT_LT(reports.back().loss, reports.front().loss);
  EXPECT_EQ(trainer.evaluate(data).accuracy(), 1);
  EXPECT_EQ(reports.back().validation->count, 128U);
  EXPECT_EQ(reports.back().validation->correct, trainer.evaluate(data).correct);

  const std::vector<float> all = network.predict(data);
  ASSERT_EQ(all.size(), 256U);
  double loss = 0;
  for (std::size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(all[2 * i + 1] > all[2 * i], i % 2 != 0) << i;
    loss -= std::log(static_cast<double>(all[2 * i + i % 2])) / 128;
  }
  EXPECT_LT(std::abs(loss - network.evaluate(data).loss), std::numeric_limits<float>::epsilon());
  // Many pictures together may be added up in another order than one alone.
  std::vector<float> pixels(64);
  const std::uint32_t label = data.load(5, pixels);
  const std::vector<float> one = trainer.predict(pixels);
  ASSERT_EQ(one.size(), 2U);
  EXPECT_EQ(one, network.predict(MemoryDataset({8, 8, 1}, pixels, {label})));
  EXPECT_NEAR(one[1], all[11], mps::detail::kCurveTolerance);
}

TEST(Trainer, ReportsTheAccuracyOfEachStep) {
  const Bars data(40);
  constexpr std::size_t batch = 8;
  std::vector<double> accuracies;
  // It learns nothing, so that each step finds the network of the seed.
  TrainerOptions options{.epochs = 1, .batchSize = batch, .optimizer = "sgd", .learningRate = 1e-30};
  options.onStep = [&](const StepReport& report) {
    accuracies.push_back(report.accuracy);
    return true;
  };
  const auto makeNetwork = [] {
    Network network({8, 8, 1}, {.seed = 1, .device = device()});
    network.input().convolution(6, 5).relu().maxPool(2).dense(2);
    return network;
  };
  const auto order = shuffledOrder(40, 0, 0);
  std::vector<double> expected;
  for (std::size_t step = 0; step < 5; ++step) {
    std::vector<float> pixels(batch * 64);
    std::vector<std::uint32_t> labels;
    for (std::size_t i = 0; i < batch; ++i)
      labels.push_back(data.load(order[step * batch + i], std::span(pixels).subspan(i * 64, 64)));
    expected.push_back(makeNetwork().evaluate(MemoryDataset({8, 8, 1}, pixels, labels)).accuracy());
  }
  for (const auto format :
       {mps::ImageFeatureChannelFormat::Float32, mps::ImageFeatureChannelFormat::Float16}) {
    accuracies.clear();
    options.format = format;
    const auto reports = Trainer(makeNetwork(), options).fit(data);
    EXPECT_EQ(accuracies, expected);
    EXPECT_DOUBLE_EQ(reports.at(0).accuracy, std::accumulate(expected.begin(), expected.end(), 0.0) / 5);
  }
  EXPECT_NE(std::ranges::min(expected), std::ranges::max(expected)) << "otherwise it shows little";
}

/// The same steps by hand have the same bytes.
TEST(Trainer, DoesWhatALoopByHandDoes) {
  const Bars data(40);
  constexpr std::size_t batch = 16;
  const Network network = smallNetwork();
  Trainer(network,
          {.epochs = 2, .batchSize = batch, .optimizer = "momentum", .schedule = "cosine", .seed = 7})
      .fit(data);

  Network byHand = smallNetwork();
  byHand.setOptimizer(mps::NNOptimizerStochasticGradientDescent::create(
      device(), 0.9F, false, mps::NNOptimizerDescriptor(0.01F, 1.0F, mps::NNRegularizationType::None, 0)));
  const auto graph = byHand.makeTrainingGraph(batch).graph;
  const auto images =
      mps::ImageBatch::create(device(), {mps::ImageFeatureChannelFormat::Float32, 8, 8, 1}, batch);
  const auto labels = mps::CNNLossLabels::createClassBatch(device(), batch);
  std::vector<float> pixels(batch * 64);
  std::vector<std::uint32_t> classes(batch);
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto order = shuffledOrder(40, 7, step / 2);
    for (std::size_t i = 0; i < batch; ++i)
      classes[i] = data.load(order[step % 2 * batch + i], std::span(pixels).subspan(i * 64, 64));
    images.writeBytes(std::span<const float>(pixels), mps::DataLayout::HeightxWidthxFeatureChannels);
    mps::CNNLossLabels::writeClassIndices(labels, classes);
    byHand.setLearningRate(0.01 * (1 + std::cos(std::acos(-1.0) * static_cast<double>(step) / 4)) / 2);
    const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
    graph->encodeBatch(commandBuffer, {images}, {labels});
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  EXPECT_EQ(bytesOf(network), bytesOf(byHand));
}

TEST(Trainer, TheSameSeedsGiveTheSameBytesOnAnyNumberOfThreads) {
  const Bars data(64);
  std::vector<std::vector<std::byte>> weights;
  for (const int threads : {1, 2}) {
    const Network network({8, 8, 1}, {.seed = 4, .device = mtl::newCPUDevice(threads)});
    network.input().convolution(6, 5).batchNormalization().relu().dropout(0.2F).dense(2);
    Trainer(network, {.epochs = 2, .batchSize = 8}).fit(data);
    weights.push_back(bytesOf(network));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(Trainer, BytesAreThePixelsOver255) {
  std::vector<std::uint8_t> bytes(16 * 64);
  std::vector<std::uint32_t> labels(16);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i % 251);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i % 2;
  std::vector<float> floats;
  for (const std::uint8_t byte : bytes) floats.push_back(static_cast<float>(byte) / 255.0F);
  const MemoryDataset ofBytes({8, 8, 1}, bytes, labels);
  const MemoryDataset ofFloats({8, 8, 1}, floats, labels);
  std::vector<std::vector<std::byte>> weights;
  for (const Dataset* data :
       {static_cast<const Dataset*>(&ofBytes), static_cast<const Dataset*>(&ofFloats)}) {
    const Network network = smallNetwork();
    Trainer(network, {.epochs = 1, .batchSize = 4}).fit(*data);
    weights.push_back(bytesOf(network));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(Trainer, CallsBackAndStops) {
  const Bars data(40);
  std::vector<StepReport> steps;
  std::vector<std::uint64_t> epochs;
  TrainerOptions options{.epochs = 5, .batchSize = 16, .learningRate = 0.001, .schedule = "step"};
  options.onStep = [&](const StepReport& report) {
    steps.push_back(report);
    return true;
  };
  options.onEpoch = [&](const EpochReport& report) {
    EXPECT_EQ(steps.size(), 2 * report.epoch) << "all steps of an epoch come before it";
    epochs.push_back(report.epoch);
    return report.epoch < 3;
  };
  EXPECT_EQ(Trainer(smallNetwork(), options).fit(data).size(), 3U);
  EXPECT_EQ(epochs, (std::vector<std::uint64_t>{1, 2, 3}));
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_EQ(steps[3].epoch, 2U);
  EXPECT_EQ(steps[3].step, 2U);
  EXPECT_EQ(steps[3].stepsPerEpoch, 2U);
  EXPECT_EQ(steps[4].learningRate, 0.001);
  EXPECT_EQ(steps[5].learningRate, 0.0001);
  EXPECT_GT(steps[0].loss, 0);

  options.onStep = [&](const StepReport& report) { return report.step < 2; };
  EXPECT_TRUE(Trainer(smallNetwork(), options).fit(data).empty());
  options.onStep = [](const StepReport&) -> bool { throw std::runtime_error("enough"); };
  EXPECT_EQ(errorOf<std::runtime_error>([&] { Trainer(smallNetwork(), options).fit(data); }), "enough");
}

TEST(Trainer, KeepsTheBestWeights) {
  const Bars data(64);
  const Bars validation(30);
  // Trained with far too large steps, the best epoch is not the last one.
  TrainerOptions options{.epochs = 6, .batchSize = 16, .optimizer = "sgd", .learningRate = 0.3};
  options.keepBest = true;
  const Network network = smallNetwork();
  Trainer trainer(network, options);
  const auto reports = trainer.fit(data, validation);
  std::size_t best = 0;
  for (const EpochReport& report : reports) {
    EXPECT_EQ(report.isBest, report.epoch == 1 || report.validation->correct > best);
    best = std::max(best, report.validation->correct);
  }
  EXPECT_EQ(trainer.evaluate(validation).correct, best);
}

TEST(Trainer, GoesOnWithAnotherCall) {
  const Bars data(64);
  const Network once = smallNetwork();
  const Network twice = smallNetwork();
  TrainerOptions options{.epochs = 4, .batchSize = 16};
  Trainer(once, options).fit(data);
  options.epochs = 2;
  Trainer trainer(twice, options);
  EXPECT_EQ(trainer.fit(data).back().epoch, 2U);
  EXPECT_EQ(trainer.fit(data).back().epoch, 4U);
  EXPECT_EQ(bytesOf(once), bytesOf(twice));
}

TEST(Trainer, TakesAnOptimizerAndFloat16) {
  const Bars data(64);
  const Network network = smallNetwork();
  TrainerOptions options{.epochs = 1, .batchSize = 16};
  options.optimizer = mps::NNOptimizerRMSProp::create(device(), 0.005F);
  options.format = mps::ImageFeatureChannelFormat::Float16;
  std::vector<double> rates;
  options.onStep = [&](const StepReport& report) {
    rates.push_back(report.learningRate);
    return true;
  };
  Trainer trainer(network, options);
  EXPECT_EQ(network.options().format, mps::ImageFeatureChannelFormat::Float16);
  trainer.fit(data);
  EXPECT_EQ(rates, std::vector<double>(4, static_cast<double>(0.005F)));
}

/// What decays is the weight, by the learning rate of each step, whatever Adam makes of the gradient.
TEST(Trainer, AdamWDecaysWeights) {
  const Bars data(32);
  const auto weightsAfter = [&](TrainerOptions options) {
    options.epochs = 1;
    options.batchSize = 16;
    options.schedule = "step";  // one step with 0.01, one with a tenth of it
    options.learningRate = 0.01;
    const Network network = smallNetwork();
    Trainer(network, options).fit(data);
    return bytesOf(network);
  };
  const auto own = [](mps::NNRegularizationType type, float scale) {
    return mps::NNOptimizerAdam::create(device(), 0.9, 0.999, 1e-8F, 0,
                                        mps::NNOptimizerDescriptor(0.01F, 1, type, scale));
  };
  using enum mps::NNRegularizationType;
  EXPECT_EQ(weightsAfter({.optimizer = "adamw"}), weightsAfter({.optimizer = own(Decoupled, 0.01F)}));
  EXPECT_EQ(weightsAfter({.optimizer = "adamw", .weightDecay = 0.5}),
            weightsAfter({.optimizer = own(Decoupled, 0.5F)}));
  EXPECT_EQ(weightsAfter({.optimizer = "adam", .weightDecay = 0.5}),
            weightsAfter({.optimizer = own(L2, 0.5F)}));
  EXPECT_EQ(weightsAfter({.optimizer = "adamw", .weightDecay = 0}), weightsAfter({.optimizer = "adam"}));
  EXPECT_NE(weightsAfter({.optimizer = "adamw"}), weightsAfter({.optimizer = "adam"}));
}

/// Float16's losses are scaled; what is clipped are the gradients without that.
TEST(Trainer, ClipsGradients) {
  const Bars data(32);
  const auto weightsAfter = [&](double clipNorm, std::optional<mps::ImageFeatureChannelFormat> format) {
    TrainerOptions options{.epochs = 1, .batchSize = 32, .optimizer = "sgd", .learningRate = 1};
    options.clipNorm = clipNorm;
    options.format = format;
    const Network network = smallNetwork();
    Trainer(network, options).fit(data);
    const std::vector<std::byte> bytes = bytesOf(network);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  for (const auto format :
       {mps::ImageFeatureChannelFormat::Float32, mps::ImageFeatureChannelFormat::Float16}) {
    const std::vector<float> before = weightsAfter(1e-20, format);
    const auto lengthOfAStep = [&](double clipNorm) {
      const std::vector<float> after = weightsAfter(clipNorm, format);
      double sum = 0;
      for (std::size_t i = 0; i < after.size(); ++i)
        sum += std::pow(static_cast<double>(after[i] - before[i]), 2);
      return std::sqrt(sum);
    };
    const double whole = lengthOfAStep(0);
    EXPECT_GT(whole, 0.1);
    EXPECT_NEAR(lengthOfAStep(whole / 4), whole / 4, 1e-5);
    EXPECT_EQ(weightsAfter(2 * whole, format), weightsAfter(0, format));
  }
}

TEST(Trainer, WrongOptionsAreRefused) {
  const auto trouble = [](const TrainerOptions& options) {
    return errorOf<mps::Error>([&] { Trainer(smallNetwork(), options); });
  };
  EXPECT_EQ(trouble({.epochs = 0}), "Trainer: epochs is 0, expected at least 1");
  EXPECT_EQ(trouble({.batchSize = 0}), "Network: batchSize is 0, expected at least 1");
  EXPECT_THAT(trouble({.optimizer = "adamant"}),
              HasSubstr("optimizer \"adamant\" is unknown; there are sgd"));
  EXPECT_THAT(trouble({.learningRate = -1}), HasSubstr("the learning rate is -1"));
  EXPECT_THAT(trouble({.epochs = 2, .schedule = Schedule::constant().withWarmup(2)}),
              HasSubstr("the warm-up is 2.000000 epochs"));
  EXPECT_EQ(trouble({.clipNorm = -1}), "Trainer: clipNorm is -1.000000, expected 0 or more");
  EXPECT_THAT(trouble({.weightDecay = -1}), HasSubstr("weightDecay is -1.000000, expected 0 or more"));
  EXPECT_THAT(trouble({.optimizer = mps::NNOptimizerAdam::create(device(), 0.1F), .weightDecay = 0.1}),
              HasSubstr("expected 0 with an optimiser that has a regularisation of its own"));
}

TEST(Trainer, WrongDataAreRefused) {
  Bars data(40);
  const auto trouble = [](const Dataset& training, const Dataset* validation = nullptr,
                          const TrainerOptions& options = {.epochs = 1, .batchSize = 16}) {
    Trainer trainer(smallNetwork(), options);
    return errorOf<mps::Error>([&] {
      if (validation != nullptr)
        trainer.fit(training, *validation);
      else
        trainer.fit(training);
    });
  };
  const MemoryDataset others({8, 4, 2}, std::vector<float>(64), {1});
  EXPECT_EQ(trouble(others), "training data: shape of a picture is 8x4x2, expected 8x8x1, the network's");
  EXPECT_EQ(trouble(data, &others),
            "validation data: shape of a picture is 8x4x2, expected 8x8x1, the network's");
  const MemoryDataset moreClasses({8, 8, 1}, std::vector<float>(64), {2});
  EXPECT_EQ(trouble(moreClasses), "training data: number of classes is 3, expected 2, the network's scores");
  // Labels that somebody counts from 1.
  const MemoryDataset fromOne({8, 8, 1}, std::vector<float>(32 * 64), std::vector<std::uint32_t>(32, 1));
  EXPECT_EQ(trouble(fromOne),
            "training data: number of pictures of class 0 is 0, expected some, unless classNames are given; "
            "labels begin with 0");
  const MemoryDataset named({8, 8, 1}, std::vector<float>(32 * 64), std::vector<std::uint32_t>(32, 1),
                            {"cat", "dog"});
  Trainer(smallNetwork(), {.epochs = 1, .batchSize = 16}).fit(named, fromOne);
  EXPECT_EQ(trouble(Bars(15)), "the batch size is 16, but the data set has only 15 images");
  TrainerOptions best{.epochs = 1, .batchSize = 16};
  best.keepBest = true;
  EXPECT_THAT(trouble(data, nullptr, best), HasSubstr("keepBest needs validation data"));
  TrainerOptions large{.epochs = 30, .batchSize = 16, .optimizer = "sgd", .learningRate = 1e30};
  EXPECT_THAT(trouble(data, nullptr, large), HasSubstr("the loss is no longer finite at step "));
  data.wrongPicture_ = 17;
  EXPECT_EQ(trouble(data, nullptr, {.epochs = 2, .batchSize = 40}),
            "data set: class of picture 17 is 2, expected 0 to 1");
  EXPECT_THAT(errorOf<mps::Error>([&] { static_cast<void>(smallNetwork().predict(others)); }),
              HasSubstr("data: shape of a picture is 8x4x2"));
  EXPECT_EQ(errorOf<mps::Error>([&] { static_cast<void>(smallNetwork().predict(std::vector<float>(65))); }),
            "Network: number of values in pictures is 65, expected a multiple of 64 for pictures of 8x8x1");
}

}  // namespace
}  // namespace unmetal::train::trainer_test
