#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class GatherDirection : std::uint8_t { Forward, Gradient };
enum class GatherIndices : std::uint8_t { UInt32, Int32, UInt16 };

/// All numbers of one call. An array is a tensor: images = the product of the lengths behind the axis,
/// height = the length along it, width 1, channels = the product of those before it.
///
///     forward    result(n, i, c) = source(n, k_i, c), 0 where k_i names no row of the source
///     gradient   source(n, k, c) = sum over i with k_i = k of result(n, i, c)
///
/// | operand | forward | gradient |
/// |---|---|---|
/// | source | `source` | |
/// | secondary | the indices k_i, result.height of them without gaps | the same |
/// | gradient | | `result` |
/// | destination | `result` | `source` |
struct GatherProblem {
  GatherDirection direction = GatherDirection::Forward;
  GatherIndices indices = GatherIndices::UInt32;
  TensorShape source;
  TensorShape result;  ///< as the source, but for the height; float32 or float16, like the source

  bool operator==(const GatherProblem&) const = default;
  [[nodiscard]] std::size_t hash() const { return hashOf(direction, indices, source.hash(), result.hash()); }
  /// "gather of 2x7x1x5 float32 into 2x3x1x5 float32 by UInt16".
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<GatherProblem>> gatherImplementationsCpu();
std::span<const Implementation<GatherProblem>> gatherImplementationsCuda();
inline constexpr BackEnds<GatherProblem> gatherBackEnds{gatherImplementationsCpu,
                                                        UNMETAL_CUDA_LIST(gatherImplementationsCuda)};

/// Calls function(indices) with the indices as what they are.
template <class Function>
void withIndices(GatherIndices type, const std::byte* indices, Function&& function) {
  switch (type) {
    case GatherIndices::UInt16:
      return function(reinterpret_cast<const std::uint16_t*>(indices));
    case GatherIndices::Int32:
      return function(reinterpret_cast<const std::int32_t*>(indices));
    case GatherIndices::UInt32:
      return function(reinterpret_cast<const std::uint32_t*>(indices));
  }
}

}  // namespace mps::detail
