#pragma once

#include <cstdint>

namespace mps {

/// IEEE 754 half precision as stored in Float16 images: 1 sign, 5 exponent, 10 fraction bits.
struct Float16 {
  std::uint16_t bits = 0;
  bool operator==(const Float16&) const = default;
};

/// Exact.
float toFloat(Float16 value);

/// Rounds to nearest, ties to even; overflow gives infinity, subnormals are kept, NaN stays NaN.
Float16 toFloat16(float value);
/// Rounds once, straight from double.
Float16 toFloat16(double value);

}  // namespace mps
