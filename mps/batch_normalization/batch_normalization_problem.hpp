#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class BatchNormalizationOperation : std::uint8_t {
  Statistics,
  Forward,
  StatisticsGradient,
  Gradient,
};

/// All numbers of one call of a batch-normalisation kernel. Per channel, with the operands
/// of the table and f the neuron:
///
///     r = 1 / sqrt(variance + epsilon)       scale = gamma r, rounded to float32
///     z = (x - mean) scale + beta            each operation rounded to float32, in every operation and back end
///     y = f(z), or f(z + addend)             g = dy f'(z)
///     B = sum g,  G = sum g (x - mean) r     in float64
///     dx = scale (g - B / m - (x - mean) r G / m);  with constant statistics dx = scale g
///
/// | operand | Statistics | Forward | StatisticsGradient | Gradient |
/// |---|---|---|---|---|
/// | source | x | x | x | x (not with constant statistics and no neuron) |
/// | gradient | | | dy | dy |
/// | destination | | y | dx with constant statistics, or none | dx |
/// | parameters[0], [1] | | gamma, beta | gamma, beta | gamma, beta |
/// | parameters[2], [3] | mean, variance, written | mean, variance | mean, variance | mean, variance |
/// | parameters[4] | mean, M2 (written) | with an addend: what is added to z | B, G (written) | B, G |
/// | parameters[5], [6] | | | dL/dgamma, dL/dbeta, written | |
/// | parameters[7] | | | dL/dmean, then dL/dvariance, written | |
/// | scalars[0] | elements per channel before this call | | | m |
///
/// StatisticsGradient with dx is asked for B and dL/dbeta alone: what it leaves in G, parameters[5] and [7] is unspecified.
///
/// An addend is an image like y; there is one beside a ReLU or PReLU alone.
///
/// Other than an addend, parameters[4] is float64, two values per channel, one kind after the other; M2 is the sum of squared
/// differences from the mean. The others are float32. Operands::accumulate: Statistics and StatisticsGradient
/// go on from what parameters[4] holds and write dx anew, Gradient adds to a float32 destination. Destinations may be the memory
/// of source, gradient or addend, where formats and strides are equal.
struct BatchNormalizationProblem {
  BatchNormalizationOperation operation = BatchNormalizationOperation::Forward;
  NNNeuronDescriptor neuron;  ///< PReLU: one slope for each channel
  float epsilon = 0;
  bool hasConstantStatistics = false;  ///< of dx: mean and variance are not those of this batch
  TensorShape source;
  TensorShape gradient;
  TensorShape addend;  ///< of Forward only, and there without channels when there is none
  TensorShape destination;

  bool operator==(const BatchNormalizationProblem& other) const {
    return operation == other.operation && neuron == other.neuron &&
           std::bit_cast<std::uint32_t>(epsilon) == std::bit_cast<std::uint32_t>(other.epsilon) &&
           hasConstantStatistics == other.hasConstantStatistics && source == other.source &&
           gradient == other.gradient && addend == other.addend && destination == other.destination;
  }
  [[nodiscard]] std::size_t hash() const {
    return hashOf(operation, neuron.hash(), std::bit_cast<std::uint32_t>(epsilon), hasConstantStatistics,
                  source.hash(), gradient.hash(), addend.hash(), destination.hash());
  }
  /// "batch normalization gradient, ReLU a=0, epsilon 0.001, 8x28x28x64 float32, gradient ... -> ...".
  [[nodiscard]] std::string describe() const;

  /// Whether the sums of StatisticsGradient are not all that it stores.
  [[nodiscard]] bool storesDataGradient() const {
    return operation == BatchNormalizationOperation::StatisticsGradient && destination.channels > 0;
  }
  [[nodiscard]] bool hasAddend() const { return addend.channels > 0; }
  /// Whether a plan looks at Operands::source.
  [[nodiscard]] bool readsSource() const {
    return operation != BatchNormalizationOperation::Gradient || !hasConstantStatistics ||
           neuron.neuronType() != CNNNeuronType::None;
  }
};

/// In order of preference; the last one accepts every problem that is in the table above.
std::span<const Implementation<BatchNormalizationProblem>> batchNormalizationImplementationsCpu();
std::span<const Implementation<BatchNormalizationProblem>> batchNormalizationImplementationsCuda();
inline constexpr BackEnds<BatchNormalizationProblem> batchNormalizationBackEnds{
    batchNormalizationImplementationsCpu, UNMETAL_CUDA_LIST(batchNormalizationImplementationsCuda)};

}  // namespace mps::detail
