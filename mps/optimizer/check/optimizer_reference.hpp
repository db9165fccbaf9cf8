#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/optimizer/optimizer_problem.hpp"

namespace mps::detail {

/// The tensors of one update, all of the same size. Buffers that the kind does not have stay empty.
struct OptimizerReferenceTensors {
  ReferenceTensor gradient;
  ReferenceTensor values;  ///< before the update, then after it
  ReferenceTensor momentum;
  ReferenceTensor velocity;
  ReferenceTensor maximumVelocity;
};

/// One step in float64, straight from the formulas. numbers.learningRate is lr_t for Adam.
OptimizerReferenceTensors optimizerReference(const OptimizerRule& rule, const OptimizerNumbers& numbers,
                                             const OptimizerReferenceTensors& before);

}  // namespace mps::detail
