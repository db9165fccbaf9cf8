#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "mps/softmax/softmax_dense_cuda.cuh"
#include "mps/softmax/softmax_pairs_cuda.cuh"
#include "mps/softmax/softmax_pixels_cuda.cuh"
#include "mps/softmax/softmax_problem.hpp"

namespace mps::detail {
namespace {

using cuda::DenseSoftMax;
using cuda::Divider;
using cuda::ElementGrid;
using cuda::JoinedAxes;
using cuda::PairSoftMax;
using cuda::SoftMaxArguments;

bool isForward(const SoftMaxProblem& problem) {
  return problem.direction == SoftMaxDirection::Forward;
}

/// x, or the forward result.
const std::byte* inputOf(const SoftMaxProblem& problem, const Operands& operands) {
  return isForward(problem) ? operands.source : operands.secondary;
}

/// Accepts everything.
class SoftMaxPlan : public Plan {
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

 private:
  template <SoftMaxDirection direction>
  void start(mtl::Stream& stream, const Operands& operands) const {
    const std::byte* const input = inputOf(problem_, operands);
    const TensorShape* const gradient = isForward(problem_) ? nullptr : &problem_.gradient;
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
      const std::int64_t packs = problem_.destination.channels / Access::lanes;
      a.packs = static_cast<std::uint32_t>(packs);
      if (!holds_)
        return mtl::cuda::launch(stream, cuda::softMaxLong<Access, direction>, dim3(a.pixels), dim3(kThreads),
                                 0, a);
      // Packs that a thread holds: 16 elements, or 32 where one tensor alone is held, in halves.
      constexpr int few = Access::lanes == 1 ? 4 : 2;
      constexpr int most =
          direction == SoftMaxDirection::Forward && Access::lanes == 8 ? 4 : 16 / Access::lanes;
      // Few packs for each thread, so that neighbours read neighbours; in long pixels as many as it holds.
      if (packs > 32 * few)
        hold<Access, direction, most>(stream, a, std::max(32U, cuda::threadsOfRow(packs, most)));
      else if constexpr (Access::lanes == 8)
        hold<Access, direction, few>(stream, a, cuda::threadsOfRow(packs, few));
      else
        hold<Access, direction, most>(stream, a, cuda::threadsOfRow(packs, few));
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

/// Through shared memory, where the addresses allow it, which shows when it runs.
template <class T>
class DensePlan final : public SoftMaxPlan {
 public:
  explicit DensePlan(const SoftMaxProblem& problem)
      : SoftMaxPlan(problem, true),
        isForward_(isForward(problem)),
        takesPairs_(sizeof(T) == sizeof(Float16) && PairSoftMax::fits(problem.destination.channels)),
        arguments_(problem.destination.channels, problem.destination.pixels()) {
    arguments_.isLog = problem.kind == SoftMaxKind::LogSoftMax;
    if (takesPairs_) pairs_ = PairSoftMax(problem.destination.channels, problem.destination.pixels());
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::byte* const input = isForward_ ? operands.source : operands.secondary;
    const std::byte* const addresses[] = {input, operands.gradient, operands.destination};
    for (const std::byte* address : addresses)
      if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return SoftMaxPlan::run(stream, operands);
    const auto start = [&](auto kernel, const auto& arguments, unsigned threads) {
      mtl::cuda::launch(stream, kernel, dim3(static_cast<unsigned>(arguments.chunks())), dim3(threads), 0,
                        arguments, reinterpret_cast<const T*>(input),
                        reinterpret_cast<const T*>(operands.gradient),
                        reinterpret_cast<T*>(operands.destination));
    };
    if constexpr (sizeof(T) == sizeof(Float16))
      if (takesPairs_) return start(pairKernel(), pairs_, cuda::kPairThreads);
    DenseSoftMax arguments = arguments_;
    arguments.accumulate = operands.accumulate;
    start(isForward_ ? cuda::softMaxDense<T, SoftMaxDirection::Forward>
                     : cuda::softMaxDense<T, SoftMaxDirection::Gradient>,
          arguments, cuda::kDenseThreads);
  }

 private:
  [[nodiscard]] auto pairKernel() const {
    using enum SoftMaxDirection;
    if (isForward_)
      return arguments_.isLog ? cuda::softMaxPairs<Forward, true> : cuda::softMaxPairs<Forward, false>;
    return arguments_.isLog ? cuda::softMaxPairs<Gradient, true> : cuda::softMaxPairs<Gradient, false>;
  }

  bool isForward_;
  bool takesPairs_;
  DenseSoftMax arguments_;
  PairSoftMax pairs_;
};

std::string refusal(const SoftMaxProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.gradient, &problem.destination})
    if (!ElementGrid::fits(*shape)) return ElementGrid::kTooLarge;
  return problem.destination.pixels() > ElementGrid::kLongestRow ? "2^31 pixels" : "";
}

Preparation prepareDense(const SoftMaxProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  const TensorShape& destination = problem.destination;
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  if (cuda::takesLanes(destination)) return Refusal{"pixels of whole packs of 16 bytes"};
  if (!DenseSoftMax::fits(destination.channels))
    return Refusal{std::to_string(destination.channels) + " channels"};
  if (destination.elements() == 0) return Refusal{"there is nothing to do"};
  for (const TensorShape* shape : {&problem.input, &problem.gradient, &destination}) {
    if (shape == &problem.gradient && isForward(problem)) continue;
    if (shape->format != destination.format) return Refusal{"formats differ"};
    if (!shape->isDense()) return Refusal{"pixels do not follow one another without gaps"};
  }
  if (destination.format == Format::Float16) return std::make_shared<const DensePlan<Float16>>(problem);
  if (destination.format == Format::Float32) return std::make_shared<const DensePlan<float>>(problem);
  return Refusal{"the format is " + std::string(name(destination.format))};
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

constexpr Implementation<SoftMaxProblem> implementations[] = {
    {"dense pixels", prepareDense}, {"pixels", prepareHeld}, {"long pixels", prepareLong}};

}  // namespace

std::span<const Implementation<SoftMaxProblem>> softMaxImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
