#include "train/training/learning_rate_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/weights/test_folder.hpp"

namespace unmetal::train::learning_rate_schedule_test {
namespace {

using mps::detail::errorOf;

TEST(LearningRateScheduleTest, Constant) {
  const LearningRateSchedule schedule("constant", 0.01, 10, 10);
  for (const std::uint64_t step : {0U, 50U, 99U, 100U, 1000U}) EXPECT_EQ(schedule.rateAt(step), 0.01);
}

TEST(LearningRateScheduleTest, Step) {
  const LearningRateSchedule schedule("step", 0.5, 1, 8);
  const double rates[] = {0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.005, 0.005, 0.005, 0.005};
  for (std::uint64_t step = 0; step < std::size(rates); ++step) {
    EXPECT_DOUBLE_EQ(schedule.rateAt(step), rates[step]) << step;
  }
}

TEST(LearningRateScheduleTest, StepOfSomeEpochs) {
  const LearningRateSchedule schedule(Schedule::step(1.5, 0.5), 0.8, 2, 5);
  const double rates[] = {0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1, 0.1};
  for (std::uint64_t step = 0; step < std::size(rates); ++step)
    EXPECT_DOUBLE_EQ(schedule.rateAt(step), rates[step]) << step;
  // Steps of less than a step are one step.
  EXPECT_DOUBLE_EQ(LearningRateSchedule("step:0.01", 1, 2, 1).rateAt(1), 0.1);
}

TEST(LearningRateScheduleTest, Cosine) {
  const LearningRateSchedule schedule("cosine", 0.2, 3, 2);
  EXPECT_EQ(schedule.rateAt(0), 0.2);
  EXPECT_NEAR(schedule.rateAt(1), 0.1866025403784438647, 1e-16);  // 0.1 (1 + sqrt(3) / 2)
  EXPECT_NEAR(schedule.rateAt(2), 0.15, 1e-16);
  EXPECT_NEAR(schedule.rateAt(3), 0.1, 1e-16);
  EXPECT_NEAR(schedule.rateAt(4), 0.05, 1e-16);
  EXPECT_NEAR(schedule.rateAt(6), 0, 1e-16);
  EXPECT_EQ(schedule.rateAt(100), schedule.rateAt(6));
}

/// The formula of torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10) in float64.
TEST(LearningRateScheduleTest, OneCycle) {
  const LearningRateSchedule schedule("one-cycle", 0.1, 5, 2);
  const double rates[] = {0.004,       0.052,       0.1,         0.095048463, 0.081174565,
                          0.061126202, 0.038874198, 0.018825835, 0.004951937, 0.0000004};
  for (std::uint64_t step = 0; step < std::size(rates); ++step)
    EXPECT_NEAR(schedule.rateAt(step), rates[step], 1e-8) << step;
  EXPECT_EQ(schedule.rateAt(1000), schedule.rateAt(9));
  // Too short to rise.
  EXPECT_EQ(LearningRateSchedule("one-cycle", 0.1, 1, 1).rateAt(0), 0.1);
}

TEST(LearningRateScheduleTest, Warmup) {
  const LearningRateSchedule schedule(Schedule::cosine().withWarmup(2), 0.2, 2, 5);
  const double rates[] = {0.05, 0.1, 0.15, 0.2, 0.2};
  for (std::uint64_t step = 0; step < std::size(rates); ++step)
    EXPECT_DOUBLE_EQ(schedule.rateAt(step), rates[step]) << step;
  const LearningRateSchedule plain("cosine", 0.2, 2, 3);
  for (std::uint64_t step = 0; step < 8; ++step) EXPECT_EQ(schedule.rateAt(step + 4), plain.rateAt(step));
  EXPECT_NEAR(LearningRateSchedule(Schedule::oneCycle().withWarmup(1), 0.25, 2, 20).rateAt(0), 0.005, 1e-16);
  // All but the last step.
  const LearningRateSchedule rounded(Schedule::constant().withWarmup(0.9), 1, 2, 1);
  EXPECT_EQ(rounded.rateAt(0), 1);
}

TEST(LearningRateScheduleTest, WrongArguments) {
  const auto errorFor = [](const Schedule& schedule, double rate, std::uint64_t steps,
                           std::uint64_t epochs = 1) {
    return errorOf<mps::Error>([&] { LearningRateSchedule(schedule, rate, steps, epochs); });
  };
  EXPECT_EQ(errorFor("step", 0, 1), "the learning rate is 0.000000, expected a number above 0");
  EXPECT_EQ(errorFor("step", -1, 1), "the learning rate is -1.000000, expected a number above 0");
  EXPECT_EQ(errorFor("step", std::numeric_limits<double>::infinity(), 1),
            "the learning rate is inf, expected a number above 0");
  EXPECT_EQ(errorFor("step", 0.1, 0), "the learning rate schedule has 0 steps, expected at least 1");
  EXPECT_EQ(errorFor("step", 0.1, 1, 0), "the learning rate schedule has 0 steps, expected at least 1");
  EXPECT_EQ(errorFor(Schedule::cosine().withWarmup(3), 0.1, 4, 3),
            "the warm-up is 3.000000 epochs, expected fewer than the training's 3");
}

TEST(ScheduleTest, Texts) {
  EXPECT_EQ(Schedule("constant"), Schedule::constant());
  EXPECT_EQ(Schedule("step"), Schedule::step());
  EXPECT_EQ(Schedule("cosine"), Schedule::cosine());
  EXPECT_EQ(Schedule("one-cycle"), Schedule::oneCycle());
  EXPECT_EQ(Schedule("step:30"), Schedule::step(30));
  EXPECT_EQ(Schedule("step:2.5:0.5"), Schedule::step(2.5, 0.5));
  for (const char* text : {"constant", "step", "cosine", "one-cycle", "step:2.5:0.5"})
    EXPECT_EQ(Schedule(text).text(), text);
  EXPECT_EQ(Schedule("step:30").text(), "step:30:0.1");
}

TEST(ScheduleTest, WrongTextsAndNumbers) {
  const auto errorFor = [](const std::string& text) {
    return errorOf<mps::Error>([&] { static_cast<void>(Schedule(text)); });
  };
  for (const char* text : {"linear", "", "step:", "step:x", "step:3:", "step:3:0.1:2", "step:3x", "step:inf"})
    EXPECT_EQ(errorFor(text), "the learning rate schedule is \"" + std::string(text) +
                                  "\", expected constant, step, step:EPOCHS, step:EPOCHS:FACTOR, cosine or "
                                  "one-cycle");
  EXPECT_EQ(errorFor("step:0"), "Schedule: epochs of a step is 0, expected a number above 0");
  EXPECT_EQ(errorFor("step:3:1.5"), "Schedule: factor of a step is 1.5, expected above 0 and at most 1");
  EXPECT_EQ(errorOf<mps::Error>([] { static_cast<void>(Schedule::cosine().withWarmup(-1)); }),
            "Schedule: epochs of the warm-up is -1, expected 0 or more");
}

}  // namespace
}  // namespace unmetal::train::learning_rate_schedule_test
