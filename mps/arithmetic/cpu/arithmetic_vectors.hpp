#pragma once

#include <cstdint>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/core/types/storage.hpp"

/// The vector code of the arithmetic kernels, on runs of float32 values.
namespace mps::detail {

/// Inputs and outputs of a run of elements of the result, one after the other. Element is float or Float16.
template <class Element>
struct ArithmeticRun {
  std::int64_t count = 0;
  const Element* primary = nullptr;    ///< x
  const Element* secondary = nullptr;  ///< y or z
  /// After so many elements the secondary operand begins anew: all, or a multiple of the lanes of every vector.
  std::int64_t secondaryPeriod = 0;
  const Element* gradient = nullptr;
  const float* mask = nullptr;        ///< read by gradients; null for none
  const Element* dividend = nullptr;  ///< x, which a division kept
  float* newMask = nullptr;           ///< written by the forward pass; null for none
  float* newKept = nullptr;
  bool isNonTemporal = false;  ///< the result is written by non-temporal stores
};

/// The result of the operation, cut to the limits. `result` may be one of the inputs.
void arithmeticValues(const ArithmeticProblem& problem, const ArithmeticRun<float>& run, float* result);
void arithmeticValues(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run, Float16* result);
/// The values that a gradient sums. `result` may be one of the inputs.
void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<float>& run, float* result);
void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run,
                         Float16* result);
void arithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run, float* result);
/// The same values, summed over the pixels: result[channel]; `result` has room for all values and is not an
/// input.
void sumArithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<float>& run,
                            std::int64_t channels, float* result);
void sumArithmeticGradients(const ArithmeticProblem& problem, const ArithmeticRun<Float16>& run,
                            std::int64_t channels, float* result);

/// to[pixel][channel] = from[pixel].
void repeatChannels(const float* from, std::int64_t pixels, std::int64_t channels, float* to);
void repeatChannels(const Float16* from, std::int64_t pixels, std::int64_t channels, Float16* to);
/// values[pixel] = sum of values[pixel][channel] over the channels, in place.
void sumChannels(float* values, std::int64_t pixels, std::int64_t channels);
/// values[channel] = sum of values[pixel][channel] over the pixels, by a tree, in place.
void sumPixels(float* values, std::int64_t pixels, std::int64_t channels);
/// sums[i] += values[i].
void addToSums(const float* values, std::int64_t count, double* sums);

}  // namespace mps::detail
