#pragma once

#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "mps/gather/gather_problem.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

/// Which rows are named.
enum class GatherPattern : std::uint8_t {
  Any,       ///< rows at random, some several times
  Few,       ///< two rows at most, many times each
  One,       ///< the last row, always
  Backward,  ///< all rows, from the last one on
  Outside,   ///< at random, every other one no row at all
  OneMore,   ///< at random, some of them the one behind the last row
};

struct GatherCase {
  std::string name;
  std::int64_t images = 1;    ///< parts behind the axis
  std::int64_t rows = 1;      ///< along it
  std::int64_t channels = 1;  ///< elements before it
  std::int64_t count = 1;     ///< indices
  GatherPattern pattern = GatherPattern::Any;
  GatherIndices indices = GatherIndices::UInt32;
  bool isStrided = false;  ///< gaps between rows and images

  [[nodiscard]] GatherProblem problem(GatherDirection direction, ImageFeatureChannelFormat format) const {
    GatherProblem problem;
    problem.direction = direction;
    problem.indices = indices;
    problem.source = strided(TensorShape::dense(images, rows, 1, channels, format));
    problem.result = strided(TensorShape::dense(images, count, 1, channels, format));
    return problem;
  }

  /// What the indices are, the same for the same seed.
  [[nodiscard]] std::vector<std::int64_t> numbers(std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t limit) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
    };
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < count; ++i) switch (pattern) {
        case GatherPattern::Any:
          all.push_back(below(rows));
          break;
        case GatherPattern::Few:
          all.push_back(below(2) == 0 ? rows / 2 : 0);
          break;
        case GatherPattern::One:
          all.push_back(rows - 1);
          break;
        case GatherPattern::Backward:
          all.push_back(rows - 1 - i % rows);
          break;
        case GatherPattern::Outside:
          all.push_back(below(2) == 0 ? below(rows) : outside(below(4)));
          break;
        case GatherPattern::OneMore:
          all.push_back(i % 5 == 0 ? rows : below(rows));
          break;
      }
    return all;
  }

 private:
  /// A number that is no row and that the type has.
  [[nodiscard]] std::int64_t outside(std::int64_t which) const {
    if (which == 0) return rows;
    if (which == 1) return rows + 1;
    switch (indices) {
      case GatherIndices::UInt16:
        return 0xFFFF;
      case GatherIndices::Int32:
        return which == 2 ? -1 : -0x80000000LL;
      case GatherIndices::UInt32:
        return which == 2 ? 0xFFFFFFFFLL : 0x80000000LL;
    }
    return -1;
  }
  [[nodiscard]] TensorShape strided(TensorShape shape) const {
    if (!isStrided) return shape;
    shape.rowStride += 3;
    shape.imageStride = shape.height * shape.rowStride + 5;
    return shape;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const GatherCase& gather, std::ostream* stream) {
  *stream << gather.name;
}

/// Indices as memory has them.
inline std::vector<std::byte> storedIndices(GatherIndices type, std::span<const std::int64_t> numbers) {
  std::vector<std::byte> bytes;
  const auto append = [&](auto number) {
    const auto* first = reinterpret_cast<const std::byte*>(&number);
    bytes.insert(bytes.end(), first, first + sizeof number);
  };
  for (const std::int64_t number : numbers) switch (type) {
      case GatherIndices::UInt16:
        append(static_cast<std::uint16_t>(number));
        break;
      case GatherIndices::Int32:
        append(static_cast<std::int32_t>(number));
        break;
      case GatherIndices::UInt32:
        append(static_cast<std::uint32_t>(number));
        break;
    }
  return bytes;
}

inline std::vector<GatherCase> gatherCases() {
  using enum GatherPattern;
  std::vector<GatherCase> cases = {
      {.name = "OneElement"},
      {.name = "NoSuchRow", .count = 9, .pattern = Outside},
      {.name = "Table", .rows = 300, .channels = 64, .count = 70},
      {.name = "ManyIndices", .rows = 17, .channels = 5, .count = 4000},
      {.name = "FewRowsOften", .rows = 90, .channels = 24, .count = 500, .pattern = Few},
      {.name = "LastRowAlways", .rows = 257, .channels = 3, .count = 130, .pattern = One},
      {.name = "AllBackward", .images = 2, .rows = 40, .channels = 7, .count = 40, .pattern = Backward},
      {.name = "FastestAxis", .images = 31, .rows = 20, .channels = 1, .count = 33},
      {.name = "Columns", .images = 1100, .rows = 70, .count = 45, .pattern = Outside},
      {.name = "ColumnsAndOneMore", .images = 6, .rows = 40, .count = 60, .pattern = OneMore},
      {.name = "MiddleAxis", .images = 4, .rows = 9, .channels = 32, .count = 21},
      {.name = "SlowestAxis", .rows = 12, .channels = 130, .count = 5},
      {.name = "LongRows", .rows = 3, .channels = 9001, .count = 7},
      {.name = "RowsThatAThreadTakesWhole", .rows = 3, .channels = 4096, .count = 7},
      {.name = "Strided", .images = 3, .rows = 11, .channels = 16, .count = 19, .isStrided = true},
      {.name = "StridedShortRows", .images = 3, .rows = 11, .channels = 6, .count = 19, .isStrided = true},
      // Rows at whole cache lines that end in a part of a vector.
      {.name = "StridedLongRows", .images = 2, .rows = 7, .channels = 157, .count = 9, .isStrided = true},
      // As many sums as a thread keeps in the cache.
      {.name = "ShortRowsThatJustFit",
       .images = 2,
       .rows = 1024,
       .channels = 4,
       .count = 300,
       .pattern = Outside},
      {.name = "ManyRows", .images = 2, .rows = 5000, .channels = 2, .count = 700},
      {.name = "ManySparseRows", .rows = 2200, .channels = 24, .count = 2000, .pattern = Outside},
      {.name = "ManyRowsAndIndices", .rows = 270000, .count = 9000, .pattern = Outside},
      // More indices than a block of the CUDA sort takes.
      {.name = "VeryManyIndices", .rows = 300, .count = 300000},
      {.name = "LongRowsOften", .rows = 3, .channels = 300, .count = 50},
      {.name = "LongRowsSeldom", .images = 2, .rows = 40, .channels = 264, .count = 30, .pattern = Outside},
  };
  for (const auto type : {GatherIndices::UInt32, GatherIndices::Int32, GatherIndices::UInt16})
    for (const GatherPattern pattern : {Any, Outside})
      cases.push_back(
          {.name = "Type" + std::to_string(static_cast<int>(type)) + (pattern == Any ? "Inside" : "Outside"),
           .images = 2,
           .rows = 33,
           .channels = 8,
           .count = 90,
           .pattern = pattern,
           .indices = type});
  return cases;
}

}  // namespace mps::detail
