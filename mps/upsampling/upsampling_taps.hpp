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

/// For each element of a destination row the input elements, of the row's sum, that it is a sum of: for pixels that
/// do not fill a vector.
struct UpsamplingElements {
  /// More channels are vectors of their own; more taps are rare.
  static constexpr std::int64_t mostChannels = 15;
  static constexpr std::int64_t mostTaps = 4;
  /// No vector has more lanes; so many elements follow the last one.
  static constexpr std::size_t padding = 16;

  std::size_t taps = 0;    ///< 0: not used
  std::size_t stride = 0;  ///< elements from tap to tap
  std::vector<std::int32_t> indices;
  std::vector<float> weights;  ///< 0 where an element has fewer taps
  /// The pixels that an element's column reads, as elements [begin, end); an end is not below the one before.
  std::vector<std::int32_t> begin;
  std::vector<std::int32_t> end;
};

/// What the vector kernel works on at a time: the input columns of a tile, some channels of them, as one sum of
/// rows that stays in the first-level cache.
struct UpsamplingLayout {
  /// Elements of that sum.
  static constexpr std::int64_t capacity = 4096;

  UpsamplingTaps rows;
  UpsamplingTaps columns;
  std::vector<UpsamplingTile> tiles;
  UpsamplingElements elements;
  std::int64_t channelStep = 0;  ///< 0: a single pixel needs too many columns
};
UpsamplingLayout upsamplingLayout(const UpsamplingProblem& problem);

}  // namespace mps::detail
