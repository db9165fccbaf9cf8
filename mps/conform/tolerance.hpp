#pragma once

#include <cstdint>

#include "mps/core/types/types.hpp"

/// The one place that says how far a kernel may be from its float64 reference (docs/decisions.md, D22).
///
/// Each number follows from the number of float32 roundings and the format of the store; no test has a
/// tolerance of its own. With u = 2^-24, n roundings on the longest path, t transcendental functions on it
/// and S the sum of the absolute values of the terms, in any order of summation:
///
///     arithmetic = gamma(n + 8 t) * S + 2^-126          gamma(k) = k u / (1 - k u)
///     tolerance  = arithmetic + half a step of the format next to |expected| + arithmetic
///
/// The 8 is 4 units in the last place of float32; 2^-126 covers underflow, also where subnormals are flushed,
/// and is left out when nothing is computed (n = t = 0).
namespace mps::detail {

/// How strictly a kernel is compared.
enum class Tier {
  /// Inputs are chosen so that every partial sum is representable: the result is the rounded reference, bit
  /// for bit (but for the sign of zero).
  Exact,
  /// Each element within tolerance().
  Bounded,
  /// For implementations that declare it (Winograd, TF32, bfloat16): relative error of the whole tensor in
  /// the L2 norm, and a looser limit for each element.
  Norm,
};
/// "exact", "bounded", "norm".
const char* name(Tier tier);

/// Half the distance between a float and its neighbours, relative to it: 2^-24.
inline constexpr double kFloat32Roundoff = 0x1p-24;
/// The same of the coarsest arithmetic that KernelOptions::AllowReducedPrecision permits, bfloat16: 2^-8.
inline constexpr double kReducedRoundoff = 0x1p-8;

/// Relative error of `roundings` float32 roundings in a row. Throws Error when they are too many for a bound.
double gamma(std::int64_t roundings);

/// Largest error of a float32 computation before the store.
/// @param magnitude sum of the absolute values of the terms
double arithmeticBound(double magnitude, std::int64_t roundings, std::int64_t transcendental);

/// Half the distance between neighbouring stored numbers at |value|.
double halfStep(double value, ImageFeatureChannelFormat format);

/// Smallest absolute value that is stored as infinity; infinite for the unorm formats.
double overflowThreshold(ImageFeatureChannelFormat format);

/// The number that a correct store of `value` leaves behind: nearest, ties to even; unorm clamps and turns
/// NaN to 0.
double roundTo(double value, ImageFeatureChannelFormat format);

/// The formula above.
double tolerance(double expected, double arithmetic, ImageFeatureChannelFormat format);

/// Norm tier: limit of the relative L2 error. Both factors of each product may be rounded to reduced
/// precision.
inline constexpr double kNormTolerance = 2 * kReducedRoundoff;
/// Norm tier: what each element's arithmetic may add to the arithmetic bound.
double reducedArithmeticBound(double magnitude);

/// @name References against references, all in float64
/// @{
/// Largest relative error of a reference's gradient against central differences (docs/decisions.md, D21).
inline constexpr double kDerivativeTolerance = 1e-6;
/// Central differences resolve a gradient down to this share of the largest one of its tensor; smaller ones
/// are compared with an error relative to it.
inline constexpr double kDerivativeFloor = 1e-2;
/// Two formulas for the same number.
inline constexpr double kFloat64Tolerance = 1e-12;
/// @}

/// @name Numbers of spec/
/// @{
/// How far a float32 result near 1 may be from a number printed with so many decimals: half a unit of the last
/// one for the printing, as much for float32.
constexpr double printedTolerance(int decimals) {
  double unit = 1;
  for (int i = 0; i < decimals; ++i) unit /= 10;
  return unit;
}
/// How far the mean of so many independent samples may be from its expectation: five of its deviations.
/// @param variance of one sample
double sampleTolerance(double variance, double samples);
/// @}

/// Largest relative difference of the losses of 20 steps of training, device against references (design
/// section 11).
inline constexpr double kCurveTolerance = 1e-5;

/// Largest difference of a network's results from PyTorch's with the same weights.
inline constexpr double kPyTorchTolerance = 1e-4;

}  // namespace mps::detail
