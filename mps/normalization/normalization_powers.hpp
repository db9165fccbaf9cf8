#pragma once

#include <cmath>

namespace mps::detail {

/// How T^-beta is computed. Multiples of a quarter need no logarithm: products of 1 / T, of its root and of the
/// root of that.
struct PowerRule {
  /// Exponents beyond it: the general power.
  static constexpr float largest = 16;

  explicit PowerRule(float exponent) : beta(exponent) {
    const float quarters = 4 * exponent;
    const bool isWhole = std::floor(exponent) == exponent;
    isGeneral =
        !(std::abs(exponent) <= largest) || std::floor(quarters) != quarters || (exponent < 0 && !isWhole);
    if (isGeneral) return;
    whole = static_cast<int>(std::floor(exponent));
    const int rest = static_cast<int>(quarters) - 4 * whole;
    hasRoot = rest >= 2;
    hasFourthRoot = rest % 2 != 0;
  }

  float beta;
  bool isGeneral = false;
  int whole = 0;  ///< factors 1 / T; where negative, factors T
  bool hasRoot = false;
  bool hasFourthRoot = false;
};

}  // namespace mps::detail
