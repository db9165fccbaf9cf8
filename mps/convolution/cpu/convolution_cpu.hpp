#pragma once

#include <string>

#include "mps/convolution/convolution_problem.hpp"

/// The entries of convolutionImplementationsCpu(), in order of preference.
namespace mps::detail {

/// oneDNN's matrix product. Earns fully connected layers, whose weights are largest: they stay as they are.
Preparation prepareConvolutionMatmul(const ConvolutionProblem& problem);
/// Our own. Earns weight gradients of depth-wise convolutions with one result per channel; bound by memory.
Preparation prepareConvolutionDepthwise(const ConvolutionProblem& problem);
/// oneDNN's direct convolution of factors rounded to bfloat16, where that is permitted and faster. With it a
/// step of resnet18 takes 0.79 of its time.
Preparation prepareConvolutionBfloat16(const ConvolutionProblem& problem);
/// Why float32 is as fast on matrix units (seen of oneDNN 2.6), or nothing.
std::string whyBfloat16IsSlow(const ConvolutionProblem& problem);
/// ... where it is permitted and the processor has instructions for it.
Preparation prepareConvolutionRounded(const ConvolutionProblem& problem);
/// oneDNN's direct convolution. Earns nearly every convolution of every network.
Preparation prepareConvolutionOneDnn(const ConvolutionProblem& problem);
/// Our own loops; refuses nothing.
Preparation prepareConvolutionDirect(const ConvolutionProblem& problem);

}  // namespace mps::detail
