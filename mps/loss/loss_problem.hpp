#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/loss/loss_descriptor.hpp"

namespace mps::detail {

/// What the labels' memory holds.
enum class LossLabels : std::uint8_t {
  Dense,         ///< one value per channel, in the format of the shape
  ClassIndices,  ///< the class of each pixel as std::uint32_t: label 1 at that channel, 0 at the others
};

/// One call of CNNLoss (loss and gradient), NNForwardLoss (loss) or NNLossGradient (gradient of predictions
/// or labels), or any of these outputs together in one pass over the inputs.
///
/// With l, d and f the loss of an element and its derivatives by prediction and label (11.4, 11.6, 11.7):
///
///     loss          = weight w l, reduced per image or over the batch by the table of 11.5
///     gradient      = factor w d
///     labelGradient = factor w f
///     factor        = weight g / D
///
/// Of the channels of each pixel the first countedChannels take part; the others are 0 in all outputs. A
/// pixel whose class index is not among them is left out: as if its weights were 0, whatever its predictions. Who encodes
/// refuses such indices before the plan runs (docs/decisions.md, D28).
/// SoftMaxCrossEntropy adds nothing where t' = 0, so a prediction of -infinity masks a class.
///
/// A shape with 0 channels means "not there": for an input its default, for an output "not wanted". Axes of
/// size 1 of an input are repeated by strides of 0.
///
/// Operands::scalars: [0] weight, [1] labelSmoothing (used when positive), [2] epsilon, [3] delta.
struct LossProblem {
  CNNLossType lossType = CNNLossType::MeanSquaredError;
  CNNReductionType reductionType = CNNReductionType::Sum;
  /// The loss of image 0 is that of the batch, the others are 0, and g is that of image 0. Not with None.
  bool reduceAcrossBatch = false;
  /// D is the divisor of the reduction, by the chain rule. False: D = 1, as CNNLoss has it.
  bool divideGradient = false;
  /// CNNLossDescriptor::exactSoftMaxGradient: with p = softmax(y),
  /// gradient of channel k = p_k sum_j(factor_j w_j t'_j) - factor_k w_k t'_k.
  bool exactSoftMaxGradient = false;
  LossLabels labelKind = LossLabels::Dense;
  /// Of label smoothing alone, at least 1.
  std::int64_t numberOfClasses = 1;
  /// 1 ... predictions.channels.
  std::int64_t countedChannels = 0;

  /// Operands::source.
  TensorShape predictions;
  /// Operands::secondary: at least countedChannels channels. Class indices: 1 channel, strides in indices.
  TensorShape labels;
  /// w, parameters[0]: at least countedChannels channels, or 1 for all of a pixel. Not there: 1.
  TensorShape weights;
  /// g, Operands::gradient: as the predictions for reduction None, otherwise 1x1x1 per image. Not there: 1.
  TensorShape sourceGradient;
  /// Operands::destination, as the predictions.
  TensorShape gradient;
  /// parameters[1]: as the predictions for reduction None, otherwise 1x1x1 per image. Of a larger one the
  /// first element gets the value, the others 0.
  TensorShape loss;
  /// parameters[2], as the predictions.
  TensorShape labelGradient;

  bool operator==(const LossProblem&) const = default;

  [[nodiscard]] std::size_t hash() const {
    return hashOf(lossType, reductionType, reduceAcrossBatch, divideGradient, exactSoftMaxGradient, labelKind,
                  numberOfClasses, countedChannels, predictions.hash(), labels.hash(), weights.hash(),
                  sourceGradient.hash(), gradient.hash(), loss.hash(), labelGradient.hash());
  }
  /// "loss SoftMaxCrossEntropy Mean, predictions 64x1x1x10 float32, labels ... -> gradient, loss".
  [[nodiscard]] std::string describe() const;
};

/// "MeanAbsoluteError", ...
const char* name(CNNLossType type);
/// "None", "Sum", ...
const char* name(CNNReductionType type);

/// One vectorised implementation, which takes every problem. canAccumulate() (of the gradient): float32.
/// The sums do not depend on the number of threads.
std::span<const Implementation<LossProblem>> lossImplementationsCpu();
std::span<const Implementation<LossProblem>> lossImplementationsCuda();
inline constexpr BackEnds<LossProblem> lossBackEnds{lossImplementationsCpu,
                                                    UNMETAL_CUDA_LIST(lossImplementationsCuda)};

}  // namespace mps::detail
