#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/types/float_run.hpp"

/// Neurons on runs of values in memory, vectorised: for the neuron kernels and for kernels that end
/// or begin with a neuron (tile by tile, while the tile is in the cache).
namespace mps::detail {

/// Where in a tensor a run lies: `pixels` pixels of `channels` adjacent values each, without gaps. The
/// channels count from the first one that the kernel reads, so PReLU's slope of the run's first value is
/// data()[firstChannel]; the descriptor has at least firstChannel + channels slopes.
struct NeuronRun {
  std::int64_t pixels = 0;
  std::int64_t channels = 0;
  std::int64_t firstChannel = 0;
};

/// y = f(x). y may be x.
void neuronValues(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun x, FloatRun y);

/// dx = dy * f'(x). dx may be x or dy.
void neuronGradients(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun x,
                     ConstFloatRun dy, FloatRun dx);

/// On which side of 0 each x lies: a byte for four values, of which bit i says that value i is below 0, bit 4 + i that it
/// is NaN. @param count a multiple of 4
void neuronSides(ConstFloatRun x, std::size_t count, std::byte* sides);

/// dx = dy * f'(x) of ReLU or PReLU, where neuronSides() says what x was. dx may be dy. The run has whole groups of four.
void neuronGradientsFromSides(const NNNeuronDescriptor& neuron, const NeuronRun& run, const std::byte* sides,
                              ConstFloatRun dy, FloatRun dx);

/// dx = dy * f'(x), f' computed from y = f(x); only where derivativeFromResult(neuron). dx may be y or dy.
/// @param addend where it is there, dx = (dy + addend) * f'(x); dx may be it, too
void neuronGradientsFromResult(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun y,
                               ConstFloatRun dy, FloatRun dx, ConstFloatRun addend = {});

/// Whether f'(x) can be computed from y = f(x), stored as float16 or float32, so that the source need not be
/// kept.
///
/// | type | f' from y | condition |
/// |---|---|---|
/// | None, Linear | 1, a | |
/// | ReLU, PReLU | y's sign bit set ? slope : 1 | slopes >= 0 |
/// | ReLUN | y >= b ? 0 : y's sign bit set ? a : 1 | a >= 0, b > 0 and exact in float16 |
/// | ELU | y's sign bit set ? y + a : 1 | a >= 0 |
/// | Sigmoid | y (1 - y) | |
/// | TanH | a b (1 - (y / a)^2) | a and 1 / a finite |
/// | SoftPlus | a b (1 - exp(-y / a)) | a and 1 / a finite |
/// | SoftSign | (1 - abs(y))^2 | |
/// | Exponential | a ln(base) y | |
///
/// The sign bit: neuronValues() gives -0 for negative x and a slope of zero, +0 for x = 0, so that x = 0
/// keeps its documented slope of 1. A result that another library computed, with +0 for negative x, must not
/// be used. HardSigmoid (its bounds belong to the slope), Absolute, Power, Logarithm and GeLU need the
/// source.
bool derivativeFromResult(const NNNeuronDescriptor& neuron);

}  // namespace mps::detail
