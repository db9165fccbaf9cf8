#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_primitives_cpu.hpp"
#include "mps/conform/testing/property_testing.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/matrix/check/matrix_cases.hpp"
#include "mps/matrix/check/matrix_reference.hpp"
#include "mtl/cpu/stream.hpp"

/// Random products of matrices by each of the CPU's implementations, between pages that nobody may touch, against the
/// float64 reference and a second run.
namespace mps::detail::matrix_property_test {
namespace {

using property_testing::Doing;
using property_testing::Draw;

constexpr std::size_t kScratchAlignment = 256;

/// A product whose operands and scratch memory lie beside pages that nobody may touch.
class ProductCall {
 public:
  ProductCall(const MatrixMultiplicationProblem& problem, PageSide side, RandomKind kind, std::uint64_t seed)
      : problem_(problem),
        side_(side),
        left_(side, problem.left),
        right_(side, problem.right),
        result_(side, problem.result) {
    const auto values = [&](const TensorShape& shape, std::uint64_t salt) {
      return randomValues(static_cast<std::size_t>(shape.elements()), seed * 4 + salt, kind);
    };
    left_.write(values(problem.left, 0));
    right_.write(values(problem.right, 1));
    old_ = values(problem.result, 2);
  }

  std::vector<double> run(const Plan& plan, int threads) {
    result_.poison();
    if (problem_.beta != 0) result_.write(old_);
    const GuardedMemory scratch(side_, plan.scratchBytes(), kScratchAlignment);
    Operands operands{.source = left_.address(), .secondary = right_.address()};
    operands.destination = result_.address();
    operands.scratch = scratch.address();
    mtl::cpu::Stream stream(threads);
    plan.run(stream, operands);
    EXPECT_TRUE(scratch.guardsIntact());
    EXPECT_TRUE(left_.isUnchanged() && right_.isUnchanged()) << "a factor was written";
    EXPECT_TRUE(result_.surroundingsIntact()) << "memory around the result was written";
    return result_.read();
  }

  ReferenceTensor expected() {
    result_.write(old_);
    return matrixMultiplicationReference(problem_, left_.reference(), right_.reference(),
                                         result_.reference());
  }

 private:
  MatrixMultiplicationProblem problem_;
  PageSide side_;
  TestTensor left_;
  TestTensor right_;
  TestTensor result_;
  std::vector<double> old_;
};

MatrixMultiplicationCase drawCase(Draw& draw) {
  MatrixMultiplicationCase one;
  const auto size = [&] {
    return draw.oneIn(6) ? draw.between(65, 400) : draw.oneIn(5) ? 1 : draw.between(2, 64);
  };
  do {
    one.rows = size();
    one.columns = size();
    one.interior = size();
    one.matrices = draw.of<std::int64_t>({1, 1, 1, 2, 3, 5, 17});
  } while (one.rows * one.columns * one.interior * one.matrices > 400'000);
  one.transposeLeft = draw.oneIn(2);
  one.transposeRight = draw.oneIn(2);
  one.alpha = draw.of({1.0F, 1.0F, -0.5F, 2.0F});
  one.beta = draw.of({0.0F, 0.0F, 1.0F, 0.5F});
  one.gap = draw.of<std::int64_t>({0, 0, 0, 1, 3});
  return one;
}

void check(const MatrixMultiplicationProblem& problem, Tier tier, std::uint64_t seed) {
  const RandomKind kind = tier == Tier::Exact ? RandomKind::SmallIntegers : RandomKind::Uniform;
  ProductCall first(problem, PageSide::Before, kind, seed);
  ProductCall second(problem, PageSide::After, kind, seed);
  const ReferenceTensor expected = first.expected();
  for (const auto& implementation : matrixMultiplicationImplementationsCpu()) {
    const Preparation preparation = implementation.prepare(problem);
    const auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&preparation);
    if (plan == nullptr) continue;
    const Doing doing(std::string(implementation.name) + " " + (*plan)->describe());
    const std::vector<double> found = first.run(**plan, problem.threadCount);
    const Comparison comparison = compare(expected, found, problem.result.format, tier, Zeros::Expected);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
    EXPECT_EQ(found, second.run(**plan, problem.threadCount)) << "a second run";
    for (const PageSide side : {PageSide::Before, PageSide::After}) {
      const GuardedPrimitives guards(side);
      EXPECT_EQ(found, second.run(**plan, problem.threadCount)) << "a guarded run";
      EXPECT_EQ(guards.report(), "");
    }
  }
}

TEST(MatrixProperty, RandomProducts) {
  const auto targets = vectorTargets();
  property_testing::forRandomProblems({.count = 60, .seed = 1}, [&](Draw& draw) {
    MatrixMultiplicationProblem problem = drawCase(draw).problem(
        draw.oneIn(4) ? ImageFeatureChannelFormat::Float16 : ImageFeatureChannelFormat::Float32);
    problem.threadCount = property_testing::drawThreads(draw);
    const std::int64_t target = property_testing::drawTarget(draw, targets);
    const Tier tier = draw.oneIn(2) ? Tier::Exact : Tier::Bounded;
    const Doing doing(problem.describe() + ", " + std::to_string(problem.threadCount) + " threads, tier " +
                      name(tier) + ", " + hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    check(problem, tier, draw.seed());
    hwy::SetSupportedTargetsForTest(0);
  });
}

}  // namespace
}  // namespace mps::detail::matrix_property_test
