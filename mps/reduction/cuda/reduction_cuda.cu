#include "mps/reduction/cuda/reduction_cuda.cuh"

#include <memory>

#include "mps/core/cuda/quotient_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"

namespace mps::detail {
namespace {

using cuda::AxisArguments;
using cuda::ChannelArguments;
using cuda::ElementGrid;
using cuda::Extremum;
using cuda::IndexOfExtremum;
using cuda::SumOfElements;

/// What each element of a sum or mean is given.
struct Share {
  cuda::Quotient quotient;
  float factor;
  bool divides;

  template <class Values>
  __device__ void operator()(const cuda::ElementPlace& /*place*/, const Values (&inputs)[1],
                             Values& result) const {
#pragma unroll
    for (int lane = 0; lane < static_cast<int>(sizeof(Values) / sizeof(float)); ++lane) {
      const float value = inputs[0].values[lane];
      result.values[lane] = divides ? quotient(value) : value * factor;
    }
  }
};

class ReductionPlan final : public AccessPlan {
 public:
  explicit ReductionPlan(const ReductionProblem& problem) : problem_(problem) {
    if (isForward() || problem.selects()) return;
    // The gradient over the whole destination.
    if (problem_.result.height == 1) problem_.result.rowStride = 0;
    if (problem_.result.width == 1) problem_.result.pixelStride = 0;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.source.elements() == 0) return;
    if (!isForward()) return problem_.selects() ? select(stream, operands) : spread(stream, operands);
    const ReductionTraits traits = traitsOf(problem_.operation);
    if (traits.isArgument) return reduceChannels(stream, operands, IndexOfExtremum{traits.isMinimum});
    if (traits.sums) return reduce(stream, operands, SumOfElements{problem_.factor(), traits.divides});
    reduce(stream, operands, Extremum{traits.isMinimum});
  }

  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    const bool readsSource = isForward() || problem_.selects();
    // The only channel that a reduction of channels leaves may have any format where the source is read.
    return {{{problem_.source, operands.source, readsSource},
             {problem_.result, isForward() ? operands.destination : operands.gradient,
              !overChannels() || !readsSource},
             {problem_.destination, operands.destination, !isForward()}}};
  }
  [[nodiscard]] bool repeatsChannels() const override { return true; }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == ReductionDirection::Forward; }
  [[nodiscard]] bool overChannels() const { return problem_.axis == ReductionAxis::FeatureChannels; }
  template <class Reduce>
  void reduce(mtl::Stream& stream, const Operands& operands, const Reduce& how) const {
    if (overChannels()) return reduceChannels(stream, operands, how);
    const auto start = [&](auto access) {
      using Access = decltype(access);
      AxisArguments a(problem_, problem_.source, Access::lanes);
      a.source = {problem_.source, operands.source};
      a.destination = {problem_.result, operands.destination};
      mtl::cuda::launch(stream, cuda::reduceAlongAxis<Access, Reduce>, a.grid, a.block, 0, a, how);
    };
    cuda::withAccess(vectorFormat(), start);
  }

  template <class Reduce>
  void reduceChannels(mtl::Stream& stream, const Operands& operands, const Reduce& how) const {
    const auto start = [&](auto access) {
      using Access = decltype(access);
      ChannelArguments a(problem_.source, Access::lanes);
      a.source = {problem_.source, operands.source};
      a.destination = {problem_.result, operands.destination};
      mtl::cuda::launch(stream, cuda::reduceChannels<Access, Reduce>, a.grid, a.block, 0, a, how);
    };
    cuda::withAccess(vectorFormat(), start);
  }

  void select(mtl::Stream& stream, const Operands& operands) const {
    const TensorShape& destination = problem_.destination;
    const auto start = [&](auto access) {
      using Access = decltype(access);
      const auto launch = [&](auto kernel, auto a) {
        a.source = {problem_.source, operands.source};
        a.gradient = {problem_.result, operands.gradient};
        a.destination = {destination, operands.destination};
        a.accumulate = operands.accumulate;
        mtl::cuda::launch(stream, kernel, a.grid, a.block, 0, a,
                          IndexOfExtremum{traitsOf(problem_.operation).isMinimum});
      };
      if (overChannels())
        launch(cuda::selectChannels<Access>, ChannelArguments(problem_.source, Access::lanes));
      else
        launch(cuda::selectAlongAxis<Access>, AxisArguments(problem_, problem_.source, Access::lanes));
    };
    cuda::withAccess(vectorFormat(), start);
  }

  void spread(mtl::Stream& stream, const Operands& operands) const {
    const TensorShape& destination = problem_.destination;
    const TensorShape& gradient = problem_.result;
    const auto start = [&](auto access) {
      using Access = decltype(access);
      cuda::MapArguments<1> a;
      a.sources[0] = {gradient, operands.gradient, destination.channels};
      a.destination = {destination, operands.destination};
      a.accumulate = operands.accumulate;
      const bool divides = traitsOf(problem_.operation).divides;
      const float factor = problem_.factor();
      const Share share{divides ? cuda::Quotient(factor) : cuda::Quotient(), factor, divides};
      if (gradient.channels == destination.channels)
        return cuda::launchMap<Access>(stream, a, destination, share);
      a.grid = ElementGrid(destination, Access::lanes, cuda::kSpreadBatch);
      mtl::cuda::launch(stream, cuda::spreadChannels<Access, Share>, a.grid.grid(), a.grid.block(), 0, a,
                        share);
    };
    cuda::withAccess(vectorFormat(), start);
  }

  ReductionProblem problem_;
};

Preparation prepareAxes(const ReductionProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.result, &problem.destination}) {
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
    if (shape->pixels() > ElementGrid::kLongestRow) return Refusal{"2^31 pixels"};
  }
  return std::make_shared<const ReductionPlan>(problem);
}

constexpr Implementation<ReductionProblem> kElements{"element by element", prepareAxes};

constexpr Implementation<ReductionProblem> kImplementations[] = {
    {"vectors of 16 bytes", prepareVectors<ReductionPlan, kElements>}, kElements};

}  // namespace

std::span<const Implementation<ReductionProblem>> reductionImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
