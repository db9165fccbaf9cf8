#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/softmax/cuda/softmax_dense_cuda.cuh"
#include "mps/softmax/cuda/softmax_pixels_cuda.cuh"
#include "mps/softmax/softmax_problem.hpp"

namespace mps::detail {
namespace {

using cuda::DenseSoftMax;
using cuda::Divider;
using cuda::ElementGrid;
using cuda::JoinedAxes;
using cuda::SoftMaxArguments;

bool isForward(const SoftMaxProblem& problem) {
  return problem.direction == SoftMaxDirection::Forward;
}

/// x, or the forward result.
const std::byte* inputOf(const SoftMaxProblem& problem, const Operands& operands) {
  return isForward(problem) ? operands.source : operands.secondary;
}

/// Accepts everything.
class SoftMaxPlan final : public AccessPlan {
 public:
  SoftMaxPlan(const SoftMaxProblem& problem, bool holds) : problem_(problem), holds_(holds) {
    if (isForward(problem))
      cuda::joinAxes({&problem_.input, &problem_.destination}, JoinedAxes::None);
    else
      cuda::joinAxes({&problem_.input, &problem_.gradient, &problem_.destination}, JoinedAxes::None);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    if (isForward(problem_))
      start<SoftMaxDirection::Forward>(stream, operands);
    else
      start<SoftMaxDirection::Gradient>(stream, operands);
  }

  [[nodiscard]] bool canAccumulate() const override {
    return !isForward(problem_) && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.input, inputOf(problem_, operands)},
             {problem_.gradient, operands.gradient, !isForward(problem_)},
             {problem_.destination, operands.destination}}};
  }

 private:
  template <SoftMaxDirection direction>
  void start(mtl::Stream& stream, const Operands& operands) const {
    SoftMaxArguments a;
    a.isLog = problem_.kind == SoftMaxKind::LogSoftMax;
    a.pixels = static_cast<std::uint32_t>(problem_.destination.pixels());
    a.height = Divider(problem_.destination.height);
    a.width = Divider(problem_.destination.width);
    a.input = {problem_.input, inputOf(problem_, operands)};
    if (!isForward(problem_)) a.gradient = {problem_.gradient, operands.gradient};
    a.destination = {problem_.destination, operands.destination};
    a.accumulate = operands.accumulate;
    cuda::withAccess(vectorFormat(), [&](auto access) {
      using Access = decltype(access);
      const std::int64_t vectors = problem_.destination.channels / Access::lanes;
      a.vectors = static_cast<std::uint32_t>(vectors);
      if (!holds_)
        return mtl::cuda::launch(stream, cuda::softMaxLong<Access, direction>, dim3(a.pixels), dim3(kThreads),
                                 0, a);
      // Vectors that a thread holds: 16 elements, or 32 of one tensor alone in float16.
      constexpr int few = Access::lanes == 1 ? 4 : 2;
      constexpr int most =
          direction == SoftMaxDirection::Forward && Access::lanes == 8 ? 4 : 16 / Access::lanes;
      // Few vectors for each thread, so that neighbours read neighbours; in long pixels as many as it holds.
      if (vectors > 32 * few)
        hold<Access, direction, most>(stream, a, std::max(32U, cuda::threadsOfRow(vectors, most)));
      else if constexpr (Access::lanes == 8)
        hold<Access, direction, few>(stream, a, cuda::threadsOfRow(vectors, few));
      else
        hold<Access, direction, most>(stream, a, cuda::threadsOfRow(vectors, few));
    });
  }

  template <class Access, SoftMaxDirection direction, int held>
  static void hold(mtl::Stream& stream, const SoftMaxArguments& a, unsigned across) {
    const dim3 block(across, across > 32 ? 1 : kThreads / across);
    mtl::cuda::launch(stream, cuda::softMaxHeld<Access, direction, held>,
                      dim3((a.pixels + block.y - 1) / block.y), block, 0, a);
  }

  static constexpr unsigned kThreads = 32 * cuda::kMostWarps;
  SoftMaxProblem problem_;
  bool holds_;
};

/// Through shared memory. Earns class scores of odd numbers, such as 10, which have no whole vectors.
template <class T>
class DensePlan final : public SelectivePlan {
 public:
  explicit DensePlan(const SoftMaxProblem& problem)
      : isForward_(isForward(problem)),
        arguments_(problem.destination.channels, problem.destination.pixels()) {
    arguments_.isLog = problem.kind == SoftMaxKind::LogSoftMax;
  }

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({inputOf(operands), operands.gradient, operands.destination});
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    DenseSoftMax arguments = arguments_;
    arguments.accumulate = operands.accumulate;
    mtl::cuda::launch(stream,
                      isForward_ ? cuda::softMaxDense<T, SoftMaxDirection::Forward>
                                 : cuda::softMaxDense<T, SoftMaxDirection::Gradient>,
                      dim3(static_cast<unsigned>(arguments.chunks())), dim3(cuda::kDenseThreads), 0,
                      arguments, reinterpret_cast<const T*>(inputOf(operands)),
                      reinterpret_cast<const T*>(operands.gradient),
                      reinterpret_cast<T*>(operands.destination));
  }

 private:
  [[nodiscard]] const std::byte* inputOf(const Operands& operands) const {
    return isForward_ ? operands.source : operands.secondary;
  }

  bool isForward_;
  DenseSoftMax arguments_;
};

std::string refusal(const SoftMaxProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.gradient, &problem.destination})
    if (!ElementGrid::fits(*shape)) return ElementGrid::kTooLarge;
  return problem.destination.pixels() > ElementGrid::kLongestRow ? "2^31 pixels" : "";
}

/// Channels that the threads of a block hold.
constexpr std::int64_t kHeldChannels = 16 * 32 * cuda::kMostWarps;

Preparation prepareLong(const SoftMaxProblem& problem) {
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  return std::make_shared<const SoftMaxPlan>(problem, false);
}

constexpr Implementation<SoftMaxProblem> kLong{"passes over memory", prepareLong};

/// Earns the scores of all networks: each pixel is read once and stays in registers.
Preparation prepareHeld(const SoftMaxProblem& problem) {
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  if (problem.destination.channels > kHeldChannels)
    return Refusal{std::to_string(problem.destination.channels) + " channels are more than the " +
                   std::to_string(kHeldChannels) + " that a block of threads holds"};
  return std::make_shared<const SoftMaxPlan>(problem, true);
}

constexpr Implementation<SoftMaxProblem> kHeld{"registers", prepareHeld};

template <bool holds>
Preparation prepareVectors(const SoftMaxProblem& problem) {
  return inVectors(std::make_shared<SoftMaxPlan>(problem, holds), holds ? kHeld : kLong, problem);
}

Preparation prepareDense(const SoftMaxProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  const TensorShape& destination = problem.destination;
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  if (takesLanes(destination)) return Refusal{"pixels of whole vectors of 16 bytes"};
  if (!DenseSoftMax::fits(destination.channels))
    return Refusal{std::to_string(destination.channels) + " channels"};
  if (destination.elements() == 0) return Refusal{"there is nothing to do"};
  for (const TensorShape* shape : {&problem.input, &problem.gradient, &destination}) {
    if (shape == &problem.gradient && isForward(problem)) continue;
    if (shape->format != destination.format) return Refusal{"formats differ"};
    if (!shape->isDense()) return Refusal{"pixels do not follow one another without gaps"};
  }
  if (destination.format == Format::Float16)
    return withFallback(std::make_shared<const DensePlan<Float16>>(problem), kHeld, problem);
  if (destination.format == Format::Float32)
    return withFallback(std::make_shared<const DensePlan<float>>(problem), kHeld, problem);
  return Refusal{"the format is " + std::string(name(destination.format))};
}

constexpr Implementation<SoftMaxProblem> implementations[] = {
    {"shared memory", prepareDense},
    {"registers, 16 bytes per thread", prepareVectors<true>},
    kHeld,
    {"passes over memory, 16 bytes per thread", prepareVectors<false>},
    kLong};

}  // namespace

std::span<const Implementation<SoftMaxProblem>> softMaxImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
