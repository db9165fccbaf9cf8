#include <algorithm>
#include <cstdint>
#include <memory>

#include "mps/core/elements_cuda.cuh"
#include "mps/reduction/reduce_binary_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kWarps = 8;

struct Arguments {
  ReduceBinaryProblem problem;
  const std::byte* source;
  const std::byte* weights;
  std::byte* destination;
};

/// A warp for each pixel.
__global__ void reduceWeighted(Arguments a) {
  const ReduceBinaryProblem& problem = a.problem;
  const TensorShape& shape = problem.source;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t pixel = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
       pixel < shape.images * shape.height * shape.width; pixel += step) {
    const std::int64_t x = pixel % shape.width;
    const std::int64_t y = pixel / shape.width % shape.height;
    const std::int64_t n = pixel / (shape.width * shape.height);
    float sum = 0;
    float count = 0;
    for (std::int64_t c = threadIdx.x; c < shape.channels; c += kWarp) {
      const float weight =
          cuda::loadAs(problem.weights.format, a.weights, problem.weights.offset(n, y, x, c));
      sum += cuda::loadAs(shape.format, a.source, shape.offset(n, y, x, c)) * weight;
      count += weight != 0 ? 1.0F : 0.0F;
    }
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
      count += __shfl_xor_sync(0xFFFFFFFFU, count, distance);
    }
    if (threadIdx.x != 0) continue;
    if (problem.divisor == ReduceBinaryDivisor::FeatureChannels)
      sum /= static_cast<float>(shape.channels);
    else if (problem.divisor == ReduceBinaryDivisor::NonZeroWeights)
      sum = count == 0 ? 0 : sum / count;
    cuda::storeAs(sum, problem.destination.format, a.destination, problem.destination.offset(n, y, x, 0));
  }
}

class WarpsPlan final : public Plan {
 public:
  explicit WarpsPlan(const ReduceBinaryProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const unsigned blocks = std::min(mtl::cuda::blocksFor(problem_.source.pixels(), kWarps), 1U << 20U);
    mtl::cuda::launch(stream, reduceWeighted, dim3(blocks), dim3(kWarp, kWarps), 0,
                      Arguments{problem_, operands.source, operands.secondary, operands.destination});
  }

 private:
  ReduceBinaryProblem problem_;
};

Preparation prepareWarps(const ReduceBinaryProblem& problem) {
  return std::make_shared<const WarpsPlan>(problem);
}

constexpr Implementation<ReduceBinaryProblem> kImplementations[] = {{"warps", prepareWarps}};

}  // namespace

std::span<const Implementation<ReduceBinaryProblem>> reduceBinaryImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
