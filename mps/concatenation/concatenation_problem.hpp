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

/// All numbers of the call for one source of a concatenation (spec/04 section 8.3), its part of the channels; or in the
/// forward pass for two sources whose parts lie side by side.
///
///     forward    destination[c] = input[c]; second[c - input.channels] behind it; 0 for what is left
///     gradient   destination[c] = input[c]
///
/// for each pixel of images of one size, to the nearest value where the formats differ. The destination has as many
/// channels as the inputs, or in the forward pass some more, which pad the part. A tensor that is a part of the
/// concatenated image has that one's strides.
///
/// | operand     | forward                              | gradient                                |
/// |-------------|--------------------------------------|-----------------------------------------|
/// | source      | a source, `input`                    |                                         |
/// | secondary   | the source behind it, `second`       |                                         |
/// | gradient    |                                      | its part of the incoming one, `input`   |
/// | destination | its part of the concatenated image   | gradient of that source                 |
///
/// No parameters, no scalars, nothing saved. A gradient can accumulate into a float32 destination.
struct ConcatenationProblem {
  ConcatenationDirection direction = ConcatenationDirection::Forward;
  TensorShape input;
  TensorShape second;  ///< no channels: there is none
  TensorShape destination;

  bool operator==(const ConcatenationProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(direction, input.hash(), second.hash(), destination.hash());
  }
  [[nodiscard]] bool hasSecond() const { return second.channels > 0; }
  /// The call of one of the two sources alone; that of the second one begins at channel input.channels.
  [[nodiscard]] ConcatenationProblem ofSource(bool isSecond) const {
    ConcatenationProblem problem = *this;
    problem.second = {};
    problem.destination.channels = isSecond ? destination.channels - input.channels : input.channels;
    if (isSecond) problem.input = second;
    return problem;
  }
  /// "concatenation 8x28x28x6 float32 -> 8x28x28x8 float32 strides ...", with " and 8x28x28x2 float32" of a second one.
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCpu();
std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCuda();
inline constexpr BackEnds<ConcatenationProblem> concatenationBackEnds{
    concatenationImplementationsCpu, UNMETAL_CUDA_LIST(concatenationImplementationsCuda)};

}  // namespace mps::detail
