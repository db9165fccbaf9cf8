#include "mps/concatenation/check/concatenation_reference.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "mps/concatenation/check/concatenation_cases.hpp"
#include "mps/conform/tolerance.hpp"

namespace mps::detail::concatenation_reference_test {
namespace {

using Numbers = std::vector<double>;

constexpr std::uint64_t kSeed = 20261122;
constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

ReferenceTensor pixel(const Numbers& values) {
  ReferenceTensor tensor(1, 1, 1, static_cast<std::int64_t>(values.size()));
  tensor.values = values;
  return tensor;
}

/// Section 8.3: channels 23, 5, 8 begin at 0, 24, 32 of 40.
TEST(ConcatenationExamples, Channels23And5And8) {
  std::vector<ReferenceTensor> sources;
  for (const std::size_t channels : {23U, 5U, 8U}) {
    Numbers values(channels);
    std::iota(values.begin(), values.end(), 100.0 * static_cast<double>(channels));
    sources.push_back(pixel(values));
  }
  const Numbers aligned = concatenatedReference(sources, 4).values;
  ASSERT_EQ(aligned.size(), 40U);
  EXPECT_EQ(aligned[0], 2300);
  EXPECT_EQ(aligned[22], 2322);
  EXPECT_EQ(aligned[23], 0);
  EXPECT_EQ(aligned[24], 500);
  EXPECT_EQ(aligned[28], 504);
  EXPECT_EQ(aligned[29] + aligned[30] + aligned[31], 0);
  EXPECT_EQ(aligned[32], 800);
  EXPECT_EQ(aligned[39], 807);
  const Numbers adjacent = concatenatedReference(sources, 1).values;
  ASSERT_EQ(adjacent.size(), 36U);
  EXPECT_EQ(adjacent[22], 2322);
  EXPECT_EQ(adjacent[23], 500);
  EXPECT_EQ(adjacent[28], 800);
}

/// 7 + 11 gives 20.
TEST(ConcatenationExamples, Channels7And11) {
  const std::vector sources{pixel(Numbers(7, 1)), pixel(Numbers(11, 2))};
  const Numbers joined = concatenatedReference(sources, 4).values;
  Numbers expected(7, 1);
  expected.push_back(0);
  expected.insert(expected.end(), 11, 2);
  expected.push_back(0);
  EXPECT_EQ(joined, expected);
}

/// Part by part the problem's reference gives the whole.
TEST(ConcatenationReference, PartsMakeUpTheWhole) {
  std::mt19937_64 generator(kSeed);
  std::uniform_real_distribution<double> distribution(-1, 1);
  std::vector<ReferenceTensor> sources;
  for (const std::int64_t channels : {7, 4, 2}) {
    sources.emplace_back(2, 3, 2, channels);
    for (double& value : sources.back().values) value = distribution(generator);
  }
  const ReferenceTensor whole = concatenatedReference(sources, 4);
  ASSERT_EQ(whole.channels, 16);
  std::int64_t first = 0;
  for (const ReferenceTensor& source : sources) {
    ConcatenationProblem problem;
    problem.input = TensorShape::dense(2, 3, 2, source.channels);
    problem.destination = TensorShape::dense(2, 3, 2, (source.channels + 3) / 4 * 4);
    const ReferenceTensor part = concatenationReference(problem, source);
    for (std::int64_t n = 0; n < 2; ++n)
      for (std::int64_t y = 0; y < 3; ++y)
        for (std::int64_t x = 0; x < 2; ++x)
          for (std::int64_t c = 0; c < part.channels; ++c)
            EXPECT_EQ(part.at(n, y, x, c), whole.at(n, y, x, first + c));
    first += part.channels;
  }
}

/// <A x, g> = <x, A^T g>: the gradient's input is g without the padding channels.
TEST(ConcatenationReferenceTable, GradientIsTheAdjoint) {
  for (const ConcatenationCase& concatenation : concatenationCases()) {
    SCOPED_TRACE(std::string(concatenation.name) + ", seed " + std::to_string(kSeed));
    std::mt19937_64 generator(kSeed);
    std::uniform_real_distribution<double> distribution(-1, 1);
    const ConcatenationProblem forward = concatenation.forward(kFloat32, kFloat32);
    const ConcatenationProblem backward = concatenation.gradient(kFloat32, kFloat32);
    const auto random = [&](const TensorShape& shape) {
      ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
      for (double& value : tensor.values) value = distribution(generator);
      return tensor;
    };
    const ReferenceTensor x = random(forward.input);
    const ReferenceTensor g = random(forward.destination);
    ReferenceTensor slice(g.images, g.height, g.width, backward.input.channels);
    for (std::int64_t n = 0; n < g.images; ++n)
      for (std::int64_t y = 0; y < g.height; ++y)
        for (std::int64_t column = 0; column < g.width; ++column)
          for (std::int64_t c = 0; c < slice.channels; ++c) slice.at(n, y, column, c) = g.at(n, y, column, c);
    const auto dot = [](const ReferenceTensor& a, const ReferenceTensor& b) {
      return std::inner_product(a.values.begin(), a.values.end(), b.values.begin(), 0.0);
    };
    const double left = dot(concatenationReference(forward, x), g);
    EXPECT_NEAR(left, dot(x, concatenationReference(backward, slice)),
                kDerivativeTolerance * std::max(1.0, std::abs(left)));
  }
}

}  // namespace
}  // namespace mps::detail::concatenation_reference_test
