#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/matrix/cuda/matrix_cuda.hpp"
#include "mtl/cuda/api.hpp"
#include "mtl/cuda/cublaslt.hpp"
#include "mtl/cuda/stream.hpp"

namespace mps::detail {
namespace {

using mtl::cuda::MatrixProduct;

class CublasLtPlan final : public SelectivePlan {
 public:
  explicit CublasLtPlan(const MatrixMultiplicationProblem& problem)
      : problem_(problem),
        product_({.rows = problem.result.height,
                  .depth = problem.interiorColumns(),
                  .columns = problem.result.channels,
                  .transposedA = problem.transposeLeft,
                  .transposedB = problem.transposeRight}) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    return product_.workspaceBytes() + kWorkspaceAlignment;
  }
  [[nodiscard]] std::string describe() const override { return "cuBLASLt"; }

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({operands.source, operands.secondary, operands.destination});
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    product_.run(mtl::cuda::asCuda(stream).handle(), operands.source, operands.secondary, nullptr,
                 operands.destination, problem_.beta != 0, workspaceIn(operands.scratch));
  }

 private:
  /// As cudaMalloc aligns; the library refuses a workspace at other addresses.
  static constexpr std::size_t kWorkspaceAlignment = 256;
  static std::byte* workspaceIn(std::byte* scratch) {
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(scratch) % kWorkspaceAlignment;
    return scratch + (kWorkspaceAlignment - beyond) % kWorkspaceAlignment;
  }

  MatrixMultiplicationProblem problem_;
  MatrixProduct product_;
};

}  // namespace

Preparation prepareCublasLtProduct(const MatrixMultiplicationProblem& problem) {
  for (const TensorShape* shape : {&problem.left, &problem.right, &problem.result}) {
    if (shape->format != ImageFeatureChannelFormat::Float32)
      return Refusal{"the matrices are not of float32"};
    if (shape->images != 1) return Refusal{"there is not one matrix"};
    if (shape->elements() == 0) return Refusal{"there is nothing to multiply"};
    if (shape->height > 1 && shape->rowStride != shape->channels) return Refusal{"rows have gaps"};
  }
  if (problem.result.channels == 1 || problem.result.height == 1) return Refusal{"the result is a vector"};
  if (problem.alpha != 1 || (problem.beta != 0 && problem.beta != 1))
    return Refusal{"alpha is not 1, or beta is neither 0 nor 1"};
  try {
    const mtl::cuda::CurrentDevice device(mtl::cuda::deviceIndex(problem.deviceName));
    return withFallback(std::make_shared<const CublasLtPlan>(problem),
                        matrixMultiplicationImplementationsCuda().back(), problem);
  } catch (const mtl::Error& error) {
    return Refusal{error.what()};
  }
}

}  // namespace mps::detail
