#include "mps/convolution/convolution_cuda.hpp"

#include <array>

namespace mps::detail {

std::span<const Implementation<ConvolutionProblem>> convolutionImplementationsCuda() {
  static constexpr std::array<Implementation<ConvolutionProblem>, 5> implementations = {{
      {"matmul", prepareConvolutionMatmulCuda},
      {"few channels", prepareConvolutionFewChannelsCuda},
      {"tensor cores", prepareConvolutionTensorCoresCuda},
      {"cudnn", prepareConvolutionCudnn},
      {"plain", prepareConvolutionPlainCuda},
  }};
  return implementations;
}

}  // namespace mps::detail
