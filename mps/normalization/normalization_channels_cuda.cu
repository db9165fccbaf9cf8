#include <cstdint>
#include <memory>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/normalization/normalization_cuda.hpp"
#include "mps/normalization/normalization_powers_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::ElementPlace;
using cuda::InPacks;
using cuda::ResultView;
using cuda::SourceView;

constexpr unsigned kThreads = mtl::cuda::kBlockThreads;

/// In a block x goes over the packs of a pixel and y over pixels.
struct ChannelArguments {
  std::uint32_t pixels;
  std::uint32_t packs;  ///< of a pixel
  Divider height, width;
  SourceView source;
  SourceView gradient;
  ResultView destination;
  bool accumulate;
  std::int32_t before;  ///< channels of a window before its own, and after it
  std::int32_t after;
  float delta;
  float ofSquares;  ///< alpha / size
  float ofSum;      ///< 2 alpha beta / size
  PowerRule rule;

  [[nodiscard]] __device__ ElementPlace place(std::uint32_t pixel, int lanes) const {
    const std::uint32_t row = width.divide(pixel);
    const std::uint32_t image = height.divide(row);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * height.divisor()),
            static_cast<std::int32_t>(pixel - row * width.divisor()),
            static_cast<std::int32_t>(threadIdx.x) * lanes};
  }
};

/// The values of a pack, `reach` before and `reach` behind it.
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

/// What the windows of a pack have. @param isAny false: nothing is read, and T is delta
template <class T, int reach>
struct Windows {
  static constexpr int lanes = cuda::kLanes<T>;
  float x[lanes];
  float t[lanes];
  float powers[lanes];

  __device__ Windows(const ChannelArguments& a, const ElementPlace& place, bool isAny) {
    using Access = InPacks<T>;
    ElementPlace other = place;
    uint4 own{};
    uint4 left{};
    uint4 right{};
    if (isAny) {
      own = Access::fetch(a.source, place);
      other.channel = place.channel - lanes;
      if (threadIdx.x > 0) left = Access::fetch(a.source, other);
      other.channel = place.channel + lanes;
      if (threadIdx.x + 1 < a.packs) right = Access::fetch(a.source, other);
    }
    const auto values = Access::valuesOf(own);
    const auto leftValues = Access::valuesOf(left);
    const auto rightValues = Access::valuesOf(right);
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
    cuda::negativePowers(a.rule, t, powers);
  }
};

template <class T, int reach>
__global__ void normalizeChannels(ChannelArguments a) {
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  if (pixel >= a.pixels) return;
  constexpr int lanes = cuda::kLanes<T>;
  const ElementPlace place = a.place(pixel, lanes);
  const Windows<T, reach> windows(a, place, true);
  cuda::Lanes<T> result;
#pragma unroll
  for (int i = 0; i < lanes; ++i) result.values[i] = windows.x[i] * windows.powers[i];
  InPacks<T>::store(result, a.destination, place);
}

/// dX = dY T^-beta - 2 alpha beta / size X (the sum of b = dY X T^(-beta - 1) of the windows that see it).
template <class T, int reach>
__global__ void normalizeChannelsGradient(ChannelArguments a) {
  constexpr int lanes = cuda::kLanes<T>;
  static_assert(reach <= 4);
  __shared__ float4 firstFour[kThreads];  // of each thread's b
  __shared__ float4 lastFour[kThreads];
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  const bool isAny = pixel < a.pixels;
  const ElementPlace place = a.place(isAny ? pixel : 0, lanes);
  cuda::Lanes<T> dy{};
  if (isAny) dy = InPacks<T>::load(a.gradient, place);
  const Windows<T, reach> windows(a, place, isAny);
  float b[lanes];
  cuda::nextNegativePowers(a.rule, windows.t, windows.powers, b);
#pragma unroll
  for (int i = 0; i < lanes; ++i) b[i] *= dy.values[i] * windows.x[i];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  firstFour[thread] = {b[0], b[1], b[2], b[3]};
  lastFour[thread] = {b[lanes - 4], b[lanes - 3], b[lanes - 2], b[lanes - 1]};
  __syncthreads();
  if (!isAny) return;
  const float4 none{};
  const float4 left = threadIdx.x > 0 ? lastFour[thread - 1] : none;
  const float4 right = threadIdx.x + 1 < a.packs ? firstFour[thread + 1] : none;
  const float lefts[4]{left.x, left.y, left.z, left.w};
  const float rights[4]{right.x, right.y, right.z, right.w};
  float before[reach];
  float after[reach];
#pragma unroll
  for (int i = 0; i < reach; ++i) {
    before[i] = lefts[4 - reach + i];
    after[i] = rights[i];
  }
  float sums[lanes];
  Neighbours<lanes, reach>(before, b, after).sum(a.after, a.before, sums, [](float sum, float value) {
    return sum + value;
  });
  cuda::Lanes<T> result;
#pragma unroll
  for (int i = 0; i < lanes; ++i)
    result.values[i] = fmaf(-a.ofSum * windows.x[i], sums[i], dy.values[i] * windows.powers[i]);
  InPacks<T>::store(result, a.destination, place, a.accumulate);
}

/// Where addresses are no multiples of 16, which shows when it runs, element by element.
template <class T, int reach>
class ChannelPlan final : public Plan {
 public:
  ChannelPlan(const NormalizationProblem& problem, std::shared_ptr<const Plan> elements)
      : problem_(problem), elements_(std::move(elements)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    if (shape.elements() == 0) return;
    for (const std::byte* address :
         {operands.source, operands.gradient, static_cast<const std::byte*>(operands.destination)})
      if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return elements_->run(stream, operands);
    const std::int64_t packs = shape.channels / cuda::kLanes<T>;
    const auto size = static_cast<float>(problem_.kernelSize);
    const ChannelArguments a{static_cast<std::uint32_t>(shape.pixels()),
                             static_cast<std::uint32_t>(packs),
                             Divider(shape.height),
                             Divider(shape.width),
                             {problem_.source, operands.source},
                             {problem_.gradient, operands.gradient},
                             {shape, operands.destination},
                             operands.accumulate,
                             static_cast<std::int32_t>(problem_.kernelSize / 2),
                             static_cast<std::int32_t>((problem_.kernelSize - 1) / 2),
                             problem_.delta,
                             problem_.alpha / size,
                             2 * problem_.alpha * problem_.beta / size,
                             PowerRule(problem_.beta)};
    const dim3 block(a.packs, kThreads / a.packs);
    mtl::cuda::launch(
        stream, problem_.isGradient() ? normalizeChannelsGradient<T, reach> : normalizeChannels<T, reach>,
        dim3((a.pixels + block.y - 1) / block.y), block, 0, a);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return elements_->scratchBytes(); }
  [[nodiscard]] bool canAccumulate() const override { return elements_->canAccumulate(); }

 private:
  NormalizationProblem problem_;
  std::shared_ptr<const Plan> elements_;
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
    if (shape != nullptr && !cuda::takesLanes(*shape)) return Refusal{"pixels of broken packs of 16 bytes"};
  if (destination.channels * static_cast<std::int64_t>(bytesPerChannel(format)) > 16 * kThreads)
    return Refusal{"a pixel larger than what a block of threads holds"};
  Preparation elements = prepareNormalizationElementsCuda(problem);
  auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&elements);
  if (plan == nullptr) return elements;
  const auto with = [&](auto type, auto reach) -> Preparation {
    return std::make_shared<const ChannelPlan<decltype(type), decltype(reach)::value>>(problem, *plan);
  };
  using Near = std::integral_constant<int, 2>;
  using Far = std::integral_constant<int, 4>;
  const bool isNear = problem.kernelSize <= 5;
  if (format == Format::Float32) return isNear ? with(float{}, Near{}) : with(float{}, Far{});
  return isNear ? with(Float16{}, Near{}) : with(Float16{}, Far{});
}

}  // namespace mps::detail
