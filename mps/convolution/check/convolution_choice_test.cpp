#include "mps/convolution/convolution_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mps/convolution/convolution_plan_file.hpp"
#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"

/// The choice among candidates, with made-up ones and made-up times.
namespace mps::detail::convolution_choice_test {
namespace {

class NamedPlan final : public Plan {
 public:
  explicit NamedPlan(std::string name) : name_(std::move(name)) {}
  void run(mtl::Stream&, const Operands&) const override {}
  [[nodiscard]] std::string describe() const override { return name_; }

 private:
  std::string name_;
};

/// Candidates "engine 0", "engine 1", ...; those that take no time may not be used.
class MadeUpCandidates final : public ConvolutionCandidates {
 public:
  explicit MadeUpCandidates(std::vector<double> milliseconds) : milliseconds_(std::move(milliseconds)) {}

  [[nodiscard]] std::string device() const override { return "GPU model 7"; }
  [[nodiscard]] std::string library() const override { return "cuDNN"; }
  [[nodiscard]] std::string version() const override { return "9.19.0"; }
  std::shared_ptr<const Plan> first() override {
    std::shared_ptr<const Plan> chosen;
    find([](std::int64_t) { return true; },
         [&](std::int64_t, std::shared_ptr<const Plan> plan) {
           chosen = std::move(plan);
           return false;
         });
    return chosen;
  }
  void find(const Wanted& wanted, const Take& take) override {
    for (std::size_t i = 0; i < milliseconds_.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i);
      if (milliseconds_[i] <= 0 || !wanted(number)) continue;
      if (!take(number, std::make_shared<const NamedPlan>("engine " + std::to_string(i)))) return;
    }
  }
  double milliseconds(const Plan& plan, double /*best*/) override {
    ++timed;
    return milliseconds_.at(std::stoul(plan.describe().substr(7)));
  }

  int timed = 0;

 private:
  std::vector<double> milliseconds_;
};

std::string chosen(MadeUpCandidates candidates, const ConvolutionProblem& problem = {}) {
  const auto plan = chooseConvolutionPlan(candidates, problem);
  return plan ? plan->describe() : "none";
}

/// The sentence of the error when a choice follows `file`, "" when there is none.
std::string errorWith(const ConvolutionPlanFile& file) {
  const std::string path = testing::TempDir() + "/choice_plans.json";
  writeFile(path, file.text());
  useConvolutionPlans(path);
  std::string sentence;
  try {
    chosen(MadeUpCandidates({4, 3, 2}));
  } catch (const Error& error) {
    sentence = error.what();
  }
  useConvolutionPlans({});
  return sentence;
}

TEST(ConvolutionChoice, WithoutFileAndTuningTheFirstIsTakenUntimed) {
  MadeUpCandidates candidates({0, 3, 2});
  EXPECT_EQ(chooseConvolutionPlan(candidates, {})->describe(), "engine 1");
  EXPECT_EQ(candidates.timed, 0);
  EXPECT_EQ(chosen(MadeUpCandidates({})), "none");
}

TEST(ConvolutionChoice, TuningTakesAndNotesTheFastest) {
  ConvolutionTuning tuning;
  EXPECT_EQ(chosen(MadeUpCandidates({0, 3, 2, 5})), "engine 2");
  const ConvolutionChoice expected{2, "engine 2", 2, 3};
  const ConvolutionChoice* const noted =
      tuning.file().choiceOf("GPU model 7", "cuDNN", "9.19.0", ConvolutionProblem{}.describe());
  ASSERT_NE(noted, nullptr);
  EXPECT_EQ(*noted, expected);
}

TEST(ConvolutionChoice, TuningNotesNothingWhereThereIsNothing) {
  ConvolutionTuning tuning;
  EXPECT_EQ(chosen(MadeUpCandidates({0, 0})), "none");
  EXPECT_TRUE(tuning.file().libraries.empty());
}

TEST(ConvolutionChoice, WhatTuningDoesNotWantKeepsTheFirst) {
  ConvolutionProblem wanted;
  wanted.groups = 77;
  ASSERT_NE(wanted.describe(), ConvolutionProblem{}.describe());
  ConvolutionTuning tuning([&](const std::string& problem) { return problem == wanted.describe(); });
  EXPECT_EQ(chosen(MadeUpCandidates({4, 3})), "engine 0");
  EXPECT_TRUE(tuning.file().libraries.empty());
  EXPECT_EQ(chosen(MadeUpCandidates({4, 3}), wanted), "engine 1");
  EXPECT_EQ(tuning.file().libraries.size(), 1U);
}

TEST(ConvolutionChoice, AllThatMayBeUsedIsKeptWhereThatIsWanted) {
  KeepCandidates keep;
  EXPECT_EQ(chosen(MadeUpCandidates({0, 3, 0, 2})), "engine 1");
  ASSERT_EQ(keep.candidates().size(), 2U);
  EXPECT_EQ(keep.candidates()[0].number, 1);
  EXPECT_EQ(keep.candidates()[1].number, 3);
  EXPECT_EQ(keep.candidates()[1].plan->describe(), "engine 3");
}

TEST(ConvolutionChoice, APlanFileIsFollowedOrRefused) {
  ConvolutionPlanFile file;
  {
    ConvolutionTuning tuning;
    chosen(MadeUpCandidates({4, 3, 2}));
    file = tuning.file();
  }
  const std::string path = testing::TempDir() + "/choice_plans.json";
  writeFile(path, file.text());
  useConvolutionPlans(path);
  EXPECT_EQ(chosen(MadeUpCandidates({1, 1, 1})), "engine 2");
  ConvolutionProblem other;
  other.groups = 77;
  EXPECT_EQ(chosen(MadeUpCandidates({1, 1, 1}), other), "engine 0");
  useConvolutionPlans({});
  EXPECT_EQ(errorWith(file), "");

  ConvolutionChoice& choice = file.libraries["cuDNN"].convolutions.begin()->second;
  choice.candidate = 3;
  EXPECT_NE(errorWith(file).find("names candidate 3, engine 2, for the"), std::string::npos);
  EXPECT_NE(errorWith(file).find("which cuDNN does not offer"), std::string::npos);
  choice = {1, "engine 2", 2, 3};
  EXPECT_NE(errorWith(file).find("which cuDNN does not offer"), std::string::npos);
  choice = {2, "engine 2", 2, 3};
  file.device = "GPU model 8";
  EXPECT_NE(errorWith(file).find("was made for GPU model 8"), std::string::npos);
}

}  // namespace
}  // namespace mps::detail::convolution_choice_test
