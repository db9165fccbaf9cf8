#include <cstdint>

#include "mps/core/layer/row_sum.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// Threads of a block: as many columns, and as many rows at once.
constexpr unsigned kColumns = 32;
constexpr unsigned kRows = 16;

__global__ void sumRows(const float* rows, std::int64_t rowCount, std::int64_t count, float* result) {
  __shared__ double sums[kRows * kColumns];
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + threadIdx.x % kColumns;
  const unsigned part = threadIdx.x / kColumns;
  double sum = 0;
  if (column < count)
    for (std::int64_t row = part; row < rowCount; row += kRows)
      sum += static_cast<double>(rows[row * count + column]);
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (part != 0 || column >= count) return;
  for (unsigned i = 1; i < kRows; ++i) sum += sums[i * kColumns + threadIdx.x];
  result[column] = static_cast<float>(sum);
}

class RowSumPlan final : public Plan {
 public:
  explicit RowSumPlan(const RowSumProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const dim3 grid(static_cast<unsigned>((problem_.count + kColumns - 1) / kColumns));
    mtl::cuda::launch(stream, sumRows, grid, dim3(kRows * kColumns), 0,
                      reinterpret_cast<const float*>(operands.source), problem_.rows, problem_.count,
                      reinterpret_cast<float*>(operands.destination));
  }

 private:
  RowSumProblem problem_;
};

Preparation prepareRowSum(const RowSumProblem& problem) {
  return std::make_shared<const RowSumPlan>(problem);
}

constexpr Implementation<RowSumProblem> kImplementations[] = {{"16 warps per 32 columns", prepareRowSum}};

}  // namespace

std::span<const Implementation<RowSumProblem>> rowSumImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
