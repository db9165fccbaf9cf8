#include <cstdint>
#include <memory>
#include <type_traits>

#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/optimizer/optimizer_problem.hpp"

namespace mps::detail {
namespace {

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

/// How a kind updates.
struct StepArguments {
  NNRegularizationType regularizationType = NNRegularizationType::None;
  bool applyGradientClipping = false;
  const LossScaleNumbers* lossScale = nullptr;
  const float* gradientFactor = nullptr;
  OptimizerFloats numbers{OptimizerNumbers()};

  StepArguments() = default;
  explicit StepArguments(const OptimizerStep& step)
      : regularizationType(step.rule.regularizationType),
        applyGradientClipping(step.rule.applyGradientClipping),
        lossScale(step.lossScale),
        gradientFactor(step.gradientFactor),
        numbers(step.numbers) {}
  [[nodiscard]] __device__ bool isSkipped() const {
    return lossScale != nullptr && lossScale->overflowed != 0;
  }
  /// Without loss scale and within the limit of the norm.
  [[nodiscard]] __device__ float prepared(float gradient) const {
    if (lossScale != nullptr) gradient *= lossScale->inverse;
    return gradientFactor != nullptr ? gradient * *gradientFactor : gradient;
  }
};

struct OptimizerArguments {
  RowGrid grid;  ///< a piece is an element
  RowStrides strides;
  OptimizerArrays arrays;
  StepArguments step;
};

/// An element's numbers.
struct OptimizerElement {
  float gradient, value, momentum, velocity, maximumVelocity;
};

/// Loss scale, limit of the norm, clipping, rescale, regularisation. The comparisons keep NaN.
__device__ float prepareGradient(const StepArguments& a, float g, float value) {
  const OptimizerFloats& n = a.numbers;
  g = a.prepared(g);
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
__device__ void update(const StepArguments& a, OptimizerElement& e) {
  const OptimizerFloats& n = a.numbers;
  const float g = prepareGradient(a, e.gradient, e.value);
  if (a.regularizationType == NNRegularizationType::Decoupled)
    e.value = fmaf(-n.regularizationScale, e.value, e.value);
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

/// Elements of a thread, whose loads are on their way together.
constexpr int kTogether = 4;

/// Updates elements first, first + distance ... of arrays that begin at these addresses: kTogether of them,
/// as far as they lie before `end`. Adjacent threads take adjacent elements: addresses need no alignment.
template <OptimizerKind kind>
__device__ void updateElements(const StepArguments& step, const OptimizerArrays& at, std::int64_t first,
                               std::int64_t distance, std::int64_t end) {
  constexpr bool hasMomentum = kind != OptimizerKind::SGD && kind != OptimizerKind::RMSProp;
  constexpr bool hasVelocity =
      kind == OptimizerKind::RMSProp || kind == OptimizerKind::Adam || kind == OptimizerKind::AMSGrad;
  constexpr bool hasMaximum = kind == OptimizerKind::AMSGrad;
  const bool isSkipped = step.isSkipped();
  OptimizerElement elements[kTogether]{};
#pragma unroll
  for (int k = 0; k < kTogether; ++k) {
    const std::int64_t i = first + k * distance;
    if (i >= end) continue;
    OptimizerElement& e = elements[k];
    e.value = at.values[i];
    if (isSkipped) continue;
    e.gradient = at.gradient[i];
    if constexpr (hasMomentum) e.momentum = at.momentum[i];
    if constexpr (hasVelocity) e.velocity = at.velocity[i];
    if constexpr (hasMaximum) e.maximumVelocity = at.maximumVelocity[i];
  }
#pragma unroll
  for (int k = 0; k < kTogether; ++k) {
    const std::int64_t i = first + k * distance;
    if (i >= end) continue;
    OptimizerElement& e = elements[k];
    if (!isSkipped) update<kind>(step, e);
    at.result[i] = e.value;
    if (isSkipped) continue;
    if constexpr (hasMomentum) at.momentum[i] = e.momentum;
    if constexpr (hasVelocity) at.velocity[i] = e.velocity;
    if constexpr (hasMaximum) at.maximumVelocity[i] = e.maximumVelocity;
  }
}

template <OptimizerKind kind>
__global__ void updateRows(OptimizerArguments a) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const OptimizerArrays arrays{a.arrays.gradient + row * a.strides.gradient,
                                 a.arrays.values + row * a.strides.values,
                                 a.arrays.result + row * a.strides.result,
                                 a.arrays.momentum + row * a.strides.momentum,
                                 a.arrays.velocity + row * a.strides.velocity,
                                 a.arrays.maximumVelocity + row * a.strides.maximumVelocity};
    const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
    for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < a.grid.pieces;
         i += kTogether * threads)
      updateElements<kind>(a.step, arrays, i, threads, a.grid.pieces);
  });
}

/// Some of the tensors of updateTensorsCuda(): as many as the arguments of a launch hold.
struct TensorsArguments {
  static constexpr int mostTensors = 40;
  static constexpr int mostSteps = 20;
  struct Tensor {
    OptimizerArrays arrays{};
    std::int64_t count = 0;
    std::uint32_t firstBlock = 0;
    std::uint16_t step = 0;
  };
  Tensor tensors[mostTensors];
  StepArguments steps[mostSteps];
  int count = 0;
};
static_assert(sizeof(TensorsArguments) <= 4096);

/// Elements that a block updates.
constexpr std::int64_t kBlockElements = std::int64_t{16} * mtl::cuda::kBlockThreads;

template <OptimizerKind kind>
__global__ void updateTensors(const __grid_constant__ TensorsArguments a) {
  int t = a.count - 1;
  while (a.tensors[t].firstBlock > blockIdx.x) --t;
  const TensorsArguments::Tensor& tensor = a.tensors[t];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x - tensor.firstBlock) * kBlockElements;
  const std::int64_t end = min(first + kBlockElements, tensor.count);
  for (std::int64_t i = first + threadIdx.x; i < end; i += std::int64_t{kTogether} * blockDim.x)
    updateElements<kind>(a.steps[tensor.step], tensor.arrays, i, blockDim.x, end);
}

using OptimizerKernel = void (*)(OptimizerArguments);
using TensorsKernel = void (*)(TensorsArguments);

/// What `choose` makes of the kind as a constant.
template <class Choose>
auto ofKind(OptimizerKind kind, Choose choose) {
  using enum OptimizerKind;
  switch (kind) {
    case SGD:
      return choose(std::integral_constant<OptimizerKind, SGD>());
    case SGDMomentum:
      return choose(std::integral_constant<OptimizerKind, SGDMomentum>());
    case SGDNesterov:
      return choose(std::integral_constant<OptimizerKind, SGDNesterov>());
    case RMSProp:
      return choose(std::integral_constant<OptimizerKind, RMSProp>());
    case Adam:
      return choose(std::integral_constant<OptimizerKind, Adam>());
    case AMSGrad:
      break;
  }
  return choose(std::integral_constant<OptimizerKind, AMSGrad>());
}

OptimizerKernel kernelOf(OptimizerKind kind) {
  return ofKind(kind, [](auto constant) -> OptimizerKernel { return updateRows<constant()>; });
}

TensorsKernel tensorsKernelOf(OptimizerKind kind) {
  return ofKind(kind, [](auto constant) -> TensorsKernel { return updateTensors<constant()>; });
}

class OptimizerPlan final : public Plan {
 public:
  explicit OptimizerPlan(const OptimizerProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const OptimizerProblem& p = problem_;
    if (p.rows == 0 || p.count == 0) return;
    const OptimizerArrays arrays{
        reinterpret_cast<const float*>(operands.gradient), reinterpret_cast<const float*>(operands.source),
        reinterpret_cast<float*>(operands.destination),    reinterpret_cast<float*>(operands.parameters[0]),
        reinterpret_cast<float*>(operands.parameters[1]),  reinterpret_cast<float*>(operands.parameters[2])};
    RowStrides strides{};
    if (p.rows > 1)
      strides = {p.gradientStride, p.valuesStride,   p.resultStride,
                 p.momentumStride, p.velocityStride, p.maximumVelocityStride};
    const OptimizerStep step{p.rule, OptimizerNumbers::fromScalars(operands.scalars),
                             reinterpret_cast<const LossScaleNumbers*>(operands.parameters[3])};
    const OptimizerArguments arguments{RowGrid(p.rows, p.count, kTogether), strides, arrays,
                                       StepArguments(step)};
    mtl::cuda::launch(stream, kernelOf(p.rule.kind), arguments.grid.grid, arguments.grid.block, 0, arguments);
  }

 private:
  OptimizerProblem problem_;
};

Preparation prepareRows(const OptimizerProblem& problem) {
  if (!RowGrid::fits(problem.rows, problem.count))
    return Refusal{"a row of about 2^31 elements, or 2^31 rows"};
  return std::make_shared<const OptimizerPlan>(problem);
}

/// Tensors of one kind on their way into launches.
class TensorsLaunch {
 public:
  TensorsLaunch(mtl::Stream& stream, OptimizerKind kind) : stream_(stream), kind_(kind) {}

  void add(const OptimizerStep& step, const OptimizerTensor& tensor) {
    const std::int64_t blocks = (tensor.count + kBlockElements - 1) / kBlockElements;
    const bool isNewStep = steps_ == 0 || !(step == lastStep_);
    if (arguments_.count == TensorsArguments::mostTensors || blocks_ + blocks > 0x7FFFFFFF ||
        (isNewStep && steps_ == TensorsArguments::mostSteps))
      start();
    if (steps_ == 0 || isNewStep) {
      arguments_.steps[steps_++] = StepArguments(step);
      lastStep_ = step;
    }
    const OptimizerArrays arrays{tensor.gradient, tensor.values,   tensor.result,
                                 tensor.momentum, tensor.velocity, tensor.maximumVelocity};
    arguments_.tensors[arguments_.count++] = {arrays, tensor.count, static_cast<std::uint32_t>(blocks_),
                                              static_cast<std::uint16_t>(steps_ - 1)};
    blocks_ += blocks;
  }

  void start() {
    if (arguments_.count == 0) return;
    mtl::cuda::launch(stream_, tensorsKernelOf(kind_), dim3(static_cast<unsigned>(blocks_)),
                      dim3(mtl::cuda::kBlockThreads), 0, arguments_);
    arguments_.count = 0;
    steps_ = 0;
    blocks_ = 0;
  }

 private:
  mtl::Stream& stream_;
  OptimizerKind kind_;
  TensorsArguments arguments_;
  OptimizerStep lastStep_;
  int steps_ = 0;
  std::int64_t blocks_ = 0;
};

constexpr Implementation<OptimizerProblem> implementations[] = {{"grid-stride loop", prepareRows}};

}  // namespace

std::span<const Implementation<OptimizerProblem>> optimizerImplementationsCuda() {
  return implementations;
}

void updateTensorsCuda(mtl::Stream& stream, std::span<const OptimizerStep> steps,
                       std::span<const OptimizerTensor> tensors) {
  using enum OptimizerKind;
  for (const OptimizerKind kind : {SGD, SGDMomentum, SGDNesterov, RMSProp, Adam, AMSGrad}) {
    TensorsLaunch launch(stream, kind);
    for (const OptimizerTensor& tensor : tensors)
      if (tensor.count > 0 && steps[tensor.step].rule.kind == kind) launch.add(steps[tensor.step], tensor);
    launch.start();
  }
}

}  // namespace mps::detail
