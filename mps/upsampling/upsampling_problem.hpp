#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/core/types/types.hpp"

namespace mps::detail {

/// How a result pixel finds its source pixels.
enum class UpsamplingSampling : std::uint8_t {
  Nearest,
  Bilinear,
  BilinearAlignCorners,
  BilinearHalfPixel,
  BilinearRegion,
  BilinearScale,
  LanczosScale
};

enum class UpsamplingDirection : std::uint8_t { Forward, Gradient };

/// One axis. Result pixel x, counted from the forward clip rectangle's origin, lies at source position
/// offset + t(x), t being, with f = resultSize / sourceSize
///
/// | sampling             | t(x)                                                   |
/// |----------------------|--------------------------------------------------------|
/// | Nearest              | floor(x / f)                                           |
/// | Bilinear             | min(x / f, sourceSize - 1)                             |
/// | BilinearAlignCorners | x * (sourceSize - 1) / (resultSize - 1); 0 for one     |
/// | BilinearHalfPixel    | (x + 0.5) / f - 0.5 within 0 ... sourceSize - 1        |
///
/// and is the sum of the source pixels beside that position, floor and floor + 1, with weights 1 - w and w, w
/// being its fraction. A pixel outside counts as 0 (Zero) or as the edge pixel (Clamp). A source pixel of weight
/// 0 is not looked at, whatever it holds.
///
/// Of the last three t(x) = start + step * x; BilinearRegion, whose step may be negative, is for the forward direction. Inside are the positions from 0 to
/// sourceSize - 1, for the scales half a pixel more on both sides, which BilinearScale counts as the edge. Outside is 0
/// (Zero), or the edge pixel's position (Clamp). LanczosScale takes all source pixels i closer than 3 s, s = max(1, step):
///
///     weight(i) = L((i - t(x)) / s) / sum over source pixels j of L((j - t(x)) / s)
///     L(u) = sinc(u) sinc(u / 3), sinc(u) = sin(pi u) / (pi u)
struct UpsamplingAxis {
  std::int64_t sourceSize = 1;
  std::int64_t resultSize = 1;  ///< of the whole source; upsampling by a factor: sourceSize times it
  std::int64_t offset = 0;
  double start = 0;
  double step = 0;               ///< of a scale above 0
  std::int64_t firstResult = 0;  ///< gradient only: x of the incoming gradient's pixel 0, at least 0
  std::int64_t destinationOrigin =
      0;  ///< gradient only: the source pixel that destination pixel 0 stands for

  bool operator==(const UpsamplingAxis&) const = default;
  [[nodiscard]] constexpr std::size_t hash() const {
    return hashOf(sourceSize, resultSize, offset, std::bit_cast<std::uint64_t>(start),
                  std::bit_cast<std::uint64_t>(step), firstResult, destinationOrigin);
  }
};

/// All numbers of one call of upsampling or resizing, forward or gradient.
///
/// | operand     | forward                             | gradient                                              |
/// |-------------|-------------------------------------|-------------------------------------------------------|
/// | source      | forward source, `input`             |                                                       |
/// | gradient    |                                     | gradient of the forward destination, `input`          |
/// | destination | forward destination, clip rectangle | gradient of the source; 0 for pixels that stand for   |
/// |             |                                     | nothing inside it                                     |
///
/// No parameters, no scalars, nothing saved. Every destination element is written.
struct UpsamplingProblem {
  UpsamplingSampling sampling = UpsamplingSampling::Nearest;
  UpsamplingDirection direction = UpsamplingDirection::Forward;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;  ///< Zero or Clamp
  UpsamplingAxis x;
  UpsamplingAxis y;
  TensorShape input;
  TensorShape destination;

  bool operator==(const UpsamplingProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(sampling, direction, edgeMode, x.hash(), y.hash(), input.hash(), destination.hash());
  }
  /// One line with every number.
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCpu();
std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCuda();
inline constexpr BackEnds<UpsamplingProblem> upsamplingBackEnds{
    upsamplingImplementationsCpu, UNMETAL_CUDA_LIST(upsamplingImplementationsCuda)};

}  // namespace mps::detail
