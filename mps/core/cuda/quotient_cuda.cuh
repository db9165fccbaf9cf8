#pragma once

#include <cmath>

namespace mps::detail::cuda {

/// Divides by a number that the host knows, to the bits of the quotient for integers up to 2^20 and all but
/// always for others: the reciprocal is in two parts, both positive so that infinities stay.
struct Quotient {
  float high = 1;
  float low = 0;

  /// Whether both parts are far from the ends of float32.
  static bool takes(float divisor) { return divisor >= 0x1p-60F && divisor <= 0x1p60F; }

  Quotient() = default;
  /// @param divisor that takes()
  explicit Quotient(float divisor)
      : high(std::nextafter(1.0F / divisor, 0.0F)),
        low(static_cast<float>(1.0 / static_cast<double>(divisor) - static_cast<double>(high))) {}
  __device__ float operator()(float value) const { return fmaf(value, high, value * low); }
};

}  // namespace mps::detail::cuda
