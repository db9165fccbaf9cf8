#include "mps/reduction/reduce_binary.hpp"

#include "mps/conform/testing/plan_testing.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "mps/core/testing/test_images.hpp"
#include "mps/reduction/check/reduce_binary_cases.hpp"

/// Reductions with weights: plans against the reference, and the public classes.
namespace mps::reduce_binary_test {
namespace {

using detail::reduceBinaryBackEnds;
using detail::ReduceBinaryCase;
using detail::ReduceBinaryDivisor;
using detail::ReduceBinaryProblem;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;
namespace plans = detail::plan_testing;

constexpr std::uint64_t kSeed = 20261124;
constexpr ReduceBinaryDivisor kDivisors[] = {ReduceBinaryDivisor::One, ReduceBinaryDivisor::FeatureChannels,
                                             ReduceBinaryDivisor::NonZeroWeights};

/// Runs a plan and gives what it stored; nothing where the implementation refuses.
/// @param inputs receives source and weights as stored
std::vector<double> runPlan(const plans::Entry& entry, const ReduceBinaryProblem& problem,
                            plans::Values values,
                            std::pair<detail::ReferenceTensor, detail::ReferenceTensor>& inputs,
                            int threads = plans::kThreads) {
  const auto plan = plans::preparedBy(entry, reduceBinaryBackEnds, problem);
  if (!plan) return {};
  detail::TestTensor source(entry.device, problem.source, 1);
  detail::TestTensor weights(entry.device, problem.weights, 2);
  detail::TestTensor result(entry.device, problem.destination, 3);
  source.write(plans::makeValues(problem.source.elements(), values, problem.source.format, kSeed, 0.02));
  weights.write(
      plans::makeValues(problem.weights.elements(), values, problem.weights.format, kSeed + 7, 0.02));
  detail::Operands operands;
  operands.source = source.address();
  operands.secondary = weights.address();
  operands.destination = result.address();
  plans::runPlan(*plan, operands, entry.device, threads);
  EXPECT_TRUE(source.isUnchanged() && weights.isUnchanged()) << "an input was written";
  EXPECT_TRUE(result.surroundingsIntact()) << "memory around the result was written";
  inputs = {source.reference(), weights.reference()};
  return result.read();
}

TEST(ReduceBinaryPlans, AgreeWithTheReference) {
  for (const plans::Entry& entry : plans::entriesOf(reduceBinaryBackEnds))
    for (const auto divisor : kDivisors)
      for (const auto& [source, result] :
           {std::pair{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32}, {Unorm16, Float16}})
        for (const auto values : {plans::Values::Integers, plans::Values::Random, plans::Values::NonFinite})
          for (const ReduceBinaryCase& item : detail::reduceBinaryCases()) {
            const ReduceBinaryProblem problem = item.problem(divisor, source, result);
            SCOPED_TRACE(entry.name() + " " + problem.describe() + ", seed " + std::to_string(kSeed));
            const plans::WithTarget target(entry);
            std::pair<detail::ReferenceTensor, detail::ReferenceTensor> inputs;
            const std::vector<double> found = runPlan(entry, problem, values, inputs);
            ASSERT_TRUE(!found.empty() || !entry.isCpu());
            if (found.empty()) continue;
            const bool isExact = values == plans::Values::Integers && item.isExact(divisor);
            const detail::Comparison comparison = detail::compare(
                detail::reduceBinaryReference(problem, inputs.first, inputs.second), found, result,
                isExact ? detail::Tier::Exact : detail::Tier::Bounded, detail::Zeros::Expected);
            EXPECT_TRUE(comparison.passed()) << comparison.report;
          }
}

TEST(ReduceBinaryPlans, GiveTheSameBitsWithAnyNumberOfThreads) {
  const ReduceBinaryProblem problem =
      detail::reduceBinaryCases()[6].problem(ReduceBinaryDivisor::NonZeroWeights, Float32, Float32);
  std::pair<detail::ReferenceTensor, detail::ReferenceTensor> inputs;
  const plans::Entry entry = plans::entriesOf(reduceBinaryBackEnds).front();
  EXPECT_EQ(runPlan(entry, problem, plans::Values::Random, inputs, 1),
            runPlan(entry, problem, plans::Values::Random, inputs, 7));
}

/// Can these tests fail? A kernel that divides by something else is noticed.
TEST(ReduceBinaryPlans, TheDivisorCounts) {
  const plans::Entry entry = plans::entriesOf(reduceBinaryBackEnds).front();
  for (const auto divisor : kDivisors)
    for (const auto other : kDivisors) {
      if (other == divisor) continue;
      ReduceBinaryProblem problem = detail::reduceBinaryCases()[3].problem(divisor, Float32, Float32);
      std::pair<detail::ReferenceTensor, detail::ReferenceTensor> inputs;
      const std::vector<double> found = runPlan(entry, problem, plans::Values::Integers, inputs);
      problem.divisor = other;
      EXPECT_FALSE(detail::compare(detail::reduceBinaryReference(problem, inputs.first, inputs.second), found,
                                   Float32, detail::Tier::Bounded, detail::Zeros::Expected)
                       .passed());
    }
}

TEST(ReduceBinaryProblemTest, HashAndEqualitySeeEachField) {
  const ReduceBinaryProblem problem =
      detail::reduceBinaryCases()[1].problem(ReduceBinaryDivisor::One, Float32, Float32);
  const std::vector<std::function<void(ReduceBinaryProblem&)>> changes = {
      [](ReduceBinaryProblem& p) { p.divisor = ReduceBinaryDivisor::FeatureChannels; },
      [](ReduceBinaryProblem& p) { ++p.source.rowStride; },
      [](ReduceBinaryProblem& p) { ++p.weights.pixelStride; },
      [](ReduceBinaryProblem& p) { p.destination.format = Float16; }};
  for (const auto& change : changes) {
    ReduceBinaryProblem other = problem;
    change(other);
    EXPECT_NE(other, problem);
    EXPECT_NE(other.hash(), problem.hash());
  }
}

class ReduceBinary : public testing::DeviceTest {
 protected:
  template <class Kernel>
  static std::shared_ptr<Kernel> permanent(std::shared_ptr<Kernel> kernel) {
    kernel->setDestinationImageAllocator(Image::defaultAllocator());
    return kernel;
  }
  Values reduced(const std::shared_ptr<NNReduceBinary>& kernel) {
    const auto buffer = commands();
    const auto result = kernel->encode(buffer, x_, w_);
    run(buffer);
    EXPECT_EQ(result->descriptor(), sizeOf(2, 2, 1));
    return valuesOf(*result);
  }
  std::shared_ptr<Image> x_ = image(sizeOf(2, 2, 3), counted(12));
  std::shared_ptr<Image> w_ = image(sizeOf(2, 2, 3), {1, 1, 1, 2, 0, 1, 0, 0, 0, 0, -3, 0});
};

TEST_F(ReduceBinary, EachClassOfTheTable) {
  const auto mean = permanent(NNReduceFeatureChannelsAndWeightsMean::create(device_));
  EXPECT_EQ(reduced(mean), (Values{2, 14.0F / 3, 0, -11}));
  EXPECT_EQ(mean->className(), "NNReduceFeatureChannelsAndWeightsMean");
  EXPECT_NE(mean->copy(), nullptr);
  const auto sum = permanent(NNReduceFeatureChannelsAndWeightsSum::create(device_));
  EXPECT_FALSE(sum->doWeightedSumByNonZeroWeights());
  EXPECT_EQ(reduced(sum), (Values{6, 14, 0, -33}));
  const auto byWeights = permanent(NNReduceFeatureChannelsAndWeightsSum::create(device_, true));
  EXPECT_EQ(reduced(byWeights), (Values{2, 7, 0, -33}));
  EXPECT_EQ(byWeights->className(), "NNReduceFeatureChannelsAndWeightsSum");
  EXPECT_TRUE(byWeights->copy()->doWeightedSumByNonZeroWeights());
}

/// Regions of both sources, a place in the destination, and some of the channels.
TEST_F(ReduceBinary, RegionsAndRangesOfChannels) {
  const auto sum = permanent(NNReduceFeatureChannelsAndWeightsSum::create(device_));
  sum->setPrimarySourceClipRect({{1, 0, 0}, {100, 1, 1}});
  sum->setSecondarySourceClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_EQ(sum->primarySourceClipRect().origin.x, 1U);
  EXPECT_EQ(sum->secondarySourceClipRect().size.width, 1U);
  sum->setClipRect({{1, 1, 0}, {5, 5, 1}});
  sum->setPrimaryOffset({7, 7, 0});
  const auto buffer = commands();
  const auto placed = poisoned(sizeOf(3, 2, 1));
  sum->encode(buffer, x_, w_, placed);
  const auto some = permanent(NNReduceFeatureChannelsAndWeightsSum::create(device_));
  some->setPrimarySourceFeatureChannelOffset(4);
  some->setPrimarySourceFeatureChannelMaxCount(2);
  some->setSecondarySourceFeatureChannelMaxCount(2);
  some->setDestinationFeatureChannelOffset(4);
  const auto wide = poisoned(sizeOf(1, 1, 6));
  some->encode(buffer, image(sizeOf(1, 1, 7), counted(7)), image(sizeOf(1, 1, 3), {10, 1, 99}), wide);
  run(buffer);
  EXPECT_EQ(valuesOf(*placed), (Values{poison, poison, poison, poison, 15, poison}));
  EXPECT_EQ(valuesOf(*wide), (Values{poison, poison, poison, poison, 56, poison}));
}

TEST_F(ReduceBinary, StacksOfImages) {
  const auto sum = NNReduceFeatureChannelsAndWeightsSum::create(device_);
  const auto buffer = commands();
  const auto result = poisoned(sizeOf(1, 1, 1, 3));
  sum->setPrimaryOffset({0, 0, 1});
  sum->setClipRect({{0, 0, 1}, {1, 1, 2}});
  sum->encode(buffer, image(sizeOf(1, 1, 2, 3), counted(6)), image(sizeOf(1, 1, 2, 2), {1, 1, 1, 2}), result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{poison, 7, 17}));
}

TEST_F(ReduceBinary, WrongUseIsNamed) {
  const auto buffer = commands();
  const auto sum = permanent(NNReduceFeatureChannelsAndWeightsSum::create(device_));
  const auto refusal = [&](const std::shared_ptr<Image>& weights, const std::shared_ptr<Image>& destination) {
    return errorOf([&] { sum->encode(buffer, x_, weights, destination); });
  };
  const auto result = poisoned(sizeOf(2, 2, 1));
  EXPECT_TRUE(
      names(refusal(poisoned(sizeOf(2, 2, 2)), result), {"secondaryImage", "2 feature channels", "3"}));
  EXPECT_TRUE(names(refusal(poisoned(sizeOf(2, 3, 3)), result), {"secondarySourceClipRect", "2x3", "2x2"}));
  EXPECT_TRUE(names(refusal(w_, poisoned(sizeOf(2, 1, 1))), {"destinationImage", "2x1", "2x2"}));
  sum->setPrimarySourceClipRect({{2, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(refusal(w_, result), {"primarySourceClipRect", "outside"}));
  EXPECT_TRUE(names(errorOf([&] { sum->encode(buffer, x_, w_); }), {"primarySourceClipRect", "outside"}));
  sum->setPrimarySourceClipRect(RectNoClip);
  sum->setSecondarySourceClipRect({{0, 9, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(refusal(w_, result), {"secondarySourceClipRect", "outside"}));
  sum->setSecondarySourceClipRect(RectNoClip);
  sum->setDestinationFeatureChannelOffset(4);
  EXPECT_TRUE(names(refusal(w_, result), {"destinationImage", "channel offset 4"}));
  sum->setDestinationFeatureChannelOffset(2);
  EXPECT_TRUE(names(refusal(w_, result), {"destinationFeatureChannelOffset"}));
  sum->setDestinationFeatureChannelOffset(0);
  sum->setPrimarySourceFeatureChannelOffset(4);
  EXPECT_TRUE(names(refusal(w_, result), {"primaryImage", "channel offset 4"}));
}

}  // namespace
}  // namespace mps::reduce_binary_test
