#pragma once

#include "mps/convolution/convolution_problem.hpp"

/// The entries of convolutionImplementationsCpu(), in order of preference.
namespace mps::detail {

/// oneDNN's matrix product, for fully connected layers; weights stay as they are.
Preparation prepareConvolutionMatmul(const ConvolutionProblem& problem);
/// Our own, for weight gradients of depth-wise convolutions with one result per channel; bound by memory.
Preparation prepareConvolutionDepthwise(const ConvolutionProblem& problem);
/// oneDNN's direct convolution.
Preparation prepareConvolutionOneDnn(const ConvolutionProblem& problem);
/// Our own loops; refuses nothing.
Preparation prepareConvolutionDirect(const ConvolutionProblem& problem);

}  // namespace mps::detail
