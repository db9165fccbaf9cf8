#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mps/core/plan/plan.hpp"
#include "mps/normalization/normalization_powers.hpp"
#include "mps/normalization/normalization_problem.hpp"
#include "mps/normalization/normalization_windows.hpp"

namespace mps::detail {

/// How the rows of a call of Spatial or LocalContrast are cut into tiles, so that all that a tile works on stays in
/// the cache. A tile is a range of columns and channels that goes down the rows.
struct WindowTiles {
  /// Floats of one row of a tile, the columns beside it that its windows reach included: all rows of a 5 x 5
  /// window's gradient fit into a second-level cache of 1 MiB.
  static constexpr std::int64_t capacity = 4096;
  /// Rows of a window for which pointers are kept.
  static constexpr std::int64_t mostRows = 256;
  static constexpr std::int64_t mostAtOnce = 2;
  static constexpr std::int64_t mostKept = mostRows + 4;

  explicit WindowTiles(const NormalizationProblem& problem);

  /// Steps of rows of an image.
  [[nodiscard]] std::int64_t steps(std::int64_t height) const {
    return (height + rowsAtOnce - 1) / rowsAtOnce;
  }

  PowerRule power;
  std::int64_t channelStep = 0;  ///< 0: not even one column fits
  std::int64_t columnStep = 0;
  std::size_t rowFloats = 0;  ///< a multiple of 16
  std::int64_t rowsAtOnce =
      0;  ///< rows of windows whose sums are made together; an even number of a row is the first
  std::int64_t keptRows = 0;  ///< rows of the source, and in the gradient of windows, that are kept
  std::int64_t workingRows = 0;
};

/// Steps [begin, end) of a destination, of `rowsAtOnce` rows each, those of its images one behind the other.
/// @param working workingRows * rowFloats float32, of one thread
void normalizeWindowRows(const NormalizationProblem& problem, const WindowTiles& tiles,
                         const Operands& operands, std::byte* working, std::int64_t begin, std::int64_t end);

}  // namespace mps::detail
