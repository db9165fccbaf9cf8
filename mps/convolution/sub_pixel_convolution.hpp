#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/core/plan/tensor_copy.hpp"

/// A convolution whose result is spread over more pixels. The library's own.
namespace mps::detail {

/// All numbers of one call. With r = scaleFactor and C = the destination's channels, a pixel of the convolution's
/// result has r^2 C channels, the pixels of a block one after the other:
///
///     destination[n][y][x][c] = result[n][floor(y / r)][floor(x / r)][C (r (y mod r) + x mod r) + c]
///
/// The last blocks of a row or column may be cut off. Operands as of the convolution's forward operation.
struct SubPixelConvolutionProblem {
  /// Its destination, the result, has as many pixels as there are blocks, and is dense.
  ConvolutionProblem convolution;
  std::int64_t scaleFactor = 1;
  TensorShape destination;

  bool operator==(const SubPixelConvolutionProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(convolution.hash(), scaleFactor, destination.hash());
  }
  [[nodiscard]] std::string describe() const;
};

inline constexpr std::string_view kBlockShuffle = "block shuffle";

/// The convolution into scratch memory, and copies from there.
Preparation prepareSubPixelConvolution(const SubPixelConvolutionProblem& problem,
                                       std::span<const Implementation<ConvolutionProblem>> convolutions,
                                       std::span<const Implementation<TensorCopyProblem>> copies);

std::span<const Implementation<SubPixelConvolutionProblem>> subPixelConvolutionImplementationsCpu();
std::span<const Implementation<SubPixelConvolutionProblem>> subPixelConvolutionImplementationsCuda();
inline constexpr BackEnds<SubPixelConvolutionProblem> subPixelConvolutionBackEnds{
    subPixelConvolutionImplementationsCpu, UNMETAL_CUDA_LIST(subPixelConvolutionImplementationsCuda)};

}  // namespace mps::detail
