#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/neuron/neuron_cases.hpp"
#include "mps/core/testing/case_shapes.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

/// Sizes and memory layout of a case.
struct BatchNormalizationTensors {
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

  [[nodiscard]] BatchNormalizationProblem problem(BatchNormalizationOperation operation,
                                                  const NNNeuronDescriptor& neuron,
                                                  ImageFeatureChannelFormat sourceFormat,
                                                  ImageFeatureChannelFormat destinationFormat) const {
    using enum BatchNormalizationOperation;
    BatchNormalizationProblem problem;
    problem.operation = operation;
    problem.source = shape(sourceFormat, 3);
    if (operation != Statistics) {
      problem.neuron = neuron;
      problem.epsilon = 0.0625F;
    }
    if (operation == StatisticsGradient || operation == Gradient) problem.gradient = shape(sourceFormat, 5);
    if (operation == Forward || operation == Gradient) problem.destination = shape(destinationFormat, 1);
    if (repeatsImages) problem.source.imageStride = problem.gradient.imageStride = 0;
    return problem;
  }
  /// Forward with an addend of the destination's format.
  [[nodiscard]] BatchNormalizationProblem sumProblem(const NNNeuronDescriptor& neuron,
                                                     ImageFeatureChannelFormat sourceFormat,
                                                     ImageFeatureChannelFormat destinationFormat) const {
    auto sum = problem(BatchNormalizationOperation::Forward, neuron, sourceFormat, destinationFormat);
    sum.addend = shape(destinationFormat, 7);
    return sum;
  }
};

inline std::vector<BatchNormalizationTensors> batchNormalizationTensors() {
  return {
      {.name = "OneElement"},
      {.name = "OneChannel", .images = 2, .height = 9, .width = 11, .channels = 1},
      {.name = "Channels3", .images = 3, .height = 5, .width = 7, .channels = 3},
      {.name = "Channels4", .images = 2, .height = 4, .width = 4, .channels = 4},
      {.name = "Channels5Gaps", .images = 2, .height = 6, .width = 5, .channels = 5, .hasGaps = true},
      {.name = "Channels16Gaps", .images = 3, .height = 3, .width = 9, .channels = 16, .hasGaps = true},
      {.name = "Channels17", .images = 1, .height = 11, .width = 13, .channels = 17},
      {.name = "Channels64", .images = 2, .height = 7, .width = 7, .channels = 64},
      {.name = "Channels67", .images = 2, .height = 3, .width = 5, .channels = 67},
      {.name = "RepeatedImage", .images = 5, .height = 3, .width = 4, .channels = 7, .repeatsImages = true},
      {.name = "PixelsLargerThanATile",
       .images = 2,
       .height = 1,
       .width = 2,
       .channels = 4099,
       .hasGaps = true},
      {.name = "Channels3InPacks", .images = 2, .height = 4, .width = 8, .channels = 3},
      {.name = "Channels3SeveralChunks", .images = 4, .height = 24, .width = 32, .channels = 3},
      {.name = "Channels1028", .images = 2, .height = 1, .width = 2, .channels = 1028},
      {.name = "SeveralChunks", .images = 9, .height = 16, .width = 15, .channels = 32},
  };
}

/// Neurons of every kind of code path: none, kinks, slopes of their own, transcendental ones.
inline std::vector<NeuronCase> batchNormalizationNeurons(std::int64_t channels) {
  using enum CNNNeuronType;
  constexpr auto neuron = [](auto... arguments) {
    return NNNeuronDescriptor::cnnNeuronDescriptor(arguments...);
  };
  return {
      {.neuron = neuron(None)},
      {.neuron = neuron(ReLU)},
      {.neuron = neuron(ReLU, 0.25F)},
      {.neuron = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(neuronTestSlopes(channels))},
      {.neuron = neuron(Sigmoid)},
      {.neuron = neuron(ReLUN, 0.0F, 1.0F)},
      {.neuron = neuron(GeLU)},
      {.neuron = neuron(TanH, 0.75F, 1.5F)},
      {.neuron = neuron(Linear, 0.75F, 0.25F)},
      {.neuron = neuron(HardSigmoid, 0.5F, 0.25F)},
      {.neuron = neuron(SoftPlus, 1.0F, 1.5F)},
      {.neuron = neuron(SoftSign)},
      {.neuron = neuron(ELU, 0.75F)},
      {.neuron = neuron(Exponential, 0.5F, 0.25F, -1.0F)},
  };
}

inline bool hasKink(const NNNeuronDescriptor& neuron) {
  return neuron.neuronType() == CNNNeuronType::ReLU || neuron.neuronType() == CNNNeuronType::PReLU;
}

/// Whether a case runs in combination with a neuron: two of them on all tensors, those from TanH on where four channels
/// are a pixel, all others on small tensors.
inline bool isTested(const BatchNormalizationTensors& tensors, const NNNeuronDescriptor& neuron) {
  using enum CNNNeuronType;
  const bool isSmall = tensors.images * tensors.height * tensors.width * tensors.channels < 600;
  switch (neuron.neuronType()) {
    case None:
    case PReLU:
      return true;
    case ReLU:
    case Sigmoid:
    case ReLUN:
    case GeLU:
      return isSmall;
    default:
      return tensors.channels == 4;
  }
}

}  // namespace mps::detail
