#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/optimizer/optimizer_problem.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/optimizer/cpu/optimizer_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct StepFloats : OptimizerFloats {
  explicit StepFloats(const OptimizerStep& step)
      : OptimizerFloats(step.numbers),
        unscale(step.lossScale != nullptr ? step.lossScale->inverse : 1.0F),
        gradientFactor(step.gradientFactor != nullptr ? *step.gradientFactor : 1.0F) {}
  float unscale;
  float gradientFactor;
};

/// Loss scale, limit of the norm, clipping, rescale, regularisation.
template <class D, class V>
HWY_INLINE V prepareGradient(D d, const OptimizerRule& rule, const StepFloats& numbers, V g, V value) {
  g = hn::Mul(hn::Mul(g, hn::Set(d, numbers.unscale)), hn::Set(d, numbers.gradientFactor));
  if (rule.applyGradientClipping)
    g = atMost(d, atLeast(d, g, numbers.gradientClipMin), numbers.gradientClipMax);
  g = hn::Mul(g, hn::Set(d, numbers.gradientRescale));
  const V scale = hn::Set(d, numbers.regularizationScale);
  if (rule.regularizationType == NNRegularizationType::L2) return hn::MulAdd(scale, value, g);
  if (rule.regularizationType == NNRegularizationType::L1) {
    const V term = hn::CopySign(hn::Abs(scale), hn::Xor(scale, value));
    return hn::Add(g, hn::IfThenZeroElse(hn::Eq(value, hn::Zero(d)), term));
  }
  return g;
}

/// The value to begin with: decoupled weight decay.
template <class D, class V>
HWY_INLINE V decayed(D d, const OptimizerRule& rule, const StepFloats& numbers, V value) {
  if (rule.regularizationType != NNRegularizationType::Decoupled) return value;
  return hn::NegMulAdd(hn::Set(d, numbers.regularizationScale), value, value);
}

/// value - lr numerator / (sqrt(square) + epsilon)
template <class D, class V>
HWY_INLINE V normalizedUpdate(D d, const StepFloats& numbers, V value, V numerator, V square) {
  const V denominator = hn::Add(hn::Sqrt(square), hn::Set(d, numbers.epsilon));
  return hn::NegMulAdd(hn::Set(d, numbers.learningRate), hn::Div(numerator, denominator), value);
}

/// decay average + complement term
template <class D, class V>
HWY_INLINE V movingAverage(D d, float decay, float complement, V average, V term) {
  return hn::MulAdd(hn::Set(d, decay), average, hn::Mul(hn::Set(d, complement), term));
}

/// What is kept of an average: 0 for a subnormal number. A weight that gets no gradients any more would end there, and
/// processors compute with such numbers twenty times slower.
template <class D, class V>
HWY_INLINE V kept(D d, V average) {
  const V least = hn::Set(d, std::numeric_limits<float>::min());
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(average), least), average);
}

// Each kind: the new value of the lanes from element i on; its buffers are updated on the way.

struct SGDUpdate {
  template <class D, class V, class Lanes>
  static HWY_INLINE V apply(D d, const StepFloats& numbers, const OptimizerTensor&, std::size_t, Lanes,
                            V value, V g) {
    return hn::NegMulAdd(hn::Set(d, numbers.learningRate), g, value);
  }
};

struct SGDMomentumUpdate {
  template <class D, class V, class Lanes>
  static HWY_INLINE V apply(D d, const StepFloats& numbers, const OptimizerTensor& tensor, std::size_t i,
                            Lanes lanes, V value, V g) {
    const V m =
        kept(d, movingAverage(d, numbers.decay, numbers.learningRate, lanes.load(d, tensor.momentum + i), g));
    lanes.store(d, m, tensor.momentum + i);
    return hn::Sub(value, m);
  }
};

struct SGDNesterovUpdate {
  template <class D, class V, class Lanes>
  static HWY_INLINE V apply(D d, const StepFloats& numbers, const OptimizerTensor& tensor, std::size_t i,
                            Lanes lanes, V value, V g) {
    const V decay = hn::Set(d, numbers.decay);
    const V m = kept(d, hn::MulAdd(decay, lanes.load(d, tensor.momentum + i), g));
    lanes.store(d, m, tensor.momentum + i);
    return hn::NegMulAdd(hn::Set(d, numbers.learningRate), hn::MulAdd(decay, m, g), value);
  }
};

struct RMSPropUpdate {
  template <class D, class V, class Lanes>
  static HWY_INLINE V apply(D d, const StepFloats& numbers, const OptimizerTensor& tensor, std::size_t i,
                            Lanes lanes, V value, V g) {
    const V s = kept(d, movingAverage(d, numbers.decay, numbers.decayComplement,
                                      lanes.load(d, tensor.velocity + i), hn::Mul(g, g)));
    lanes.store(d, s, tensor.velocity + i);
    return normalizedUpdate(d, numbers, value, g, s);
  }
};

template <bool isAMSGrad>
struct AdamUpdate {
  template <class D, class V, class Lanes>
  static HWY_INLINE V apply(D d, const StepFloats& numbers, const OptimizerTensor& tensor, std::size_t i,
                            Lanes lanes, V value, V g) {
    const V m = kept(
        d, movingAverage(d, numbers.decay, numbers.decayComplement, lanes.load(d, tensor.momentum + i), g));
    const V u = kept(d, movingAverage(d, numbers.beta2, numbers.beta2Complement,
                                      lanes.load(d, tensor.velocity + i), hn::Mul(g, g)));
    lanes.store(d, m, tensor.momentum + i);
    lanes.store(d, u, tensor.velocity + i);
    if constexpr (isAMSGrad) {
      const V old = lanes.load(d, tensor.maximumVelocity + i);
      const V x = hn::IfThenElse(hn::Gt(old, u), old, u);  // a NaN in u stays
      lanes.store(d, x, tensor.maximumVelocity + i);
      return normalizedUpdate(d, numbers, value, m, x);
    } else {
      return normalizedUpdate(d, numbers, value, m, u);
    }
  }
};

/// The loop's body says always_inline: the compiler would call it, and then keep all constants in memory.
template <class Update>
void updateElements(const OptimizerStep& step, const OptimizerTensor& tensor, std::size_t first,
                    std::size_t count) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const OptimizerRule rule = step.rule;
  const OptimizerTensor pointers = tensor;  // a copy cannot be changed by the stores below
  const StepFloats numbers(step);
  forVectors(
      d, count, [&](std::size_t offset, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const std::size_t i = first + offset;
        const V value = lanes.load(d, pointers.values + i);
        const V g = prepareGradient(d, rule, numbers, lanes.load(d, pointers.gradient + i), value);
        const V old = decayed(d, rule, numbers, value);
        lanes.store(d, Update::apply(d, numbers, pointers, i, lanes, old, g), pointers.result + i);
      });
}

void updateRange(const OptimizerStep& step, const OptimizerTensor& tensor, std::int64_t first,
                 std::int64_t count) {
  const auto begin = static_cast<std::size_t>(first);
  const auto size = static_cast<std::size_t>(count);
  if (step.lossScale != nullptr && step.lossScale->overflowed != 0) {
    if (tensor.result != tensor.values) std::copy_n(tensor.values + begin, size, tensor.result + begin);
    return;
  }
  switch (step.rule.kind) {
    case OptimizerKind::SGD:
      return updateElements<SGDUpdate>(step, tensor, begin, size);
    case OptimizerKind::SGDMomentum:
      return updateElements<SGDMomentumUpdate>(step, tensor, begin, size);
    case OptimizerKind::SGDNesterov:
      return updateElements<SGDNesterovUpdate>(step, tensor, begin, size);
    case OptimizerKind::RMSProp:
      return updateElements<RMSPropUpdate>(step, tensor, begin, size);
    case OptimizerKind::Adam:
      return updateElements<AdamUpdate<false>>(step, tensor, begin, size);
    case OptimizerKind::AMSGrad:
      return updateElements<AdamUpdate<true>>(step, tensor, begin, size);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mps::detail {
namespace {

HWY_EXPORT(updateRange);

/// Elements below which a second thread does not pay.
constexpr std::int64_t kGrain = 16384;

/// Updates `count` tensors, which tensorAt(i) describes, in one loop over all their elements.
template <class TensorAt>
void updateAll(mtl::Stream& stream, std::span<const OptimizerStep> steps, std::size_t count,
               TensorAt tensorAt) {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < count; ++i) elements += tensorAt(i).count;
  mtl::cpu::asCpu(stream).parallelFor(elements, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t start = 0;  // of tensor i
    for (std::size_t i = 0; i < count && start < end; ++i) {
      const OptimizerTensor tensor = tensorAt(i);
      const std::int64_t first = std::max<std::int64_t>(begin - start, 0);
      const std::int64_t last = std::min(end - start, tensor.count);
      if (first < last) HWY_DYNAMIC_DISPATCH(updateRange)(steps[tensor.step], tensor, first, last - first);
      start += tensor.count;
    }
  });
}

class OptimizerPlan final : public Plan {
 public:
  explicit OptimizerPlan(const OptimizerProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const OptimizerStep step{problem_.rule, OptimizerNumbers::fromScalars(operands.scalars),
                             reinterpret_cast<const LossScaleNumbers*>(operands.parameters[3])};
    const OptimizerTensor first = firstRow(operands);
    updateAll(stream, {&step, 1}, static_cast<std::size_t>(problem_.rows), [&](std::size_t i) {
      const auto row = static_cast<std::int64_t>(i);
      OptimizerTensor tensor = first;
      tensor.gradient += row * problem_.gradientStride;
      tensor.values += row * problem_.valuesStride;
      tensor.result += row * problem_.resultStride;
      if (tensor.momentum != nullptr) tensor.momentum += row * problem_.momentumStride;
      if (tensor.velocity != nullptr) tensor.velocity += row * problem_.velocityStride;
      if (tensor.maximumVelocity != nullptr) tensor.maximumVelocity += row * problem_.maximumVelocityStride;
      return tensor;
    });
  }

 private:
  [[nodiscard]] OptimizerTensor firstRow(const Operands& operands) const {
    OptimizerTensor tensor;
    tensor.gradient = reinterpret_cast<const float*>(operands.gradient);
    tensor.values = reinterpret_cast<const float*>(operands.source);
    tensor.result = reinterpret_cast<float*>(operands.destination);
    tensor.momentum = reinterpret_cast<float*>(operands.parameters[0]);
    tensor.velocity = reinterpret_cast<float*>(operands.parameters[1]);
    tensor.maximumVelocity = reinterpret_cast<float*>(operands.parameters[2]);
    tensor.count = problem_.count;
    return tensor;
  }

  OptimizerProblem problem_;
};

Preparation prepareOptimizer(const OptimizerProblem& problem) {
  return std::make_shared<const OptimizerPlan>(problem);
}

constexpr Implementation<OptimizerProblem> kImplementations[] = {{"vectorised", prepareOptimizer}};

}  // namespace

std::span<const Implementation<OptimizerProblem>> optimizerImplementationsCpu() {
  return kImplementations;
}

void updateTensorsCpu(mtl::Stream& stream, std::span<const OptimizerStep> steps,
                      std::span<const OptimizerTensor> tensors) {
  updateAll(stream, steps, tensors.size(), [&](std::size_t i) { return tensors[i]; });
}

const char* name(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::SGD:
      return "SGD";
    case OptimizerKind::SGDMomentum:
      return "SGDMomentum";
    case OptimizerKind::SGDNesterov:
      return "SGDNesterov";
    case OptimizerKind::RMSProp:
      return "RMSProp";
    case OptimizerKind::Adam:
      return "Adam";
    case OptimizerKind::AMSGrad:
      return "AMSGrad";
  }
  return "unknown";
}

std::string OptimizerProblem::describe() const {
  std::string text = name(rule.kind);
  if (rule.regularizationType == NNRegularizationType::L1) text += " L1";
  if (rule.regularizationType == NNRegularizationType::L2) text += " L2";
  if (rule.regularizationType == NNRegularizationType::Decoupled) text += " decoupled";
  if (rule.applyGradientClipping) text += " clipped";
  text += ", " + std::to_string(rows) + " x " + std::to_string(count);
  const std::int64_t strides[] = {gradientStride, valuesStride,   resultStride,
                                  momentumStride, velocityStride, maximumVelocityStride};
  if (rows > 1 && std::any_of(std::begin(strides), std::end(strides),
                              [&](std::int64_t stride) { return stride != count; })) {
    text += " strides";
    for (const std::int64_t stride : strides) text += " " + std::to_string(stride);
  }
  return text;
}

}  // namespace mps::detail
#endif
