#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mps/core/layer/loss_scale_problem.hpp"
#include "mtl/stream.hpp"

namespace mps::detail {

/// A gradient that counts in the norm of all gradients of a step.
struct GradientNormPart {
  const float* values = nullptr;
  std::int64_t count = 0;
  const LossScaleNumbers* lossScale =
      nullptr;  ///< on the device, what the values are to be divided by; null: none
};

/// Where the norm is measured and what becomes of it, on the device.
struct GradientNormOperands {
  double* sums = nullptr;  ///< of squares, gradientNormSums() of them
  float* factor = nullptr;
  double limit = 0;  ///< above 0
};

/// Values whose squares are summed up by one thread block. So the sum is the same for any number of threads, and in each run.
inline constexpr std::int64_t gradientNormBlock = 4096;

/// How many sums there are. @param parts those without values count nothing
inline std::size_t gradientNormSums(std::span<const GradientNormPart> parts) {
  std::int64_t sums = 0;
  for (const GradientNormPart& part : parts) sums += (part.count + gradientNormBlock - 1) / gradientNormBlock;
  return static_cast<std::size_t>(sums);
}

/// factor = limit / norm where the norm, the root of the sum of all squares, is larger than the limit, else 1. In float64. A norm
/// that is NaN gives 1, an infinite one 0.
/// @{
void measureGradientNormCpu(mtl::Stream& stream, std::span<const GradientNormPart> parts,
                            const GradientNormOperands& operands);
void measureGradientNormCuda(mtl::Stream& stream, std::span<const GradientNormPart> parts,
                             const GradientNormOperands& operands);
/// @}

}  // namespace mps::detail
