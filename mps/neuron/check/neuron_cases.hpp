#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/core/neuron/neuron_cases.hpp"
#include "mps/core/neuron/neuron_span.hpp"
#include "mps/core/testing/case_shapes.hpp"
#include "mps/neuron/neuron_problem.hpp"

/// The problems that tests, conform and bench share. The neurons are in mps/core/neuron/neuron_cases.hpp.
namespace mps::detail {

/// Sizes and memory layout of a case.
struct NeuronTensors {
  std::string name;
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  bool hasGaps = false;        ///< between pixels, rows and images, different ones for each operand
  bool repeatsImages = false;  ///< the inputs' images are all the same memory

  /// @param gap what an operand adds to its strides where the case has gaps
  [[nodiscard]] TensorShape shape(ImageFeatureChannelFormat format, std::int64_t gap) const {
    return withGaps(TensorShape::dense(images, height, width, channels, format), hasGaps ? gap : 0);
  }

  [[nodiscard]] NeuronProblem problem(NeuronDirection direction, const NNNeuronDescriptor& neuron,
                                      ImageFeatureChannelFormat sourceFormat,
                                      ImageFeatureChannelFormat destinationFormat) const {
    NeuronProblem problem;
    problem.direction = direction;
    problem.neuron = neuron;
    problem.input = shape(sourceFormat, 3);
    problem.destination = shape(destinationFormat, 1);
    if (direction != NeuronDirection::Forward) problem.gradient = shape(sourceFormat, 5);
    if (repeatsImages) problem.input.imageStride = problem.gradient.imageStride = 0;
    return problem;
  }

  /// Of Forward or Gradient, with sides; problem.canHaveSides() says whether the tensors and the neuron take them.
  [[nodiscard]] NeuronProblem problemWithSides(NeuronDirection direction, const NNNeuronDescriptor& neuron,
                                               ImageFeatureChannelFormat sourceFormat,
                                               ImageFeatureChannelFormat destinationFormat) const {
    NeuronProblem problem = this->problem(direction, neuron, sourceFormat, destinationFormat);
    problem.hasSides = problem.canHaveSides();
    return problem;
  }

  /// A gradient from the result, of the sum of two gradients.
  [[nodiscard]] NeuronProblem problemWithAddend(const NNNeuronDescriptor& neuron,
                                                ImageFeatureChannelFormat sourceFormat,
                                                ImageFeatureChannelFormat destinationFormat) const {
    NeuronProblem problem =
        this->problem(NeuronDirection::GradientFromResult, neuron, sourceFormat, destinationFormat);
    problem.addend = shape(sourceFormat, 7);
    return problem;
  }
};

inline std::vector<NeuronTensors> neuronTensors() {
  return {
      {.name = "OneElement"},
      {.name = "Channels3", .images = 3, .height = 5, .width = 7, .channels = 3},
      {.name = "Channels4", .images = 2, .height = 4, .width = 4, .channels = 4},
      {.name = "Channels5Gaps", .images = 2, .height = 6, .width = 5, .channels = 5, .hasGaps = true},
      {.name = "Channels12", .images = 2, .height = 3, .width = 5, .channels = 12},
      {.name = "Channels16Gaps", .images = 3, .height = 3, .width = 9, .channels = 16, .hasGaps = true},
      {.name = "Channels17", .images = 1, .height = 11, .width = 13, .channels = 17},
      {.name = "Channels64", .images = 2, .height = 7, .width = 7, .channels = 64},
      // More pixels than slopes are repeated for at once.
      {.name = "OneChannel", .height = 13, .width = 20},
      {.name = "RepeatedImage", .images = 5, .height = 3, .width = 4, .channels = 7, .repeatsImages = true},
      {.name = "PixelsLargerThanATile",
       .images = 2,
       .height = 1,
       .width = 2,
       .channels = 4099,
       .hasGaps = true},
      {.name = "PixelsOfTwoTiles", .images = 2, .height = 2, .width = 1, .channels = 2060, .hasGaps = true},
      {.name = "ManyTiles", .images = 9, .height = 16, .width = 15, .channels = 32},
  };
}

}  // namespace mps::detail
