#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class NeuronDirection : std::uint8_t {
  Forward,             ///< y = f(x)
  Gradient,            ///< dx = dy f'(x)
  GradientFromResult,  ///< dx = dy f'(x) with f' computed from y = f(x); see derivativeFromResult()
};

/// All numbers of one neuron call. The tensors have the same sizes.
///
/// | operand | Forward | Gradient | GradientFromResult |
/// |---|---|---|---|
/// | source | x | x | |
/// | secondary | | | y, stored as float16 or float32 |
/// | gradient | | dy | dy |
/// | parameters[0] | | | with an addend: what is added to dy |
/// | destination | y | dx | dx |
/// | saved, with hasSides | written | read; the source is not | |
///
/// Saved sides: on which side of the kink each x lies, a byte for four channels: bit i says that x of channel i is below
/// 0, bit 4 + i that it is NaN. Dense in the order image, y, x, channel.
///
/// With an addend dx = (dy + addend) f'(x), where the sum is a float32 and stored nowhere. The destination may be the
/// same memory as one of the inputs, if its format and strides are that input's too. No scalars;
/// PReLU's slopes are the descriptor's. A gradient can accumulate into a float32 destination.
struct NeuronProblem {
  NeuronDirection direction = NeuronDirection::Forward;
  NNNeuronDescriptor neuron;  ///< PReLU: one slope for each channel of the tensors
  TensorShape input;          ///< x; of GradientFromResult y
  TensorShape gradient;       ///< dy; of the gradients only
  TensorShape addend;         ///< of GradientFromResult only, and there without channels when there is none
  TensorShape destination;
  bool hasSides =
      false;  ///< ReLU and PReLU of float16 or float32, whole groups of four channels; not GradientFromResult

  bool operator==(const NeuronProblem&) const = default;

  [[nodiscard]] bool hasAddend() const { return addend.channels > 0; }

  /// Whether sides can be saved of this neuron and input.
  [[nodiscard]] bool canHaveSides() const;
  /// Size of Operands::saved.
  [[nodiscard]] std::size_t savedBytes() const {
    return hasSides ? static_cast<std::size_t>(destination.elements() / 4) : 0;
  }

  [[nodiscard]] std::size_t hash() const {
    return hashOf(direction, neuron.hash(), input.hash(), gradient.hash(), addend.hash(), destination.hash(),
                  hasSides);
  }
  /// "neuron gradient, ReLU a=0.1, 8x56x56x64 float32, gradient 8x56x56x64 float32 -> 8x56x56x64 float32".
  [[nodiscard]] std::string describe() const;
};

/// Why no implementation can take the derivative from this result; nothing where it can, or need not.
std::optional<Refusal> refusalOfResult(const NeuronProblem& problem);

/// In order of preference; the last one accepts every problem that is in the table above.
std::span<const Implementation<NeuronProblem>> neuronImplementationsCpu();
std::span<const Implementation<NeuronProblem>> neuronImplementationsCuda();
inline constexpr BackEnds<NeuronProblem> neuronBackEnds{neuronImplementationsCpu,
                                                        UNMETAL_CUDA_LIST(neuronImplementationsCuda)};

}  // namespace mps::detail
