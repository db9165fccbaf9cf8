#include "mps/matrix/matrix_product.hpp"

#include "mtl/device.hpp"

namespace mps::detail {

void recordProduct(const MatrixEncoding& encoding, MatrixMultiplicationProblem problem,
                   const BatchOperand& left, const BatchOperand& right, const BatchOperand& result) {
  problem.left = left.shape();
  problem.right = right.shape();
  problem.result = result.shape();
  if (problem.result.elements() == 0) return;
  const mtl::Device& device = *encoding.kernel().device();
  problem.threadCount = device.threadCount();
  problem.deviceName = device.name();
  PreparedCall prepared;
  prepared.plan = planFor(device, matrixMultiplicationBackEnds, problem);
  prepared.operations =
      2 * static_cast<double>(problem.result.elements()) * static_cast<double>(problem.interiorColumns());
  CallOperands operands;
  operands.source = &left;
  operands.secondary = &right;
  operands.gradient = problem.beta != 0 ? &result : nullptr;  // the old result is an input, too
  operands.destination = &result;
  recordCall(encoding.commandBuffer(), encoding.kernel(), prepared, operands);
}

}  // namespace mps::detail
