#pragma once

#include <span>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/core/plan/reference_tensor.hpp"

/// Convolution in float64; ordinary and transposed. Arrays of
/// weights and biases are as ConvolutionProblem says, an empty `bias` stands for zeros. The problem's
/// `accumulate`, formats and strides play no part, but for the rounding of a normalised source to float32.
namespace mps::detail {

/// ConvolutionOperation::Forward; `source` and the result as the problem's source and destination.
ReferenceTensor convolutionForwardReference(const ConvolutionProblem& problem, const ReferenceTensor& source,
                                            std::span<const double> weights, std::span<const double> bias);

/// ConvolutionOperation::DataGradient; with `bias` and the problem's neuron when transposed.
ReferenceTensor convolutionDataGradientReference(const ConvolutionProblem& problem,
                                                 const ReferenceTensor& gradient,
                                                 std::span<const double> weights,
                                                 std::span<const double> bias);

/// The result of a convolution spread over height x width pixels.
/// @param scaleFactor r: each pixel of `convolution` becomes a block of r x r
ReferenceTensor subPixelReference(const ReferenceTensor& convolution, std::int64_t scaleFactor,
                                  std::int64_t height, std::int64_t width);

struct ConvolutionParameterGradients {
  ReferenceTensor
      weights;           ///< an image for each first index of the weights, then [kH][kW][channels of a group]
  ReferenceTensor bias;  ///< one pixel
};

/// ConvolutionOperation::WeightsGradient.
ConvolutionParameterGradients convolutionWeightsGradientReference(const ConvolutionProblem& problem,
                                                                  const ReferenceTensor& source,
                                                                  const ReferenceTensor& gradient);

}  // namespace mps::detail
