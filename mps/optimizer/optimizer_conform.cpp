#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/stored_values.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/optimizer/optimizer_cases.hpp"
#include "mps/optimizer/optimizer_reference.hpp"
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

void runPlan(ConformRun& run, const OptimizerImplementation& implementation, const OptimizerCase& item) {
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
  TestTensor& written = item.inPlace ? values : result;
  Operands operands;
  operands.gradient = gradient.address();
  operands.source = values.address();
  operands.destination = written.address();
  if (hasMomentum(kind)) operands.parameters[0] = momentum.address();
  if (hasVelocity(kind)) operands.parameters[1] = velocity.address();
  if (hasMaximumVelocity(kind)) operands.parameters[2] = maximum.address();
  operands.scalars = item.numbers.scalars();
  OptimizerReferenceTensors before;
  before.gradient = gradient.reference();
  before.values = values.reference();
  if (hasMomentum(kind)) before.momentum = momentum.reference();
  if (hasVelocity(kind)) before.velocity = velocity.reference();
  if (hasMaximumVelocity(kind)) before.maximumVelocity = maximum.reference();
  run.execute(*plan, operands);
  run.require(gradient.isUnchanged() && (item.inPlace || values.isUnchanged()), "an input was written");
  const OptimizerReferenceTensors expected = optimizerReference(problem.rule, item.numbers, before);
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
void runKernel(ConformRun& run, OptimizerKind kind, std::size_t length, bool clips) {
  constexpr double kDecay = 0.875;
  constexpr double kBeta2 = 0.96875;
  constexpr float kEpsilon = 1e-6F;
  const NNOptimizerDescriptor descriptor(0.03125F, 0.75F, clips, 0.5F, -0.25F, NNRegularizationType::L2,
                                         0.125F);
  const TestVector gradient(run, length, RandomKind::Uniform);
  const TestVector values(run, length, RandomKind::Uniform);
  const TestVector momentum(run, length, RandomKind::Uniform);
  const TestVector velocity(run, length, RandomKind::Positive);
  const TestVector maximum(run, length, RandomKind::Positive);
  const bool isAdam = kind == OptimizerKind::Adam || kind == OptimizerKind::AMSGrad;
  const bool accepted = run.encode([&](const auto& commandBuffer) {
    if (kind == OptimizerKind::RMSProp)
      NNOptimizerRMSProp::create(run.device(), kDecay, kEpsilon, descriptor)
          ->encode(commandBuffer, gradient.vector, values.vector, velocity.vector, values.vector);
    else if (isAdam)
      NNOptimizerAdam::create(run.device(), kDecay, kBeta2, kEpsilon, 2, descriptor)
          ->encode(commandBuffer, gradient.vector, values.vector, momentum.vector, velocity.vector,
                   kind == OptimizerKind::AMSGrad ? maximum.vector : nullptr, values.vector);
    else
      NNOptimizerStochasticGradientDescent::create(run.device(), static_cast<float>(kDecay),
                                                   kind == OptimizerKind::SGDNesterov, descriptor)
          ->encode(commandBuffer, gradient.vector, values.vector,
                   kind == OptimizerKind::SGD ? nullptr : momentum.vector, values.vector);
  });
  if (!accepted) return;
  OptimizerNumbers numbers;
  numbers.learningRate = isAdam ? adamLearningRate(0.03125, kDecay, kBeta2, 3) : 0.03125;
  numbers.gradientRescale = 0.75;
  numbers.gradientClipMin = -0.25;
  numbers.gradientClipMax = 0.5;
  numbers.regularizationScale = 0.125;
  numbers.decay = kDecay;
  numbers.beta2 = kBeta2;
  numbers.epsilon = static_cast<double>(kEpsilon);
  OptimizerReferenceTensors before;
  before.gradient = gradient.before;
  before.values = values.before;
  if (hasMomentum(kind)) before.momentum = momentum.before;
  if (hasVelocity(kind)) before.velocity = velocity.before;
  if (hasMaximumVelocity(kind)) before.maximumVelocity = maximum.before;
  const OptimizerRule rule{kind, NNRegularizationType::L2, clips};
  const OptimizerReferenceTensors expected = optimizerReference(rule, numbers, before);
  run.check(expected.values, values.read(), kFloat32, Zeros::Expected);
  if (hasMomentum(kind)) run.check(expected.momentum, momentum.read(), kFloat32, Zeros::Expected);
  if (hasVelocity(kind)) run.check(expected.velocity, velocity.read(), kFloat32, Zeros::Expected);
  if (hasMaximumVelocity(kind))
    run.check(expected.maximumVelocity, maximum.read(), kFloat32, Zeros::Expected);
}

void conformClass(Conform& conform, const OptimizerImplementation& implementation, const std::string& kernel,
                  Tier tier) {
  const ConformKey key{kernel, Direction::Gradient, kFloat32, std::string(implementation.name), tier};
  if (!conform.isSelected(key)) return;
  std::vector<ConformCase> cases;
  for (const OptimizerCase& item : optimizerCases())
    if (className(item.problem.rule.kind) == kernel && item.exact == (tier == Tier::Exact))
      cases.push_back({item.name, [=](ConformRun& run) { runPlan(run, implementation, item); }});
  if (tier == Tier::Bounded)
    for (const OptimizerKind kind : optimizerKinds())
      for (const std::size_t length : {std::size_t{5}, std::size_t{1000}})
        for (const bool clips : {false, true})
          if (className(kind) == kernel)
            cases.push_back({std::string("Kernel") + name(kind) + std::to_string(length),
                             [=](ConformRun& run) { runKernel(run, kind, length, clips); }});
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
