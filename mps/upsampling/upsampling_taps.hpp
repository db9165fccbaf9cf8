#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mps/upsampling/upsampling_problem.hpp"

/// What the kernels need to know about a problem, worked out once when the plan is made. Forward pass and gradient
/// are one computation with different tables: each destination pixel is a weighted sum of input rows, and in them
/// of input columns.
namespace mps::detail {

/// An input row or column, and what it counts.
struct UpsamplingTap {
  std::int64_t input = 0;
  float weight = 0;
  bool operator==(const UpsamplingTap&) const = default;
};

/// For each destination row (or column) the input rows (columns) that it is a sum of, ascending; possibly none.
class UpsamplingTaps {
 public:
  UpsamplingTaps() = default;
  /// @param inputSize,destinationSize of problem.input and problem.destination on this axis
  UpsamplingTaps(const UpsamplingProblem& problem, const UpsamplingAxis& axis, std::int64_t inputSize,
                 std::int64_t destinationSize);

  [[nodiscard]] const UpsamplingTap* begin(std::int64_t i) const {
    return taps_.data() + first_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] const UpsamplingTap* end(std::int64_t i) const {
    return taps_.data() + first_[static_cast<std::size_t>(i) + 1];
  }
  /// Inputs from the first to the last one of a destination position.
  [[nodiscard]] std::int64_t span(std::int64_t i) const {
    return begin(i) == end(i) ? 0 : (end(i) - 1)->input + 1 - begin(i)->input;
  }

 private:
  std::vector<UpsamplingTap> taps_;
  std::vector<std::size_t> first_;
};

UpsamplingTaps upsamplingRowTaps(const UpsamplingProblem& problem);
UpsamplingTaps upsamplingColumnTaps(const UpsamplingProblem& problem);

/// Neighbouring destination columns and the input columns that they are sums of.
struct UpsamplingTile {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t inputBegin = 0;
  std::int64_t inputEnd = 0;
};

/// The columns that the elements of destination rows are sums of, where pixels do not fill a vector: a table with a line
/// for each vector of a row. Tap k of a line reads, k pixels behind what tap 0 reads, an input element for each lane. A
/// tile begins with a line of its own.
struct FewChannelTable {
  /// More channels are vectors of their own.
  static constexpr std::int64_t mostChannels = 15;
  /// More taps would be large tables for few elements.
  static constexpr std::int64_t mostTaps = 16;
  /// Elements behind those of a tile that are read, but count nothing: of the last pixel's taps, and two vectors.
  static constexpr std::int64_t mostRoom = mostTaps * mostChannels + 2 * 16;

  std::size_t taps = 0;  ///< 0: not used
  std::size_t lanes = 0;
  bool areInTwoVectors = false;     ///< the elements of all taps of each line
  std::vector<std::size_t> ofTile;  ///< its first line
  std::vector<std::int32_t>
      first;  ///< the least element for tap 0 of each line, counted from the tile's first one
  std::vector<std::int32_t> indices;  ///< for each lane of each line, counted from `first`
  std::vector<float> weights;         ///< for each lane of each tap of each line; 0: no tap
};

/// What the vector kernel works on at a time: a tile of destination columns, some of its channels. The fewer rows are
/// there, before or behind, the fewer sums of columns, which cost more than those of rows:
///
/// - rows first: the sum of the input rows, of which then the columns are taken;
/// - columns first: each input row's columns, in `slots` rows by turns, which are then summed.
struct UpsamplingLayout {
  /// Elements of what is between the two, in the first cache.
  static constexpr std::int64_t capacity = 8192;
  /// More rows are summed first.
  static constexpr std::int64_t mostSlots = 8;

  UpsamplingTaps rows;
  UpsamplingTaps columns;
  std::vector<UpsamplingTile> tiles;
  FewChannelTable fewChannels;
  std::int64_t channelStep = 0;  ///< 0: a single pixel needs too many columns
  std::int64_t slots = 0;        ///< 0: rows first
  std::int64_t slotLength = 0;   ///< elements that a slot has room for; a multiple of a vector
};
/// @param lanes of a vector
UpsamplingLayout upsamplingLayout(const UpsamplingProblem& problem, std::size_t lanes);

}  // namespace mps::detail
