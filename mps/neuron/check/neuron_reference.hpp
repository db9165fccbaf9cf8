#pragma once

#include <cstddef>
#include <vector>

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/neuron/neuron_problem.hpp"

/// The float64 reference of the neuron kernels; the functions themselves are in
/// mps/core/neuron/neuron_reference.hpp. Of the problem only direction and descriptor count.
namespace mps::detail {

/// y = f(x).
ReferenceTensor neuronForwardReference(const NeuronProblem& problem, const ReferenceTensor& x);

/// What a forward call with sides saves.
std::vector<std::byte> neuronSidesReference(const ReferenceTensor& x);

/// dx = dy f'(x). @param input x, or for GradientFromResult y as it was stored
/// @param addend where it is not null, dx = (dy + addend) f'(x)
ReferenceTensor neuronGradientReference(const NeuronProblem& problem, const ReferenceTensor& input,
                                        const ReferenceTensor& dy, const ReferenceTensor* addend = nullptr);

}  // namespace mps::detail
