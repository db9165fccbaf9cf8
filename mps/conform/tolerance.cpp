#include "mps/conform/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "mps/core/types/error.hpp"
#include "mps/core/types/float16.hpp"

namespace mps::detail {
namespace {

constexpr std::int64_t kRoundingsPerTranscendental = 8;
constexpr double kUnderflow = 0x1p-126;

/// Fraction bits and smallest normal exponent of a floating-point format.
double halfStepOfFloat(double value, int fractionBits, int smallestExponent) {
  const int exponent = value == 0 ? smallestExponent : std::max(std::ilogb(value), smallestExponent);
  return std::ldexp(1.0, exponent - fractionBits - 1);
}

double roundToUnorm(double value, double largest) {
  if (std::isnan(value)) return 0;
  return std::nearbyint(std::clamp(value, 0.0, 1.0) * largest) / largest;
}

}  // namespace

const char* name(Tier tier) {
  switch (tier) {
    case Tier::Exact:
      return "exact";
    case Tier::Bounded:
      return "bounded";
    case Tier::Norm:
      return "norm";
  }
  return "unknown";
}

double gamma(std::int64_t roundings) {
  const double error = static_cast<double>(roundings) * kFloat32Roundoff;
  if (roundings < 0 || error >= 0.5)
    throw Error("no error bound for " + std::to_string(roundings) + " roundings in float32");
  return error / (1 - error);
}

double arithmeticBound(double magnitude, std::int64_t roundings, std::int64_t transcendental) {
  const std::int64_t total = roundings + kRoundingsPerTranscendental * transcendental;
  return total == 0 ? 0 : gamma(total) * magnitude + kUnderflow;
}

double halfStep(double value, ImageFeatureChannelFormat format) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return 0.5 / 255;
    case ImageFeatureChannelFormat::Unorm16:
      return 0.5 / 65535;
    case ImageFeatureChannelFormat::Float16:
      return halfStepOfFloat(value, 10, -14);
    case ImageFeatureChannelFormat::Float32:
      return halfStepOfFloat(value, 23, -126);
    case ImageFeatureChannelFormat::None:
      break;
  }
  throw Error("a comparison needs a format");
}

double overflowThreshold(ImageFeatureChannelFormat format) {
  if (format == ImageFeatureChannelFormat::Float16) return 65520;
  if (format == ImageFeatureChannelFormat::Float32) return 0x1p128 - 0x1p103;
  return std::numeric_limits<double>::infinity();
}

double roundTo(double value, ImageFeatureChannelFormat format) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return roundToUnorm(value, 255);
    case ImageFeatureChannelFormat::Unorm16:
      return roundToUnorm(value, 65535);
    case ImageFeatureChannelFormat::Float16:
      return static_cast<double>(toFloat(toFloat16(value)));
    case ImageFeatureChannelFormat::Float32:
      return static_cast<double>(static_cast<float>(value));
    case ImageFeatureChannelFormat::None:
      break;
  }
  throw Error("a comparison needs a format");
}

double sampleTolerance(double variance, double samples) {
  return 5 * std::sqrt(variance / samples);
}

double tolerance(double expected, double arithmetic, ImageFeatureChannelFormat format) {
  return arithmetic + halfStep(std::abs(expected) + arithmetic, format);
}

double reducedArithmeticBound(double magnitude) {
  return (2 * kReducedRoundoff + kReducedRoundoff * kReducedRoundoff) * magnitude;
}

}  // namespace mps::detail
