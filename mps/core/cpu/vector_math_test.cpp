#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "mps/core/cpu/for_each_target.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/cpu/vector_math_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/normal_tail-inl.hpp"
#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// The functions of vector_math-inl.hpp on arrays; `exponents` is for the power only.
template <class Function>
void apply(const std::vector<float>& x, std::vector<float>& y, Function&& function) {
  const hn::ScalableTag<float> d;
  forVectors(d, x.size(), [&](std::size_t i, auto lanes) {
    lanes.store(d, function(d, lanes.load(d, x.data() + i)), y.data() + i);
  });
}

void applyExp(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorExp(d, v); });
}
void applyExpNonPositive(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorExpNonPositive(d, v); });
}
void applyExpMinus1(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorExpMinus1(d, v); });
}
void applyLog(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorLog(d, v); });
}
void applyLog1p(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorLog1p(d, v); });
}
void applyTanh(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorTanh(d, v); });
}
void applyExpNonPositiveForHalf(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorExpNonPositiveForHalf(d, v); });
}
void applyExpForHalf(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorExpForHalf(d, v); });
}
void applyExpForLogOfHalf(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorExpForLogOfHalf(d, v); });
}
void applyLog1pForHalf(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorLog1pForHalf(d, v); });
}
void applyTanhForHalf(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorTanhForHalf(d, v); });
}
void applyTailProductForHalf(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorTailProductForHalf(d, v); });
}
void applyNormalDistribution(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return normalDistribution(d, v, vectorNormal(d, v).tail); });
}
void applyNormalDensity(const std::vector<float>& x, std::vector<float>& y) {
  apply(x, y, [](auto d, auto v) { return vectorNormal(d, v).density; });
}

void applyPow(const std::vector<float>& base, const std::vector<float>& exponent, std::vector<float>& y) {
  const hn::ScalableTag<float> d;
  forVectors(d, base.size(), [&](std::size_t i, auto lanes) {
    lanes.store(d, vectorPow(d, lanes.load(d, base.data() + i), lanes.load(d, exponent.data() + i)),
                y.data() + i);
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(applyExp);
HWY_EXPORT(applyExpNonPositive);
HWY_EXPORT(applyExpMinus1);
HWY_EXPORT(applyLog);
HWY_EXPORT(applyLog1p);
HWY_EXPORT(applyTanh);
HWY_EXPORT(applyExpNonPositiveForHalf);
HWY_EXPORT(applyExpForHalf);
HWY_EXPORT(applyExpForLogOfHalf);
HWY_EXPORT(applyLog1pForHalf);
HWY_EXPORT(applyTanhForHalf);
HWY_EXPORT(applyTailProductForHalf);
HWY_EXPORT(applyNormalDistribution);
HWY_EXPORT(applyNormalDensity);
HWY_EXPORT(applyPow);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Distance between neighbouring float32 at |value|.
double unitInLastPlace(double value) {
  const int exponent = value == 0 ? -126 : std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - 23);
}

double errorInUnits(double expected, float found) {
  const auto nearest = static_cast<float>(expected);
  if (std::isnan(nearest) || std::isnan(found))
    return std::isnan(nearest) && std::isnan(found) ? 0 : kInfinity;
  if (nearest == found) return 0;
  if (std::isinf(nearest) || std::isinf(found))
    return std::nextafter(found, nearest) == nearest ? 1 : static_cast<double>(kInfinity);
  return std::abs(static_cast<double>(found) - expected) / unitInLastPlace(expected);
}

/// Every bitStep-th float32 of lo ... hi, and both ends.
constexpr std::int64_t kBitStep = 4001;
std::vector<float> floatsBetween(float lo, float hi, std::int64_t bitStep = kBitStep) {
  std::vector<float> values;
  // Bits in the order of the values: negative ones count backwards.
  const auto ordered = [](float x) {
    const auto bits = std::bit_cast<std::int32_t>(x);
    return bits < 0 ? std::int64_t{std::numeric_limits<std::int32_t>::min()} - bits : std::int64_t{bits};
  };
  const auto fromOrdered = [](std::int64_t position) {
    const std::int64_t bits =
        position < 0 ? std::int64_t{std::numeric_limits<std::int32_t>::min()} - position : position;
    return std::bit_cast<float>(static_cast<std::int32_t>(bits));
  };
  for (std::int64_t position = ordered(lo); position <= ordered(hi); position += bitStep)
    values.push_back(fromOrdered(position));
  values.push_back(hi);
  return values;
}

using Apply = std::function<void(const std::vector<float>&, std::vector<float>&)>;

/// What this file is compiled for, which may be more than what the library is.
template <class Function>
void forEachOwnTarget(Function&& function) {
  forEachTarget(function, hwy::SupportedAndGeneratedTargets());
}

void expectAccurate(const Apply& apply, double (*exact)(double), float lo, float hi, double limit) {
  const std::vector<float> x = floatsBetween(lo, hi);
  std::vector<double> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = exact(static_cast<double>(x[i]));
  forEachOwnTarget([&](const std::string& target) {
    std::vector<float> found(x.size(), kNaN);
    apply(x, found);
    double worst = 0;
    std::size_t where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = errorInUnits(expected[i], found[i]);
      if (error > worst) {
        worst = error;
        where = i;
      }
    }
    EXPECT_LE(worst, limit) << target << " at " << x[where] << ": found " << found[where] << ", expected "
                            << expected[where];
    ::testing::Test::RecordProperty(target, std::to_string(worst));
  });
}

void expectValues(const Apply& apply, const std::vector<float>& x, const std::vector<float>& expected) {
  forEachOwnTarget([&](const std::string& target) {
    std::vector<float> found(x.size(), 42.0F);
    apply(x, found);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(expected[i]))
        EXPECT_TRUE(std::isnan(found[i])) << target << " at " << x[i] << ": " << found[i];
      else
        EXPECT_EQ(found[i], expected[i]) << target << " at " << x[i];
    }
  });
}

// The limits are those of the table at the top of vector_math-inl.hpp.

TEST(VectorMath, Exp) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyExp)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::exp(x); }, -110.0F, 89.0F, 2);
  expectValues(apply, {0.0F, -kInfinity, kInfinity, kNaN, 1000.0F, -1000.0F},
               {1.0F, 0.0F, kInfinity, kNaN, kInfinity, 0.0F});
}

TEST(VectorMath, ExpNonPositive) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyExpNonPositive)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::exp(x); }, -87.336544F, 0.0F, 2);
  expectValues(apply, {0.0F, -kInfinity, kNaN, -1e30F, -88.04F}, {1.0F, 0.0F, kNaN, 0.0F, 0.0F});
}

TEST(VectorMath, ExpNonPositiveThatUnderflows) {
  const std::vector<float> x = floatsBetween(-88.1F, -87.33656F);
  forEachOwnTarget([&](const std::string& target) {
    std::vector<float> found(x.size(), kNaN);
    HWY_DYNAMIC_DISPATCH(applyExpNonPositive)(x, found);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_TRUE(found[i] >= 0 && found[i] <= 0x1p-126F) << target << " at " << x[i] << ": " << found[i];
  });
}

TEST(VectorMath, ExpMinus1) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyExpMinus1)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::expm1(x); }, -30.0F, 0.0F, 2);
  expectValues(apply, {0.0F, -kInfinity, kNaN, -1e-40F}, {0.0F, -1.0F, kNaN, -1e-40F});
}

TEST(VectorMath, Log) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyLog)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::log(x); }, 0.0F, std::numeric_limits<float>::max(), 1);
  expectValues(apply, {1.0F, 0.0F, -0.0F, -1.0F, -kInfinity, kInfinity, kNaN},
               {0.0F, -kInfinity, -kInfinity, kNaN, kNaN, kInfinity, kNaN});
}

TEST(VectorMath, Log1p) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyLog1p)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::log1p(x); }, 0.0F, 1.0F, 2);
  expectValues(apply, {0.0F, kNaN}, {0.0F, kNaN});
}

TEST(VectorMath, Tanh) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyTanh)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::tanh(x); }, -100.0F, 100.0F, 3);
  expectValues(apply, {0.0F, -kInfinity, kInfinity, kNaN}, {0.0F, -1.0F, 1.0F, kNaN});
}

TEST(VectorMath, ExpNonPositiveForHalf) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyExpNonPositiveForHalf)(x, y); };
  const auto exact = [](double x) { return std::exp(x); };
  expectAccurate(apply, exact, -20.0F, 0.0F, 12);
  expectAccurate(apply, exact, -87.336544F, -20.0F, 32);
  expectValues(apply, {0.0F, -kInfinity, kNaN, -1e30F, -88.04F}, {1.0F, 0.0F, kNaN, 0.0F, 0.0F});
}

TEST(VectorMath, ExpForHalf) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyExpForHalf)(x, y); };
  const auto exact = [](double x) { return std::exp(x); };
  expectAccurate(apply, exact, -32.0F, 32.0F, 16);
  expectAccurate(apply, exact, -87.0F, 87.0F, 32);
  expectValues(apply, {0.0F, -0.0F, kNaN}, {1.0F, 1.0F, kNaN});
}

TEST(VectorMath, ExpForLogOfHalf) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyExpForLogOfHalf)(x, y); };
  const auto exact = [](double x) { return std::exp(x); };
  expectAccurate(apply, exact, -32.0F, 32.0F, 24);
  expectAccurate(apply, exact, -87.0F, 87.0F, 48);
  expectValues(apply, {kNaN}, {kNaN});
}

TEST(VectorMath, Log1pForHalf) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyLog1pForHalf)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::log1p(x); }, 0.0F, 1.0F, 24);
  expectValues(apply, {0.0F, kNaN}, {0.0F, kNaN});
}

TEST(VectorMath, TanhForHalf) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyTanhForHalf)(x, y); };
  expectAccurate(
      apply, [](double x) { return std::tanh(x); }, -100.0F, 100.0F, 16);
  expectValues(apply, {0.0F, -kInfinity, kInfinity, kNaN}, {0.0F, -1.0F, 1.0F, kNaN});
}

TEST(VectorMath, TailProductForHalf) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyTailProductForHalf)(x, y); };
  const auto exact = [](double x) {
    return 0.5 * std::abs(x) * std::erfc(std::abs(x) * std::numbers::sqrt2 / 2);
  };
  expectAccurate(apply, exact, -5.75F, 5.75F, 20);
  expectValues(apply, {0.0F, kNaN}, {0.0F, kNaN});
  for (const float x : {kInfinity, -kInfinity, 100.0F, -5.76F}) {
    std::vector<float> found(1);
    apply({x}, found);
    EXPECT_TRUE(found[0] > 0 && found[0] < 0x1p-25F) << x << ": " << found[0];
  }
}

TEST(VectorMath, NormalDistribution) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyNormalDistribution)(x, y); };
  const auto exact = [](double x) { return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2); };
  expectAccurate(apply, exact, -13.0F, 20.0F, 8);
  expectValues(apply, {0.0F, -kInfinity, kInfinity, kNaN, -15.0F}, {0.5F, 0.0F, 1.0F, kNaN, 0.0F});
}

TEST(VectorMath, NormalDensity) {
  const Apply apply = [](auto& x, auto& y) { HWY_DYNAMIC_DISPATCH(applyNormalDensity)(x, y); };
  const auto exact = [](double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); };
  expectAccurate(apply, exact, -13.0F, 13.0F, 3);
  expectValues(apply, {-kInfinity, kInfinity, kNaN}, {0.0F, 0.0F, kNaN});
}

TEST(VectorMath, Pow) {
  constexpr std::int64_t bitStep = 10 * kBitStep;  // for each of 13 values of the other argument
  std::vector<float> base;
  std::vector<float> exponent;
  std::vector<double> expected;
  for (const float e : {2.0F, 3.0F, -1.0F, 0.5F, -2.5F, 0.1F, 17.3F, -40.0F})
    for (const float b : floatsBetween(0.0F, std::numeric_limits<float>::max(), bitStep)) {
      base.push_back(b);
      exponent.push_back(e);
    }
  for (const float b : {0.001F, 0.5F, 2.0F, 10.0F, 12345.0F})
    for (const float e : floatsBetween(-200.0F, 200.0F, bitStep)) {
      base.push_back(b);
      exponent.push_back(e);
    }
  for (std::size_t i = 0; i < base.size(); ++i)
    expected.push_back(std::pow(static_cast<double>(base[i]), static_cast<double>(exponent[i])));
  forEachOwnTarget([&](const std::string& target) {
    std::vector<float> found(base.size(), kNaN);
    HWY_DYNAMIC_DISPATCH(applyPow)(base, exponent, found);
    double worst = 0;
    std::size_t where = 0;
    for (std::size_t i = 0; i < base.size(); ++i) {
      const double error = errorInUnits(expected[i], found[i]);
      if (error > worst) {
        worst = error;
        where = i;
      }
    }
    EXPECT_LE(worst, 1) << target << " at " << base[where] << " ^ " << exponent[where] << ": "
                        << found[where];
  });
}

TEST(VectorMath, PowSpecialValues) {
  const std::vector<float> values = {0.0F,  -0.0F, 1.0F,  -1.0F,     2.0F,       -2.0F, 0.5F,  -0.5F, 3.0F,
                                     -3.0F, 2.5F,  -1.5F, kInfinity, -kInfinity, kNaN,  1e30F, 4.0F};
  std::vector<float> base;
  std::vector<float> exponent;
  for (const float b : values)
    for (const float e : values) {
      base.push_back(b);
      exponent.push_back(e);
    }
  forEachOwnTarget([&](const std::string& target) {
    std::vector<float> found(base.size(), 42.0F);
    HWY_DYNAMIC_DISPATCH(applyPow)(base, exponent, found);
    for (std::size_t i = 0; i < base.size(); ++i) {
      const double expected = std::pow(static_cast<double>(base[i]), static_cast<double>(exponent[i]));
      EXPECT_LE(errorInUnits(expected, found[i]), 1) << target << ": " << base[i] << " ^ " << exponent[i]
                                                     << " is " << found[i] << ", expected " << expected;
      if (std::isnan(expected)) continue;
      EXPECT_EQ(std::signbit(expected), std::signbit(found[i])) << base[i] << " ^ " << exponent[i];
      // The largest finite number would be no further off than a unit.
      EXPECT_EQ(std::isinf(static_cast<float>(expected)), std::isinf(found[i]))
          << base[i] << " ^ " << exponent[i];
    }
  });
}

}  // namespace
}  // namespace mps::detail

#endif  // HWY_ONCE
