#include <cstdint>
#include <memory>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/reduction/cuda/reduction_cuda.cuh"
#include "mps/reduction/reduce_binary_problem.hpp"

namespace mps::detail {
namespace {

using cuda::ChannelArguments;
using cuda::ElementGrid;
using cuda::ElementPlace;

struct WeightedArguments {
  ChannelArguments pixels;
  cuda::SourceView weights;
  ReduceBinaryDivisor divisor;
};

/// A row of threads for each pixel.
template <class Access>
__global__ void reduceWeighted(WeightedArguments a) {
  constexpr int batch = 2;
  __shared__ float shared[cuda::kMostWarps];
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  const bool isAny = pixel < a.pixels.pixels;
  const std::uint32_t vectors = isAny ? a.pixels.vectors : 0;
  ElementPlace place = a.pixels.place(isAny ? pixel : 0);
  float sum = 0;
  float count = 0;
  for (std::uint32_t first = threadIdx.x; first < vectors; first += batch * blockDim.x) {
    typename Access::Fetched sources[batch];
    typename Access::Fetched weights[batch];
#pragma unroll
    for (unsigned i = 0; i < batch; ++i) {
      const std::uint32_t vector = first + i * blockDim.x;
      if (vector >= vectors) continue;
      place.channel = static_cast<std::int32_t>(vector * Access::lanes);
      sources[i] = Access::fetch(a.pixels.source, place);
      weights[i] = Access::fetch(a.weights, place);
    }
#pragma unroll
    for (unsigned i = 0; i < batch; ++i) {
      if (first + i * blockDim.x >= vectors) continue;
      const typename Access::Values values = Access::valuesOf(sources[i]);
      const typename Access::Values factors = Access::valuesOf(weights[i]);
#pragma unroll
      for (int lane = 0; lane < Access::lanes; ++lane) {
        sum = fmaf(values.values[lane], factors.values[lane], sum);
        count += factors.values[lane] != 0 ? 1.0F : 0.0F;
      }
    }
  }
  sum = cuda::combineRow(sum, shared, cuda::Sum());
  if (a.divisor == ReduceBinaryDivisor::NonZeroWeights) count = cuda::combineRow(count, shared, cuda::Sum());
  if (!isAny || threadIdx.x != 0) return;
  if (a.divisor == ReduceBinaryDivisor::FeatureChannels)
    sum /= static_cast<float>(a.pixels.vectors * Access::lanes);
  else if (a.divisor == ReduceBinaryDivisor::NonZeroWeights)
    sum = count == 0 ? 0 : sum / count;
  place.channel = 0;
  cuda::OneByOne::store({{sum}}, a.pixels.destination, place);
}

class WeightedPlan final : public AccessPlan {
 public:
  explicit WeightedPlan(const ReduceBinaryProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& source = problem_.source;
    if (source.elements() == 0) return;
    const auto start = [&](auto access) {
      using Access = decltype(access);
      WeightedArguments a{
          ChannelArguments(source, Access::lanes), {problem_.weights, operands.secondary}, problem_.divisor};
      a.pixels.source = {source, operands.source};
      a.pixels.destination = {problem_.destination, operands.destination};
      mtl::cuda::launch(stream, reduceWeighted<Access>, a.pixels.grid, a.pixels.block, 0, a);
    };
    cuda::withAccess(vectorFormat(), start);
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.source, operands.source}, {problem_.weights, operands.secondary}}};
  }

 private:
  ReduceBinaryProblem problem_;
};

Preparation prepareWeighted(const ReduceBinaryProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.weights, &problem.destination}) {
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
    if (shape->pixels() > ElementGrid::kLongestRow) return Refusal{"2^31 pixels"};
  }
  return std::make_shared<const WeightedPlan>(problem);
}

constexpr Implementation<ReduceBinaryProblem> kElements{"element by element", prepareWeighted};

constexpr Implementation<ReduceBinaryProblem> kImplementations[] = {
    {"vectors of 16 bytes", prepareVectors<WeightedPlan, kElements>}, kElements};

}  // namespace

std::span<const Implementation<ReduceBinaryProblem>> reduceBinaryImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
