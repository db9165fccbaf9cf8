#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class ConcatenationDirection : std::uint8_t { Forward, Gradient };

/// All numbers of the call for one source of a concatenation, its part of the channels; or for two
/// sources whose parts lie side by side.
///
///     forward    destination[c] = input[c]; second[c - input.channels] behind it; 0 for what is left
///     gradient   destination[c] = input[c]; second[c] = input[destination.channels + c]
///
/// for each pixel of images of one size, to the nearest value where the formats differ. In the forward pass the
/// destination has as many channels as the inputs, or some more, which pad the part; the gradient's input has as many
/// as the destinations. A tensor that is a part of the concatenated image has that one's strides.
///
/// | operand       | forward                              | gradient                                  |
/// |---------------|--------------------------------------|-------------------------------------------|
/// | source        | a source, `input`                    |                                           |
/// | secondary     | the source behind it, `second`       |                                           |
/// | gradient      |                                      | their part of the incoming one, `input`   |
/// | destination   | its part of the concatenated image   | gradient of that source                   |
/// | parameters[0] |                                      | of the source behind it, `second`         |
///
/// No scalars, nothing saved. The gradient of one source can accumulate into a float32 destination.
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
  /// The call of one of the two sources alone; the other tensor of that of the second one begins firstChannels() later.
  [[nodiscard]] ConcatenationProblem ofSource(bool isSecond) const {
    ConcatenationProblem problem = *this;
    problem.second = {};
    const bool isForward = direction == ConcatenationDirection::Forward;
    TensorShape& own = isForward ? problem.input : problem.destination;
    TensorShape& joined = isForward ? problem.destination : problem.input;
    joined.channels = isSecond ? joined.channels - firstChannels() : firstChannels();
    if (isSecond) own = second;
    return problem;
  }
  /// Channels of the first source.
  [[nodiscard]] std::int64_t firstChannels() const {
    return direction == ConcatenationDirection::Forward ? input.channels : destination.channels;
  }
  /// Whether a run can add to its destination.
  [[nodiscard]] bool canAccumulate() const {
    return direction == ConcatenationDirection::Gradient && !hasSecond() &&
           destination.format == ImageFeatureChannelFormat::Float32;
  }
  /// "concatenation 8x28x28x6 float32 -> 8x28x28x8 float32 strides ...", with " and 8x28x28x2 float32" for a second
  /// one.
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCpu();
std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCuda();
inline constexpr BackEnds<ConcatenationProblem> concatenationBackEnds{
    concatenationImplementationsCpu, UNMETAL_CUDA_LIST(concatenationImplementationsCuda)};

}  // namespace mps::detail
