#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/core/plan.hpp"
#include "mps/normalization/normalization_problem.hpp"

namespace mps::detail {

/// Spatial or LocalContrast with windows of 5 x 5 pixels, one for each pixel and centered there, where pixels are no wider
/// than half a vector. A row of pixels is then one run of vectors, and the pixel beside one lies `channels` elements further
/// on. Two rows are computed at once.
struct NarrowRuns {
  static constexpr std::int64_t size = 5;
  /// Of the largest vector.
  static constexpr std::int64_t lanes = 16;
  /// The fifth pixel of a window begins no more than a vector behind the third.
  static constexpr std::int64_t mostChannels = lanes / 2;
  /// Elements of a row: what is kept of all fits into a second-level cache.
  static constexpr std::int64_t capacity = 2048;
  /// Zeros before and behind a row: what windows see beside an image.
  static constexpr std::int64_t margin = 2 * lanes;
  /// Between rows of working memory, which compilers know; rows of whole pages would share the same few places of a cache.
  static constexpr std::int64_t rowFloats = capacity + 11 * lanes;

  /// Rows of working memory, each kind one behind the other.
  struct Rows {
    static constexpr std::int64_t source = 0;  ///< of float32
    static constexpr std::int64_t sources = 8;
    static constexpr std::int64_t zeros = source + sources;
    /// Of two rows of windows: what is summed over columns, first of values and then of their squares.
    static constexpr std::int64_t columns = zeros + 1;
    /// Of two rows of windows: T, then means.
    static constexpr std::int64_t windows = columns + 4;
    /// Of two rows of windows: the two fields of a gradient.
    static constexpr std::int64_t fields = windows + 4;
    static constexpr std::int64_t centers = fields + 4;
    /// Of four rows of windows: sums along rows of both fields.
    static constexpr std::int64_t sums = centers + 4;
    static constexpr std::int64_t unwanted = sums + 8;
    static constexpr std::int64_t staged = unwanted + 2;
    static constexpr std::int64_t count = staged + 2;
  };

  static constexpr std::size_t workingFloats = static_cast<std::size_t>(Rows::count * rowFloats + 2 * margin);

  /// Steps of two rows of an image.
  [[nodiscard]] static std::int64_t steps(std::int64_t height) { return (height + 1) / 2; }
};

/// Whether a call is of that kind, all of one format and without gaps in its rows.
bool isNarrow(const NormalizationProblem& problem);

/// Steps [begin, end) of a destination, of two rows each, those of its images one behind the other.
/// @param working NarrowRuns::workingFloats float32, of one thread
void normalizeNarrow(const NormalizationProblem& problem, const Operands& operands, std::byte* working,
                     std::int64_t begin, std::int64_t end);

}  // namespace mps::detail
