#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/core/testing/case_shapes.hpp"
#include "mps/softmax/softmax_problem.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

struct SoftMaxCase {
  std::string name;
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  bool hasGaps = false;        ///< between pixels, rows and images, different ones for each operand
  bool repeatsImages = false;  ///< the inputs' images are all the same memory

  [[nodiscard]] SoftMaxProblem problem(SoftMaxKind kind, SoftMaxDirection direction,
                                       ImageFeatureChannelFormat inputFormat,
                                       ImageFeatureChannelFormat destinationFormat) const {
    SoftMaxProblem problem;
    problem.kind = kind;
    problem.direction = direction;
    problem.input = shape(inputFormat, 3);
    problem.destination = shape(destinationFormat, 1);
    if (direction == SoftMaxDirection::Gradient) problem.gradient = shape(inputFormat, 5);
    if (repeatsImages) problem.input.imageStride = problem.gradient.imageStride = 0;
    return problem;
  }

 private:
  /// @param gap what an operand adds to its strides where the case has gaps
  [[nodiscard]] TensorShape shape(ImageFeatureChannelFormat format, std::int64_t gap) const {
    return withGaps(TensorShape::dense(images, height, width, channels, format), hasGaps ? gap : 0);
  }
};

inline std::vector<SoftMaxCase> softMaxCases() {
  std::vector<SoftMaxCase> cases;
  // Numbers of channels around the lengths of vectors; pixels that do not fill the last group.
  for (const std::int64_t channels : {1, 2, 3, 4, 5, 8, 9, 10, 15, 16, 17, 29, 32, 33, 61, 64, 100, 128, 129})
    cases.push_back({.name = "Channels" + std::to_string(channels),
                     .images = 3,
                     .height = 5,
                     .width = 3,
                     .channels = channels});
  // Even numbers of pixels that nearly fill a few vectors: what lies behind the last one must stay.
  for (const std::int64_t channels : {14, 15, 30, 31, 57, 61, 63})
    cases.push_back({.name = "PairsOf" + std::to_string(channels),
                     .images = 2,
                     .height = 4,
                     .width = 6,
                     .channels = channels});
  cases.push_back({.name = "Classes10", .images = 64, .channels = 10});
  // Pixels that threads of the CUDA kernels work on one after the other, and more than a block takes.
  cases.push_back({.name = "Pixels5", .images = 4, .height = 19, .width = 21, .channels = 5});
  cases.push_back({.name = "Pixels21", .images = 2, .height = 19, .width = 21, .channels = 21});
  cases.push_back({.name = "Pixels701", .images = 2, .height = 3, .width = 7, .channels = 701});
  cases.push_back({.name = "Classes1000", .images = 5, .channels = 1000});
  cases.push_back({.name = "WholeTile", .images = 3, .channels = 2048});
  cases.push_back({.name = "MoreThanATile", .images = 2, .channels = 2049, .hasGaps = true});
  cases.push_back({.name = "SeveralTiles", .images = 2, .width = 2, .channels = 5003});
  cases.push_back({.name = "Gaps3", .images = 2, .height = 4, .width = 5, .channels = 3, .hasGaps = true});
  cases.push_back({.name = "Gaps16", .images = 3, .height = 3, .width = 4, .channels = 16, .hasGaps = true});
  cases.push_back({.name = "Gaps19", .images = 2, .height = 3, .width = 4, .channels = 19, .hasGaps = true});
  cases.push_back(
      {.name = "RepeatedImage", .images = 4, .height = 2, .width = 3, .channels = 12, .repeatsImages = true});
  cases.push_back({.name = "ManyTiles", .images = 7, .height = 15, .width = 16, .channels = 24});
  return cases;
}

}  // namespace mps::detail
