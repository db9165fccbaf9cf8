#include <cstdint>

#include "mps/core/loss_scale_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// Values that a thread looks at, about.
constexpr std::int64_t kValuesPerThread = 8;

/// All who write write the same.
__global__ void inspectValues(const float* values, std::int64_t count, LossScaleNumbers* numbers) {
  bool isFinite = true;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x)
    isFinite = isFinite && isfinite(values[i]);
  if (!isFinite) numbers->overflowed = 1;
}

__global__ void updateScale(LossScaleRule rule, LossScaleNumbers* numbers) {
  rule.apply(*numbers);
}

class LossScalePlan final : public Plan {
 public:
  explicit LossScalePlan(const LossScaleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    auto* numbers = reinterpret_cast<LossScaleNumbers*>(operands.destination);
    if (problem_.operation == LossScaleOperation::Update)
      return mtl::cuda::launch(stream, updateScale, dim3(1), dim3(1), 0, LossScaleRule(operands), numbers);
    const dim3 grid(mtl::cuda::blocksFor((problem_.count + kValuesPerThread - 1) / kValuesPerThread));
    mtl::cuda::launch(stream, inspectValues, grid, dim3(mtl::cuda::kBlockThreads), 0,
                      reinterpret_cast<const float*>(operands.source), problem_.count, numbers);
  }

 private:
  LossScaleProblem problem_;
};

Preparation prepareLossScale(const LossScaleProblem& problem) {
  return std::make_shared<const LossScalePlan>(problem);
}

constexpr Implementation<LossScaleProblem> kImplementations[] = {{"elements", prepareLossScale}};

}  // namespace

std::span<const Implementation<LossScaleProblem>> lossScaleImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
