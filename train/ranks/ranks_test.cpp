#include "train/ranks/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include "mps/core/types/error.hpp"
#include "mps/distributed/test_ranks.hpp"
#include "mtl/buffer.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/network/weight_values.hpp"
#include "train/training/bars.hpp"
#include "train/training/trainer.hpp"

/// A training of several ranks is that of one.
namespace unmetal::train::ranks_test {
namespace {

using detail::Bars;
using detail::Part;
using detail::Ranks;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PartOf, AllPartsAreTheWhole) {
  for (const std::size_t pictures : {0U, 1U, 3U, 7U, 64U})
    for (const std::size_t ranks : {1U, 2U, 3U, 5U}) {
      std::size_t next = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Part part = detail::partOf(pictures, rank, ranks);
        EXPECT_EQ(part.first, next);
        EXPECT_LE(part.count, pictures / ranks + 1);
        next += part.count;
      }
      EXPECT_EQ(next, pictures);
    }
}

/// The loaders of all ranks hand out what that of one rank does.
TEST(BatchLoader, RanksShareEachBatch) {
  const BatchSource source{sizeof(std::uint32_t), [](std::uint32_t number, std::uint64_t, auto picture) {
                             std::memcpy(picture.data(), &number, sizeof number);
                             return PictureClass(number);
                           }};
  constexpr std::size_t pictures = 23;  // the last batch has 2
  for (const std::size_t ranks : {2U, 3U, 4U, 9U}) {
    BatchOptions options{.batchSize = 7, .lastBatch = LastBatch::Keep, .seed = 5, .endEpoch = 2};
    BatchLoader whole(pictures, source, options);
    std::vector<std::unique_ptr<BatchLoader>> parts;
    options.ranks = ranks;
    for (options.rank = 0; options.rank < ranks; ++options.rank)
      parts.push_back(std::make_unique<BatchLoader>(pictures, source, options));
    for (Batch expected; whole.next(expected);) {
      std::vector<std::uint32_t> labels;
      for (const auto& loader : parts) {
        Batch part;
        ASSERT_TRUE(loader->next(part));
        EXPECT_EQ(part.index, expected.index);
        EXPECT_EQ(part.isLastOfEpoch, expected.isLastOfEpoch);
        EXPECT_EQ(part.firstPlace, expected.firstPlace + labels.size());
        labels.insert(labels.end(), part.labels.begin(), part.labels.end());
      }
      EXPECT_EQ(labels, expected.labels);
    }
    for (const auto& loader : parts) {
      Batch none;
      EXPECT_FALSE(loader->next(none));
    }
  }
}

/// Its batches are done when they begin, and handed out while the thread that began them looks for more.
TEST(BatchLoader, ARankWithoutPicturesGetsEmptyBatches) {
  const BatchSource source{sizeof(std::uint32_t), [](std::uint32_t, std::uint64_t, auto) -> PictureClass {
                             throw mps::Error("a picture of another rank");
                           }};
  constexpr std::size_t batches = 20000;
  BatchOptions options{.batchSize = 1, .endEpoch = 1, .threads = 2};
  options.ranks = 2;  // the second one has the picture
  BatchLoader loader(batches, source, options);
  Batch batch;
  for (std::size_t i = 0; i < batches; ++i) {
    ASSERT_TRUE(loader.next(batch));
    ASSERT_EQ(batch.index, i);
    ASSERT_TRUE(batch.labels.empty());
  }
  EXPECT_FALSE(loader.next(batch));
}

TEST(Together, FailsOnAllRanksWithTheFirstSentence) {
  const auto errors = mps::test::runRanks(mps::test::ranks(3), [](const Ranks& ranks) {
    detail::together(ranks, [] {});
    detail::together(ranks, [&] {
      if (ranks->rank() > 0) throw mps::Error("rank " + std::to_string(ranks->rank()) + " has no data");
    });
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank 1: rank 1 has no data");
  const auto same = mps::test::runRanks(mps::test::ranks(2), [](const Ranks& ranks) {
    detail::together(ranks, [] { throw mps::Error("there is no such file"); });
  });
  EXPECT_EQ(same, (std::vector<std::string>{"there is no such file", "there is no such file"}));
}

TEST(IsTrueOnAny, KnowsTheOthers) {
  EXPECT_TRUE(detail::isTrueOnAny(nullptr, true));
  EXPECT_FALSE(detail::isTrueOnAny(nullptr, false));
  mps::test::runAll(mps::test::ranks(3), [](const Ranks& ranks) {
    EXPECT_TRUE(detail::isTrueOnAny(ranks, ranks->rank() == 2));
    EXPECT_FALSE(detail::isTrueOnAny(ranks, false));
  });
}

/// Without biases in front of the batch normalisation: their gradients are rounding alone, of which Adam makes whole steps.
Network networkOn(const std::shared_ptr<mtl::Device>& device, std::uint64_t seed = 1) {
  Network network({8, 8, 1}, {.seed = seed, .device = device});
  network.input()
      .convolution(6, 5, {.biases = false})
      .batchNormalization()
      .relu()
      .maxPool(2)
      .dropout(0.1F)
      .dense(2);
  return network;
}

struct Course {
  std::vector<double> losses;
  std::vector<EpochReport> reports;
  std::vector<std::byte> weights;
};

constexpr std::size_t trainingPictures = 52;
constexpr std::size_t validationPictures = 33;

Course trained(const std::shared_ptr<mtl::Device>& device, const Ranks& ranks, TrainerOptions options) {
  Course course;
  options.communicator = ranks;
  options.onStep = [&](const StepReport& report) {
    course.losses.push_back(report.loss);
    return true;
  };
  const Network network = networkOn(device);
  Trainer trainer(network, options);
  course.reports = trainer.fit(Bars(trainingPictures), Bars(validationPictures));
  course.weights = detail::bytesOf(network);
  return course;
}

Course trainedAlone(const TrainerOptions& options) {
  return trained(mtl::newCPUDevice(1), nullptr, options);
}

std::vector<Course> trainedTogether(std::size_t size, const TrainerOptions& options) {
  std::vector<Course> courses(size);
  mps::test::runAll(mps::test::ranks(size), [&](const Ranks& ranks) {
    courses[static_cast<std::size_t>(ranks->rank())] = trained(ranks->device(), ranks, options);
  });
  return courses;
}

void expectClose(const Course& found, const Course& expected) {
  constexpr double relative = 1e-5;
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], relative * std::max(expected.losses[i], 1.0)) << i;
  ASSERT_EQ(found.reports.size(), expected.reports.size());
  for (std::size_t i = 0; i < found.reports.size(); ++i) {
    const Evaluation& validation = *found.reports[i].validation;
    EXPECT_EQ(validation.confusion, expected.reports[i].validation->confusion);
    EXPECT_EQ(validation.count, validationPictures);
    EXPECT_NEAR(validation.loss, expected.reports[i].validation->loss, relative);
  }
}

class SeveralRanks : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SeveralRanks, ::testing::Values(2, 3, 4));

/// 26 steps, and with a batch of 2 ranks without pictures.
TEST_P(SeveralRanks, FollowOneRank) {
  for (const TrainerOptions& options :
       {TrainerOptions{.epochs = 5, .batchSize = 10, .optimizer = "momentum", .seed = 3},
        TrainerOptions{.epochs = 1, .batchSize = 2, .optimizer = "momentum"},
        TrainerOptions{.epochs = 5,
        .batchSize = 10,
        .optimizer = "adam",
        .schedule = "cosine",
        .classWeights = {1, 2},
        .averageDecay = 0.9}}) {
    SCOPED_TRACE(options.optimizer.name() + " " + std::to_string(options.batchSize));
    const Course alone = trainedAlone(options);
    const std::vector<Course> together = trainedTogether(GetParam(), options);
    expectClose(together[0], alone);
    for (const Course& course : together) {
      EXPECT_EQ(course.losses, together[0].losses);
      EXPECT_EQ(course.weights, together[0].weights);
    }
    EXPECT_EQ(trainedTogether(GetParam(), options)[0].weights, together[0].weights);
  }
}

TEST_P(SeveralRanks, FollowOneRankWithAugmentation) {
  TrainerOptions options{.epochs = 2, .batchSize = 10, .optimizer = "momentum"};
  options.augmentation = parseAugmentation("flip+mixup:0.2+smooth:0.1");
  expectClose(trainedTogether(GetParam(), options)[0], trainedAlone(options));
}

TEST(Ranks, AGroupOfOneIsNoGroup) {
  const TrainerOptions options{.epochs = 2, .batchSize = 10};
  const auto device = mtl::newCPUDevice(1);
  const Course alone = trainedAlone(options);
  const Course ofOne = trained(device, mps::Communicator::create(device), options);
  EXPECT_EQ(ofOne.losses, alone.losses);
  EXPECT_EQ(ofOne.weights, alone.weights);
}

/// Each rank normalises its own pictures then.
TEST(Ranks, NormaliseTheirOwnPicturesWhenAskedTo) {
  TrainerOptions options{.epochs = 1, .batchSize = 10, .optimizer = "momentum"};
  const Course alone = trainedAlone(options);
  options.synchronizesBatchNormalization = false;
  const std::vector<Course> together = trainedTogether(2, options);
  EXPECT_EQ(together[0].weights, together[1].weights);
  EXPECT_GT(std::abs(together[0].losses[3] - alone.losses[3]), 1e-4);
}

TEST(Ranks, StopBehindTheSameStepWhenOneSaysSo) {
  std::array<std::size_t, 3> steps{};
  mps::test::runAll(mps::test::ranks(3), [&](const Ranks& ranks) {
    std::size_t& own = steps[static_cast<std::size_t>(ranks->rank())];
    TrainerOptions options{.epochs = 5, .batchSize = 4, .communicator = ranks};
    options.onStep = [&](const StepReport& report) {
      ++own;
      return ranks->rank() != 1 || report.step != 4;
    };
    EXPECT_TRUE(Trainer(networkOn(ranks->device()), options).fit(Bars(trainingPictures)).empty());
  });
  EXPECT_EQ(steps[1], 4U);
  EXPECT_EQ(steps[0], steps[2]);
  EXPECT_GT(steps[0], 4U);
  EXPECT_LT(steps[0], 12U);
}

TEST(Ranks, StopAfterTheEpochWhenOneSaysSo) {
  mps::test::runAll(mps::test::ranks(2), [&](const Ranks& ranks) {
    TrainerOptions options{.epochs = 5, .batchSize = 10, .communicator = ranks};
    options.onEpoch = [&](const EpochReport& report) { return ranks->rank() == 0 || report.epoch < 2; };
    EXPECT_EQ(Trainer(networkOn(ranks->device()), options).fit(Bars(trainingPictures)).size(), 2U);
  });
}

/// Of the layer of this number with weights.
void addToBias(const Network& network, std::size_t number) {
  const auto biases = detail::buffersOf(*network.trainableLayers()[number], network.device()).at(1);
  biases->contentsAs<float>()[0] += 0.001F;
  biases->didModifyRange(0, biases->length());
}

/// Of two ranks whose second one changes something.
void expectRefused(const std::string& expected, const std::function<void(TrainerOptions&)>& change,
                   std::uint64_t seed = 1, std::size_t pictures = trainingPictures) {
  std::atomic<int> steps = 0;
  const auto errors = mps::test::runRanks(mps::test::ranks(2), [&](const Ranks& ranks) {
    const bool isSecond = ranks->rank() == 1;
    TrainerOptions options{.epochs = 1, .batchSize = 10, .communicator = ranks};
    options.onStep = [&](const StepReport&) { return ++steps > 0; };
    if (isSecond) change(options);
    Trainer trainer(networkOn(ranks->device(), isSecond ? seed : 1), options);
    trainer.fit(Bars(isSecond ? pictures : trainingPictures));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, expected);
  EXPECT_EQ(steps, 0);
}

TEST(Ranks, ThatDisagreeAreRefusedBeforeTheFirstStep) {
  expectRefused("batchSize is 10 on rank 0, but 12 on rank 1", [](auto& options) { options.batchSize = 12; });
  expectRefused("seed is 0 on rank 0, but 3 on rank 1", [](auto& options) { options.seed = 3; });
  expectRefused("optimizer is adam on rank 0, but adamw on rank 1",
                [](auto& options) { options.optimizer = "adamw"; });
  expectRefused("schedule is constant on rank 0, but cosine on rank 1",
                [](auto& options) { options.schedule = "cosine"; });
  expectRefused(
      "the network's seed is 1 on rank 0, but 2 on rank 1", [](auto&) {}, 2);
  expectRefused(
      "the number of training pictures is 52 on rank 0, but 53 on rank 1", [](auto&) {}, 1, 53);
}

TEST(Ranks, WithOtherLayersOrWeightsAreRefused) {
  const auto errorsOf = [](const std::function<void(Network&)>& change) {
    return mps::test::runRanks(mps::test::ranks(2), [&](const Ranks& ranks) {
      Network network = networkOn(ranks->device());
      if (ranks->rank() == 1) change(network);
      Trainer(network, {.epochs = 1, .batchSize = 10, .communicator = ranks}).fit(Bars(trainingPictures));
    });
  };
  for (const std::string& error : errorsOf([](Network& network) {
         network = Network({8, 8, 1}, {.seed = 1, .device = network.device()});
         network.input().dense(2);
       }))
    EXPECT_THAT(error, StartsWith("the network is 7 layers with 356 parameters ("));
  for (const std::string& error : errorsOf([](Network& network) { addToBias(network, 1); }))
    EXPECT_THAT(error, HasSubstr("\"bn1\": beta differs between ranks 0 and 1"));
}

/// Planted in the second epoch, found at its end.
TEST(Ranks, WhoseWeightsDriftApartAreTold) {
  std::array<std::size_t, 2> epochs{};
  const auto errors = mps::test::runRanks(mps::test::ranks(2), [&](const Ranks& ranks) {
    const Network network = networkOn(ranks->device());
    TrainerOptions options{.epochs = 4, .batchSize = 10, .communicator = ranks};
    options.onEpoch = [&](const EpochReport& report) {
      epochs[static_cast<std::size_t>(ranks->rank())] = report.epoch;
      if (report.epoch == 1 && ranks->rank() == 1) addToBias(network, 2);
      return true;
    };
    Trainer(network, options).fit(Bars(trainingPictures));
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("\"dense1\": biases differs between ranks 0 and 1"));
  EXPECT_EQ(epochs, (std::array<std::size_t, 2>{1, 1}));
}

TEST(Ranks, WithoutSomeOfTheDataFailTogether) {
  const auto errors = mps::test::runRanks(mps::test::ranks(2), [&](const Ranks& ranks) {
    const Network network = networkOn(ranks->device());
    Trainer trainer(network, {.epochs = 1, .batchSize = 10, .communicator = ranks});
    Bars broken(40);
    if (ranks->rank() == 1) broken.wrongPicture_ = 30;
    (void)trainer.evaluate(broken);
  });
  EXPECT_THAT(errors[0], StartsWith("rank 1: "));
  EXPECT_THAT(errors[0], HasSubstr("picture 30"));
  EXPECT_EQ(errors[1], errors[0]);
}

}  // namespace
}  // namespace unmetal::train::ranks_test
