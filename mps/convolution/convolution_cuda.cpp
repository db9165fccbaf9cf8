#include "mps/convolution/convolution_cuda.hpp"

#include <array>

namespace mps::detail {

std::span<const Implementation<ConvolutionProblem>> convolutionImplementationsCuda() {
  static constexpr std::array<Implementation<ConvolutionProblem>, 3> implementations = {{
      {"matmul", prepareConvolutionMatmulCuda},
      {"cudnn", prepareConvolutionCudnn},
      {"plain", prepareConvolutionPlainCuda},
  }};
  return implementations;
}

}  // namespace mps::detail
