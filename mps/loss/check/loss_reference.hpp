#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/loss/loss_problem.hpp"

namespace mps::detail {

/// Roundings of a sum over elements in float32, in blocks and then over blocks.
inline constexpr std::int64_t kFloat32Additions = 1024;

/// Inputs of the loss in float64. Tensors that the problem does not have stay empty.
struct LossInputs {
  ReferenceTensor predictions;
  ReferenceTensor labels;  ///< class indices: one channel with the index
  ReferenceTensor weights;
  ReferenceTensor sourceGradient;
  double weight = 1;
  double labelSmoothing = 0;
  double epsilon = 1e-7;
  double delta = 1;
};

/// What a LossProblem can ask for; all of it, whatever the problem wants.
struct LossOutputs {
  ReferenceTensor loss;           ///< 1x1x1 per image, or per element for reduction None
  ReferenceTensor gradient;       ///< as the predictions
  ReferenceTensor labelGradient;  ///< as the predictions
};

/// Plain float64 loops over the formulas of LossProblem. Of the problem's shapes only channel counts
/// are used, and the formats of predictions and labels, for the error bound.
///
/// The error bound of the loss allows a kernel to add up to 1024 terms in float32 before it goes on in
/// float64.
LossOutputs lossReference(const LossProblem& problem, const LossInputs& inputs);

}  // namespace mps::detail
