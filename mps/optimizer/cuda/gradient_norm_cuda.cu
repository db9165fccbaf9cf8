#include <cstdint>

#include "mps/core/cuda/part_blocks_cuda.cuh"
#include "mps/core/cuda/row_reduction_cuda.cuh"
#include "mps/optimizer/gradient_norm.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// Threads that sum up a block of values, each every so many of them.
constexpr int kThreads = 256;

/// Some of the gradients.
struct NormArguments {
  cuda::PartBlocks<GradientNormPart, 120> parts;
  double* sums = nullptr;
};
static_assert(sizeof(NormArguments) <= 4096);

__global__ void sumSquares(const __grid_constant__ NormArguments a) {
  __shared__ double shared[cuda::kMostWarps];
  const int own = a.parts.own();
  const GradientNormPart& part = a.parts.parts[own];
  const std::int64_t first = std::int64_t{blockIdx.x - a.parts.firstBlocks[own]} * gradientNormBlock;
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
  const auto start = [&] {
    if (arguments.parts.count == 0) return;
    mtl::cuda::launch(stream, sumSquares, dim3(arguments.parts.blocks), dim3(kThreads), 0, arguments);
    arguments.sums += arguments.parts.blocks;
    arguments.parts.clear();
  };
  for (const GradientNormPart& part : parts) {
    if (part.count == 0) continue;
    const std::int64_t blocks = (part.count + gradientNormBlock - 1) / gradientNormBlock;
    if (!arguments.parts.hasRoomFor(blocks)) start();
    arguments.parts.add(part, blocks);
  }
  start();
  mtl::cuda::launch(stream, limitNorm, dim3(1), dim3(kThreads), 0, operands.sums,
                    static_cast<std::int64_t>(gradientNormSums(parts)), operands.limit, operands.factor);
}

}  // namespace mps::detail
