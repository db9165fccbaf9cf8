#pragma once

#include "mps/convolution/convolution_problem.hpp"

/// The entries of convolutionImplementationsCuda(), in order of preference. At addresses that are no multiples of
/// 16 plans of "matmul", "direct tiled", "tensor cores" and "cudnn" run that of "direct".
namespace mps::detail {

/// cuBLASLt's matrix product. Earns fully connected layers and windows of one pixel, without a copy of weights.
Preparation prepareConvolutionMatmulCuda(const ConvolutionProblem& problem);
/// Our own kernels, forward and for weights. Earn first layers, whose time is that of their results' memory.
Preparation prepareConvolutionTiledCuda(const ConvolutionProblem& problem);
/// Our own kernel for weights gradients between 32 and 64 channels of kernels 3 or 5 pixels wide, whose inputs may be
/// rounded to TF32, as those of mnist-cnn are: its step of 1024 pictures takes 0.96 ms with it and 1.20 without.
Preparation prepareConvolutionTensorCoresCuda(const ConvolutionProblem& problem);
/// cuDNN's convolution, through its graph API. Earns nearly every convolution of every network.
Preparation prepareConvolutionCudnn(const ConvolutionProblem& problem);
/// Our own kernels, a thread for each element of a result; refuses nothing.
Preparation prepareConvolutionDirectCuda(const ConvolutionProblem& problem);

}  // namespace mps::detail
