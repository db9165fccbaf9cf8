#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// Copies elements between tensors, to the nearest value where the formats differ, or fills one with a number.
///
///     destination(n, y, x, c) = source(n, offsetY + y, offsetX + x, c)
///
/// Outside the source: 0, or the nearest pixel when clampEdges is set. Uses Operands::source and destination, and scalars[0],
/// the number of a fill.
struct TensorCopyProblem {
  bool fills = false;  ///< destination = scalars[0]; the source is not read
  bool clampEdges = false;
  std::int64_t offsetX = 0;
  std::int64_t offsetY = 0;
  TensorShape source;
  TensorShape destination;

  bool operator==(const TensorCopyProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(fills, clampEdges, offsetX, offsetY, source.hash(), destination.hash());
  }
  [[nodiscard]] std::string describe() const;
};

std::span<const Implementation<TensorCopyProblem>> tensorCopyImplementationsCpu();
std::span<const Implementation<TensorCopyProblem>> tensorCopyImplementationsCuda();
inline constexpr BackEnds<TensorCopyProblem> tensorCopyBackEnds{
    tensorCopyImplementationsCpu, UNMETAL_CUDA_LIST(tensorCopyImplementationsCuda)};

}  // namespace mps::detail
