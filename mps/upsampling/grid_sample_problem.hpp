#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/core/types/types.hpp"

namespace mps::detail {

/// All numbers of one call. Pixel (x, y) of the destination lies in the source at
///
///     usesGridAsCoordinates:  offsetX + (grid(x, y, 0) + 1) / 2 * (source.width - 1), y likewise with channel 1
///     else:                   offsetX + x + grid(x, y, 0)
///
/// and is interpolated between the four pixels around. One outside is 0 (Zero) or the edge pixel (Clamp); one of weight 0
/// is not looked at. A position that is NaN is far to the left, or above.
///
/// | operand     |                                                                     |
/// |-------------|---------------------------------------------------------------------|
/// | source      | `source`                                                            |
/// | secondary   | `grid`, two channels, of the destination's size                     |
/// | destination | `destination`, with the channels of the source                      |
struct GridSampleProblem {
  bool usesGridAsCoordinates = true;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;  ///< Zero or Clamp
  std::int64_t offsetX = 0;
  std::int64_t offsetY = 0;
  TensorShape source;
  TensorShape grid;
  TensorShape destination;

  bool operator==(const GridSampleProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(usesGridAsCoordinates, edgeMode, offsetX, offsetY, source.hash(), grid.hash(),
                  destination.hash());
  }
  [[nodiscard]] std::string describe() const;
};

/// The two source pixels of a position on one axis, and their weights; one of weight 0 is not to be looked at.
struct GridTaps {
  std::int64_t pixels[2] = {0, 0};
  float weights[2] = {0, 0};
};

/// @param at grid value  @param x destination pixel  @param size of the source  @param offset of the problem
constexpr GridTaps gridTaps(const GridSampleProblem& problem, float at, std::int64_t x, std::int64_t size,
                            std::int64_t offset) {
  const auto last = static_cast<double>(size - 1);
  const double value = static_cast<double>(at);
  const double position =
      static_cast<double>(offset) +
      (problem.usesGridAsCoordinates ? (value + 1) / 2 * last : static_cast<double>(x) + value);
  // Farther away is as far; the comparison is false for NaN.
  const double inside = position > -2 ? std::min(position, last + 2) : -2;
  // Rounds down: what is rounded to zero is not below it.
  const auto pixel = static_cast<std::int64_t>(inside + 2) - 2;
  const double fraction = inside - static_cast<double>(pixel);
  GridTaps taps;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t wanted = pixel + i;
    taps.pixels[i] = std::clamp<std::int64_t>(wanted, 0, size - 1);
    if (problem.edgeMode == ImageEdgeMode::Clamp || taps.pixels[i] == wanted)
      taps.weights[i] = static_cast<float>(i == 0 ? 1 - fraction : fraction);
  }
  return taps;
}

std::span<const Implementation<GridSampleProblem>> gridSampleImplementationsCpu();
std::span<const Implementation<GridSampleProblem>> gridSampleImplementationsCuda();
inline constexpr BackEnds<GridSampleProblem> gridSampleBackEnds{
    gridSampleImplementationsCpu, UNMETAL_CUDA_LIST(gridSampleImplementationsCuda)};

}  // namespace mps::detail
