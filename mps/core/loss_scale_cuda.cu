#include <cstdint>

#include "mps/core/loss_scale_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// Values that a thread looks at.
constexpr int kValuesPerThread = 16;
constexpr std::int64_t kBlockValues = std::int64_t{kValuesPerThread} * mtl::cuda::kBlockThreads;

/// Arrays with the same numbers: as many as the arguments of a launch hold.
struct InspectArguments {
  static constexpr int mostArrays = 168;
  struct Array {
    const float* values = nullptr;
    std::int64_t count = 0;
    std::uint32_t firstBlock = 0;
  };
  Array arrays[mostArrays];
  LossScaleNumbers* numbers = nullptr;
  int count = 0;
};
static_assert(sizeof(InspectArguments) <= 4096);

/// All who write write the same.
__global__ void inspectValues(const __grid_constant__ InspectArguments a) {
  int low = 0;  // the last array that begins at this block or before it
  int high = a.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (a.arrays[middle].firstBlock <= blockIdx.x)
      low = middle;
    else
      high = middle;
  }
  const InspectArguments::Array& array = a.arrays[low];
  const std::int64_t first = (blockIdx.x - array.firstBlock) * kBlockValues + threadIdx.x;
  bool isFinite = true;
#pragma unroll
  for (int k = 0; k < kValuesPerThread; ++k) {
    const std::int64_t i = first + std::int64_t{k} * mtl::cuda::kBlockThreads;
    const float value = i < array.count ? array.values[i] : 0.0F;
    isFinite = isFinite && isfinite(value);
  }
  if (!isFinite) a.numbers->overflowed = 1;
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

constexpr Implementation<LossScaleProblem> kImplementations[] = {{"elements", prepareLossScale}};

}  // namespace

void inspectValuesCuda(mtl::Stream& stream, std::span<const LossScaleValues> arrays) {
  InspectArguments arguments;
  std::int64_t blocks = 0;
  const auto start = [&] {
    if (arguments.count == 0) return;
    mtl::cuda::launch(stream, inspectValues, dim3(static_cast<unsigned>(blocks)),
                      dim3(mtl::cuda::kBlockThreads), 0, arguments);
    arguments.count = 0;
    blocks = 0;
  };
  for (const LossScaleValues& array : arrays) {
    if (array.count == 0) continue;
    const std::int64_t wanted = (array.count + kBlockValues - 1) / kBlockValues;
    if (arguments.count == InspectArguments::mostArrays || arguments.numbers != array.numbers ||
        blocks + wanted > 0x7FFFFFFF)
      start();
    arguments.numbers = array.numbers;
    arguments.arrays[arguments.count++] = {array.values, array.count, static_cast<std::uint32_t>(blocks)};
    blocks += wanted;
  }
  start();
}

std::span<const Implementation<LossScaleProblem>> lossScaleImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
