#include "mps/convolution/convolution_cuda.hpp"

#include <array>

namespace mps::detail {

std::span<const Implementation<ConvolutionProblem>> convolutionImplementationsCuda() {
  static constexpr std::array<Implementation<ConvolutionProblem>, 4> implementations = {{
      {"matmul", prepareConvolutionMatmulCuda},
      {"few channels", prepareConvolutionFewChannelsCuda},
      {"cudnn", prepareConvolutionCudnn},
      {"plain", prepareConvolutionPlainCuda},
  }};
  return implementations;
}

}  // namespace mps::detail
