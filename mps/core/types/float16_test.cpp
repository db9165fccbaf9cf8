#include "mps/core/types/float16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mps::float16_test {
namespace {

constexpr std::uint32_t codes = 0x10000;

Float16 half(std::uint32_t bits) {
  return {static_cast<std::uint16_t>(bits)};
}

/// The value by the definition of the format, without our conversion.
double valueByDefinition(std::uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10U) & 0x1FU);
  const double fraction = static_cast<double>(bits & 0x3FFU);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Float16, EveryCodeHasTheValueOfItsFields) {
  for (std::uint32_t bits = 0; bits < codes; ++bits) {
    const double expected = valueByDefinition(bits);
    const float found = toFloat(half(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(found), expected) << bits;
      EXPECT_EQ(std::signbit(found), (bits & 0x8000U) != 0) << bits;
    }
  }
}

TEST(Float16, EveryCodeSurvivesTheWayThroughFloatAndDouble) {
  for (std::uint32_t bits = 0; bits < codes; ++bits) {
    const float value = toFloat(half(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(toFloat(toFloat16(value)))) << bits;
    } else {
      EXPECT_EQ(toFloat16(value), half(bits)) << bits;
      EXPECT_EQ(toFloat16(static_cast<double>(value)), half(bits)) << bits;
    }
  }
}

/// Between two neighbours: the middle goes to the even code, the next number on either side to the nearer
/// one.
TEST(Float16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7C00U; ++bits) {
    const double below = valueByDefinition(bits);
    const double above = bits == 0x7BFFU ? 65536.0 : valueByDefinition(bits + 1);
    const double middle = (below + above) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const double s = sign == 0 ? 1 : -1;
      EXPECT_EQ(toFloat16(s * middle), half(even | sign)) << bits;
      EXPECT_EQ(toFloat16(s * std::nextafter(middle, 0.0)), half(bits | sign)) << bits;
      EXPECT_EQ(toFloat16(s * std::nextafter(middle, 1e9)), half((bits + 1) | sign)) << bits;
      const auto middleFloat = static_cast<float>(s * middle);
      EXPECT_EQ(toFloat16(middleFloat), half(even | sign)) << bits;
      EXPECT_EQ(toFloat16(std::nextafter(middleFloat, 0.0F)), half(bits | sign)) << bits;
    }
  }
}

TEST(Float16, DoubleIsRoundedOnceNotTwice) {
  // Rounded to float first, this becomes the middle of 1 and its successor and would then go down to 1.
  const double justAboveMiddle = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(toFloat16(justAboveMiddle), half(0x3C01));
  EXPECT_EQ(toFloat16(static_cast<float>(justAboveMiddle)), half(0x3C00));
}

TEST(Float16, OverflowGivesInfinityAndTinyNumbersZero) {
  EXPECT_EQ(toFloat16(65519.99), half(0x7BFF));
  EXPECT_EQ(toFloat16(65520.0), half(0x7C00));
  EXPECT_EQ(toFloat16(-1e300), half(0xFC00));
  EXPECT_EQ(toFloat16(std::numeric_limits<float>::infinity()), half(0x7C00));
  EXPECT_EQ(toFloat16(0x1p-25), half(0));
  EXPECT_EQ(toFloat16(-std::numeric_limits<double>::denorm_min()), half(0x8000));
  EXPECT_EQ(toFloat16(0x1.002p-14), half(0x0400));
}

}  // namespace
}  // namespace mps::float16_test
