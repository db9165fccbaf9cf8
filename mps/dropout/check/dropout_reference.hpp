#pragma once

#include <cstdint>
#include <vector>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/dropout/dropout_problem.hpp"

/// The float64 reference of the dropout kernels.
namespace mps::detail {

/// The mask of one image, 1 or 0, in the order y, x, channel over the mask's own size.
std::vector<double> dropoutMaskReference(const DropoutProblem& problem, std::uint32_t encodeCounter,
                                         std::uint32_t imageIndex);

/// input * M / keepProbability: the forward pass and the gradient.
ReferenceTensor dropoutReference(const DropoutProblem& problem, const ReferenceTensor& input,
                                 std::uint32_t encodeCounter, std::uint32_t firstImage);

}  // namespace mps::detail
