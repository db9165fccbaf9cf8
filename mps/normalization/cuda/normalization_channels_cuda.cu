#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "mps/core/cuda/channel_grid_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/normalization/cuda/normalization_channels_cuda.cuh"
#include "mps/normalization/cuda/normalization_cuda.hpp"

namespace mps::detail {
namespace {

using cuda::ChannelGrid;
using cuda::ElementPlace;
using cuda::InVectors;
using cuda::SourceView;

constexpr unsigned kThreads = ChannelGrid::kThreads;
constexpr std::int64_t kPixelsPerThread = 16;  ///< at least

/// In a block x goes over the 16-byte vectors of a pixel and y over pixels.
struct ChannelArguments : cuda::ChannelWindows {
  ChannelGrid grid;
  bool isInWarp;  ///< all threads of a pixel; known by a division, which would take longer than to wait
};

/// The values of a vector, `reach` before and `reach` behind it.
template <int lanes, int reach>
struct Neighbours {
  static_assert(reach <= lanes);
  float values[lanes + 2 * reach];

  __device__ Neighbours(const float (&before)[reach], const float (&own)[lanes],
                        const float (&after)[reach]) {
#pragma unroll
    for (int i = 0; i < reach; ++i) values[i] = before[i];
#pragma unroll
    for (int i = 0; i < lanes; ++i) values[reach + i] = own[i];
#pragma unroll
    for (int i = 0; i < reach; ++i) values[reach + lanes + i] = after[i];
  }
  /// sums[i] = the sum of term(value) over the values from i - first to i + last.
  template <class Term>
  __device__ void sum(int first, int last, float (&sums)[lanes], Term add) const {
#pragma unroll
    for (float& value : sums) value = 0;
#pragma unroll
    for (int k = -reach; k <= reach; ++k) {
      if (k < -first || k > last) continue;
#pragma unroll
      for (int i = 0; i < lanes; ++i) sums[i] = add(sums[i], values[reach + i + k]);
    }
  }
};

/// What the windows of a vector have.
template <class T, int reach>
struct Windows {
  static constexpr int lanes = cuda::kLanes<T>;
  float x[lanes];
  float t[lanes];

  /// @param left,right the vectors beside it, or zeros
  __device__ Windows(const ChannelArguments& a, const uint4& own, const uint4& left, const uint4& right) {
    const auto values = InVectors<T>::valuesOf(own);
    const auto leftValues = InVectors<T>::valuesOf(left);
    const auto rightValues = InVectors<T>::valuesOf(right);
    float before[reach];
    float after[reach];
#pragma unroll
    for (int i = 0; i < reach; ++i) {
      before[i] = leftValues.values[lanes - reach + i];
      after[i] = rightValues.values[i];
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) x[i] = values.values[i];
    float squares[lanes];
    Neighbours<lanes, reach>(before, x, after).sum(a.before, a.after, squares, [](float sum, float value) {
      return fmaf(value, value, sum);
    });
#pragma unroll
    for (int i = 0; i < lanes; ++i) t[i] = fmaf(a.ofSquares, squares[i], a.delta);
  }
};

/// Waits for the threads that have the same pixel, which stand side by side. All threads of the block take part.
__device__ inline void waitForPixel(const ChannelArguments& a) {
  if (a.isInWarp)
    __syncwarp();
  else
    __syncthreads();
}

/// The sums over the windows that see a vector's elements of what belongs to each window, b. All threads of the block take
/// part.
template <int lanes, int reach>
__device__ void sumOfWindows(const ChannelArguments& a, const float (&b)[lanes], float (&sums)[lanes]) {
  static_assert(reach <= 4 && lanes >= 4);
  __shared__ float4 firstFour[kThreads];  // of each thread's b
  __shared__ float4 lastFour[kThreads];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  firstFour[thread] = {b[0], b[1], b[2], b[3]};
  lastFour[thread] = {b[lanes - 4], b[lanes - 3], b[lanes - 2], b[lanes - 1]};
  waitForPixel(a);
  const float4 none{};
  const float4 left = threadIdx.x > 0 ? lastFour[thread - 1] : none;
  const float4 right = threadIdx.x + 1 < blockDim.x ? firstFour[thread + 1] : none;
  const float lefts[4]{left.x, left.y, left.z, left.w};
  const float rights[4]{right.x, right.y, right.z, right.w};
  float before[reach];
  float after[reach];
#pragma unroll
  for (int i = 0; i < reach; ++i) {
    before[i] = lefts[4 - reach + i];
    after[i] = rights[i];
  }
  Neighbours<lanes, reach>(before, b, after).sum(a.after, a.before, sums, [](float sum, float value) {
    return sum + value;
  });
}

/// X T^-beta; or dX = dY T^-beta - 2 alpha beta / size X (the sum of b = dY X T^(-beta - 1) of the windows that see it).
template <class T, int reach, bool isGradient>
__global__ void __launch_bounds__(kThreads) normalizeChannels(ChannelArguments a) {
  constexpr int lanes = cuda::kLanes<T>;
  constexpr int inputs = isGradient ? 2 : 1;
  using Staged = cuda::StagedPixels<InVectors<T>, false, inputs>;
  SourceView sources[inputs];
  sources[0] = a.source;
  if constexpr (isGradient) sources[1] = a.gradient;
  Staged staged(a.grid, threadIdx.x * lanes, sources);
  for (int slot = 0; slot < Staged::kAhead - 1; ++slot)
    staged.fetch(a.grid.firstPixel() + static_cast<std::uint32_t>(slot) * blockDim.y, slot);
  int slot = 0;
  int behind = Staged::kAhead - 1;  // the slot before, which nobody reads any more
  const std::uint32_t end = a.grid.endOfPixels();
  for (std::uint32_t pixel = a.grid.firstPixel(); pixel - threadIdx.y < end; pixel += blockDim.y) {
    staged.template waitForAllBut<Staged::kAhead - 2>();
    waitForPixel(a);
    staged.fetch(pixel + (Staged::kAhead - 1) * blockDim.y, behind);
    const uint4 none{};
    const uint4 left = threadIdx.x > 0 ? staged.vector(slot, 0, -1) : none;
    const uint4 right = threadIdx.x + 1 < blockDim.x ? staged.vector(slot, 0, 1) : none;
    const Windows<T, reach> windows(a, staged.vector(slot, 0), left, right);
    float powers[lanes];
    cuda::Lanes<T> result;
    if constexpr (isGradient) {
      const cuda::Lanes<T> dy = InVectors<T>::valuesOf(staged.vector(slot, 1));
      float b[lanes];
      cuda::bothNegativePowers(a.rule, windows.t, powers, b, a.isNormal);
#pragma unroll
      for (int i = 0; i < lanes; ++i) b[i] *= dy.values[i] * windows.x[i];
      float sums[lanes];
      sumOfWindows<lanes, reach>(a, b, sums);
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        result.values[i] = fmaf(-a.ofSum * windows.x[i], sums[i], dy.values[i] * powers[i]);
    } else {
      cuda::negativePowers(a.rule, windows.t, powers, a.isNormal);
#pragma unroll
      for (int i = 0; i < lanes; ++i) result.values[i] = windows.x[i] * powers[i];
    }
    if (pixel < end) InVectors<T>::store(result, a.destination, staged.placeOf(pixel), a.accumulate);
    behind = slot;
    slot = slot == Staged::kAhead - 1 ? 0 : slot + 1;
  }
}

template <class T, int reach>
class ChannelPlan final : public SelectivePlan {
 public:
  explicit ChannelPlan(const NormalizationProblem& problem) : problem_(problem) {
    cuda::joinAxes(
        {&problem_.destination, &problem_.source, problem.isGradient() ? &problem_.gradient : nullptr},
        cuda::JoinedAxes::AllPixels);
  }

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({operands.source, operands.gradient, operands.destination});
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    if (shape.elements() == 0) return;
    const ChannelGrid grid(shape, cuda::kLanes<T>, kPixelsPerThread);
    const ChannelArguments a{{problem_, operands}, grid, 32 % grid.block.x == 0};
    mtl::cuda::launch(
        stream,
        problem_.isGradient() ? normalizeChannels<T, reach, true> : normalizeChannels<T, reach, false>,
        a.grid.grid, a.grid.block, 0, a);
  }

 private:
  NormalizationProblem problem_;  ///< with joined axes
};

}  // namespace

Preparation prepareNormalizationChannelsCuda(const NormalizationProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  const TensorShape& destination = problem.destination;
  const TensorShape* const gradient = problem.isGradient() ? &problem.gradient : nullptr;
  if (problem.kind != NormalizationKind::CrossChannel) return Refusal{"windows of pixels"};
  if (problem.kernelSize > 9) return Refusal{"more than nine channels in a window"};
  const Format format = cuda::commonFormat({&problem.source, &destination, gradient});
  if (format != Format::Float32 && format != Format::Float16)
    return Refusal{"not all float32 and not all float16"};
  for (const TensorShape* shape : {&problem.source, &destination, gradient})
    if (shape != nullptr && !takesLanes(*shape)) return Refusal{"pixels that are no multiples of 16 bytes"};
  if (destination.channels * static_cast<std::int64_t>(bytesPerChannel(format)) > 16 * kThreads)
    return Refusal{"a pixel larger than what a block of threads holds"};
  if (!ChannelGrid::fits(destination)) return Refusal{ChannelGrid::kTooLarge};
  const auto with = [&](auto type, auto reach) -> Preparation {
    return withFallback(std::make_shared<const ChannelPlan<decltype(type), decltype(reach)::value>>(problem),
                        normalizationImplementationsCuda().back(), problem);
  };
  using Near = std::integral_constant<int, 2>;
  using Far = std::integral_constant<int, 4>;
  const bool isNear = problem.kernelSize <= 5;
  if (format == Format::Float32) return isNear ? with(float{}, Near{}) : with(float{}, Far{});
  return isNear ? with(Float16{}, Near{}) : with(Float16{}, Far{});
}

}  // namespace mps::detail
