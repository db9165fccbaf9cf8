#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/convolution/convolution_problem.hpp"

/// A convolution with a ReLU whose result only a maximum pooling reads, in one kernel: the result, four times as
/// large as the maxima, is never in memory. The library's own; a graph makes use of it.
namespace mps::detail {

/// What Operands::saved has where the ReLU cut off all of a window: the maximum's sign bit is set, and it is no NaN.
inline constexpr std::uint8_t kNoPlace = 0xFF;

/// All numbers of one call.
///
///     pooled[n][y][x][k]  = the maximum of result[n][2 y + q][2 x + p][k] over q, p in {0, 1}         Forward
///     place[n][y][x][k]   = p + 2 q of the first NaN, otherwise the first maximum, or kNoPlace        Forward
///     gradient[n][v][u][k] = pooled[n][v / 2][u / 2][k] where place says so, else 0           WeightsGradient
///
/// result and gradient are those of `convolution`, whose neuron is ReLU with slope 0 in the forward pass. There are no
/// data gradients. Operands as of the convolution, but
///
/// | operand | Forward | WeightsGradient |
/// |---|---|---|
/// | destination | pooled, written | |
/// | gradient | | pooled, read |
/// | saved | places, dense bytes, written; may be null | places, read |
struct PooledConvolutionProblem {
  /// Its destination and its gradient have sizes only: both sides are even.
  ConvolutionProblem convolution;
  TensorShape pooled;

  bool operator==(const PooledConvolutionProblem&) const = default;
  [[nodiscard]] std::size_t hash() const { return hashOf(convolution.hash(), pooled.hash()); }
  [[nodiscard]] std::string describe() const {
    return convolution.describe() + ", maxima of 2x2 " + pooled.describe();
  }
  /// Size of Operands::saved.
  [[nodiscard]] std::size_t savedBytes() const { return static_cast<std::size_t>(pooled.elements()); }
};

/// The CPU's, "plain pooled", is for tests; graphs take it where it is forced. NVIDIA GPUs': "few channels pooled", for
/// first layers of 3x3 or 5x5 taps.
std::span<const Implementation<PooledConvolutionProblem>> pooledConvolutionImplementationsCpu();
std::span<const Implementation<PooledConvolutionProblem>> pooledConvolutionImplementationsCuda();
inline constexpr BackEnds<PooledConvolutionProblem> pooledConvolutionBackEnds{
    pooledConvolutionImplementationsCpu, UNMETAL_CUDA_LIST(pooledConvolutionImplementationsCuda)};

inline constexpr std::string_view kPlainPooled = "plain pooled";

}  // namespace mps::detail
