#pragma once

#include <cfloat>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/core/testing/case_shapes.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

/// Axes of an operand that are repeated.
struct ArithmeticRepeats {
  bool width = false;
  bool height = false;
  bool channels = false;
};

/// Sizes and memory layout of a case.
struct ArithmeticTensors {
  std::string name;
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  ArithmeticRepeats primary = {};
  ArithmeticRepeats secondary = {};
  bool hasGaps = false;  ///< between pixels, rows and images, different ones for each operand

  /// @param gap what an operand adds to its strides where the case has gaps
  [[nodiscard]] TensorShape shape(ImageFeatureChannelFormat format, const ArithmeticRepeats& repeats,
                                  std::int64_t gap) const {
    return withGaps(TensorShape::dense(images, repeats.height ? 1 : height, repeats.width ? 1 : width,
                                       repeats.channels ? 1 : channels, format),
                    hasGaps ? gap : 0);
  }

  /// The repeats of the operand whose gradient is computed.
  [[nodiscard]] const ArithmeticRepeats& own(ArithmeticDirection direction) const {
    return direction == ArithmeticDirection::SecondaryGradient ? secondary : primary;
  }

  /// With a mask where `mask` is set; a division keeps something where the direction needs it. No numbers set.
  [[nodiscard]] ArithmeticProblem problem(ArithmeticOperation operation, ArithmeticDirection direction,
                                          ImageFeatureChannelFormat sourceFormat,
                                          ImageFeatureChannelFormat destinationFormat,
                                          bool mask = false) const {
    ArithmeticProblem problem;
    problem.operation = operation;
    problem.direction = direction;
    const bool divides = operation == ArithmeticOperation::Divide;
    const bool isSecondary = direction == ArithmeticDirection::SecondaryGradient;
    if (problem.isForward()) {
      problem.primary = shape(sourceFormat, primary, 3);
      problem.secondary = shape(sourceFormat, secondary, 2);
      problem.destination = shape(destinationFormat, {}, 1);
    } else {
      problem.gradient = shape(sourceFormat, {}, 5);
      problem.destination = shape(destinationFormat, own(direction), 1);
      if (problem.needsSecondary())
        problem.secondary = shape(sourceFormat, divides || !isSecondary ? secondary : primary, 2);
    }
    const bool keeps = divides && (problem.isForward() ? mask : isSecondary);
    if (mask || keeps)
      describeSavedFields(problem, problem.result(), mask,
                          keeps ? keptFormatFor(sourceFormat) : ImageFeatureChannelFormat::None);
    return problem;
  }
};

/// The numbers of a case. All are small integers, or odd multiples of 0.5 that no result can be equal to; divisors are multiplied
/// by powers of two.
struct ArithmeticNumbers {
  float primaryScale = 1;
  float secondaryScale = 1;
  float bias = 0;
  float minimumValue = -FLT_MAX;
  float maximumValue = FLT_MAX;
  bool hasReLU = false;

  [[nodiscard]] bool hasLimits() const { return minimumValue > -FLT_MAX || maximumValue < FLT_MAX; }
  void setIn(ArithmeticProblem& problem) const {
    problem.primaryScale = primaryScale;
    problem.secondaryScale = secondaryScale;
    problem.bias = bias;
    problem.minimumValue = minimumValue;
    problem.maximumValue = maximumValue;
    problem.hasReLU = hasReLU;
  }
};

inline std::vector<ArithmeticTensors> arithmeticTensors() {
  constexpr ArithmeticRepeats none{};
  constexpr ArithmeticRepeats pixels{.width = true, .height = true};
  constexpr ArithmeticRepeats all{.width = true, .height = true, .channels = true};
  constexpr ArithmeticRepeats columns{.width = true};
  constexpr ArithmeticRepeats rows{.height = true};
  constexpr ArithmeticRepeats channels{.channels = true};
  return {
      {.name = "OneElement"},
      {.name = "Channels3", .images = 3, .height = 5, .width = 7, .channels = 3},
      {.name = "Channels5Gaps", .images = 2, .height = 6, .width = 5, .channels = 5, .hasGaps = true},
      {.name = "Channels16Gaps", .images = 3, .height = 3, .width = 9, .channels = 16, .hasGaps = true},
      {.name = "Channels17", .images = 1, .height = 11, .width = 13, .channels = 17},
      {.name = "VectorOfChannels", .images = 2, .height = 7, .width = 5, .channels = 19, .secondary = pixels},
      {.name = "VectorOf24Channels",
       .images = 2,
       .height = 3,
       .width = 5,
       .channels = 24,
       .secondary = pixels},
      // Pixels that all have the same operand: more than are repeated at once, and a rest.
      {.name = "VectorOfOneImage", .height = 7, .width = 9, .channels = 3, .secondary = pixels},
      {.name = "VectorOfChannelsLeft",
       .images = 2,
       .height = 6,
       .width = 4,
       .channels = 4,
       .primary = pixels},
      {.name = "Number",
       .images = 3,
       .height = 5,
       .width = 4,
       .channels = 6,
       .secondary = all,
       .hasGaps = true},
      {.name = "BothNumbers",
       .images = 2,
       .height = 3,
       .width = 4,
       .channels = 5,
       .primary = all,
       .secondary = all},
      {.name = "OneColumn", .images = 2, .height = 5, .width = 9, .channels = 7, .secondary = columns},
      {.name = "OneRowGaps",
       .images = 2,
       .height = 9,
       .width = 5,
       .channels = 7,
       .secondary = rows,
       .hasGaps = true},
      {.name = "RowAndColumn", .height = 6, .width = 5, .channels = 3, .primary = rows, .secondary = columns},
      {.name = "OneChannel", .images = 2, .height = 4, .width = 5, .channels = 33, .secondary = channels},
      {.name = "OneChannelOf16", .images = 2, .height = 4, .width = 5, .channels = 16, .secondary = channels},
      {.name = "NumberFor24Channels", .images = 3, .height = 2, .width = 4, .channels = 24, .secondary = all},
      {.name = "OneChannelOf3Gaps",
       .images = 2,
       .height = 4,
       .width = 5,
       .channels = 3,
       .primary = channels,
       .hasGaps = true},
      {.name = "OneChannelAndColumn",
       .images = 2,
       .height = 4,
       .width = 5,
       .channels = 8,
       .secondary = {.width = true, .channels = true}},
      {.name = "OneChannelAndRow",
       .images = 2,
       .height = 4,
       .width = 5,
       .channels = 8,
       .secondary = {.height = true, .channels = true}},
      {.name = "PixelsLargerThanATile",
       .images = 2,
       .height = 2,
       .width = 2,
       .channels = 4099,
       .primary = none,
       .secondary = channels,
       .hasGaps = true},
      {.name = "WideVector", .images = 2, .height = 2, .width = 2, .channels = 2500, .secondary = pixels},
      {.name = "ManyTiles", .images = 5, .height = 16, .width = 15, .channels = 32},
      {.name = "ManyPieces", .images = 2, .height = 70, .width = 31, .channels = 16, .secondary = pixels},
      {.name = "ManyPiecesOfColumns",
       .images = 1,
       .height = 67,
       .width = 33,
       .channels = 16,
       .secondary = rows},
      {.name = "TwoImagesOfOnePixel", .images = 2, .channels = 7, .secondary = pixels},
  };
}

inline std::vector<ArithmeticNumbers> arithmeticNumbers() {
  return {
      {},
      {.hasReLU = true},
      {.primaryScale = 2, .secondaryScale = -1, .bias = 3},
      {.primaryScale = -3, .secondaryScale = 2, .bias = -2, .minimumValue = -4.5F, .maximumValue = 3.5F},
      {.minimumValue = -1.5F},
  };
}

}  // namespace mps::detail
