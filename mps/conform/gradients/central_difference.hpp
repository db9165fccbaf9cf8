#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "mps/core/plan/reference_tensor.hpp"

/// Derivatives of float64 references by central differences (docs/decisions.md, D21).
namespace mps::detail {

/// Outcome for one tensor.
struct DerivativeComparison {
  std::int64_t elements = 0;
  std::int64_t skipped = 0;  ///< next to a tie or a kink
  double worst = 0;          ///< largest relative error
  std::string report;        ///< empty, or what is wrong: the first mismatch
};

/// f(x + h e_i) - f(x).
using Change = std::function<double(std::size_t i, double h)>;

/// Compares a gradient with central differences of f at some of its elements: the largest, and others by
/// chance, half of them where the gradient is not 0. All of them when it has few.
///
/// A kink nearby shows in differences of two step sizes that do not belong to one smooth function; then
/// smaller steps are tried, and if that does not help the element is skipped and another one taken. No
/// element left is a failure.
/// @param at x
DerivativeComparison compareDerivative(const ReferenceTensor& gradient, const std::vector<double>& at,
                                       const Change& change, std::size_t elements, std::mt19937_64& random);

}  // namespace mps::detail
