#include "train/learning_rate_schedule.hpp"

#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "mps/core/error.hpp"
#include "mps/weights/test_folder.hpp"

namespace unmetal::train::learning_rate_schedule_test {
namespace {

using mps::detail::errorOf;

TEST(LearningRateScheduleTest, Constant) {
  const LearningRateSchedule schedule("constant", 0.01, 100);
  for (const std::uint64_t step : {0U, 50U, 99U, 100U, 1000U}) EXPECT_EQ(schedule.rateAt(step), 0.01);
}

TEST(LearningRateScheduleTest, Step) {
  const LearningRateSchedule schedule("step", 0.5, 8);
  const double rates[] = {0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.005, 0.005, 0.005, 0.005};
  for (std::uint64_t step = 0; step < std::size(rates); ++step) {
    EXPECT_DOUBLE_EQ(schedule.rateAt(step), rates[step]) << step;
  }
}

TEST(LearningRateScheduleTest, Cosine) {
  const LearningRateSchedule schedule("cosine", 0.2, 6);
  EXPECT_EQ(schedule.rateAt(0), 0.2);
  EXPECT_NEAR(schedule.rateAt(1), 0.1866025403784438647, 1e-16);  // 0.1 (1 + sqrt(3) / 2)
  EXPECT_NEAR(schedule.rateAt(2), 0.15, 1e-16);
  EXPECT_NEAR(schedule.rateAt(3), 0.1, 1e-16);
  EXPECT_NEAR(schedule.rateAt(4), 0.05, 1e-16);
  EXPECT_NEAR(schedule.rateAt(6), 0, 1e-16);
  EXPECT_EQ(schedule.rateAt(100), schedule.rateAt(6));
}

TEST(LearningRateScheduleTest, WrongArguments) {
  const auto errorFor = [](const char* name, double rate, std::uint64_t steps) {
    return errorOf<mps::Error>([&] { LearningRateSchedule(name, rate, steps); });
  };
  EXPECT_EQ(errorFor("linear", 0.1, 1),
            "the learning rate schedule is \"linear\", expected constant, step or cosine");
  EXPECT_EQ(errorFor("step", 0, 1), "the learning rate is 0.000000, expected a number above 0");
  EXPECT_EQ(errorFor("step", -1, 1), "the learning rate is -1.000000, expected a number above 0");
  EXPECT_EQ(errorFor("step", std::numeric_limits<double>::infinity(), 1),
            "the learning rate is inf, expected a number above 0");
  EXPECT_EQ(errorFor("step", 0.1, 0), "the learning rate schedule has 0 steps, expected at least 1");
}

}  // namespace
}  // namespace unmetal::train::learning_rate_schedule_test
