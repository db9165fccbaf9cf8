#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/optimizer/check/optimizer_cases.hpp"
#include "mps/optimizer/check/optimizer_reference.hpp"
#include "mps/optimizer/combined_updates.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

using OptimizerImplementation = Implementation<OptimizerProblem>;
constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

bool hasMomentum(OptimizerKind kind) {
  return kind != OptimizerKind::SGD && kind != OptimizerKind::RMSProp;
}
bool hasVelocity(OptimizerKind kind) {
  return kind == OptimizerKind::RMSProp || kind == OptimizerKind::Adam || kind == OptimizerKind::AMSGrad;
}
bool hasMaximumVelocity(OptimizerKind kind) {
  return kind == OptimizerKind::AMSGrad;
}

std::string className(OptimizerKind kind) {
  if (kind == OptimizerKind::RMSProp) return "NNOptimizerRMSProp";
  if (hasVelocity(kind)) return "NNOptimizerAdam";
  return "NNOptimizerStochasticGradientDescent";
}

TensorShape rowsOf(const OptimizerProblem& problem, std::int64_t stride) {
  return {1, problem.rows, 1, problem.count, problem.rows * stride, stride, problem.count, kFloat32};
}

constexpr float kLossScale = 4;

enum class Scaling : std::uint8_t {
  None,
  Scaled,     ///< the gradients are those of a loss kLossScale times as large
  Overflowed  ///< and one of them was too large: nothing is updated
};
constexpr const char* kScalingNames[] = {"", "Scaled", "Overflowed"};

void runPlan(ConformRun& run, const OptimizerImplementation& implementation, const OptimizerCase& item,
             Scaling scaling) {
  const OptimizerProblem& problem = item.problem;
  const OptimizerKind kind = problem.rule.kind;
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const RandomKind random = item.exact ? RandomKind::SmallIntegers : RandomKind::Uniform;
  TestTensor gradient = run.source(rowsOf(problem, problem.gradientStride), random, 1);
  std::vector<double> initial = run.values(static_cast<std::size_t>(problem.rows * problem.count), random);
  for (std::size_t i = 0; i < initial.size(); i += 7) initial[i] = 0;  // L1 has a corner there
  TestTensor values = run.source(rowsOf(problem, problem.valuesStride), initial, 1);
  TestTensor result = run.destination(rowsOf(problem, problem.resultStride), 1);
  TestTensor momentum = run.source(rowsOf(problem, problem.momentumStride), random, 1);
  TestTensor velocity = run.source(rowsOf(problem, problem.velocityStride), RandomKind::Positive, 1);
  TestTensor maximum = run.source(rowsOf(problem, problem.maximumVelocityStride), RandomKind::Positive, 1);
  // LossScaleNumbers; that it overflowed is any bit.
  TestTensor lossScale = run.source(
      TensorShape::dense(1, 1, 1, 5, kFloat32),
      std::vector<double>{kLossScale, 1 / kLossScale, scaling == Scaling::Overflowed ? 1.0 : 0.0, 0, 0}, 1);
  TestTensor& written = item.inPlace ? values : result;
  Operands operands;
  operands.gradient = gradient.address();
  operands.source = values.address();
  operands.destination = written.address();
  if (hasMomentum(kind)) operands.parameters[0] = momentum.address();
  if (hasVelocity(kind)) operands.parameters[1] = velocity.address();
  if (hasMaximumVelocity(kind)) operands.parameters[2] = maximum.address();
  if (scaling != Scaling::None) operands.parameters[3] = lossScale.address();
  operands.scalars = item.numbers.scalars();
  OptimizerReferenceTensors before;
  before.gradient = gradient.reference();
  before.values = values.reference();
  if (hasMomentum(kind)) before.momentum = momentum.reference();
  if (hasVelocity(kind)) before.velocity = velocity.reference();
  if (hasMaximumVelocity(kind)) before.maximumVelocity = maximum.reference();
  run.execute(*plan, operands);
  run.require(gradient.isUnchanged() && (item.inPlace || values.isUnchanged()), "an input was written");
  if (scaling != Scaling::None)
    for (double& value : before.gradient.values) value /= kLossScale;
  const OptimizerReferenceTensors expected =
      scaling == Scaling::Overflowed ? before : optimizerReference(problem.rule, item.numbers, before);
  run.check(expected.values, written, Zeros::Expected);
  if (hasMomentum(kind)) run.check(expected.momentum, momentum, Zeros::Expected);
  if (hasVelocity(kind)) run.check(expected.velocity, velocity, Zeros::Expected);
  if (hasMaximumVelocity(kind)) run.check(expected.maximumVelocity, maximum, Zeros::Expected);
}

/// A vector of the public kernels and what it held.
struct TestVector {
  std::shared_ptr<mtl::Device> device;
  std::shared_ptr<Vector> vector;
  ReferenceTensor before;

  TestVector(ConformRun& run, std::size_t length, RandomKind kind)
      : device(run.device()),
        vector(Vector::create(device, VectorDescriptor::vectorDescriptor(length, DataType::Float32))),
        before(1, 1, 1, static_cast<std::int64_t>(length)) {
    const auto stored = vector->data()->contentsAs<float>();
    const std::vector<double> values = run.values(length, kind);
    for (std::size_t i = 0; i < length; ++i) {
      stored[i] = static_cast<float>(values[i]);
      before.values[i] = static_cast<double>(stored[i]);
    }
    vector->data()->didModifyRange(0, vector->data()->length());
  }
  [[nodiscard]] std::vector<double> read() const {
    return storedFloats(device, vector->data()->memory(), vector->offset(), vector->length());
  }
};

/// An update in place through the public kernel; of Adam the third one.
struct KernelUpdate {
  static constexpr double kDecay = 0.875;
  static constexpr double kBeta2 = 0.96875;
  static constexpr float kEpsilon = 1e-6F;

  OptimizerRule rule;
  std::shared_ptr<LossScale> lossScale;
  TestVector gradient;
  TestVector values;
  TestVector momentum;
  TestVector velocity;
  TestVector maximum;

  KernelUpdate(ConformRun& run, OptimizerKind kind, std::size_t length, bool clips,
               std::shared_ptr<LossScale> scale = nullptr)
      : rule{kind, NNRegularizationType::L2, clips},
        lossScale(std::move(scale)),
        gradient(run, length, RandomKind::Uniform),
        values(run, length, RandomKind::Uniform),
        momentum(run, length, RandomKind::Uniform),
        velocity(run, length, RandomKind::Positive),
        maximum(run, length, RandomKind::Positive) {}

  [[nodiscard]] bool isAdam() const {
    return rule.kind == OptimizerKind::Adam || rule.kind == OptimizerKind::AMSGrad;
  }
  void encode(const std::shared_ptr<mtl::Device>& device,
              const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
    const OptimizerKind kind = rule.kind;
    const NNOptimizerDescriptor descriptor(0.03125F, 0.75F, rule.applyGradientClipping, 0.5F, -0.25F,
                                           NNRegularizationType::L2, 0.125F);
    if (kind == OptimizerKind::RMSProp) {
      const auto rmsProp = NNOptimizerRMSProp::create(device, kDecay, kEpsilon, descriptor);
      rmsProp->setLossScale(lossScale);
      rmsProp->encode(commandBuffer, gradient.vector, values.vector, velocity.vector, values.vector);
    } else if (isAdam()) {
      const auto adam = NNOptimizerAdam::create(device, kDecay, kBeta2, kEpsilon, 2, descriptor);
      adam->setLossScale(lossScale);
      adam->encode(commandBuffer, gradient.vector, values.vector, momentum.vector, velocity.vector,
                   kind == OptimizerKind::AMSGrad ? maximum.vector : nullptr, values.vector);
    } else {
      const auto sgd = NNOptimizerStochasticGradientDescent::create(
          device, static_cast<float>(kDecay), kind == OptimizerKind::SGDNesterov, descriptor);
      sgd->setLossScale(lossScale);
      sgd->encode(commandBuffer, gradient.vector, values.vector,
                  kind == OptimizerKind::SGD ? nullptr : momentum.vector, values.vector);
    }
  }
  [[nodiscard]] double inverseScale() const { return lossScale ? 1 / kLossScale : 1; }
  /// @param factor of the gradients, of a limit of their norm
  void check(ConformRun& run, double factor = 1) const {
    const OptimizerKind kind = rule.kind;
    OptimizerNumbers numbers;
    numbers.learningRate = isAdam() ? adamLearningRate(0.03125, kDecay, kBeta2, 3) : 0.03125;
    numbers.gradientRescale = 0.75;
    numbers.gradientClipMin = -0.25;
    numbers.gradientClipMax = 0.5;
    numbers.regularizationScale = 0.125;
    numbers.decay = kDecay;
    numbers.beta2 = kBeta2;
    numbers.epsilon = static_cast<double>(kEpsilon);
    OptimizerReferenceTensors before;
    before.gradient = gradient.before;
    for (double& value : before.gradient.values) value *= inverseScale() * factor;
    before.values = values.before;
    if (hasMomentum(kind)) before.momentum = momentum.before;
    if (hasVelocity(kind)) before.velocity = velocity.before;
    if (hasMaximumVelocity(kind)) before.maximumVelocity = maximum.before;
    const OptimizerReferenceTensors expected = optimizerReference(rule, numbers, before);
    run.check(expected.values, values.read(), kFloat32, Zeros::Expected);
    if (hasMomentum(kind)) run.check(expected.momentum, momentum.read(), kFloat32, Zeros::Expected);
    if (hasVelocity(kind)) run.check(expected.velocity, velocity.read(), kFloat32, Zeros::Expected);
    if (hasMaximumVelocity(kind))
      run.check(expected.maximumVelocity, maximum.read(), kFloat32, Zeros::Expected);
  }
};

void runKernel(ConformRun& run, OptimizerKind kind, std::size_t length, bool clips) {
  const KernelUpdate update(run, kind, length, clips);
  if (run.encode([&](const auto& commandBuffer) { update.encode(run.device(), commandBuffer); }))
    update.check(run);
}

double normOf(const std::vector<KernelUpdate>& updates) {
  double sum = 0;
  for (const KernelUpdate& update : updates)
    for (const double value : update.gradient.before.values)
      sum += value * value * update.inverseScale() * update.inverseScale();
  return std::sqrt(sum);
}

/// Updates of tensors of several sizes that a graph puts together: on a GPU in one launch, on a CPU in one
/// loop where they wait for a loss scale. @param isLimited whether a quarter of the norm of all gradients is its limit
void runCombined(ConformRun& run, OptimizerKind kind, bool isScaled, bool clips, bool isLimited) {
  const auto lossScale = isScaled ? LossScale::create(run.device(), {.initialScale = kLossScale}) : nullptr;
  std::vector<KernelUpdate> updates;
  constexpr std::array<std::size_t, 4> lengths{3, 9000, 64, 4097};
  for (const std::size_t length : lengths) updates.emplace_back(run, kind, length, clips, lossScale);
  const double norm = normOf(updates);
  const float limit = isLimited ? static_cast<float>(norm / 4) : 0;
  const bool accepted = run.encode([&](const auto& commandBuffer) {
    CombinedUpdates combined(*run.device(), std::make_shared<int>(), limit);
    {
      const CombinedUpdates::Scope scope(combined);
      for (const KernelUpdate& update : updates) update.encode(run.device(), commandBuffer);
    }
    combined.record(*commandBuffer);
  });
  if (!accepted) return;
  const double factor =
      isLimited ? static_cast<double>(static_cast<float>(static_cast<double>(limit) / norm)) : 1;
  for (const KernelUpdate& update : updates) update.check(run, factor);
}

void conformClass(Conform& conform, const OptimizerImplementation& implementation, const std::string& kernel,
                  Tier tier) {
  const ConformKey key{kernel, Direction::Gradient, kFloat32, std::string(implementation.name), tier};
  if (!conform.isSelected(key)) return;
  std::vector<ConformCase> cases;
  for (const OptimizerCase& item : optimizerCases())
    if (className(item.problem.rule.kind) == kernel && item.exact == (tier == Tier::Exact))
      for (const Scaling scaling : {Scaling::None, Scaling::Scaled, Scaling::Overflowed})
        cases.push_back({item.name + kScalingNames[static_cast<std::size_t>(scaling)],
                         [=](ConformRun& run) { runPlan(run, implementation, item, scaling); }});
  if (tier == Tier::Bounded)
    for (const OptimizerKind kind : optimizerKinds())
      for (const bool clips : {false, true}) {
        if (className(kind) != kernel) continue;
        for (const std::size_t length : {std::size_t{5}, std::size_t{1000}})
          cases.push_back({std::string("Kernel") + name(kind) + std::to_string(length),
                           [=](ConformRun& run) { runKernel(run, kind, length, clips); }});
        for (const bool isScaled : {false, true})
          for (const bool isLimited : {false, true})
            cases.push_back({std::string("Combined") + (isScaled ? "Scaled" : "") +
                                 (isLimited ? "Limited" : "") + name(kind),
                             [=](ConformRun& run) { runCombined(run, kind, isScaled, clips, isLimited); }});
      }
  conformRow(conform, key, cases);
}

}  // namespace

void conformOptimizer(Conform& conform) {
  for (const OptimizerImplementation& implementation : conform.implementations(optimizerBackEnds))
    for (const char* kernel :
         {"NNOptimizerStochasticGradientDescent", "NNOptimizerRMSProp", "NNOptimizerAdam"})
      for (const Tier tier : {Tier::Exact, Tier::Bounded})
        conformClass(conform, implementation, kernel, tier);
}

}  // namespace mps::detail
