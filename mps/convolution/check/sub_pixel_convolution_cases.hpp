#pragma once

#include <cstdint>
#include <vector>

#include "mps/convolution/check/convolution_cases.hpp"
#include "mps/convolution/sub_pixel_convolution.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

struct SubPixelCase {
  ConvolutionCase convolution;
  std::int64_t scaleFactor = 2;
  std::int64_t cutRows = 0;  ///< of the last blocks
  std::int64_t cutColumns = 0;

  [[nodiscard]] SubPixelConvolutionProblem problem(ImageFeatureChannelFormat sourceFormat,
                                                   ImageFeatureChannelFormat resultFormat) const {
    SubPixelConvolutionProblem problem;
    problem.scaleFactor = scaleFactor;
    problem.convolution = convolution.problem(ConvolutionOperation::Forward, sourceFormat, resultFormat);
    TensorShape& result = problem.convolution.destination;
    result = TensorShape::dense(result.images, result.height, result.width, result.channels, resultFormat);
    TensorShape& to = problem.destination;
    to = TensorShape::dense(result.images, scaleFactor * result.height - cutRows,
                            scaleFactor * result.width - cutColumns,
                            result.channels / (scaleFactor * scaleFactor), resultFormat);
    if (convolution.layout == ConvolutionLayout::Strided) {
      to.pixelStride = to.channels + 3;
      to.rowStride = to.width * to.pixelStride + 5;
      to.imageStride = to.height * to.rowStride + 7;
    }
    return problem;
  }
};

inline std::vector<SubPixelCase> subPixelCases() {
  constexpr auto strided = ConvolutionLayout::Strided;
  return {
      {{.name = "Blocks2x2", .images = 2, .y = sameWindow(6, 3), .x = sameWindow(5, 3), .outputs = 16}},
      {{.name = "Blocks3x3",
        .y = validWindow(9, 3, 2),
        .x = validWindow(8, 3, 2),
        .inputs = 4,
        .outputs = 27},
       3},
      {{.name = "OneBlock", .y = sameWindow(1, 1), .x = sameWindow(1, 1), .inputs = 8, .outputs = 64}, 4},
      {{.name = "CutBlocks", .y = sameWindow(4, 3), .x = sameWindow(7, 3), .inputs = 3, .outputs = 18},
       3,
       2,
       1},
      {{.name = "BlocksCutToOnePixel",
        .y = sameWindow(1, 3),
        .x = sameWindow(1, 3),
        .inputs = 5,
        .outputs = 32},
       4,
       3,
       3},
      {{.name = "Gaps",
        .images = 3,
        .y = sameWindow(4, 3),
        .x = sameWindow(6, 3),
        .inputs = 5,
        .outputs = 20,
        .layout = strided}},
      {{.name = "GapsAndCutBlocks",
        .images = 2,
        .y = sameWindow(4, 3),
        .x = sameWindow(6, 3),
        .inputs = 5,
        .outputs = 32,
        .groups = 1,
        .layout = strided},
       2,
       1,
       1},
      {{.name = "GroupsClamp",
        .images = 2,
        .y = sameWindow(6, 3),
        .x = sameWindow(6, 3),
        .inputs = 8,
        .outputs = 32,
        .groups = 2,
        .edgeMode = ImageEdgeMode::Clamp}},
      {{.name = "ReLU",
        .y = sameWindow(5, 3),
        .x = sameWindow(5, 3),
        .inputs = 3,
        .outputs = 12,
        .neuron = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.5F)}},
  };
}

}  // namespace mps::detail
