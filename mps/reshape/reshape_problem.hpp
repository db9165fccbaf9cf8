#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class ReshapeDirection : std::uint8_t { Forward, Gradient };

enum class ReshapeMapping : std::uint8_t {
  Order,          ///< the elements of an image in their order: height, width, channels
  ChannelsFirst,  ///< the same with the channels slowest: channels, height, width
  Axes,           ///< each axis of its own: padding and slices
};

/// Where the elements of a source lie on one axis of the result: source element i at i + before.
struct ReshapeAxis {
  std::int64_t before = 0;
  bool operator==(const ReshapeAxis&) const = default;
};

/// All numbers of one call that gives elements other places.
///
///     Order, ChannelsFirst    result element k of an image = source element k
///     Axes                    result(y, x, c) = source(map(y - y.before), map(x - x.before), map(c - channels.before))
///
/// map is the identity inside the source. Outside, n being the source's size on that axis:
///
/// | edgeMode       | map(i)                                                                                    |
/// |----------------|-------------------------------------------------------------------------------------------|
/// | Clamp          | min(max(i, 0), n - 1)                                                                     |
/// | Mirror         | j = i mod (2n - 2); j < n ? j : 2n - 2 - j; 0 if n = 1                                    |
/// | MirrorWithEdge | j = i mod 2n; j < n ? j : 2n - 1 - j                                                      |
/// | Zero, Constant | no source element: fill[c] in channels outside, elsewhere 0 (Zero) or fill[c] (Constant)  |
///
/// A gradient is the adjoint: each of its elements is added to the source element that it was copied from; source
/// elements that were not read become 0. Results are stored to the nearest value where the formats differ.
///
/// | operand     | forward        | gradient                             |
/// |-------------|----------------|--------------------------------------|
/// | source      | source, `input`|                                      |
/// | gradient    |                | gradient of the result, `input`      |
/// | destination | result         | gradient of the source               |
///
/// No parameters, no scalars, nothing saved. A gradient can accumulate into a float32 destination.
struct ReshapeProblem {
  ReshapeDirection direction = ReshapeDirection::Forward;
  ReshapeMapping mapping = ReshapeMapping::Order;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  ReshapeAxis x;
  ReshapeAxis y;
  ReshapeAxis channels;
  std::vector<float> fill;  ///< of each channel of a forward result; empty: 0
  TensorShape input;
  TensorShape destination;

  bool operator==(const ReshapeProblem&) const = default;
  /// Whether elements are moved in an order of theirs; else each axis counts.
  [[nodiscard]] bool isReshape() const { return mapping != ReshapeMapping::Axes; }
  [[nodiscard]] std::size_t hash() const;
  /// One line with every number but those of fill.
  [[nodiscard]] std::string describe() const;
  /// The source's size and the result's, whichever of them is read.
  [[nodiscard]] const TensorShape& source() const {
    return direction == ReshapeDirection::Forward ? input : destination;
  }
  [[nodiscard]] const TensorShape& result() const {
    return direction == ReshapeDirection::Forward ? destination : input;
  }
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<ReshapeProblem>> reshapeImplementationsCpu();
std::span<const Implementation<ReshapeProblem>> reshapeImplementationsCuda();
inline constexpr BackEnds<ReshapeProblem> reshapeBackEnds{reshapeImplementationsCpu,
                                                          UNMETAL_CUDA_LIST(reshapeImplementationsCuda)};

}  // namespace mps::detail
