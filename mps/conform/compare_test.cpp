#include "mps/conform/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "mps/core/types/error.hpp"

namespace mps::detail::compare_test {
namespace {

using Format = ImageFeatureChannelFormat;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kU = 0x1p-24;

ReferenceTensor reference(std::vector<double> values, std::int64_t roundings = 0,
                          std::int64_t transcendental = 0) {
  ReferenceTensor tensor(1, 1, static_cast<std::int64_t>(values.size()), 1);
  tensor.values = std::move(values);
  tensor.roundings = roundings;
  tensor.transcendental = transcendental;
  return tensor;
}

bool passes(const ReferenceTensor& expected, const std::vector<double>& found,
            Format format = Format::Float32, Tier tier = Tier::Bounded) {
  return compare(expected, found, format, tier).passed();
}

TEST(Compare, EqualValuesPassInEveryTierAndFormat) {
  for (const Format format : {Format::Unorm8, Format::Unorm16, Format::Float16, Format::Float32})
    for (const Tier tier : {Tier::Exact, Tier::Bounded, Tier::Norm}) {
      const Comparison result =
          compare(reference({0, 1, 1, 0}), std::vector<double>{0, 1, 1, 0}, format, tier);
      EXPECT_TRUE(result.passed()) << result.report;
      EXPECT_EQ(result.elements, 4);
      EXPECT_EQ(result.worst, 0);
    }
}

TEST(Compare, NothingComparedFails) {
  const Comparison result = compare(reference({}), {}, Format::Float32, Tier::Exact);
  EXPECT_FALSE(result.passed());
  EXPECT_EQ(result.elements, 0);
  EXPECT_NE(result.report.find("nothing was compared"), std::string::npos);
}

TEST(Compare, WrongCountsFail) {
  EXPECT_FALSE(passes(reference({1, 2}), {1}));
  EXPECT_FALSE(passes(reference({1}), {1, 2}));
  ReferenceTensor wrongShape = reference({1, 2});
  wrongShape.channels = 2;
  EXPECT_FALSE(passes(wrongShape, {1, 2}));
  ReferenceTensor wrongMagnitude = reference({1, 2});
  wrongMagnitude.magnitude = {1};
  EXPECT_FALSE(passes(wrongMagnitude, {1, 2}));
}

TEST(Compare, NanMustBeWhereItIsExpectedAndOnlyThere) {
  for (const Tier tier : {Tier::Exact, Tier::Bounded, Tier::Norm}) {
    EXPECT_TRUE(passes(reference({kNan, 1}), {kNan, 1}, Format::Float32, tier));
    EXPECT_FALSE(passes(reference({1, 1}), {kNan, 1}, Format::Float32, tier));
    EXPECT_FALSE(passes(reference({kNan, 1}), {1, 1}, Format::Float32, tier));
    EXPECT_FALSE(passes(reference({kInfinity, 1}), {kNan, 1}, Format::Float32, tier));
  }
  EXPECT_TRUE(passes(reference({kNan, 1}), {0, 1}, Format::Unorm8)) << "unorm stores NaN as 0";
}

TEST(Compare, InfinitiesMustAgreeInSign) {
  for (const Tier tier : {Tier::Exact, Tier::Bounded, Tier::Norm}) {
    EXPECT_TRUE(passes(reference({kInfinity, -kInfinity}), {kInfinity, -kInfinity}, Format::Float32, tier));
    EXPECT_FALSE(passes(reference({kInfinity, 1}), {-kInfinity, 1}, Format::Float32, tier));
    EXPECT_FALSE(passes(reference({kInfinity, 1}), {3e38, 1}, Format::Float32, tier));
    EXPECT_FALSE(passes(reference({3e38, 1}), {kInfinity, 1}, Format::Float32, tier));
  }
}

TEST(Compare, Float16OverflowIsExpectedWhereTheReferenceRoundsToInfinity) {
  EXPECT_TRUE(passes(reference({65519.9}), {65504}, Format::Float16, Tier::Exact));
  EXPECT_FALSE(passes(reference({65519.9}), {kInfinity}, Format::Float16, Tier::Exact));
  EXPECT_TRUE(passes(reference({65520}), {kInfinity}, Format::Float16, Tier::Exact));
  EXPECT_FALSE(passes(reference({70000}), {65504}, Format::Float16, Tier::Exact));
  EXPECT_TRUE(passes(reference({-70000}, 4), {-kInfinity}, Format::Float16));
  EXPECT_FALSE(passes(reference({-70000}, 4), {kInfinity}, Format::Float16));
  EXPECT_FALSE(passes(reference({-70000}, 4), {-65504}, Format::Float16));
  // Next to the threshold both are right, as far as the roundings before the store reach.
  EXPECT_TRUE(passes(reference({65519.99}, 16), {kInfinity}, Format::Float16));
  EXPECT_TRUE(passes(reference({65520.01}, 16), {65504}, Format::Float16));
  EXPECT_FALSE(passes(reference({65510}, 16), {kInfinity}, Format::Float16));
}

TEST(Compare, SubnormalFloat16HasItsOwnStep) {
  EXPECT_TRUE(passes(reference({0x1.8p-24}), {0x1p-23}, Format::Float16, Tier::Exact)) << "tie to even";
  EXPECT_FALSE(passes(reference({0x1.8p-24}), {0x1p-24}, Format::Float16, Tier::Exact));
  EXPECT_TRUE(passes(reference({0x1.8p-24}, 1), {0x1p-24}, Format::Float16)) << "half a step away";
  EXPECT_FALSE(passes(reference({0x1.8p-24}, 1), {0}, Format::Float16)) << "subnormals are kept";
  EXPECT_EQ(halfStep(0, Format::Float16), 0x1p-25);
  EXPECT_EQ(halfStep(0x1p-14, Format::Float16), 0x1p-25);
  EXPECT_EQ(halfStep(1, Format::Float16), 0x1p-11);
  EXPECT_EQ(halfStep(-1.999, Format::Float16), 0x1p-11);
  EXPECT_EQ(halfStep(2, Format::Float16), 0x1p-10);
}

TEST(Compare, D22ExactTierAllowsNothing) {
  EXPECT_FALSE(passes(reference({1}, 100), {1 + 0x1p-23}, Format::Float32, Tier::Exact));
  EXPECT_TRUE(passes(reference({0.0}), {-0.0}, Format::Float32, Tier::Exact));
  const Comparison result = compare(reference({1}), std::vector<double>{2}, Format::Float32, Tier::Exact);
  EXPECT_EQ(result.worst, kInfinity);
}

TEST(Compare, D22BoundedTierIsTheDocumentedFormula) {
  ReferenceTensor expected = reference({1}, 10);
  expected.magnitude = {100};
  const double gamma10 = 10 * kU / (1 - 10 * kU);
  const double allowed = gamma10 * 100 + 0x1p-126 + 0x1p-24;
  EXPECT_DOUBLE_EQ(gamma(10), gamma10);
  EXPECT_TRUE(passes(expected, {1 + allowed * (1 - 1e-9)}));
  EXPECT_FALSE(passes(expected, {1 + allowed * (1 + 1e-6)}));
  EXPECT_FALSE(passes(expected, {1 - allowed * (1 + 1e-6)}));
  const Comparison result =
      compare(expected, std::vector<double>{1 + allowed / 2}, Format::Float32, Tier::Bounded);
  EXPECT_NEAR(result.worst, 0.5, 1e-6);
}

TEST(Compare, WithoutMagnitudeTheValueCounts) {
  EXPECT_TRUE(passes(reference({100}, 3), {100 + 100 * 3 * kU}));
  EXPECT_FALSE(passes(reference({1e-3}, 3), {1e-3 + 3 * kU}));
}

TEST(Compare, D22OneTranscendentalIsFourUnitsInTheLastPlace) {
  EXPECT_DOUBLE_EQ(arithmeticBound(1, 0, 1), gamma(8) + 0x1p-126);
  EXPECT_TRUE(passes(reference({1}, 0, 1), {1 + 4 * 0x1p-23}));
  EXPECT_FALSE(passes(reference({1}, 0, 1), {1 + 5 * 0x1p-23}));
}

TEST(Compare, D22Float16AddsHalfAStepToTheFloat32Bound) {
  EXPECT_TRUE(passes(reference({1 + 0x1p-11}, 1), {1}, Format::Float16));
  EXPECT_TRUE(passes(reference({1 + 0x1p-11}, 1), {1 + 0x1p-10}, Format::Float16));
  EXPECT_FALSE(passes(reference({1 + 0x1p-11}, 1), {1 + 0x1p-9}, Format::Float16));
  EXPECT_FALSE(passes(reference({1 + 0x1.1p-11}, 1), {1}, Format::Float16));
}

TEST(Compare, UnormIsClampedAndHasHalfAStep) {
  EXPECT_TRUE(passes(reference({1.5, -3, kInfinity}), {1, 0, 1}, Format::Unorm8, Tier::Bounded));
  EXPECT_TRUE(passes(reference({1.5, -3, kInfinity}), {1, 0, 1}, Format::Unorm8, Tier::Exact));
  EXPECT_TRUE(passes(reference({0.49 / 255, 1}, 1), {0, 1}, Format::Unorm8));
  EXPECT_FALSE(passes(reference({0.51 / 255, 1}, 1), {0, 1}, Format::Unorm8));
  EXPECT_FALSE(passes(reference({0.51 / 65535, 1}, 1), {0, 1}, Format::Unorm16));
}

TEST(Compare, NothingComputedAllowsNoUnderflow) {
  EXPECT_FALSE(passes(reference({0x1p-130, 1}), {0, 1}));
  EXPECT_TRUE(passes(reference({0x1p-130, 1}, 1), {0, 1})) << "a computed subnormal may be flushed";
  EXPECT_FALSE(passes(reference({0x1p-120, 1}, 1), {0, 1}));
}

TEST(Compare, MagnitudeThatIsNotFiniteIsNoExcuse) {
  ReferenceTensor expected = reference({1}, 2);
  expected.magnitude = {kInfinity};
  EXPECT_FALSE(passes(expected, {2}));
  expected.magnitude = {kNan};
  EXPECT_FALSE(passes(expected, {2}));
}

TEST(Compare, AlmostOnlyZerosIsSuspicious) {
  std::vector<double> values(2000, 0.0);
  EXPECT_FALSE(passes(reference(values), values));
  values[7] = 1;
  EXPECT_FALSE(passes(reference(values), values));
  values[8] = 1;
  EXPECT_TRUE(passes(reference(values), values));
  const std::vector<double> few(63, 0.0);
  EXPECT_TRUE(passes(reference(few), few));
  const std::vector<double> many(64, 0.0);
  EXPECT_FALSE(passes(reference(many), many));
  EXPECT_TRUE(compare(reference(many), many, Format::Float32, Tier::Exact, Zeros::Expected).passed());
}

TEST(Compare, ReportNamesTheFirstFiveMismatchesWithCoordinates) {
  ReferenceTensor expected(2, 3, 4, 5);
  for (double& value : expected.values) value = 1;
  std::vector<double> found = expected.values;
  found[expected.index(1, 2, 3, 4)] = 2;
  const Comparison one = compare(expected, found, Format::Float32, Tier::Bounded);
  EXPECT_EQ(one.mismatches, 1);
  EXPECT_NE(one.report.find("image 1, y 2, x 3, channel 4: found 2, expected 1"), std::string::npos)
      << one.report;

  for (double& value : found) value = 3;
  const Comparison all = compare(expected, found, Format::Float32, Tier::Bounded);
  EXPECT_EQ(all.mismatches, 120);
  EXPECT_NE(all.report.find("120 of 120"), std::string::npos);
  EXPECT_NE(all.report.find("image 0, y 0, x 0, channel 4:"), std::string::npos) << all.report;
  EXPECT_EQ(all.report.find("image 0, y 0, x 1, channel 0:"), std::string::npos) << "the sixth is left out";
}

TEST(Compare, D22NormTierJudgesTheWholeTensorAndCapsEachElement) {
  std::vector<double> values(1000, 1.0);
  std::vector<double> found = values;
  for (double& value : found) value += kReducedRoundoff;
  EXPECT_TRUE(passes(reference(values, 2), found, Format::Float32, Tier::Norm));
  EXPECT_FALSE(passes(reference(values, 2), found, Format::Float32, Tier::Bounded));
  for (double& value : found) value = 1 + 2.001 * kReducedRoundoff;
  const Comparison norm = compare(reference(values, 2), found, Format::Float32, Tier::Norm);
  EXPECT_EQ(norm.mismatches, 0);
  EXPECT_FALSE(norm.passed());
  found = values;
  found[3] = 1.01;
  EXPECT_FALSE(passes(reference(values, 2), found, Format::Float32, Tier::Norm));
}

TEST(Tolerance, GammaRefusesWhatHasNoBound) {
  EXPECT_EQ(gamma(0), 0);
  EXPECT_THROW(gamma(std::int64_t{1} << 23U), Error);
  EXPECT_THROW(gamma(-1), Error);
}

TEST(Tolerance, RoundToIsTheStoreOfEachFormat) {
  EXPECT_EQ(roundTo(1 + 0x1p-24, Format::Float32), 1);
  EXPECT_EQ(roundTo(1 + 0x1.8p-23, Format::Float32), 1 + 0x1p-22);
  EXPECT_EQ(roundTo(1 + 0x1p-11, Format::Float16), 1);
  EXPECT_EQ(roundTo(1 + 0x1p-11 + 0x1p-50, Format::Float16), 1 + 0x1p-10) << "one rounding, not two";
  EXPECT_EQ(roundTo(0x1p-25, Format::Float16), 0);
  EXPECT_EQ(roundTo(0x1.8p-25, Format::Float16), 0x1p-24);
  EXPECT_EQ(roundTo(0.5, Format::Unorm8), 128 / 255.0);
  EXPECT_TRUE(std::isnan(roundTo(kNan, Format::Float16)));
  EXPECT_THROW(roundTo(1, Format::None), Error);
}

TEST(Tensors, EveryCodeOfEveryFormatSurvivesReadAndWrite) {
  for (const Format format : {Format::Unorm8, Format::Unorm16, Format::Float16}) {
    const std::int64_t bytes = static_cast<std::int64_t>(bytesPerChannel(format));
    const std::int64_t count = bytes == 1 ? 256 : 65536;
    const TensorShape shape = TensorShape::dense(1, 1, count, 1, format);
    std::vector<std::byte> stored(static_cast<std::size_t>(count * bytes));
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(&stored[static_cast<std::size_t>(i * bytes)], &i, bytes == 1 ? 1 : 2);
    std::vector<double> values = readTensor(shape, stored.data());
    std::vector<std::byte> again(stored.size());
    writeTensor(shape, again.data(), values);
    const std::vector<double> reread = readTensor(shape, again.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i]))
        EXPECT_TRUE(std::isnan(reread[i])) << i;
      else
        EXPECT_EQ(std::memcmp(&stored[i * static_cast<std::size_t>(bytes)],
                              &again[i * static_cast<std::size_t>(bytes)], static_cast<std::size_t>(bytes)),
                  0)
            << i;
    }
  }
}

TEST(Tensors, GapsAreLeftAloneAndStridesFollowed) {
  TensorShape shape = TensorShape::dense(2, 2, 2, 3, Format::Float32);
  shape.pixelStride = 5;
  shape.rowStride = 11;
  shape.imageStride = 30;
  std::vector<float> memory(60, -7.0F);
  const std::vector<double> values = randomValues(24, 3, RandomKind::Uniform);
  auto* bytes = reinterpret_cast<std::byte*>(memory.data());
  writeTensor(shape, bytes, values);
  EXPECT_EQ(readTensor(shape, bytes), values);
  EXPECT_EQ(memory[30 + 11 + 5 + 2], static_cast<float>(values.back()));
  std::size_t untouched = 0;
  for (const float value : memory) untouched += value == -7.0F ? 1 : 0;
  EXPECT_EQ(untouched, 60U - 24U);
  EXPECT_THROW(writeTensor(shape, bytes, std::vector<double>(23)), Error);
}

TEST(RandomValues, AreReproducibleInRangeAndRepresentable) {
  const std::vector<double> integers = randomValues(1000, 1, RandomKind::SmallIntegers);
  EXPECT_EQ(integers, randomValues(1000, 1, RandomKind::SmallIntegers));
  EXPECT_NE(integers, randomValues(1000, 2, RandomKind::SmallIntegers));
  EXPECT_EQ(*std::min_element(integers.begin(), integers.end()), -4);
  EXPECT_EQ(*std::max_element(integers.begin(), integers.end()), 4);
  for (const double value : randomValues(1000, 1, RandomKind::Uniform)) {
    EXPECT_LE(std::abs(value), 1);
    EXPECT_EQ(roundTo(value, Format::Float32), value);
  }
  for (const double value : randomValues(1000, 1, RandomKind::Positive)) {
    EXPECT_EQ(roundTo(value, Format::Unorm8), value);
    EXPECT_NEAR(roundTo(value, Format::Unorm16), value, 1e-15);
  }
  for (const double value : randomValues(1000, 1, RandomKind::ZeroOrOne))
    EXPECT_TRUE(value == 0 || value == 1);
}

}  // namespace
}  // namespace mps::detail::compare_test
