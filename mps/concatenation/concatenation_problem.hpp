#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan.hpp"
#include "mps/core/plan_for.hpp"
#include "mps/core/tensor_shape.hpp"

namespace mps::detail {

enum class ConcatenationDirection : std::uint8_t { Forward, Gradient };

/// All numbers of the call for one source of a concatenation (spec/04 section 8.3): its part of the channels.
///
///     forward    destination[c] = input[c], 0 for c >= input.channels
///     gradient   destination[c] = input[c]
///
/// for each pixel of images of one size, to the nearest value where the formats differ. The destination has as many
/// channels as the input, or in the forward pass some more, which pad the part. A tensor that is a part of the
/// concatenated image has that one's strides.
///
/// | operand     | forward                              | gradient                                |
/// |-------------|--------------------------------------|-----------------------------------------|
/// | source      | a source, `input`                    |                                         |
/// | gradient    |                                      | its part of the incoming one, `input`   |
/// | destination | its part of the concatenated image   | gradient of that source                 |
///
/// No parameters, no scalars, nothing saved. A gradient can accumulate into a float32 destination.
struct ConcatenationProblem {
  ConcatenationDirection direction = ConcatenationDirection::Forward;
  TensorShape input;
  TensorShape destination;

  bool operator==(const ConcatenationProblem&) const = default;
  [[nodiscard]] std::size_t hash() const { return hashOf(direction, input.hash(), destination.hash()); }
  /// "concatenation 8x28x28x6 float32 -> 8x28x28x8 float32 strides ...".
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCpu();
std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCuda();
inline constexpr BackEnds<ConcatenationProblem> concatenationBackEnds{
    concatenationImplementationsCpu, UNMETAL_CUDA_LIST(concatenationImplementationsCuda)};

}  // namespace mps::detail
