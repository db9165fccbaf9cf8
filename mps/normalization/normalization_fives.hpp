#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/core/plan.hpp"
#include "mps/normalization/normalization_powers.hpp"
#include "mps/normalization/normalization_problem.hpp"

namespace mps::detail {

/// How Spatial or LocalContrast with windows of 5 x 5 pixels, one for each pixel and centered there, is cut
/// into tiles. A tile goes down the rows, two at once, and consists of strips: columns of vectors of adjacent channels. So
/// windows side by side are vectors side by side, and what their sums share stays in registers.
struct FiveTiles {
  static constexpr std::int64_t size = 5;
  /// Channels of a strip: as many as the largest vector has lanes.
  static constexpr std::int64_t lanes = 16;
  /// Vectors of a row of a tile: what is kept of four rows fits into a second-level cache.
  static constexpr std::int64_t capacity = 512;
  /// Vectors between rows of working memory: rows of whole pages would share the same few places of a cache.
  static constexpr std::int64_t gap = 11;

  explicit FiveTiles(const NormalizationProblem& problem);

  /// Steps of two rows of an image.
  [[nodiscard]] static std::int64_t steps(std::int64_t height) { return (height + 1) / 2; }
  /// Columns of a tile and those beside it that windows which see it reach.
  [[nodiscard]] std::int64_t columnsAround() const { return columnStep + 2 * (size - 1); }

  PowerRule power;
  std::int64_t strips = 0;  ///< of a tile
  std::int64_t columnStep = 0;
  std::size_t workingFloats = 0;
};

/// Whether a call is of that kind, over whole vectors of one format, and sums take longer than memory.
bool isOfFives(const NormalizationProblem& problem);

/// Steps [begin, end) of a destination, of two rows each, those of its images one behind the other.
/// @param working tiles.workingFloats float32, of one thread
void normalizeFives(const NormalizationProblem& problem, const FiveTiles& tiles, const Operands& operands,
                    std::byte* working, std::int64_t begin, std::int64_t end);

}  // namespace mps::detail
