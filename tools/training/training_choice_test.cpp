#include "tools/training/training_choice.hpp"

#include <gtest/gtest.h>

namespace unmetal::training_choice_test {
namespace {

TEST(TrainingChoice, OfAFolderDependsOnItsPictures) {
  const auto expect = [](std::size_t pictures, std::uint64_t epochs, std::size_t batch) {
    const TrainingChoice choice = chooseTraining(true, pictures);
    EXPECT_EQ(choice.network, "small-cnn");
    EXPECT_EQ(choice.schedule, "one-cycle");
    EXPECT_EQ(choice.learningRate, 0.01);
    EXPECT_EQ(choice.weightDecay, 0.0005);
    EXPECT_EQ(choice.epochs, epochs) << pictures;
    EXPECT_EQ(choice.batchSize, batch) << pictures;
  };
  expect(1, 120, 1);
  expect(48, 120, 8);
  expect(1000, 50, 16);
  expect(3200, 15, 16);
  expect(1'000'000, 8, 16);
}

TEST(TrainingChoice, OfOtherDataIsTheSame) {
  const TrainingChoice choice = chooseTraining(false, 60'000);
  EXPECT_EQ(choice.network, "mnist-cnn");
  EXPECT_EQ(choice.epochs, 5U);
  EXPECT_EQ(choice.batchSize, 64U);
  EXPECT_EQ(choice.schedule, "constant");
  EXPECT_EQ(choice.learningRate, std::nullopt);
  EXPECT_EQ(choice.weightDecay, std::nullopt);
}

}  // namespace
}  // namespace unmetal::training_choice_test
