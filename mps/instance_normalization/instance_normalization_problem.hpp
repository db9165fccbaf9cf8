#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class InstanceNormalizationOperation : std::uint8_t { Forward, Gradient };

/// All numbers of one call of an instance or group normalisation: each image and
/// each group of K = channels / groups adjacent channels has statistics of its own, over m = K height width
/// values. Instance normalisation has as many groups as channels.
///
///     mean = 1/m sum x     variance = 1/m sum (x - mean)^2     r = 1 / sqrt(variance + epsilon)
///     h = (x - mean) r     y = gamma h + beta
///     B = sum dy,  G = sum dy h, both per channel and image     e = gamma dy
///     dx = r (e - 1/m sum e - h 1/m sum(e h)), the sums over the group
///
/// Sums are float64. mean and r are float64 numbers, too, which enter float32 lines around the float32 number next
/// to the mean, so that a large mean costs nothing.
///
/// | operand | Forward | Gradient |
/// |---|---|---|
/// | source, gradient | x, - | x, dy |
/// | destination | y | dx, where computesData |
/// | parameters[0], [1] | gamma, beta | gamma, - |
/// | parameters[2], [3] | | dL/dgamma = G, dL/dbeta = B, written: `channels` values for each image, or, where sumsImages, the sums over all images |
/// | saved, where hasSavedStatistics | written | read |
///
/// saved: for each image the float64 means of its groups, then their r. Without it Gradient computes the same
/// numbers again. Parameters are float32. Operands::accumulate: Gradient adds to a float32 destination.
/// Destinations may be the memory of source (Forward) or gradient (Gradient), where formats and strides are equal.
struct InstanceNormalizationProblem {
  InstanceNormalizationOperation operation = InstanceNormalizationOperation::Forward;
  std::int64_t groups = 1;
  float epsilon = 0;
  bool hasSavedStatistics = false;
  bool sumsImages = false;   ///< Gradient
  bool computesData = true;  ///< Gradient
  TensorShape source;
  TensorShape gradient;
  TensorShape destination;

  bool operator==(const InstanceNormalizationProblem& other) const {
    return operation == other.operation && groups == other.groups &&
           std::bit_cast<std::uint32_t>(epsilon) == std::bit_cast<std::uint32_t>(other.epsilon) &&
           hasSavedStatistics == other.hasSavedStatistics && sumsImages == other.sumsImages &&
           computesData == other.computesData && source == other.source && gradient == other.gradient &&
           destination == other.destination;
  }
  [[nodiscard]] std::size_t hash() const {
    return hashOf(operation, groups, std::bit_cast<std::uint32_t>(epsilon), hasSavedStatistics, sumsImages,
                  computesData, source.hash(), gradient.hash(), destination.hash());
  }
  /// "group normalization gradient, 4 groups, epsilon 0.001, 8x28x28x64 float32, gradient ... -> ...".
  [[nodiscard]] std::string describe() const;

  /// Channels of a group.
  [[nodiscard]] std::int64_t groupChannels() const { return source.channels / groups; }
  /// Bytes that an image takes of Operands::saved.
  [[nodiscard]] std::size_t savedBytesPerImage() const {
    return 2 * static_cast<std::size_t>(groups) * sizeof(double);
  }
  /// How many rows of `channels` values parameters[2] and [3] have.
  [[nodiscard]] std::int64_t gradientRows() const { return sumsImages ? 1 : source.images; }
};

/// In order of preference; the last one accepts every problem that is in the table above.
std::span<const Implementation<InstanceNormalizationProblem>> instanceNormalizationImplementationsCpu();
std::span<const Implementation<InstanceNormalizationProblem>> instanceNormalizationImplementationsCuda();
inline constexpr BackEnds<InstanceNormalizationProblem> instanceNormalizationBackEnds{
    instanceNormalizationImplementationsCpu, UNMETAL_CUDA_LIST(instanceNormalizationImplementationsCuda)};

}  // namespace mps::detail
