#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/core/row_reduction_cuda.cuh"
#include "mps/softmax/softmax_problem.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::JoinedAxes;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct SoftMaxArguments {
  bool isLog = false;
  std::uint32_t pixels = 0;
  std::uint32_t packs = 0;  ///< of a pixel
  Divider height, width;
  cuda::SourceView input;  ///< x, or the forward result
  cuda::SourceView gradient;
  cuda::ResultView destination;
  bool accumulate = false;

  [[nodiscard]] __device__ ElementPlace place(std::uint32_t pixel) const {
    const std::uint32_t row = width.divide(pixel);
    const std::uint32_t image = height.divide(row);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * height.divisor()),
            static_cast<std::int32_t>(pixel - row * width.divisor()), 0};
  }
};

// What is known of a pixel, and one step of each kind, for a pack of channels.

template <class Values>
__device__ float largestOf(const Values& x, float largest) {
  // NaN may be left out: it makes the sum of exponentials NaN.
  for (const float value : x.values) largest = fmaxf(largest, value);
  return largest;
}
template <class Values>
__device__ float exponentialSum(const Values& x, float shift) {
  float sum = 0;
  for (const float value : x.values) sum += expf(value - shift);
  return sum;
}
/// @param last 1 / sum of exponentials, or its logarithm
template <class Values>
__device__ Values finish(bool isLog, Values x, float shift, float last) {
  for (float& value : x.values) value = isLog ? value - shift - last : expf(value - shift) * last;
  return x;
}
template <class Values>
__device__ float gradientSum(bool isLog, const Values& result, const Values& dy) {
  float sum = 0;
  for (int i = 0; i < static_cast<int>(sizeof(Values) / sizeof(float)); ++i)
    sum += isLog ? dy.values[i] : dy.values[i] * result.values[i];
  return sum;
}
template <class Values>
__device__ Values finishGradient(bool isLog, const Values& result, Values dy, float sum) {
  for (int i = 0; i < static_cast<int>(sizeof(Values) / sizeof(float)); ++i)
    dy.values[i] =
        isLog ? dy.values[i] - expf(result.values[i]) * sum : result.values[i] * (dy.values[i] - sum);
  return dy;
}

/// Elements that a thread holds.
template <class Access>
inline constexpr int kHeldPacks = 16 / Access::lanes;

/// Pixels of at most kHeldPacks packs for each thread of a row of the block: they are read once.
template <class Access, SoftMaxDirection direction>
__global__ void softMaxHeld(SoftMaxArguments a) {
  constexpr bool isForward = direction == SoftMaxDirection::Forward;
  constexpr int held = kHeldPacks<Access>;
  using Values = typename Access::Values;
  __shared__ float shared[cuda::kMostWarps];
  const std::uint32_t pixel = blockIdx.x * blockDim.y + threadIdx.y;
  ElementPlace place = a.place(min(pixel, a.pixels - 1));
  const std::uint32_t packs = pixel < a.pixels ? a.packs : 0;
  Values values[held];
  Values dy[isForward ? 1 : held];
  const auto forEachPack = [&](auto visit) {
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const std::uint32_t pack = threadIdx.x + static_cast<std::uint32_t>(i) * blockDim.x;
      if (pack >= packs) continue;
      place.channel = static_cast<std::int32_t>(pack * Access::lanes);
      visit(i);
    }
  };
  forEachPack([&](int i) {
    values[i] = Access::load(a.input, place);
    if constexpr (!isForward) dy[i] = Access::load(a.gradient, place);
  });
  if constexpr (isForward) {
    float shift = kLowest;
    forEachPack([&](int i) { shift = largestOf(values[i], shift); });
    shift = cuda::combineRow(shift, shared, cuda::Maximum());
    float sum = 0;
    forEachPack([&](int i) {
      if (!a.isLog) {
        for (float& value : values[i].values) {
          value = expf(value - shift);
          sum += value;
        }
      } else {
        sum += exponentialSum(values[i], shift);
      }
    });
    sum = cuda::combineRow(sum, shared, cuda::Sum());
    const float last = a.isLog ? logf(sum) : 1.0F / sum;
    forEachPack([&](int i) {
      for (float& value : values[i].values) value = a.isLog ? value - shift - last : value * last;
      Access::store(values[i], a.destination, place);
    });
  } else {
    float sum = 0;
    forEachPack([&](int i) { sum += gradientSum(a.isLog, values[i], dy[i]); });
    sum = cuda::combineRow(sum, shared, cuda::Sum());
    forEachPack([&](int i) {
      Access::store(finishGradient(a.isLog, values[i], dy[i], sum), a.destination, place, a.accumulate);
    });
  }
}

/// Pixels of any length, a block for each: they are read once for each step.
template <class Access, SoftMaxDirection direction>
__global__ void softMaxLong(SoftMaxArguments a) {
  __shared__ float shared[cuda::kMostWarps];
  ElementPlace place = a.place(blockIdx.x);
  const auto forEachPack = [&](auto visit) {
    for (std::uint32_t pack = threadIdx.x; pack < a.packs; pack += blockDim.x) {
      place.channel = static_cast<std::int32_t>(pack * Access::lanes);
      visit();
    }
  };
  if constexpr (direction == SoftMaxDirection::Forward) {
    float shift = kLowest;
    forEachPack([&] { shift = largestOf(Access::load(a.input, place), shift); });
    shift = cuda::combineRow(shift, shared, cuda::Maximum());
    float sum = 0;
    forEachPack([&] { sum += exponentialSum(Access::load(a.input, place), shift); });
    sum = cuda::combineRow(sum, shared, cuda::Sum());
    const float last = a.isLog ? logf(sum) : 1.0F / sum;
    forEachPack([&] {
      Access::store(finish(a.isLog, Access::load(a.input, place), shift, last), a.destination, place);
    });
  } else {
    float sum = 0;
    forEachPack(
        [&] { sum += gradientSum(a.isLog, Access::load(a.input, place), Access::load(a.gradient, place)); });
    sum = cuda::combineRow(sum, shared, cuda::Sum());
    forEachPack([&] {
      const auto result = Access::load(a.input, place);
      Access::store(finishGradient(a.isLog, result, Access::load(a.gradient, place), sum), a.destination,
                    place, a.accumulate);
    });
  }
}

class SoftMaxPlan final : public Plan {
 public:
  SoftMaxPlan(const SoftMaxProblem& problem, bool holds) : problem_(problem), holds_(holds) {
    if (isForward())
      cuda::joinAxes({&problem_.input, &problem_.destination}, JoinedAxes::None);
    else
      cuda::joinAxes({&problem_.input, &problem_.gradient, &problem_.destination}, JoinedAxes::None);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    if (isForward())
      start<SoftMaxDirection::Forward>(stream, operands);
    else
      start<SoftMaxDirection::Gradient>(stream, operands);
  }

  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == SoftMaxDirection::Forward; }

  template <SoftMaxDirection direction>
  void start(mtl::Stream& stream, const Operands& operands) const {
    const std::byte* const input = isForward() ? operands.source : operands.secondary;
    const TensorShape* const gradient = isForward() ? nullptr : &problem_.gradient;
    const bool takesPacks = cuda::takesLanes(problem_.input, input) &&
                            cuda::takesLanes(problem_.destination, operands.destination) &&
                            (gradient == nullptr || cuda::takesLanes(*gradient, operands.gradient));
    SoftMaxArguments a;
    a.isLog = problem_.kind == SoftMaxKind::LogSoftMax;
    a.pixels = static_cast<std::uint32_t>(problem_.destination.pixels());
    a.height = Divider(problem_.destination.height);
    a.width = Divider(problem_.destination.width);
    a.input = {problem_.input, input};
    if (gradient != nullptr) a.gradient = {*gradient, operands.gradient};
    a.destination = {problem_.destination, operands.destination};
    a.accumulate = operands.accumulate;
    const auto format = cuda::commonFormat({&problem_.input, &problem_.destination, gradient});
    cuda::withAccess(format, takesPacks, [&](auto access) {
      using Access = decltype(access);
      constexpr unsigned threads = 32 * cuda::kMostWarps;
      const std::int64_t packs = problem_.destination.channels / Access::lanes;
      a.packs = static_cast<std::uint32_t>(packs);
      if (!holds_)
        return mtl::cuda::launch(stream, softMaxLong<Access, direction>, dim3(a.pixels), dim3(threads), 0, a);
      // Few packs for each thread, so that neighbours read neighbours; in long pixels as many as it holds.
      constexpr int few = Access::lanes == 1 ? 4 : 2;
      const unsigned across = packs <= 32 * few
                                  ? cuda::threadsOfRow(packs, few)
                                  : std::max(32U, cuda::threadsOfRow(packs, kHeldPacks<Access>));
      const dim3 block(across, across > 32 ? 1 : threads / across);
      mtl::cuda::launch(stream, softMaxHeld<Access, direction>, dim3((a.pixels + block.y - 1) / block.y),
                        block, 0, a);
    });
  }

  SoftMaxProblem problem_;
  bool holds_;
};

std::string refusal(const SoftMaxProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.gradient, &problem.destination})
    if (!ElementGrid::fits(*shape)) return ElementGrid::kTooLarge;
  return problem.destination.pixels() > ElementGrid::kLongestRow ? "2^31 pixels" : "";
}

/// Channels that the threads of a block hold.
constexpr std::int64_t kHeldChannels = 16 * 32 * cuda::kMostWarps;

Preparation prepareHeld(const SoftMaxProblem& problem) {
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  if (problem.destination.channels > kHeldChannels)
    return Refusal{std::to_string(problem.destination.channels) + " channels are more than the " +
                   std::to_string(kHeldChannels) + " that a block of threads holds"};
  return std::make_shared<const SoftMaxPlan>(problem, true);
}

Preparation prepareLong(const SoftMaxProblem& problem) {
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  return std::make_shared<const SoftMaxPlan>(problem, false);
}

constexpr Implementation<SoftMaxProblem> implementations[] = {{"pixels", prepareHeld},
                                                              {"long pixels", prepareLong}};

}  // namespace

std::span<const Implementation<SoftMaxProblem>> softMaxImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
