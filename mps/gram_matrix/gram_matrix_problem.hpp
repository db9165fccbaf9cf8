#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class GramMatrixDirection : std::uint8_t { Forward, Gradient };

/// All numbers of one call but alpha. Of each image, with X the matrix [pixels][C] of the source and
/// G that of the incoming gradient, [C][C]:
///
///     forward    matrix  = alpha X^T X
///     gradient   dSource = alpha X (G + G^T)
///
/// Pixel x of the one row of `matrix` is row x.
///
/// | operand     | forward  | gradient                        |
/// |-------------|----------|---------------------------------|
/// | source      | `source` | `source`                        |
/// | gradient    |          | `matrix`, the incoming gradient |
/// | destination | `matrix` | `destination`, of source's size |
/// | scalars[0]  | alpha    | alpha                           |
///
/// No parameters, nothing saved. A gradient can accumulate into a float32 destination.
struct GramMatrixProblem {
  GramMatrixDirection direction = GramMatrixDirection::Forward;
  TensorShape source;
  TensorShape matrix;       ///< images x 1 x C x C
  TensorShape destination;  ///< of a gradient
  int threadCount = 0;      ///< of a CPU: those that share a product, each with scratch memory of its own
  std::string
      deviceName;  ///< mtl::Device::name(), for libraries that choose by the GPU; empty: the current one

  bool operator==(const GramMatrixProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(direction, source.hash(), matrix.hash(), destination.hash(), threadCount,
                  std::hash<std::string>()(deviceName));
  }
  /// One line with every number.
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] bool isForward() const { return direction == GramMatrixDirection::Forward; }
  [[nodiscard]] std::int64_t channels() const { return source.channels; }
  /// Of one image.
  [[nodiscard]] std::int64_t pixels() const { return source.height * source.width; }
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<GramMatrixProblem>> gramMatrixImplementationsCpu();
std::span<const Implementation<GramMatrixProblem>> gramMatrixImplementationsCuda();
inline constexpr BackEnds<GramMatrixProblem> gramMatrixBackEnds{
    gramMatrixImplementationsCpu, UNMETAL_CUDA_LIST(gramMatrixImplementationsCuda)};

}  // namespace mps::detail
