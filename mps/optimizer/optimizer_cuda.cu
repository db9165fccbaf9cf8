#include <cstdint>
#include <memory>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/rows_cuda.cuh"
#include "mps/optimizer/optimizer_problem.hpp"

namespace mps::detail {
namespace {

using cuda::Lanes;
using cuda::RowGrid;

/// Elements from one row to the next, of each array.
struct RowStrides {
  std::int64_t gradient, values, result, momentum, velocity, maximumVelocity;
};

/// Arrays of the first row; those that a kind does not have are null.
struct OptimizerArrays {
  const float* gradient;
  const float* values;
  float* result;
  float* momentum;
  float* velocity;
  float* maximumVelocity;
};

struct OptimizerArguments {
  RowGrid grid;
  RowStrides strides;
  OptimizerArrays arrays;
  NNRegularizationType regularizationType;
  bool applyGradientClipping;
  OptimizerFloats numbers;
};

/// An element's numbers.
struct OptimizerElement {
  float gradient, value, momentum, velocity, maximumVelocity;
};

/// Clipping, rescale, regularisation: spec/04 section 13.3. The comparisons keep NaN.
__device__ float prepareGradient(const OptimizerArguments& a, float g, float value) {
  const OptimizerFloats& n = a.numbers;
  if (a.applyGradientClipping) {
    g = g < n.gradientClipMin ? n.gradientClipMin : g;
    g = g > n.gradientClipMax ? n.gradientClipMax : g;
  }
  g = g * n.gradientRescale;
  if (a.regularizationType == NNRegularizationType::L2) return fmaf(n.regularizationScale, value, g);
  if (a.regularizationType == NNRegularizationType::L1)
    return value == 0.0F ? g : g + (signbit(value) ? -n.regularizationScale : n.regularizationScale);
  return g;
}

/// The new numbers; the comments of OptimizerKind are the formulas.
template <OptimizerKind kind>
__device__ void update(const OptimizerArguments& a, OptimizerElement& e) {
  const OptimizerFloats& n = a.numbers;
  const float g = prepareGradient(a, e.gradient, e.value);
  const auto average = [](float decay, float complement, float old, float term) {
    return fmaf(decay, old, complement * term);
  };
  const auto normalized = [&](float numerator, float square) {
    return fmaf(-n.learningRate, numerator / (sqrtf(square) + n.epsilon), e.value);
  };
  if constexpr (kind == OptimizerKind::SGD) {
    e.value = fmaf(-n.learningRate, g, e.value);
  } else if constexpr (kind == OptimizerKind::SGDMomentum) {
    e.momentum = average(n.decay, n.learningRate, e.momentum, g);
    e.value = e.value - e.momentum;
  } else if constexpr (kind == OptimizerKind::SGDNesterov) {
    e.momentum = fmaf(n.decay, e.momentum, g);
    e.value = fmaf(-n.learningRate, fmaf(n.decay, e.momentum, g), e.value);
  } else if constexpr (kind == OptimizerKind::RMSProp) {
    e.velocity = average(n.decay, n.decayComplement, e.velocity, g * g);
    e.value = normalized(g, e.velocity);
  } else {
    e.momentum = average(n.decay, n.decayComplement, e.momentum, g);
    e.velocity = average(n.beta2, n.beta2Complement, e.velocity, g * g);
    if constexpr (kind == OptimizerKind::AMSGrad) {
      // A NaN in the velocity stays.
      e.maximumVelocity = e.maximumVelocity > e.velocity ? e.maximumVelocity : e.velocity;
      e.value = normalized(e.momentum, e.maximumVelocity);
    } else {
      e.value = normalized(e.momentum, e.velocity);
    }
  }
}

template <int lanes>
struct Pack {
  float values[lanes];
};
template <int lanes>
__device__ Pack<lanes> loadPack(const float* from) {
  if constexpr (lanes == 1) {
    return {{*from}};
  } else {
    const Lanes<float> v = cuda::loadLanes(from);
    return {{v.values[0], v.values[1], v.values[2], v.values[3]}};
  }
}
template <int lanes>
__device__ void storePack(const Pack<lanes>& pack, float* to) {
  if constexpr (lanes == 1)
    *to = pack.values[0];
  else
    cuda::storeLanes(Lanes<float>{{pack.values[0], pack.values[1], pack.values[2], pack.values[3]}}, to);
}

template <OptimizerKind kind, int lanes>
__global__ void updateElements(OptimizerArguments a) {
  constexpr bool hasMomentum = kind != OptimizerKind::SGD && kind != OptimizerKind::RMSProp;
  constexpr bool hasVelocity =
      kind == OptimizerKind::RMSProp || kind == OptimizerKind::Adam || kind == OptimizerKind::AMSGrad;
  constexpr bool hasMaximum = kind == OptimizerKind::AMSGrad;
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::int64_t first = static_cast<std::int64_t>(piece) * lanes;
      float* const result = a.arrays.result + row * a.strides.result + first;
      float* const momentum = a.arrays.momentum + row * a.strides.momentum + first;
      float* const velocity = a.arrays.velocity + row * a.strides.velocity + first;
      float* const maximum = a.arrays.maximumVelocity + row * a.strides.maximumVelocity + first;
      const Pack<lanes> g = loadPack<lanes>(a.arrays.gradient + row * a.strides.gradient + first);
      Pack<lanes> v = loadPack<lanes>(a.arrays.values + row * a.strides.values + first);
      Pack<lanes> m{};
      Pack<lanes> u{};
      Pack<lanes> x{};
      if constexpr (hasMomentum) m = loadPack<lanes>(momentum);
      if constexpr (hasVelocity) u = loadPack<lanes>(velocity);
      if constexpr (hasMaximum) x = loadPack<lanes>(maximum);
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        OptimizerElement e{g.values[i], v.values[i], m.values[i], u.values[i], x.values[i]};
        update<kind>(a, e);
        v.values[i] = e.value;
        m.values[i] = e.momentum;
        u.values[i] = e.velocity;
        x.values[i] = e.maximumVelocity;
      }
      storePack(v, result);
      if constexpr (hasMomentum) storePack(m, momentum);
      if constexpr (hasVelocity) storePack(u, velocity);
      if constexpr (hasMaximum) storePack(x, maximum);
    });
  });
}

using OptimizerKernel = void (*)(OptimizerArguments);

template <int lanes>
OptimizerKernel kernelOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::SGD:
      return updateElements<OptimizerKind::SGD, lanes>;
    case OptimizerKind::SGDMomentum:
      return updateElements<OptimizerKind::SGDMomentum, lanes>;
    case OptimizerKind::SGDNesterov:
      return updateElements<OptimizerKind::SGDNesterov, lanes>;
    case OptimizerKind::RMSProp:
      return updateElements<OptimizerKind::RMSProp, lanes>;
    case OptimizerKind::Adam:
      return updateElements<OptimizerKind::Adam, lanes>;
    case OptimizerKind::AMSGrad:
      break;
  }
  return updateElements<OptimizerKind::AMSGrad, lanes>;
}

/// Whether each array that is there lies so that four elements can be accessed at once.
bool takesPacks(const OptimizerProblem& problem, const OptimizerArrays& arrays) {
  const auto takes = [&](const float* address, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0 && (problem.rows <= 1 || stride % 4 == 0);
  };
  return problem.count % 4 == 0 && takes(arrays.gradient, problem.gradientStride) &&
         takes(arrays.values, problem.valuesStride) && takes(arrays.result, problem.resultStride) &&
         takes(arrays.momentum, problem.momentumStride) && takes(arrays.velocity, problem.velocityStride) &&
         takes(arrays.maximumVelocity, problem.maximumVelocityStride);
}

class OptimizerPlan final : public Plan {
 public:
  explicit OptimizerPlan(const OptimizerProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.rows == 0 || problem_.count == 0) return;
    const OptimizerArrays arrays{
        reinterpret_cast<const float*>(operands.gradient), reinterpret_cast<const float*>(operands.source),
        reinterpret_cast<float*>(operands.destination),    reinterpret_cast<float*>(operands.parameters[0]),
        reinterpret_cast<float*>(operands.parameters[1]),  reinterpret_cast<float*>(operands.parameters[2])};
    if (takesPacks(problem_, arrays))
      start<4>(stream, operands, arrays);
    else
      start<1>(stream, operands, arrays);
  }

 private:
  template <int lanes>
  void start(mtl::Stream& stream, const Operands& operands, const OptimizerArrays& arrays) const {
    const OptimizerProblem& p = problem_;
    const OptimizerArguments arguments{RowGrid(p.rows, p.count / lanes),
                                       {p.gradientStride, p.valuesStride, p.resultStride, p.momentumStride,
                                        p.velocityStride, p.maximumVelocityStride},
                                       arrays,
                                       p.rule.regularizationType,
                                       p.rule.applyGradientClipping,
                                       OptimizerFloats(OptimizerNumbers::fromScalars(operands.scalars))};
    mtl::cuda::launch(stream, kernelOf<lanes>(p.rule.kind), arguments.grid.grid, arguments.grid.block, 0,
                      arguments);
  }

  OptimizerProblem problem_;
};

Preparation prepareElements(const OptimizerProblem& problem) {
  if (!RowGrid::fits(problem.rows, problem.count))
    return Refusal{"a row of about 2^31 elements, or 2^31 rows"};
  return std::make_shared<const OptimizerPlan>(problem);
}

constexpr Implementation<OptimizerProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<OptimizerProblem>> optimizerImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
