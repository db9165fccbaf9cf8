#pragma once

#include <string>

#include "mps/convolution/convolution_problem.hpp"

/// The entries of convolutionImplementationsCpu(), in order of preference.
namespace mps::detail {

/// oneDNN's matrix product, for fully connected layers; weights stay as they are.
Preparation prepareConvolutionMatmul(const ConvolutionProblem& problem);
/// Our own, for weight gradients of depth-wise convolutions with one result per channel; bound by memory.
Preparation prepareConvolutionDepthwise(const ConvolutionProblem& problem);
/// oneDNN's direct convolution of factors rounded to bfloat16, where that is permitted and faster.
Preparation prepareConvolutionBfloat16(const ConvolutionProblem& problem);
/// Why float32 is as fast on matrix units (seen of oneDNN 2.6), or nothing.
std::string whyBfloat16IsSlow(const ConvolutionProblem& problem);
/// ... where it is permitted and the processor has instructions for it.
Preparation prepareConvolutionRounded(const ConvolutionProblem& problem);
/// oneDNN's direct convolution.
Preparation prepareConvolutionOneDnn(const ConvolutionProblem& problem);
/// Our own loops; refuses nothing.
Preparation prepareConvolutionDirect(const ConvolutionProblem& problem);

}  // namespace mps::detail
