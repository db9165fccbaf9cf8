#pragma once

#include <cstdint>

#include "mps/core/neuron/neuron_descriptor.hpp"

namespace mps::detail {

/// f(x) in float64. `channel` selects PReLU's slope.
///
/// NaN in gives NaN out, but for Power with c = 0, which is 1 everywhere as in C. Infinite x follows the
/// formula in IEEE arithmetic, with one exception: a slope of zero times an infinite x is a zero.
double neuronValue(const NNNeuronDescriptor& neuron, double x, std::int64_t channel = 0);

/// f'(x) in float64. At a kink it has the documented value: 1 at 0 for ReLU, ELU,
/// PReLU and ReLUN, 0 at 0 for Absolute, a at both bounds of HardSigmoid, 0 at ReLUN's bound.
///
/// NaN in gives NaN out, but for None, Linear and Power with c = 0, whose derivative is a constant.
double neuronDerivative(const NNNeuronDescriptor& neuron, double x, std::int64_t channel = 0);

/// f'(x) from y = f(x), for the descriptors that derivativeFromResult() (mps/core/neuron/neuron_span.hpp) accepts;
/// NaN for the others. `y` is what was stored, so its sign bit tells the side of the kinks.
double neuronDerivativeFromResult(const NNNeuronDescriptor& neuron, double y, std::int64_t channel = 0);

/// What bounds a float32 evaluation of one of the functions above, in the terms of ReferenceTensor. The
/// magnitude is the function's absolute value plus what one relative rounding of the terms of its argument
/// can change.
struct NeuronBound {
  double magnitude = 0;
  std::int64_t roundings = 0;       ///< depends on the type alone
  std::int64_t transcendental = 0;  ///< depends on the type alone
};
NeuronBound neuronValueBound(const NNNeuronDescriptor& neuron, double x, std::int64_t channel = 0);
NeuronBound neuronDerivativeBound(const NNNeuronDescriptor& neuron, double x, std::int64_t channel = 0);
NeuronBound neuronDerivativeFromResultBound(const NNNeuronDescriptor& neuron, double y,
                                            std::int64_t channel = 0);

}  // namespace mps::detail
