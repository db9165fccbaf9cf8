#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "mps/conform/guarded/guarded_primitives_cpu.hpp"
#include "mps/conform/testing/property_testing.hpp"
#include "mps/convolution/check/convolution_cases_setting.hpp"
#include "mps/core/cpu/for_each_target.hpp"

/// Random convolutions, transposed convolutions and fully connected layers by each of the CPU's implementations, between
/// pages that nobody may touch, against the float64 reference and a second run.
namespace mps::detail::convolution_property_test {
namespace {

using property_testing::Doing;
using property_testing::Draw;

/// What the float64 reference does in some milliseconds.
constexpr std::int64_t kMostProducts = 600'000;

/// Sides of images: mostly small, some of middle size.
std::int64_t drawSize(Draw& draw) {
  return draw.oneIn(3) ? draw.between(13, 48) : draw.between(1, 16);
}

/// @param likeProjection the windows of a projection of a residual network: single pixels, some left out
WindowAxis drawAxis(Draw& draw, bool likeProjection) {
  if (likeProjection) {
    const std::int64_t stride = draw.between(1, 3);
    return sameWindow((draw.oneIn(3) ? draw.between(36, 56) : draw.between(4, 20)) * stride, 1, stride);
  }
  const std::int64_t kernel = draw.of<std::int64_t>({1, 1, 2, 3, 3, 3, 4, 5, 6, 7});
  const std::int64_t stride = draw.of<std::int64_t>({1, 1, 1, 2, 2, 3});
  const std::int64_t dilation = draw.oneIn(4) ? draw.between(2, 3) : 1;
  const std::int64_t dilated = (kernel - 1) * dilation + 1;
  const std::int64_t size = drawSize(draw);
  switch (draw.between(0, 3)) {
    case 0:
      if (size >= dilated) return validWindow(size, kernel, stride, dilation);
      [[fallthrough]];
    case 1:
    case 2:
      return sameWindow(size, kernel, stride, dilation);
    default:
      return {size, draw.between(1, size), kernel, stride, dilation, draw.between(-dilated, dilated + 1)};
  }
}

/// The partner's axis of a transposed convolution.
WindowAxis drawTransposedAxis(Draw& draw, bool likeProjection) {
  WindowAxis axis = drawAxis(draw, likeProjection);
  if (likeProjection) return axis;
  const std::int64_t size = draw.between(1, 12);
  const std::int64_t result = std::max<std::int64_t>(1, size * axis.stride + draw.between(-2, 2));
  return transposedWindow(size, result, axis.kernelSize, axis.stride, draw.between(-1, 2), axis.dilation);
}

void drawChannels(Draw& draw, ConvolutionCase& one) {
  one.inputs = draw.between(1, 40);
  one.outputs = draw.between(1, 40);
  switch (draw.between(0, 5)) {
    case 0:  // groups
      one.groups = draw.between(2, 6);
      one.inputs = one.groups * draw.between(1, 6);
      one.outputs = one.groups * draw.between(1, 6);
      break;
    case 1:  // depth-wise
      one.groups = one.inputs;
      one.outputs = one.inputs * draw.of<std::int64_t>({1, 1, 1, 2});
      break;
    default:
      break;
  }
}

std::int64_t products(const ConvolutionCase& one) {
  return one.images * one.y.destinationSize * one.x.destinationSize * one.y.kernelSize * one.x.kernelSize *
         (one.inputs / one.groups) * one.outputs;
}

ConvolutionCase drawCase(Draw& draw) {
  ConvolutionCase one;
  one.name = "Random";
  do {
    one.images = draw.of<std::int64_t>({1, 1, 2, 3, 3, 4, 5, 7, 9, 12, 17});
    one.groups = 1;
    drawChannels(draw, one);
    one.transposed = draw.oneIn(4);
    const bool likeProjection = draw.oneIn(4);
    const bool fullyConnected = !likeProjection && !one.transposed && draw.oneIn(6);
    for (WindowAxis* axis : {&one.y, &one.x}) {
      *axis = one.transposed ? drawTransposedAxis(draw, likeProjection) : drawAxis(draw, likeProjection);
      if (fullyConnected) *axis = wholeWindow(draw.between(1, 8));
    }
  } while (products(one) > kMostProducts);
  if (!one.transposed && draw.oneIn(5))
    one.edgeMode = ImageEdgeMode::Clamp;  // transposed ones have Zero alone
  one.hasBias = !draw.oneIn(3);
  if (draw.oneIn(5)) one.neuron = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.25F);
  one.layout = draw.of({ConvolutionLayout::Dense, ConvolutionLayout::Dense, ConvolutionLayout::Dense,
                        ConvolutionLayout::Strided, ConvolutionLayout::RepeatedImage});
  return one;
}

/// Every implementation that takes the problem: beside a page before each operand, beside one behind it, and with guards
/// around the memory of each of oneDNN's primitives.
void check(const ConvolutionProblem& problem, Tier tier, bool accumulate, std::uint64_t seed) {
  const Place before{.pages = PageSide::Before};
  const Place after{.pages = PageSide::After};
  Setting first(problem, tier, seed, before);
  Setting second(problem, tier, seed, after);
  const Expected expected = first.expected(problem, accumulate);
  for (const auto& implementation : convolutionImplementationsCpu()) {
    const auto plan = planOf(implementation, problem);
    if (!plan) continue;
    const Doing doing(std::string(implementation.name) + " " + plan->describe());
    const int threads = problem.threadCount;
    const Results found = first.run(*plan, accumulate, std::byte{0xFF}, threads);
    EXPECT_EQ(first.compareWith(expected, found, tier, Zeros::Expected), "");
    EXPECT_TRUE(sameBits(found, second.run(*plan, accumulate, std::byte{0x3F}, threads))) << "a second run";
    for (const PageSide side : {PageSide::Before, PageSide::After}) {
      const GuardedPrimitives guards(side);
      EXPECT_TRUE(sameBits(found, first.run(*plan, accumulate, std::byte{0}, threads))) << "a guarded run";
      EXPECT_EQ(guards.report(), "");
    }
  }
}

TEST(ConvolutionProperty, RandomProblems) {
  const auto targets = vectorTargets();
  property_testing::forRandomProblems({.count = 40, .seed = 5}, [&](Draw& draw) {
    const ConvolutionCase one = drawCase(draw);
    const Format format = draw.oneIn(5) ? Format::Float16 : Format::Float32;
    const int threads = property_testing::drawThreads(draw);
    const std::int64_t target = property_testing::drawTarget(draw, targets);
    const Tier tier = draw.oneIn(2) ? Tier::Exact : Tier::Bounded;
    const bool accumulate = format == Format::Float32 && draw.oneIn(3);
    const std::uint64_t seed = draw.seed();
    hwy::SetSupportedTargetsForTest(target);
    for (const ConvolutionOperation operation : kOperations) {
      ConvolutionProblem problem = one.problem(operation, format, format);
      problem.threadCount = threads;
      problem.accumulate = accumulate;
      const Doing doing(problem.describe() + ", " + std::to_string(threads) + " threads, tier " + name(tier) +
                        ", " + hwy::TargetName(target));
      check(problem, tier, accumulate, seed);
    }
    hwy::SetSupportedTargetsForTest(0);
  });
}

}  // namespace
}  // namespace mps::detail::convolution_property_test
