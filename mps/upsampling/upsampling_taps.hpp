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

/// An input that one or both of two sums have.
struct SharedTap {
  std::int64_t input = 0;
  float weights[2] = {0, 0};
  bool counts[2] = {false, false};
};

/// The inputs of two neighbouring sums, ascending, where they have so many in common that they are worth making together.
struct UpsamplingPair {
  /// Sums of more are made one by one.
  static constexpr std::size_t most = 32;

  std::size_t count = 0;  ///< 0: made one by one
  SharedTap taps[most];
};

/// Neighbouring destination columns and the input columns that they are sums of.
struct UpsamplingTile {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t inputBegin = 0;
  std::int64_t inputEnd = 0;
};

/// How a tap of a group finds its elements, all of them of one kind: in vectors, or one by one.
enum class UpsamplingLookup : std::uint8_t {
  OneVectorForAllTaps,
  ThreeVectorsForAllTaps,
  OneVector,
  TwoVectors,
  FourVectors,
  Elements
};

/// The elements of a destination row in groups of a vector, for pixels that do not fill one. Tap k of a group reads, k
/// pixels behind what tap 0 reads, an input element for each lane. A tile begins with a group of its own.
struct UpsamplingGroups {
  /// More channels are vectors of their own.
  static constexpr std::int64_t mostChannels = 15;
  /// More taps would be large tables for few elements.
  static constexpr std::int64_t mostTaps = 16;
  /// Bounds `room`.
  static constexpr std::int64_t mostRoom = mostTaps * mostChannels + 4 * 16;

  std::size_t taps = 0;  ///< 0: not used
  std::size_t lanes = 0;
  UpsamplingLookup lookup = UpsamplingLookup::Elements;
  std::int64_t room = 0;              ///< so many elements behind a tile's last one are read
  std::vector<std::size_t> ofTile;    ///< its first group
  std::vector<std::uint8_t> isFull;   ///< for each group: each of its elements has all taps
  std::vector<std::int32_t> first;    ///< element for tap 0 of each group, counted from the tile's first one
  std::vector<std::int32_t> indices;  ///< for each lane of each group, counted from `first`
  std::vector<float> weights;         ///< for each lane of each tap of each group; 0: no tap
};

/// What the vector kernel works on at a time: a tile of destination columns, some of its channels. The fewer rows are
/// there, before or behind, the fewer sums of columns, which cost more than those of rows:
///
/// - rows first: the sum of the input rows, of which then the columns are taken;
/// - columns first: each input row's columns, in `slots` rows by turns, which are then summed. Of float32 also where an image
///   becomes smaller and rows are summed in pairs: the input comes row by row then, and not some rows at a time.
struct UpsamplingLayout {
  /// Elements of what is between the two, in the first cache; rows first there may be two rows of so many.
  static constexpr std::int64_t capacity = 8192;
  /// More rows are summed first.
  static constexpr std::int64_t mostSlots = 8;
  /// The same where an image becomes smaller, and elements of all of them, in the second cache.
  static constexpr std::int64_t mostSlotsOfSmaller = 16;
  static constexpr std::int64_t room = 8 * capacity;
  /// Rows whose columns are summed together where there is room for them: what is looked up for one counts for all.
  static constexpr std::int64_t mostRowsAtOnce = 4;

  UpsamplingTaps rows;
  UpsamplingTaps columns;
  std::vector<UpsamplingPair> rowPairs;     ///< of rows 2 i and 2 i + 1, or none; columns first: of slots
  std::vector<UpsamplingPair> columnPairs;  ///< likewise, of columns
  std::vector<UpsamplingTile> tiles;
  UpsamplingGroups groups;
  std::int64_t channelStep = 0;  ///< 0: a single pixel needs too many columns
  std::int64_t slots = 0;        ///< 0: rows first; with groups a power of two
  std::int64_t slotLength = 0;   ///< elements that a slot has room for; a multiple of a vector
  std::int64_t slotStride = 0;   ///< with groups: elements from a row between the two to the next one
  std::int64_t rowsAtOnce = 1;   ///< more than 1 in a single tile, with adjacent destination rows
  bool copiesRows = false;       ///< columns first: each destination row is an input row's columns
};
/// @param lanes of a vector
UpsamplingLayout upsamplingLayout(const UpsamplingProblem& problem, std::size_t lanes);

}  // namespace mps::detail
