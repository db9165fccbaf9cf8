#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/optimizer/check/optimizer_cases.hpp"
#include "mps/optimizer/check/optimizer_reference.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail::optimizer_plan_test {
namespace {

constexpr std::uint64_t kSeed = 5;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr auto kFloat32 = ImageFeatureChannelFormat::Float32;

/// Rows of float32 between guards; what is not an element is NaN.
class Rows {
 public:
  Rows(std::int64_t rows, std::int64_t count, std::int64_t stride)
      : rows_(rows),
        count_(count),
        stride_(stride),
        memory_(static_cast<std::size_t>((rows - 1) * stride + count + 2 * kGuard), kNaN) {}

  void write(const std::vector<double>& values) {
    std::size_t i = 0;
    forElements([&](std::size_t at) { memory_[at] = static_cast<float>(values[i++]); });
  }
  [[nodiscard]] std::vector<double> read() const {
    std::vector<double> values;
    forElements([&](std::size_t at) { values.push_back(static_cast<double>(memory_[at])); });
    return values;
  }
  [[nodiscard]] ReferenceTensor tensor() const {
    ReferenceTensor result(1, rows_, 1, count_);
    result.values = read();
    return result;
  }
  float* data() { return memory_.data() + kGuard; }
  [[nodiscard]] bool surroundingsUntouched() const {
    std::vector<float> copy = memory_;
    forElements([&](std::size_t at) { copy[at] = kNaN; });
    return bits(copy) == bits(std::vector<float>(copy.size(), kNaN));
  }
  [[nodiscard]] std::vector<std::uint32_t> bits() const { return bits(memory_); }

 private:
  static constexpr std::int64_t kGuard = 17;

  static std::vector<std::uint32_t> bits(const std::vector<float>& values) {
    std::vector<std::uint32_t> result;
    for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
    return result;
  }
  template <class Visit>
  void forElements(Visit visit) const {
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t i = 0; i < count_; ++i) visit(static_cast<std::size_t>(kGuard + row * stride_ + i));
  }

  std::int64_t rows_;
  std::int64_t count_;
  std::int64_t stride_;
  std::vector<float> memory_;
};

/// All tensors of one update.
struct OptimizerMemory {
  explicit OptimizerMemory(const OptimizerProblem& problem)
      : gradient(problem.rows, problem.count, problem.gradientStride),
        values(problem.rows, problem.count, problem.valuesStride),
        result(problem.rows, problem.count, problem.resultStride),
        momentum(problem.rows, problem.count, problem.momentumStride),
        velocity(problem.rows, problem.count, problem.velocityStride),
        maximumVelocity(problem.rows, problem.count, problem.maximumVelocityStride) {}

  Rows gradient;
  Rows values;
  Rows result;
  Rows momentum;
  Rows velocity;
  Rows maximumVelocity;
};

bool hasMomentum(OptimizerKind kind) {
  return kind != OptimizerKind::SGD && kind != OptimizerKind::RMSProp;
}
bool hasVelocity(OptimizerKind kind) {
  return kind == OptimizerKind::RMSProp || kind == OptimizerKind::Adam || kind == OptimizerKind::AMSGrad;
}
bool hasMaximumVelocity(OptimizerKind kind) {
  return kind == OptimizerKind::AMSGrad;
}

OptimizerMemory filledMemory(const OptimizerCase& optimizerCase) {
  OptimizerMemory memory(optimizerCase.problem);
  const auto count = static_cast<std::size_t>(optimizerCase.problem.rows * optimizerCase.problem.count);
  const RandomKind kind = optimizerCase.exact ? RandomKind::SmallIntegers : RandomKind::Uniform;
  memory.gradient.write(randomValues(count, kSeed, kind));
  std::vector<double> values = randomValues(count, kSeed + 1, kind);
  for (std::size_t i = 0; i < count; i += 7) values[i] = 0;  // L1 has a corner there
  memory.values.write(values);
  memory.momentum.write(randomValues(count, kSeed + 2, kind));
  memory.velocity.write(randomValues(count, kSeed + 3, RandomKind::Positive));
  memory.maximumVelocity.write(randomValues(count, kSeed + 4, RandomKind::Positive));
  return memory;
}

OptimizerReferenceTensors tensorsOf(OptimizerKind kind, const OptimizerMemory& memory) {
  OptimizerReferenceTensors tensors;
  tensors.gradient = memory.gradient.tensor();
  tensors.values = memory.values.tensor();
  if (hasMomentum(kind)) tensors.momentum = memory.momentum.tensor();
  if (hasVelocity(kind)) tensors.velocity = memory.velocity.tensor();
  if (hasMaximumVelocity(kind)) tensors.maximumVelocity = memory.maximumVelocity.tensor();
  return tensors;
}

void runPlan(const Plan& plan, const OptimizerCase& optimizerCase, OptimizerMemory& memory, int threads) {
  const OptimizerKind kind = optimizerCase.problem.rule.kind;
  Operands operands;
  operands.gradient = reinterpret_cast<std::byte*>(memory.gradient.data());
  operands.source = reinterpret_cast<std::byte*>(memory.values.data());
  operands.destination =
      reinterpret_cast<std::byte*>((optimizerCase.inPlace ? memory.values : memory.result).data());
  if (hasMomentum(kind)) operands.parameters[0] = reinterpret_cast<std::byte*>(memory.momentum.data());
  if (hasVelocity(kind)) operands.parameters[1] = reinterpret_cast<std::byte*>(memory.velocity.data());
  if (hasMaximumVelocity(kind))
    operands.parameters[2] = reinterpret_cast<std::byte*>(memory.maximumVelocity.data());
  operands.scalars = optimizerCase.numbers.scalars();
  mtl::cpu::Stream stream(threads);
  plan.run(stream, operands);
}

OptimizerMemory updated(const OptimizerCase& optimizerCase, const OptimizerMemory& before, int threads) {
  OptimizerMemory memory = before;
  const ChosenPlan chosen = preparePlan(optimizerImplementationsCpu(), optimizerCase.problem);
  runPlan(*chosen.plan, optimizerCase, memory, threads);
  return memory;
}

void compareRows(const char* what, const ReferenceTensor& expected, const Rows& found, Tier tier,
                 std::string& report) {
  if (!expected.values.empty()) {
    const Comparison comparison = compare(expected, found.read(), kFloat32, tier);
    if (!comparison.passed()) report += std::string(what) + ": " + comparison.report;
  }
  if (!found.surroundingsUntouched()) report += std::string(what) + ": wrote outside the elements\n";
}

/// Empty, or how the update differs from the reference of `judgeCase`, which is `optimizerCase` but for tests
/// of the test.
std::string judge(const OptimizerCase& judgeCase, const OptimizerCase& optimizerCase,
                  const OptimizerMemory& before, const OptimizerMemory& after) {
  const OptimizerRule& rule = judgeCase.problem.rule;
  const auto expected = optimizerReference(rule, judgeCase.numbers, tensorsOf(rule.kind, before));
  const Tier tier = optimizerCase.exact ? Tier::Exact : Tier::Bounded;
  std::string report;
  compareRows("values", expected.values, optimizerCase.inPlace ? after.values : after.result, tier, report);
  compareRows("momentum", expected.momentum, after.momentum, tier, report);
  compareRows("velocity", expected.velocity, after.velocity, tier, report);
  compareRows("maximum velocity", expected.maximumVelocity, after.maximumVelocity, tier, report);
  return report;
}

class OptimizerPlans : public testing::TestWithParam<OptimizerCase> {};

TEST_P(OptimizerPlans, AgreeWithTheReference) {
  const OptimizerCase& optimizerCase = GetParam();
  SCOPED_TRACE(optimizerCase.problem.describe() + ", seed " + std::to_string(kSeed));
  const OptimizerKind kind = optimizerCase.problem.rule.kind;
  for (const auto& implementation : optimizerImplementationsCpu()) {
    const ForceImplementation force(implementation.name);
    const OptimizerMemory before = filledMemory(optimizerCase);
    const OptimizerMemory after = updated(optimizerCase, before, 2);
    EXPECT_EQ(judge(optimizerCase, optimizerCase, before, after), "") << implementation.name;
    EXPECT_EQ(after.gradient.bits(), before.gradient.bits());
    EXPECT_TRUE(optimizerCase.inPlace || after.values.bits() == before.values.bits());
    EXPECT_TRUE(hasMomentum(kind) || after.momentum.bits() == before.momentum.bits());
    EXPECT_TRUE(hasVelocity(kind) || after.velocity.bits() == before.velocity.bits());
    EXPECT_TRUE(hasMaximumVelocity(kind) || after.maximumVelocity.bits() == before.maximumVelocity.bits());
    for (const int threads : {1, 3}) {
      const OptimizerMemory again = updated(optimizerCase, before, threads);
      EXPECT_EQ(again.values.bits(), after.values.bits());
      EXPECT_EQ(again.result.bits(), after.result.bits());
      EXPECT_EQ(again.momentum.bits(), after.momentum.bits());
      EXPECT_EQ(again.velocity.bits(), after.velocity.bits());
      EXPECT_EQ(again.maximumVelocity.bits(), after.maximumVelocity.bits());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OptimizerPlans, testing::ValuesIn(optimizerCases()),
                         [](const auto& info) { return info.param.name; });

/// A change of one field that must show in the result.
struct Perturbation {
  const char* name;
  std::function<void(OptimizerCase&)> apply;
};

TEST(OptimizerPlan, EachFieldMatters) {
  OptimizerCase adam = optimizerCase(OptimizerKind::Adam, 1, 200);
  adam.problem.rule.regularizationType = NNRegularizationType::L2;
  adam.problem.rule.applyGradientClipping = true;
  adam.numbers.regularizationScale = 0.5;
  adam.numbers.gradientClipMin = -0.5;
  adam.numbers.gradientClipMax = 0.5;
  adam.numbers.epsilon = 0.25;
  const auto times = [](double& value) { value *= 1.0001; };
  const std::vector<Perturbation> rows = {
      {"kind", [](OptimizerCase& c) { c.problem.rule.kind = OptimizerKind::SGDMomentum; }},
      {"regularizationType",
       [](OptimizerCase& c) { c.problem.rule.regularizationType = NNRegularizationType::L1; }},
      {"decoupledRegularization",
       [](OptimizerCase& c) { c.problem.rule.regularizationType = NNRegularizationType::Decoupled; }},
      {"applyGradientClipping", [](OptimizerCase& c) { c.problem.rule.applyGradientClipping = false; }},
      {"learningRate", [&](OptimizerCase& c) { times(c.numbers.learningRate); }},
      {"gradientRescale", [&](OptimizerCase& c) { times(c.numbers.gradientRescale); }},
      {"gradientClipMin", [&](OptimizerCase& c) { times(c.numbers.gradientClipMin); }},
      {"gradientClipMax", [&](OptimizerCase& c) { times(c.numbers.gradientClipMax); }},
      {"regularizationScale", [&](OptimizerCase& c) { times(c.numbers.regularizationScale); }},
      {"decay", [&](OptimizerCase& c) { times(c.numbers.decay); }},
      {"beta2", [&](OptimizerCase& c) { times(c.numbers.beta2); }},
      {"epsilon", [&](OptimizerCase& c) { c.numbers.epsilon *= 1.001; }},
  };
  const OptimizerMemory before = filledMemory(adam);
  const OptimizerMemory after = updated(adam, before, 2);
  EXPECT_EQ(judge(adam, adam, before, after), "");
  for (const auto& row : rows) {
    OptimizerCase perturbed = adam;
    row.apply(perturbed);
    EXPECT_NE(judge(perturbed, adam, before, after), "") << row.name << " was not noticed";
  }
}

TEST(OptimizerPlan, EachInputTensorMatters) {
  const OptimizerCase amsGrad = optimizerCase(OptimizerKind::AMSGrad, 1, 200);
  const OptimizerMemory before = filledMemory(amsGrad);
  const OptimizerMemory after = updated(amsGrad, before, 2);
  for (Rows OptimizerMemory::*input :
       {&OptimizerMemory::gradient, &OptimizerMemory::values, &OptimizerMemory::momentum,
        &OptimizerMemory::velocity, &OptimizerMemory::maximumVelocity}) {
    OptimizerMemory changed = before;
    std::vector<double> values = (changed.*input).read();
    values[123] += 1;
    (changed.*input).write(values);
    EXPECT_NE(judge(amsGrad, amsGrad, changed, after), "");
  }
}

TEST(OptimizerPlan, EachFieldChangesTheHash) {
  const OptimizerProblem original = optimizerCase(OptimizerKind::Adam, 2, 10).problem;
  const auto expectOtherHash = [&](const auto& apply) {
    OptimizerProblem changed = original;
    apply(changed);
    EXPECT_NE(changed, original);
    EXPECT_NE(changed.hash(), original.hash());
  };
  expectOtherHash([](auto& p) { p.rule.kind = OptimizerKind::SGD; });
  expectOtherHash([](auto& p) { p.rule.regularizationType = NNRegularizationType::L1; });
  expectOtherHash([](auto& p) { p.rule.applyGradientClipping = true; });
  for (std::int64_t OptimizerProblem::*field :
       {&OptimizerProblem::count, &OptimizerProblem::rows, &OptimizerProblem::gradientStride,
        &OptimizerProblem::valuesStride, &OptimizerProblem::resultStride, &OptimizerProblem::momentumStride,
        &OptimizerProblem::velocityStride, &OptimizerProblem::maximumVelocityStride})
    expectOtherHash([&](auto& p) { p.*field += 1; });
}

TEST(OptimizerPlan, NaNAndInfinityAreWhereTheReferenceHasThem) {
  for (const OptimizerKind kind : optimizerKinds())
    for (const bool clips : {false, true}) {
      OptimizerCase special = optimizerCase(kind, 1, 100);
      special.problem.rule.applyGradientClipping = clips;
      special.problem.rule.regularizationType = NNRegularizationType::L1;
      special.numbers.gradientClipMin = -1;
      special.numbers.gradientClipMax = 1;
      OptimizerMemory before = filledMemory(special);
      std::vector<double> gradient = before.gradient.read();
      std::vector<double> values = before.values.read();
      gradient[3] = static_cast<double>(kNaN);
      gradient[40] = std::numeric_limits<double>::infinity();
      gradient[41] = -std::numeric_limits<double>::infinity();
      values[70] = static_cast<double>(kNaN);
      before.gradient.write(gradient);
      before.values.write(values);
      const OptimizerMemory after = updated(special, before, 1);
      EXPECT_EQ(judge(special, special, before, after), "")
          << special.problem.describe() << (clips ? " clipped" : "");
      EXPECT_TRUE(std::isnan(after.values.read()[3]));
    }
}

TEST(OptimizerPlan, AveragesEndAtZeroAndNotAtSubnormalNumbers) {
  for (const OptimizerKind kind : optimizerKinds()) {
    OptimizerCase optimizerCase = detail::optimizerCase(kind, 1, 37);
    optimizerCase.numbers.decay = 0.9;
    optimizerCase.numbers.beta2 = 0.999;
    OptimizerMemory memory = filledMemory(optimizerCase);
    memory.gradient.write(std::vector<double>(37, 0.0));
    memory.values.write(std::vector<double>(37, 0.0));  // no regularisation
    memory.momentum.write(std::vector<double>(37, -1.2e-38));
    memory.velocity.write(std::vector<double>(37, 1e-44));
    const OptimizerMemory after = updated(optimizerCase, memory, 1);
    const std::vector<double> zeros(37, 0.0);
    EXPECT_TRUE(!hasMomentum(kind) || after.momentum.read() == zeros);
    EXPECT_TRUE(!hasVelocity(kind) || after.velocity.read() == zeros);
  }
}

TEST(OptimizerPlan, AdamOverManyStepsStaysWithTheReference) {
  // Each step is judged from what the previous ones left, so errors do not add up.
  OptimizerCase adam = optimizerCase(OptimizerKind::Adam, 1, 50);
  adam.numbers.decay = 0.9;
  adam.numbers.beta2 = 0.999;
  OptimizerMemory memory = filledMemory(adam);
  for (std::uint64_t step = 1; step <= 20; ++step) {
    adam.numbers.learningRate = adamLearningRate(0.01, 0.9, 0.999, step);
    memory.gradient.write(randomValues(50, kSeed + step, RandomKind::Uniform));
    const OptimizerMemory before = memory;
    memory = updated(adam, before, 1);
    EXPECT_EQ(judge(adam, adam, before, memory), "") << "step " << step;
  }
}

TEST(OptimizerTensors, OneLoopHasTheBitsOfSeparatePlans) {
  std::vector<OptimizerCase> cases;
  for (const std::int64_t count : {1, 3, 17, 1000, 70001, 16, 5, 33333}) {
    const OptimizerKind kind = optimizerKinds()[cases.size() % optimizerKinds().size()];
    cases.push_back(optimizerCase(kind, 1, count));
    cases.back().numbers.learningRate = 0.01 * static_cast<double>(cases.size());
    cases.back().problem.rule.regularizationType =
        cases.size() % 2 == 0 ? NNRegularizationType::None : NNRegularizationType::L2;
    cases.back().numbers.regularizationScale = 0.5;
  }
  for (const int threads : {1, 2, 3, 7}) {
    std::vector<OptimizerMemory> memories;
    std::vector<OptimizerStep> steps;
    for (const OptimizerCase& row : cases) {
      memories.push_back(filledMemory(row));
      steps.push_back({row.problem.rule, row.numbers});
    }
    std::vector<OptimizerTensor> tensors;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      OptimizerMemory& m = memories[i];
      tensors.push_back({m.gradient.data(), m.values.data(), m.values.data(), m.momentum.data(),
                         m.velocity.data(), m.maximumVelocity.data(), cases[i].problem.count, i});
    }
    tensors.insert(tensors.begin() + 3, OptimizerTensor{});  // an empty tensor in the middle
    mtl::cpu::Stream stream(threads);
    updateTensorsCpu(stream, steps, tensors);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const OptimizerMemory separate = updated(cases[i], filledMemory(cases[i]), 1);
      EXPECT_EQ(memories[i].values.bits(), separate.values.bits()) << i;
      EXPECT_EQ(memories[i].momentum.bits(), separate.momentum.bits()) << i;
      EXPECT_EQ(memories[i].velocity.bits(), separate.velocity.bits()) << i;
      EXPECT_EQ(memories[i].maximumVelocity.bits(), separate.maximumVelocity.bits()) << i;
    }
  }
}

TEST(OptimizerTensors, NothingToUpdate) {
  mtl::cpu::Stream stream(2);
  updateTensorsCpu(stream, {}, {});
  const OptimizerStep step;
  const OptimizerTensor empty;
  updateTensorsCpu(stream, {&step, 1}, {&empty, 1});
}

}  // namespace
}  // namespace mps::detail::optimizer_plan_test
