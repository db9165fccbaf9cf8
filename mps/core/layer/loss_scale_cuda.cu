#include <cstdint>

#include "mps/core/cuda/part_blocks_cuda.cuh"
#include "mps/core/layer/loss_scale_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// Values that a thread looks at.
constexpr int kValuesPerThread = 16;
constexpr std::int64_t kBlockValues = std::int64_t{kValuesPerThread} * mtl::cuda::kBlockThreads;

using InspectArguments = cuda::PartBlocks<LossScaleValues, 140>;
static_assert(sizeof(InspectArguments) <= 4096);

/// All who write write the same.
__global__ void inspectValues(const __grid_constant__ InspectArguments a) {
  const int own = a.own();
  const LossScaleValues& array = a.parts[own];
  const std::int64_t first = (blockIdx.x - a.firstBlocks[own]) * kBlockValues + threadIdx.x;
  bool isFinite = true;
#pragma unroll
  for (int k = 0; k < kValuesPerThread; ++k) {
    const std::int64_t i = first + std::int64_t{k} * mtl::cuda::kBlockThreads;
    const float value = i < array.count ? array.values[i] : 0.0F;
    isFinite = isFinite && isfinite(value);
  }
  if (!isFinite) array.numbers->overflowed = 1;
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
    const LossScaleValues array{reinterpret_cast<const float*>(operands.source), problem_.count, numbers};
    inspectValuesCuda(stream, {&array, 1});
  }

 private:
  LossScaleProblem problem_;
};

Preparation prepareLossScale(const LossScaleProblem& problem) {
  return std::make_shared<const LossScalePlan>(problem);
}

constexpr Implementation<LossScaleProblem> kImplementations[] = {{"16 values per thread", prepareLossScale}};

}  // namespace

void inspectValuesCuda(mtl::Stream& stream, std::span<const LossScaleValues> arrays) {
  InspectArguments arguments;
  const auto start = [&] {
    if (arguments.count == 0) return;
    mtl::cuda::launch(stream, inspectValues, dim3(arguments.blocks), dim3(mtl::cuda::kBlockThreads), 0,
                      arguments);
    arguments.clear();
  };
  for (const LossScaleValues& array : arrays) {
    if (array.count == 0) continue;
    const std::int64_t blocks = (array.count + kBlockValues - 1) / kBlockValues;
    if (!arguments.hasRoomFor(blocks)) start();
    arguments.add(array, blocks);
  }
  start();
}

std::span<const Implementation<LossScaleProblem>> lossScaleImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
