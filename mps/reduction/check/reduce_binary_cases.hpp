#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/core/testing/case_shapes.hpp"
#include "mps/reduction/reduce_binary_problem.hpp"

/// The problems that tests and conform share, and their reference.
namespace mps::detail {

struct ReduceBinaryCase {
  std::string name;
  std::int64_t images = 1, height = 1, width = 1, channels = 1;
  bool hasGaps = false;  ///< between pixels, rows and images, different ones for each tensor

  [[nodiscard]] ReduceBinaryProblem problem(ReduceBinaryDivisor divisor,
                                            ImageFeatureChannelFormat sourceFormat,
                                            ImageFeatureChannelFormat resultFormat) const {
    const auto shape = [&](std::int64_t count, ImageFeatureChannelFormat format, std::int64_t gap) {
      return withGaps(TensorShape::dense(images, height, width, count, format), hasGaps ? gap : 0);
    };
    return {divisor, shape(channels, sourceFormat, 3), shape(channels, sourceFormat, 2),
            shape(1, resultFormat, 5)};
  }
  /// Whether a mean over the channels of small integers is representable.
  [[nodiscard]] bool isExact(ReduceBinaryDivisor divisor) const {
    return divisor == ReduceBinaryDivisor::One ||
           (divisor == ReduceBinaryDivisor::FeatureChannels && (channels & (channels - 1)) == 0);
  }
};

inline std::vector<ReduceBinaryCase> reduceBinaryCases() {
  return {{"OneElement", 1, 1, 1, 1},      {"Channels3", 3, 4, 5, 3},           {"Channels16", 2, 7, 9, 16},
          {"Channels21", 1, 7, 6, 21},     {"Gaps", 3, 3, 4, 6, true},          {"Channels64", 2, 8, 8, 64},
          {"Channels67", 2, 3, 4, 67},     {"Channels1000", 1, 3, 2, 1000},     {"ManyPixels", 2, 50, 61, 2},
          {"ManyChannels", 2, 2, 1, 2500}, {"GapsAndMany", 1, 2, 3, 2049, true}};
}

/// In float64, straight from the formula.
ReferenceTensor reduceBinaryReference(const ReduceBinaryProblem& problem, const ReferenceTensor& source,
                                      const ReferenceTensor& weights);

}  // namespace mps::detail
