#include "mps/convolution/cuda/convolution_cuda.hpp"

#include <array>

#include "mps/convolution/sub_pixel_convolution.hpp"

namespace mps::detail {

std::span<const Implementation<ConvolutionProblem>> convolutionImplementationsCuda() {
  static constexpr std::array<Implementation<ConvolutionProblem>, 5> implementations = {{
      {"matmul", prepareConvolutionMatmulCuda},
      {"direct tiled", prepareConvolutionTiledCuda},
      {"tensor cores", prepareConvolutionTensorCoresCuda},
      {"cudnn", prepareConvolutionCudnn},
      {"direct", prepareConvolutionDirectCuda},
  }};
  return implementations;
}

namespace {

Preparation prepareBlockShuffle(const SubPixelConvolutionProblem& problem) {
  return prepareSubPixelConvolution(problem, convolutionImplementationsCuda(),
                                    tensorCopyImplementationsCuda());
}

}  // namespace

std::span<const Implementation<SubPixelConvolutionProblem>> subPixelConvolutionImplementationsCuda() {
  static constexpr Implementation<SubPixelConvolutionProblem> implementations[] = {
      {kBlockShuffle, prepareBlockShuffle}};
  return implementations;
}

}  // namespace mps::detail
