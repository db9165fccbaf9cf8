#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// What the weighted sum of a pixel is divided by.
enum class ReduceBinaryDivisor : std::uint8_t { One, FeatureChannels, NonZeroWeights };

/// All numbers of one call: at each pixel the sum over c of source * weights, divided. No weights
/// that are not 0: the result is 0. NaN is not 0.
///
/// | operand     |                                 |
/// |-------------|---------------------------------|
/// | source      | `source`                        |
/// | secondary   | `weights`, of the same size     |
/// | destination | `destination`, with one channel |
struct ReduceBinaryProblem {
  ReduceBinaryDivisor divisor = ReduceBinaryDivisor::One;
  TensorShape source;
  TensorShape weights;
  TensorShape destination;

  bool operator==(const ReduceBinaryProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(divisor, source.hash(), weights.hash(), destination.hash());
  }
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<ReduceBinaryProblem>> reduceBinaryImplementationsCpu();
std::span<const Implementation<ReduceBinaryProblem>> reduceBinaryImplementationsCuda();
inline constexpr BackEnds<ReduceBinaryProblem> reduceBinaryBackEnds{
    reduceBinaryImplementationsCpu, UNMETAL_CUDA_LIST(reduceBinaryImplementationsCuda)};

}  // namespace mps::detail
