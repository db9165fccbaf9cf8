#include "mps/core/plan/plan.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mps/core/kernel/call.hpp"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/command.hpp"
#include "mtl/cpu/stream.hpp"

/// How an implementation is chosen, and the cache of what was chosen: design sections 4 and 6.
namespace mps::detail::plan_test {
namespace {

using testing::errorOf;
using testing::names;

struct Problem {
  int number = 0;
  bool operator==(const Problem&) const = default;
  [[nodiscard]] std::size_t hash() const { return static_cast<std::size_t>(number) % 7; }  // collides
  [[nodiscard]] std::string describe() const { return "problem " + std::to_string(number); }
};

int preparations = 0;
int livePlans = 0;

class CountedPlan final : public Plan {
 public:
  CountedPlan() { ++livePlans; }
  ~CountedPlan() override { --livePlans; }
  CountedPlan(const CountedPlan&) = delete;
  CountedPlan& operator=(const CountedPlan&) = delete;
  void run(mtl::Stream&, const Operands&) const override {}
  [[nodiscard]] std::string describe() const override { return "by counting"; }
};

/// Takes even numbers.
Preparation prepareEven(const Problem& problem) {
  ++preparations;
  if (problem.number % 2 != 0) return Refusal{"the number is odd"};
  return std::make_shared<CountedPlan>();
}
/// Takes multiples of three.
Preparation prepareThird(const Problem& problem) {
  ++preparations;
  if (problem.number % 3 != 0) return Refusal{"the number is no multiple of 3"};
  return std::make_shared<CountedPlan>();
}
Preparation prepareAny(const Problem&) {
  ++preparations;
  return std::make_shared<CountedPlan>();
}

constexpr Implementation<Problem> even{"even", prepareEven};
constexpr Implementation<Problem> third{"third", prepareThird};
constexpr Implementation<Problem> any{"any", prepareAny};
const std::vector all{even, third, any};

std::span<const Implementation<Problem>> listOfAll() {
  return all;
}

TEST(Dispatch, TheFirstImplementationThatAcceptsIsTaken) {
  EXPECT_EQ(preparePlan<Problem>(all, {2}).implementation, "even");
  EXPECT_EQ(preparePlan<Problem>(all, {6}).implementation, "even");
  EXPECT_EQ(preparePlan<Problem>(all, {9}).implementation, "third");
  EXPECT_EQ(preparePlan<Problem>(all, {7}).implementation, "any");
}

TEST(Dispatch, APlanKeepsItsProblem) {
  const ChosenPlan chosen = preparePlan<Problem>(all, {9});
  ASSERT_NE(chosen.problem, nullptr);
  EXPECT_EQ(std::any_cast<Problem>(*chosen.problem), Problem{9});
}

TEST(Dispatch, WhereAllRefuseTheErrorListsTheReasonsInOrder) {
  const std::vector list{even, third};
  const std::string message = errorOf([&] { preparePlan<Problem>(list, {7}); });
  EXPECT_TRUE(
      names(message, {"problem 7", "even: the number is odd", "third: the number is no multiple of 3"}));
  EXPECT_LT(message.find("even"), message.find("third"));
  EXPECT_TRUE(names(errorOf([] { preparePlan<Problem>({}, {7}); }), {"problem 7", "none is built"}));
}

TEST(Dispatch, AForcedImplementationIsAskedAlone) {
  const ForceImplementation force("third");
  EXPECT_EQ(preparePlan<Problem>(all, {6}).implementation, "third");
  const std::string message = errorOf([&] { preparePlan<Problem>(all, {2}); });
  EXPECT_TRUE(names(message, {"third: the number is no multiple of 3"}));
  EXPECT_EQ(message.find("odd"), std::string::npos);
  {
    const ForceImplementation inner("any");
    EXPECT_EQ(preparePlan<Problem>(all, {6}).implementation, "any");
  }
  EXPECT_EQ(forcedImplementation(), "third") << "the outer one again";
  const std::vector others{even, any};
  EXPECT_EQ(preparePlan<Problem>(others, {6}).implementation, "even") << "lists without that name are free";
}

TEST(Dispatch, OneThatIsLeftOutIsPassedOverUnlessItIsTheLast) {
  {
    const LeaveOutImplementation without("even");
    EXPECT_EQ(preparePlan<Problem>(all, {6}).implementation, "third");
    EXPECT_EQ(preparePlan<Problem>(all, {2}).implementation, "any");
    const std::vector list{third, even};
    EXPECT_EQ(preparePlan<Problem>(list, {2}).implementation, "even");
  }
  EXPECT_EQ(preparePlan<Problem>(all, {6}).implementation, "even");
}

TEST(Dispatch, ARecordHasTheListsAndWhatWasTaken) {
  PlanCache<Problem> cache(4);
  cache.choose(all, {2});
  const ChoiceRecord outer;
  {
    const ChoiceRecord record;
    cache.choose(all, {2});  // though there is a plan
    const std::vector others{third, any};
    preparePlan<Problem>(others, {5});
    ASSERT_EQ(record.choices().size(), 2U);
    EXPECT_EQ(record.choices()[0].names, (std::vector<std::string_view>{"even", "third", "any"}));
    EXPECT_EQ(record.choices()[0].taken, "even");
    EXPECT_EQ(record.choices()[1].taken, "any");
  }
  EXPECT_TRUE(outer.choices().empty());
  EXPECT_EQ(cache.size(), 1U);
}

TEST(Dispatch, VerboseDispatchPrintsTheChoiceAndTheRefusalsBeforeIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which reads the variable anew
  setenv("UNMETAL_VERBOSE", "dispatch", 1);
  EXPECT_EXIT(
      {
        preparePlan<Problem>(all, {7});
        std::exit(0);
      },
      ::testing::ExitedWithCode(0),
      "unmetal: problem 7: any by counting; refused by\n"
      "  even: the number is odd\n"
      "  third: the number is no multiple of 3");
  EXPECT_EXIT(
      {
        preparePlan<Problem>(all, {4});
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^unmetal: problem 4: even by counting\n$");
  setenv("UNMETAL_VERBOSE", "something else", 1);
  EXPECT_EXIT(
      {
        preparePlan<Problem>(all, {7});
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
  unsetenv("UNMETAL_VERBOSE");
}

/// Counts its runs. @param scratch bytes of scratch memory
class RunCountingPlan final : public SelectivePlan {
 public:
  RunCountingPlan(int& runs, std::string words, std::size_t scratch = 0)
      : runs_(runs), words_(std::move(words)), scratch_(scratch) {}
  void run(mtl::Stream&, const Operands&) const override { ++runs_; }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({operands.source, operands.destination});
  }
  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_; }
  [[nodiscard]] std::string describe() const override { return words_; }

 private:
  int& runs_;
  std::string words_;
  std::size_t scratch_;
};

/// Aligned, or one byte further where isShifted.
struct ShiftedOperands : Operands {
  explicit ShiftedOperands(bool isShifted) { destination = memory.data() + (isShifted ? 1 : 0); }
  alignas(16) std::array<std::byte, 32> memory{};
};

TEST(FallbackPlan, RunsTheGeneralOneAtUnalignedAddressesAlone) {
  mtl::cpu::Stream stream(1);
  int preferred = 0;
  int general = 0;
  const auto plan =
      fallbackPlan(std::make_shared<const RunCountingPlan>(preferred, "vectors"),
                   std::make_shared<const RunCountingPlan>(general, ""), "elements", "a problem");
  plan->run(stream, ShiftedOperands(false));
  EXPECT_EQ(preferred, 1);
  EXPECT_EQ(general, 0);
  plan->run(stream, ShiftedOperands(true));
  EXPECT_EQ(preferred, 1);
  EXPECT_EQ(general, 1);
}

TEST(FallbackPlan, HasMemoryForBothAndNamesBoth) {
  int runs = 0;
  const auto planOf = [&](std::string words, std::size_t scratch) {
    return std::make_shared<const RunCountingPlan>(runs, std::move(words), scratch);
  };
  const auto plan = fallbackPlan(planOf("vectors", 8), planOf("of float32", 24), "elements", "");
  EXPECT_EQ(plan->scratchBytes(), 24U);
  EXPECT_EQ(plan->describe(), "vectors, else elements of float32");
  EXPECT_EQ(fallbackPlan(planOf("", 24), planOf("", 8), "elements", "")->scratchBytes(), 24U);
  EXPECT_EQ(fallbackPlan(planOf("", 0), planOf("", 0), "elements", "")->describe(), "else elements");
}

TEST(FallbackPlan, IsRefusedWhereTheGeneralEntryRefuses) {
  int runs = 0;
  const auto preferred = std::make_shared<const RunCountingPlan>(runs, "");
  EXPECT_EQ(std::get<Refusal>(withFallback(preferred, even, Problem{7})).reason, "the number is odd");
  EXPECT_EQ(std::get<0>(withFallback(preferred, even, Problem{2}))->describe(), "else even by counting");
}

TEST(FallbackPlan, VerboseDispatchPrintsTheFirstRunOfTheGeneralOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which reads the variable anew
  setenv("UNMETAL_VERBOSE", "dispatch", 1);
  EXPECT_EXIT(
      {
        mtl::cpu::Stream stream(1);
        int runs = 0;
        const auto preferred = std::make_shared<const RunCountingPlan>(runs, "");
        const auto plan = std::get<0>(withFallback(preferred, even, Problem{4}));
        for (const bool isShifted : {false, true, true}) plan->run(stream, ShiftedOperands(isShifted));
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^unmetal: problem 4: left to even, since an address is unaligned\n$");
  unsetenv("UNMETAL_VERBOSE");
}

/// Reads a tensor and one whose only channel may stand for all; float32 unless a test says otherwise.
class TwoTensorsPlan final : public AccessPlan {
 public:
  explicit TwoTensorsPlan(const Problem& problem) : isRepeated(problem.number == 4) {}
  void run(mtl::Stream&, const Operands&) const override {}
  [[nodiscard]] std::string describe() const override { return std::to_string(lanes()) + " at once"; }

  TensorShape first = TensorShape::dense(2, 3, 5, 8);
  TensorShape second = first;
  bool hasSecond = true;
  bool isRepeated;

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{first, operands.source}, {second, operands.destination, hasSecond}}};
  }
  [[nodiscard]] bool repeatsChannels() const override { return isRepeated; }
};

TEST(AccessPlan, VectorsNeedOneFormatAndStridesOfWholeOnes) {
  using enum ImageFeatureChannelFormat;
  const auto lanesOf = [](auto change) {
    TwoTensorsPlan plan(Problem{2});
    EXPECT_EQ(plan.describe(), "1 at once");
    change(plan);
    return plan.useVectors() ? plan.describe() : "";
  };
  EXPECT_EQ(lanesOf([](TwoTensorsPlan&) {}), "4 at once");
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) { plan.first.format = plan.second.format = Float16; }),
            "8 at once");
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) { plan.first.format = plan.second.format = Unorm16; }), "");
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) { plan.first.format = Float16; }), "");
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) { plan.second.format = Float16; }), "");
  for (std::int64_t TensorShape::*length : {&TensorShape::channels, &TensorShape::pixelStride,
                                            &TensorShape::rowStride, &TensorShape::imageStride})
    for (TensorShape TwoTensorsPlan::*tensor : {&TwoTensorsPlan::first, &TwoTensorsPlan::second}) {
      EXPECT_EQ(lanesOf([&](TwoTensorsPlan& plan) { plan.*tensor.*length += 2; }), "");
      EXPECT_EQ(lanesOf([&](TwoTensorsPlan& plan) { plan.*tensor.*length += 4; }), "4 at once");
    }
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) {
              plan.second.format = Float16;
              plan.hasSecond = false;
            }),
            "4 at once");
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) { plan.second.channels = 1; }), "");
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) {
              plan.isRepeated = true;
              plan.second.channels = 1;
            }),
            "4 at once");
  EXPECT_EQ(lanesOf([](TwoTensorsPlan& plan) {
              plan.isRepeated = true;
              plan.first.channels = plan.second.channels = 1;
            }),
            "");
}

constexpr Implementation<Problem> evenVectors{"even vectors", prepareVectors<TwoTensorsPlan, even>};

TEST(AccessPlan, UnalignedAddressesAreLeftToTheEntryBehind) {
  TwoTensorsPlan plan(Problem{2});
  ASSERT_TRUE(plan.useVectors());
  EXPECT_EQ(plan.objectionTo(ShiftedOperands(false)), "");
  EXPECT_EQ(plan.objectionTo(ShiftedOperands(true)), "an address is unaligned");
  TwoTensorsPlan repeating(Problem{4});
  repeating.second.channels = 1;
  ASSERT_TRUE(repeating.useVectors()) << "whatever the one channel is";
  EXPECT_EQ(repeating.objectionTo(ShiftedOperands(true)), "");
  EXPECT_EQ(std::get<0>(evenVectors.prepare({2}))->describe(), "4 at once, else even by counting");
  EXPECT_EQ(std::get<Refusal>(evenVectors.prepare({3})).reason, "the number is odd");
}

TEST(PlanCache, AProblemIsPreparedOnce) {
  PlanCache<Problem> cache(4);
  preparations = 0;
  const auto first = cache.choose(all, {2});
  EXPECT_EQ(preparations, 1);
  EXPECT_EQ(cache.choose(all, {2}).plan, first.plan);
  EXPECT_EQ(preparations, 1);
  EXPECT_NE(cache.choose(all, {9}).plan, first.plan) << "of the same hash";
  EXPECT_EQ(cache.size(), 2U);
}

TEST(PlanCache, TheOneThatWasNotUsedForTheLongestTimeGoesFirst) {
  PlanCache<Problem> cache(3);
  for (const int number : {2, 4, 6}) cache.choose(all, {number});
  cache.choose(all, {2});
  cache.choose(all, {8});  // drops 4
  EXPECT_EQ(cache.size(), 3U);
  preparations = 0;
  for (const int number : {2, 6, 8}) cache.choose(all, {number});
  EXPECT_EQ(preparations, 0);
  cache.choose(all, {4});
  EXPECT_EQ(preparations, 1);
}

TEST(PlanCache, AForcedChoiceIsNotKept) {
  PlanCache<Problem> cache(3);
  {
    const ForceImplementation force("any");
    EXPECT_EQ(cache.choose(all, {2}).implementation, "any");
  }
  EXPECT_EQ(cache.size(), 0U);
  EXPECT_EQ(cache.choose(all, {2}).implementation, "even");
}

TEST(PlanCache, ForcedPlansThatAreKeptHaveACacheOfTheirOwn) {
  const auto device = mtl::newCPUDevice(2);
  constexpr BackEnds<Problem> backEnds{listOfAll};
  const auto free = planFor(*device, backEnds, Problem{6});
  const ForceImplementation force("third", true);
  preparations = 0;
  const auto kept = planFor(*device, backEnds, Problem{6});
  EXPECT_EQ(kept.implementation, "third");
  EXPECT_EQ(planFor(*device, backEnds, Problem{6}).plan, kept.plan);
  EXPECT_EQ(preparations, 1);
  const ForceImplementation nothing("");
  EXPECT_EQ(planFor(*device, backEnds, Problem{6}).plan, free.plan);
  const LeaveOutImplementation without("even");
  EXPECT_EQ(planFor(*device, backEnds, Problem{6}).implementation, "third");
}

TEST(PlanCache, ARefusedProblemIsNotKept) {
  PlanCache<Problem> cache(3);
  const std::vector list{even};
  EXPECT_NE(errorOf([&] { cache.choose(list, {7}); }), "");
  EXPECT_EQ(cache.size(), 0U);
}

TEST(PlanCache, ManyShapesInALoopReachTheBoundAndNoMore) {
  const auto device = mtl::newCPUDevice(3);
  constexpr BackEnds<Problem> backEnds{listOfAll};
  const int before = livePlans;
  for (int number = 0; number < 1000; ++number) planFor(*device, backEnds, Problem{number});
  EXPECT_EQ(planCache<Problem>(*device).size(), 256U);
  EXPECT_EQ(livePlans - before, 256) << "dropped plans are freed";
  preparations = 0;
  for (int number = 1000 - 256; number < 1000; ++number) planFor(*device, backEnds, Problem{number});
  EXPECT_EQ(preparations, 0) << "the last 256";
}

/// A device replays work whose key it knows, so whatever a run depends on must be in it.
TEST(ReplayKey, HasTheWorkAndEveryOperand) {
  const auto plan = std::make_shared<const CountedPlan>();
  const auto keyOf = [&](const Operands& operands) {
    mtl::Command command;
    setRun(command, plan, operands);
    EXPECT_EQ(command.replay.work, plan);
    return command.replay.numbers;
  };
  std::byte byte{};
  std::vector<Operands> changed(6);
  changed[0].source = &byte;
  changed[1].secondary = &byte;
  changed[2].gradient = &byte;
  changed[3].destination = &byte;
  changed[4].saved = &byte;
  changed[5].scratch = &byte;
  for (std::size_t i = 0; i < Operands{}.parameters.size(); ++i) {
    changed.emplace_back();
    changed.back().parameters[i] = &byte;
  }
  for (std::size_t i = 0; i < Operands{}.scalars.size(); ++i) {
    changed.emplace_back();
    changed.back().scalars[i] = 0x1p-40;
  }
  changed.emplace_back();
  changed.back().accumulate = true;
  changed.emplace_back();
  for (std::size_t i = 0; i < changed.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(keyOf(changed[i]), keyOf(changed[j])) << i << ", " << j;
  EXPECT_EQ(keyOf(changed[3]), keyOf(changed[3]));
}

TEST(ReplayKey, IsMissingWhereARunWaits) {
  class Waiting final : public Plan {
   public:
    void run(mtl::Stream&, const Operands&) const override {}
    [[nodiscard]] bool readsResults() const override { return true; }
  };
  mtl::Command command;
  setRun(command, std::make_shared<const Waiting>(), {});
  EXPECT_EQ(command.replay.work, nullptr);
  EXPECT_TRUE(command.run);
}

}  // namespace
}  // namespace mps::detail::plan_test
