#include "mps/conform/reference_call.hpp"
#include "mps/gram_matrix/check/gram_matrix_reference.hpp"

namespace mps::detail {

bool computeGramMatrix(ReferenceCall& call) {
  const auto* problem = call.problem<GramMatrixProblem>();
  if (problem == nullptr) return false;
  const ReferenceTensor source = call.source(problem->source);
  call.setDestination(
      problem->isForward()
          ? gramMatrixForwardReference(*problem, source, call.scalar(0))
          : gramMatrixGradientReference(*problem, source, call.gradient(problem->matrix), call.scalar(0)));
  return true;
}

}  // namespace mps::detail
