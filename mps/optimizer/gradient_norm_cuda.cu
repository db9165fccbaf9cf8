#include <cstdint>

#include "mps/core/row_reduction_cuda.cuh"
#include "mps/optimizer/gradient_norm.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// Threads that sum up a block of values, each every so many of them.
constexpr int kThreads = 256;

/// Some of the gradients: as many as the arguments of a launch hold.
struct NormArguments {
  static constexpr int mostParts = 120;
  struct Part {
    const float* values = nullptr;
    std::int64_t count = 0;
    const LossScaleNumbers* lossScale = nullptr;
    std::uint32_t firstBlock = 0;
  };
  Part parts[mostParts];
  double* sums = nullptr;
  int count = 0;
};
static_assert(sizeof(NormArguments) <= 4096);

__global__ void sumSquares(const __grid_constant__ NormArguments a) {
  __shared__ double shared[cuda::kMostWarps];
  int low = 0;  // the last part that begins at this block or before it
  int high = a.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (a.parts[middle].firstBlock <= blockIdx.x)
      low = middle;
    else
      high = middle;
  }
  const NormArguments::Part& part = a.parts[low];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x - part.firstBlock) * gradientNormBlock;
  const std::int64_t end = min(first + gradientNormBlock, part.count);
  double sum = 0;
  for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    const auto value = static_cast<double>(part.values[i]);
    sum += value * value;
  }
  sum = cuda::sumOfBlock(sum, shared);
  if (threadIdx.x != 0) return;
  const double inverse = part.lossScale != nullptr ? static_cast<double>(part.lossScale->inverse) : 1;
  a.sums[blockIdx.x] = inverse * inverse * sum;
}

__global__ void limitNorm(const double* sums, std::int64_t count, double limit, float* factor) {
  __shared__ double shared[cuda::kMostWarps];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += sums[i];
  sum = cuda::sumOfBlock(sum, shared);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(sum);
  *factor = norm > limit ? static_cast<float>(limit / norm) : 1.0F;
}

}  // namespace

void measureGradientNormCuda(mtl::Stream& stream, std::span<const GradientNormPart> parts,
                             const GradientNormOperands& operands) {
  NormArguments arguments;
  arguments.sums = operands.sums;
  std::int64_t blocks = 0;
  const auto start = [&] {
    if (arguments.count == 0) return;
    mtl::cuda::launch(stream, sumSquares, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, arguments);
    arguments.sums += blocks;
    arguments.count = 0;
    blocks = 0;
  };
  for (const GradientNormPart& part : parts) {
    if (part.count == 0) continue;
    const std::int64_t wanted = (part.count + gradientNormBlock - 1) / gradientNormBlock;
    if (arguments.count == NormArguments::mostParts || blocks + wanted > 0x7FFFFFFF) start();
    arguments.parts[arguments.count++] = {part.values, part.count, part.lossScale,
                                          static_cast<std::uint32_t>(blocks)};
    blocks += wanted;
  }
  start();
  mtl::cuda::launch(stream, limitNorm, dim3(1), dim3(kThreads), 0, operands.sums,
                    static_cast<std::int64_t>(gradientNormSums(parts)), operands.limit, operands.factor);
}

}  // namespace mps::detail
