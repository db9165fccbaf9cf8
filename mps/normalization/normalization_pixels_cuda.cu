#include <cuda_pipeline.h>

#include <cfloat>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/normalization/normalization_cuda.hpp"
#include "mps/normalization/normalization_powers_cuda.cuh"

namespace mps::detail {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::int64_t kMostChannels = 4;

struct PixelArguments {
  std::int64_t elements;
  const std::byte* source;
  const std::byte* gradient;
  std::byte* destination;
  bool accumulate;
  std::int32_t before;  ///< channels of a window before its own, and after it
  std::int32_t after;
  float delta;
  float ofSquares;  ///< alpha / size
  float ofSum;      ///< 2 alpha beta / size
  PowerRule rule;
  bool isNormal;  ///< T is no smaller than delta, which is a normal number
};

/// Four pixels without gaps. Those of a block come and go in packs of 16 bytes, by all of its threads.
template <class T, int channels>
struct FourPixels {
  static constexpr int lanes = cuda::kLanes<T>;  ///< of a pack
  static constexpr int count = 4 * channels;
  static constexpr unsigned packs = kThreads * count / lanes;  ///< of a block
  using Four = std::conditional_t<sizeof(T) == sizeof(float), uint4, uint2>;

  /// Begins to copy the packs of a block to shared memory, where they are after waitForAll(); 0 beyond the end. Through
  /// registers each one would be waited for before the next.
  __device__ static void fetch(const std::byte* memory, std::int64_t elements, uint4* block) {
    const T* const from = reinterpret_cast<const T*>(memory);
    forPacks([&](unsigned own, std::int64_t begin) {
      if (begin + lanes <= elements) {
        __pipeline_memcpy_async(block + own, from + begin, sizeof(uint4));
      } else {
        T* const to = reinterpret_cast<T*>(block + own);
        for (int lane = 0; lane < lanes; ++lane)
          to[lane] = begin + lane < elements ? from[begin + lane] : T{};
      }
    });
  }
  /// For all threads of the block.
  __device__ static void waitForAll() {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
  }
  __device__ static void load(const uint4* block, float (&values)[count]) {
    const Four* const own = reinterpret_cast<const Four*>(block) + threadIdx.x * channels;
#pragma unroll
    for (int k = 0; k < channels; ++k) {
      if constexpr (sizeof(T) == sizeof(float)) {
        const cuda::Lanes<T> four = cuda::lanesOf(own[k], static_cast<const T*>(nullptr));
#pragma unroll
        for (int i = 0; i < 4; ++i) values[4 * k + i] = four.values[i];
      } else {
        const float2 low = cuda::halvesOf(own[k].x);
        const float2 high = cuda::halvesOf(own[k].y);
        values[4 * k] = low.x;
        values[4 * k + 1] = low.y;
        values[4 * k + 2] = high.x;
        values[4 * k + 3] = high.y;
      }
    }
  }
  __device__ static void store(const float (&values)[count], uint4* block) {
    Four* const own = reinterpret_cast<Four*>(block) + threadIdx.x * channels;
#pragma unroll
    for (int k = 0; k < channels; ++k) {
      const float* const four = values + 4 * k;
      if constexpr (sizeof(T) == sizeof(float))
        own[k] = {__float_as_uint(four[0]), __float_as_uint(four[1]), __float_as_uint(four[2]),
                  __float_as_uint(four[3])};
      else
        own[k] = {cuda::toHalves(four[0], four[1]), cuda::toHalves(four[2], four[3])};
    }
  }
  __device__ static void flush(const uint4* block, const PixelArguments& a) {
    T* const to = reinterpret_cast<T*>(a.destination);
    forPacks([&](unsigned own, std::int64_t begin) {
      const T* const from = reinterpret_cast<const T*>(block + own);
      if (begin + lanes <= a.elements && !a.accumulate) {
        *reinterpret_cast<uint4*>(to + begin) = block[own];
      } else {
        for (int lane = 0; lane < lanes; ++lane) {
          if (begin + lane >= a.elements) break;
          const float value = cuda::load(from + lane);
          cuda::store(a.accumulate ? cuda::load(to + begin + lane) + value : value, to + begin + lane);
        }
      }
    });
  }
  /// sums[c] = the sum of term(sum, value) over channels c - first to c + last of the same pixel.
  template <class Term>
  __device__ static void sum(const float (&values)[count], int first, int last, float (&sums)[count],
                             Term add) {
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll
    for (int distance = 1 - channels; distance < channels; ++distance) {
      if (distance < -first || distance > last) continue;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int other = i % channels + distance;
        if (other >= 0 && other < channels) sums[i] = add(sums[i], values[i + distance]);
      }
    }
  }

 private:
  /// Calls visit(pack of the block, its first element) for the packs of this thread.
  template <class Visit>
  __device__ static void forPacks(Visit visit) {
#pragma unroll
    for (unsigned first = 0; first < packs; first += kThreads) {
      const unsigned own = first + threadIdx.x;
      if (first + kThreads <= packs || own < packs)
        visit(own, (static_cast<std::int64_t>(blockIdx.x) * packs + own) * lanes);
    }
  }
};

template <class T, int channels>
__global__ void __launch_bounds__(kThreads) normalizePixels(PixelArguments a) {
  using Pixels = FourPixels<T, channels>;
  __shared__ uint4 block[Pixels::packs];
  Pixels::fetch(a.source, a.elements, block);
  Pixels::waitForAll();
  float x[Pixels::count];
  float t[Pixels::count];
  float powers[Pixels::count];
  Pixels::load(block, x);
  Pixels::sum(x, a.before, a.after, t, [](float sum, float value) { return fmaf(value, value, sum); });
#pragma unroll
  for (float& value : t) value = fmaf(a.ofSquares, value, a.delta);
  cuda::negativePowers(a.rule, t, powers, a.isNormal);
#pragma unroll
  for (int i = 0; i < Pixels::count; ++i) x[i] *= powers[i];
  Pixels::store(x, block);
  __syncthreads();
  Pixels::flush(block, a);
}

/// dX = dY T^-beta - 2 alpha beta / size X (the sum of b = dY X T^(-beta - 1) of the windows that see it).
template <class T, int channels>
__global__ void __launch_bounds__(kThreads) gradientOfPixels(PixelArguments a) {
  using Pixels = FourPixels<T, channels>;
  __shared__ uint4 block[Pixels::packs];
  __shared__ uint4 gradients[Pixels::packs];
  Pixels::fetch(a.source, a.elements, block);
  Pixels::fetch(a.gradient, a.elements, gradients);
  Pixels::waitForAll();
  float x[Pixels::count];
  float t[Pixels::count];
  float powers[Pixels::count];
  float b[Pixels::count];
  Pixels::load(block, x);
  Pixels::sum(x, a.before, a.after, t, [](float sum, float value) { return fmaf(value, value, sum); });
#pragma unroll
  for (float& value : t) value = fmaf(a.ofSquares, value, a.delta);
  cuda::bothNegativePowers(a.rule, t, powers, b, a.isNormal);
  float dy[Pixels::count];
  Pixels::load(gradients, dy);
#pragma unroll
  for (int i = 0; i < Pixels::count; ++i) {
    b[i] *= dy[i] * x[i];
    powers[i] *= dy[i];
  }
  Pixels::sum(b, a.after, a.before, t, [](float sum, float value) { return sum + value; });
#pragma unroll
  for (int i = 0; i < Pixels::count; ++i) x[i] = fmaf(-a.ofSum * x[i], t[i], powers[i]);
  Pixels::store(x, block);
  __syncthreads();
  Pixels::flush(block, a);
}

/// Where addresses are no multiples of 16, which shows when it runs, element by element.
template <class T, int channels>
class PixelPlan final : public Plan {
 public:
  PixelPlan(const NormalizationProblem& problem, std::shared_ptr<const Plan> elements)
      : problem_(problem), elements_(std::move(elements)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::int64_t elements = problem_.destination.elements();
    if (elements == 0) return;
    for (const std::byte* address :
         {operands.source, operands.gradient, static_cast<const std::byte*>(operands.destination)})
      if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return elements_->run(stream, operands);
    const auto size = static_cast<float>(problem_.kernelSize);
    const PixelArguments a{elements,
                           operands.source,
                           operands.gradient,
                           operands.destination,
                           operands.accumulate,
                           static_cast<std::int32_t>(problem_.kernelSize / 2),
                           static_cast<std::int32_t>((problem_.kernelSize - 1) / 2),
                           problem_.delta,
                           problem_.alpha / size,
                           2 * problem_.alpha * problem_.beta / size,
                           PowerRule(problem_.beta),
                           problem_.alpha >= 0 && problem_.delta >= FLT_MIN};
    constexpr std::int64_t each = FourPixels<T, channels>::count;
    mtl::cuda::launch(
        stream, problem_.isGradient() ? gradientOfPixels<T, channels> : normalizePixels<T, channels>,
        dim3(mtl::cuda::blocksFor((elements + each - 1) / each, kThreads)), dim3(kThreads), 0, a);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return elements_->scratchBytes(); }
  [[nodiscard]] bool canAccumulate() const override { return elements_->canAccumulate(); }

 private:
  NormalizationProblem problem_;
  std::shared_ptr<const Plan> elements_;
};

}  // namespace

Preparation prepareNormalizationPixelsCuda(const NormalizationProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  const TensorShape& destination = problem.destination;
  const TensorShape* const gradient = problem.isGradient() ? &problem.gradient : nullptr;
  if (problem.kind != NormalizationKind::CrossChannel) return Refusal{"windows of pixels"};
  if (destination.channels > kMostChannels) return Refusal{"more than four feature channels"};
  if (problem.kernelSize > 0x7FFFFFFF) return Refusal{"a window of 2^31 channels"};
  const Format format = cuda::commonFormat({&problem.source, &destination, gradient});
  if (format != Format::Float32 && format != Format::Float16)
    return Refusal{"not all float32 and not all float16"};
  for (const TensorShape* shape : {&problem.source, &destination, gradient})
    if (shape != nullptr && !shape->isDense()) return Refusal{"gaps between pixels, rows or images"};
  Preparation elements = prepareNormalizationElementsCuda(problem);
  auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&elements);
  if (plan == nullptr) return elements;
  const auto with = [&](auto channels) -> Preparation {
    constexpr int count = decltype(channels)::value;
    if (format == Format::Float32) return std::make_shared<const PixelPlan<float, count>>(problem, *plan);
    return std::make_shared<const PixelPlan<Float16, count>>(problem, *plan);
  };
  switch (destination.channels) {
    case 1:
      return with(std::integral_constant<int, 1>{});
    case 2:
      return with(std::integral_constant<int, 2>{});
    case 3:
      return with(std::integral_constant<int, 3>{});
    default:
      return with(std::integral_constant<int, 4>{});
  }
}

}  // namespace mps::detail
