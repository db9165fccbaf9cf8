#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/core/types/types.hpp"
#include "mps/core/types/window_geometry.hpp"

namespace mps::detail {

enum class NormalizationKind : std::uint8_t { CrossChannel, Spatial, LocalContrast };

enum class NormalizationDirection : std::uint8_t { Forward, Gradient };

/// All numbers of one call, forward or gradient.
///
/// | operand     | forward                             | gradient                                           |
/// |-------------|-------------------------------------|----------------------------------------------------|
/// | source      | forward source                      | forward source                                     |
/// | gradient    |                                     | gradient of the forward destination                |
/// | destination | forward destination, clip rectangle | gradient of the source; 0 for pixels that stand    |
/// |             |                                     | for nothing inside it                              |
///
/// No parameters, no scalars, nothing saved. Every destination element is written. Of CrossChannel all three
/// tensors have the same size, pixel for pixel; x, y and the edge mode stay at their defaults.
struct NormalizationProblem {
  NormalizationKind kind = NormalizationKind::CrossChannel;
  NormalizationDirection direction = NormalizationDirection::Forward;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;  ///< Zero or Clamp
  /// T = delta + alpha * (mean square or variance); T^-beta is the factor.
  float alpha = 1;
  float beta = 5;
  float delta = 1;
  float p0 = 1;  ///< LocalContrast only, as pm and ps
  float pm = 0;
  float ps = 1;
  std::int64_t kernelSize = 1;  ///< CrossChannel only: channels of a window
  /// Placement of the windows, with stride and dilation 1. sourceSize is the size of the source;
  /// destinationSize the number of windows: the size of the forward clip rectangle, in the gradient the number
  /// of gradient pixels that count.
  WindowAxis x;
  WindowAxis y;
  TensorShape source;
  TensorShape gradient;  ///< gradient only
  TensorShape destination;
  /// Gradient only: the source coordinate that destination pixel 0 stands for.
  std::int64_t destinationOriginX = 0;
  std::int64_t destinationOriginY = 0;

  bool operator==(const NormalizationProblem&) const = default;
  [[nodiscard]] constexpr bool isGradient() const { return direction == NormalizationDirection::Gradient; }
  /// Pixels or channels of a window: the divisor of its mean, also where a part of it lies outside.
  [[nodiscard]] constexpr std::int64_t taps() const {
    return kind == NormalizationKind::CrossChannel ? kernelSize : x.kernelSize * y.kernelSize;
  }
  [[nodiscard]] constexpr std::size_t hash() const {
    const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value + 0.0F); };  // one zero
    return hashOf(kind, direction, edgeMode, bits(alpha), bits(beta), bits(delta), bits(p0), bits(pm),
                  bits(ps), kernelSize, x.hash(), y.hash(), source.hash(), gradient.hash(),
                  destination.hash(), destinationOriginX, destinationOriginY);
  }
  /// One line with every number.
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<NormalizationProblem>> normalizationImplementationsCpu();
std::span<const Implementation<NormalizationProblem>> normalizationImplementationsCuda();
inline constexpr BackEnds<NormalizationProblem> normalizationBackEnds{
    normalizationImplementationsCpu, UNMETAL_CUDA_LIST(normalizationImplementationsCuda)};

}  // namespace mps::detail
