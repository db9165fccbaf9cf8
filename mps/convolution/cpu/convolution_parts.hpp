#pragma once

#include <cstdint>
#include <vector>

#include "mps/convolution/convolution_problem.hpp"

/// A convolution as several smaller ones that threads compute side by side. The division depends on the problem alone, so
/// that results do not depend on the number of threads.
namespace mps::detail {

/// Some images, or some rows of one image, and some channels: of the outputs, or of what a data gradient computes, of the
/// inputs.
struct ConvolutionPart {
  ConvolutionProblem problem;
  std::int64_t sourceBytes = 0;  ///< from the first element of the whole tensor
  std::int64_t gradientBytes = 0;
  std::int64_t destinationBytes = 0;
  std::int64_t firstChannel = 0;
  std::int64_t summand = 0;  ///< WeightsGradient: which of the sums of these channels it computes
};

/// Parts of the same channels lie one behind the other: they read the same weights.
/// @param divideRows whether an image may be divided, too, where there are few
std::vector<ConvolutionPart> partsOf(const ConvolutionProblem& problem, bool divideRows);

}  // namespace mps::detail
