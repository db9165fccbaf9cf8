#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/neuron/check/neuron_cases.hpp"
#include "mps/neuron/check/neuron_reference.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail::neuron_plan_test {
namespace {

using enum ImageFeatureChannelFormat;
using enum NeuronDirection;

constexpr std::uint64_t kSeed = 20250307;
constexpr int kThreads = 3;

std::shared_ptr<mtl::Device> testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kThreads);
  return device;
}

bool isUnorm(ImageFeatureChannelFormat format) {
  return format == Unorm8 || format == Unorm16;
}

/// Small integers for the exact tier, else values in the range of the case, which unorm formats cut to 0
/// ... 1.
std::vector<double> inputValues(const NeuronCase& item, const TensorShape& shape, Tier tier,
                                std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(shape.elements());
  if (isUnorm(shape.format))
    return randomValues(count, seed, tier == Tier::Exact ? RandomKind::ZeroOrOne : RandomKind::Positive);
  if (tier == Tier::Exact) return randomValues(count, seed, RandomKind::SmallIntegers);
  std::vector<double> values = randomValues(count, seed, RandomKind::Uniform);
  for (double& value : values) value = item.lowest + (item.highest - item.lowest) * (value + 1) / 2;
  return values;
}

/// Operands, what came out and what the reference says.
class Call {
 public:
  Call(const NeuronProblem& problem, const NeuronCase& item, Tier tier)
      : problem_(problem),
        input_(testDevice(), problem.input, 1),
        gradient_(testDevice(), problem.gradient, 3),
        addend_(testDevice(), problem.addend, 5),
        destination_(testDevice(), problem.destination, 2),
        saved_(testDevice(), problem.savedBytes()) {
    writeInput(inputValues(item, problem.input, tier, kSeed));
    if (problem.direction == GradientFromResult) {
      NeuronProblem forward = problem;
      forward.direction = Forward;
      input_.write(neuronForwardReference(forward, input_.reference()).values);
    }
    if (problem.direction != Forward) {
      const auto count = static_cast<std::size_t>(problem.gradient.elements());
      const RandomKind kind = tier == Tier::Exact ? RandomKind::SmallIntegers : RandomKind::Uniform;
      gradient_.write(
          randomValues(count, kSeed + 1, isUnorm(problem.gradient.format) ? RandomKind::ZeroOrOne : kind));
      if (problem.hasAddend()) addend_.write(randomValues(count, kSeed + 2, kind));
    }
  }

  void writeInput(const std::vector<double>& values) {
    input_.write(values);
    if (problem_.hasSides && problem_.direction == Gradient)
      std::ranges::copy(sides(), saved_.bytes().begin());
  }
  TestTensor& destination() { return destination_; }

  void execute(int threads = kThreads, bool accumulate = false) {
    const ChosenPlan chosen = preparePlan(neuronImplementationsCpu(), problem_);
    EXPECT_EQ(chosen.plan->scratchBytes(), 0U);
    Operands operands;
    if (problem_.direction == Forward || !problem_.hasSides)
      (problem_.direction == GradientFromResult ? operands.secondary : operands.source) = input_.address();
    operands.saved = saved_.address();
    operands.gradient = problem_.direction == Forward ? nullptr : gradient_.address();
    operands.parameters[0] = problem_.hasAddend() ? addend_.address() : nullptr;
    operands.destination = destination_.address();
    operands.accumulate = accumulate;
    mtl::cpu::Stream stream(threads);
    chosen.plan->run(stream, operands);
    EXPECT_TRUE(input_.isUnchanged()) << "the input was written";
    EXPECT_TRUE(gradient_.isUnchanged()) << "the incoming gradient was written";
    EXPECT_TRUE(addend_.isUnchanged()) << "the addend was written";
    EXPECT_TRUE(saved_.guardsIntact()) << "memory around the saved sides was written";
    EXPECT_TRUE(!problem_.hasSides || std::ranges::equal(saved_.bytes(), sides())) << "other sides";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }

  [[nodiscard]] ReferenceTensor expected(const NeuronProblem& problem) const {
    const ReferenceTensor addend = addend_.reference();
    return problem.direction == Forward
               ? neuronForwardReference(problem, input_.reference())
               : neuronGradientReference(problem, input_.reference(), gradient_.reference(),
                                         problem.hasAddend() ? &addend : nullptr);
  }
  [[nodiscard]] ReferenceTensor expected() const { return expected(problem_); }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  [[nodiscard]] std::vector<std::byte> sides() const { return neuronSidesReference(input_.reference()); }

  NeuronProblem problem_;
  TestTensor input_;
  TestTensor gradient_;
  TestTensor addend_;
  TestTensor destination_;
  GuardedMemory saved_;
};

void check(const NeuronProblem& problem, const NeuronCase& item, Tier tier) {
  SCOPED_TRACE(problem.describe() + " " + name(tier));
  Call call(problem, item, tier);
  call.execute();
  const Comparison comparison =
      compare(call.expected(), call.found(), problem.destination.format, tier, Zeros::Expected);
  EXPECT_TRUE(comparison.passed()) << comparison.report;
}

struct Formats {
  ImageFeatureChannelFormat source;
  ImageFeatureChannelFormat destination;
};
constexpr Formats kFormats[] = {{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32},
                                {Unorm16, Float16}, {Float32, Float16}, {Float16, Float32}};

/// Whether a result of integers is exact in this direction: the derivatives of the exact types are small
/// numbers.
Tier tierOf(const NeuronCase& item, Formats formats) {
  const bool exactInputs = !isUnorm(formats.destination);
  return item.exact && exactInputs ? Tier::Exact : Tier::Bounded;
}

/// Calls body(case, tensors, formats) for every neuron on a few tensors and for one neuron on all of them.
template <class Body>
void forEachCase(Body&& body) {
  const std::vector<NeuronTensors> all = neuronTensors();
  for (const Formats& formats : kFormats)
    for (const NeuronTensors& tensors : all) {
      const std::vector<NeuronCase> neurons = neuronCases(tensors.channels);
      const bool isSmall = tensors.images * tensors.height * tensors.width * tensors.channels < 600;
      for (const NeuronCase& item : neurons) {
        const CNNNeuronType type = item.neuron.neuronType();
        if (isSmall || type == CNNNeuronType::PReLU || type == CNNNeuronType::GeLU)
          body(item, tensors, formats);
      }
    }
}

TEST(NeuronPlan, Forward) {
  forEachCase([](const NeuronCase& item, const NeuronTensors& tensors, Formats formats) {
    const NeuronProblem problem = tensors.problem(Forward, item.neuron, formats.source, formats.destination);
    check(problem, item, Tier::Bounded);
    if (tierOf(item, formats) == Tier::Exact) check(problem, item, Tier::Exact);
  });
}

TEST(NeuronPlan, ForwardToUnorm) {
  const NeuronTensors tensors = neuronTensors()[3];
  for (const Formats& formats :
       {Formats{Float32, Unorm8}, Formats{Float16, Unorm16}, Formats{Unorm8, Unorm8}})
    for (const NeuronCase& item : neuronCases(tensors.channels))
      check(tensors.problem(Forward, item.neuron, formats.source, formats.destination), item, Tier::Bounded);
}

TEST(NeuronPlan, Gradient) {
  forEachCase([](const NeuronCase& item, const NeuronTensors& tensors, Formats formats) {
    const NeuronProblem problem = tensors.problem(Gradient, item.neuron, formats.source, formats.destination);
    check(problem, item, Tier::Bounded);
    if (tierOf(item, formats) == Tier::Exact) check(problem, item, Tier::Exact);
  });
}

TEST(NeuronPlan, GradientFromResult) {
  int checked = 0;
  forEachCase([&](const NeuronCase& item, const NeuronTensors& tensors, Formats formats) {
    if (!derivativeFromResult(item.neuron) || isUnorm(formats.source)) return;
    for (const NeuronProblem& problem :
         {tensors.problem(GradientFromResult, item.neuron, formats.source, formats.destination),
          tensors.problemWithAddend(item.neuron, formats.source, formats.destination)}) {
      check(problem, item, Tier::Bounded);
      if (tierOf(item, formats) == Tier::Exact) check(problem, item, Tier::Exact);
    }
    ++checked;
  });
  EXPECT_GT(checked, 100);
}

TEST(NeuronPlan, Sides) {
  int checked = 0;
  forEachCase([&](const NeuronCase& item, const NeuronTensors& tensors, Formats formats) {
    for (const NeuronDirection direction : {Forward, Gradient}) {
      const NeuronProblem problem =
          tensors.problemWithSides(direction, item.neuron, formats.source, formats.destination);
      if (!problem.hasSides) continue;
      check(problem, item, Tier::Bounded);
      if (tierOf(item, formats) == Tier::Exact) check(problem, item, Tier::Exact);
      ++checked;
    }
  });
  EXPECT_GT(checked, 50);
}

TEST(NeuronPlan, SidesAreOfKinksAndOfWholeGroupsOfFour) {
  const auto canHaveSides = [](const NNNeuronDescriptor& neuron, ImageFeatureChannelFormat format,
                               std::int64_t channels) {
    NeuronProblem problem;
    problem.neuron = neuron;
    problem.input = TensorShape::dense(1, 1, 1, channels, format);
    return problem.canHaveSides();
  };
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU);
  EXPECT_TRUE(canHaveSides(relu, Float32, 4));
  EXPECT_TRUE(canHaveSides(relu, Float16, 12));
  EXPECT_TRUE(canHaveSides(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(std::vector<float>(4)), Float32, 4));
  EXPECT_FALSE(canHaveSides(relu, Float32, 6));
  EXPECT_FALSE(canHaveSides(relu, Unorm8, 4));
  EXPECT_FALSE(canHaveSides(relu, Unorm16, 4));
  EXPECT_FALSE(canHaveSides(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLUN), Float32, 4));
  EXPECT_FALSE(canHaveSides(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ELU), Float32, 4));
}

TEST(NeuronPlan, EveryInstructionSet) {
  forEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    const NeuronTensors tensors = neuronTensors()[3];
    for (const auto format : {Float32, Float16})
      for (const NeuronCase& item : neuronCases(tensors.channels))
        for (const NeuronDirection direction : {Forward, Gradient})
          check(tensors.problem(direction, item.neuron, format, format), item, Tier::Bounded);
    for (const NeuronTensors& ofFours : neuronTensors())
      for (const NeuronCase& item : neuronCases(ofFours.channels))
        for (const NeuronDirection direction : {Forward, Gradient})
          if (const auto problem = ofFours.problemWithSides(direction, item.neuron, Float16, Float32);
              problem.hasSides)
            check(problem, item, Tier::Bounded);
    for (const auto format : {Float32, Float16})
      for (const NeuronCase& item : neuronCases(tensors.channels))
        if (derivativeFromResult(item.neuron))
          check(tensors.problemWithAddend(item.neuron, format, format), item, Tier::Bounded);
  });
}

TEST(NeuronPlan, ResultsThatDoNotTellTheDerivativeAreRefused) {
  const NeuronTensors tensors = neuronTensors()[1];
  const auto refused = [&](const NNNeuronDescriptor& neuron, ImageFeatureChannelFormat format) {
    const Preparation preparation = neuronImplementationsCpu().back().prepare(
        tensors.problem(GradientFromResult, neuron, format, Float32));
    return std::holds_alternative<Refusal>(preparation);
  };
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU);
  EXPECT_FALSE(refused(relu, Float32));
  EXPECT_FALSE(refused(relu, Float16));
  EXPECT_TRUE(refused(relu, Unorm8));
  EXPECT_TRUE(refused(relu, Unorm16));
  EXPECT_TRUE(refused(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::GeLU), Float32));
  EXPECT_TRUE(refused(NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, -1.0F), Float32));
}

TEST(NeuronPlan, NotANumberAndInfinity) {
  const NeuronTensors tensors = neuronTensors()[4];  // of 12 channels
  for (const auto format : {Float32, Float16})
    for (const NeuronCase& item : neuronCases(tensors.channels))
      for (const NeuronProblem& problem : {tensors.problem(Forward, item.neuron, format, format),
                                           tensors.problem(Gradient, item.neuron, format, format),
                                           tensors.problemWithSides(Forward, item.neuron, format, format),
                                           tensors.problemWithSides(Gradient, item.neuron, format, format)}) {
        SCOPED_TRACE(problem.describe());
        Call call(problem, item, Tier::Bounded);
        std::vector<double> values = inputValues(item, problem.input, Tier::Bounded, kSeed + 5);
        for (std::size_t i = 0; i < values.size(); i += 3) values[i] = std::nan("");
        for (std::size_t i = 1; i < values.size(); i += 6) values[i] = HUGE_VAL;
        for (std::size_t i = 4; i < values.size(); i += 6) values[i] = -HUGE_VAL;
        call.writeInput(values);
        call.execute();
        const Comparison comparison =
            compare(call.expected(), call.found(), format, Tier::Bounded, Zeros::Expected);
        EXPECT_TRUE(comparison.passed()) << comparison.report;
      }
}

TEST(NeuronPlan, Accumulates) {
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0.25F);
  const NeuronCase item{.neuron = relu, .exact = true};
  for (const NeuronTensors& tensors : neuronTensors())
    for (const NeuronProblem& problem : {tensors.problem(Gradient, relu, Float32, Float32),
                                         tensors.problemWithSides(Gradient, relu, Float32, Float32),
                                         tensors.problem(GradientFromResult, relu, Float32, Float32),
                                         tensors.problemWithAddend(relu, Float32, Float32)}) {
      SCOPED_TRACE(problem.describe());
      Call call(problem, item, Tier::Exact);
      const auto count = static_cast<std::size_t>(problem.destination.elements());
      const std::vector<double> before = randomValues(count, kSeed + 9, RandomKind::SmallIntegers);
      call.destination().write(before);
      call.execute(kThreads, true);
      ReferenceTensor expected = call.expected();
      for (std::size_t i = 0; i < count; ++i) expected.values[i] += before[i];
      const Comparison comparison = compare(expected, call.found(), Float32, Tier::Exact, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
}

TEST(NeuronPlan, OnlyFloat32GradientsAccumulate) {
  const NeuronTensors tensors = neuronTensors()[1];
  const auto canAccumulate = [&](NeuronDirection direction, ImageFeatureChannelFormat format) {
    const NeuronProblem problem = tensors.problem(
        direction, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU), Float32, format);
    return preparePlan(neuronImplementationsCpu(), problem).plan->canAccumulate();
  };
  EXPECT_TRUE(canAccumulate(Gradient, Float32));
  EXPECT_TRUE(canAccumulate(GradientFromResult, Float32));
  EXPECT_FALSE(canAccumulate(Gradient, Float16));
  EXPECT_FALSE(canAccumulate(Forward, Float32));
}

TEST(NeuronPlan, InPlace) {
  for (const auto format : {Float32, Float16})
    for (const NeuronTensors& tensors : neuronTensors()) {
      NeuronProblem problem = tensors.problem(
          Forward, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Sigmoid), format, format);
      problem.input = problem.destination;
      SCOPED_TRACE(problem.describe());
      const NeuronCase item{.neuron = problem.neuron};
      TestTensor tensor(testDevice(), problem.input);
      tensor.write(inputValues(item, problem.input, Tier::Bounded, kSeed));
      const ReferenceTensor expected = neuronForwardReference(problem, tensor.reference());
      Operands operands;
      operands.source = operands.destination = tensor.address();
      mtl::cpu::Stream stream(kThreads);
      preparePlan(neuronImplementationsCpu(), problem).plan->run(stream, operands);
      const Comparison comparison = compare(expected, tensor.read(), format, Tier::Bounded);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
      EXPECT_TRUE(tensor.surroundingsIntact());
    }
}

TEST(NeuronPlan, InPlaceWithSides) {
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, -0.5F);
  for (const auto format : {Float32, Float16})
    for (const NeuronTensors& tensors : neuronTensors()) {
      NeuronProblem problem = tensors.problemWithSides(Forward, relu, format, format);
      if (!problem.hasSides) continue;
      problem.input = problem.destination;
      SCOPED_TRACE(problem.describe());
      TestTensor tensor(testDevice(), problem.input);
      tensor.write(inputValues({.neuron = relu, .exact = true}, problem.input, Tier::Exact, kSeed));
      const std::vector<std::byte> sides = neuronSidesReference(tensor.reference());
      const ReferenceTensor expected = neuronForwardReference(problem, tensor.reference());
      GuardedMemory saved(testDevice(), problem.savedBytes());
      Operands operands;
      operands.source = operands.destination = tensor.address();
      operands.saved = saved.address();
      mtl::cpu::Stream stream(kThreads);
      preparePlan(neuronImplementationsCpu(), problem).plan->run(stream, operands);
      EXPECT_TRUE(std::ranges::equal(saved.bytes(), sides));
      const Comparison comparison = compare(expected, tensor.read(), format, Tier::Exact, Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    }
}

/// The sum of two float16 numbers that float16 cannot hold; the result takes the place of either.
TEST(NeuronPlan, ASumOfGradientsIsNotRounded) {
  constexpr float slope = 1.0F / 256;
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, slope);
  NeuronProblem problem = neuronTensors()[1].problemWithAddend(relu, Float16, Float16);
  problem.gradient = problem.addend = problem.destination;
  const auto count = static_cast<std::size_t>(problem.destination.elements());
  TestTensor result(testDevice(), problem.input);
  result.write(std::vector<double>(count, -slope));
  for (const bool isOverAddend : {false, true}) {
    TestTensor gradient(testDevice(), problem.gradient);
    TestTensor addend(testDevice(), problem.addend);
    gradient.write(std::vector<double>(count, 40000));
    addend.write(std::vector<double>(count, 40000));
    TestTensor& destination = isOverAddend ? addend : gradient;
    Operands operands;
    operands.secondary = result.address();
    operands.gradient = gradient.address();
    operands.parameters[0] = addend.address();
    operands.destination = destination.address();
    mtl::cpu::Stream stream(kThreads);
    preparePlan(neuronImplementationsCpu(), problem).plan->run(stream, operands);
    EXPECT_EQ(destination.read(), std::vector<double>(count, 80000 * slope));
    EXPECT_TRUE(destination.surroundingsIntact());
  }
}

TEST(NeuronPlan, ThreadCountDoesNotMatter) {
  const NeuronTensors tensors = neuronTensors().back();
  const NeuronCase item{.neuron = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::GeLU)};
  for (const NeuronDirection direction : {Forward, Gradient}) {
    Call call(tensors.problem(direction, item.neuron, Float32, Float32), item, Tier::Bounded);
    call.execute(1);
    const std::vector<double> one = call.found();
    for (const int threads : {2, 7}) {
      call.destination().poison();
      call.execute(threads);
      EXPECT_EQ(call.found(), one) << threads << " threads";
    }
  }
}

TEST(NeuronPlan, NoImages) {
  NeuronTensors tensors = neuronTensors()[1];
  tensors.images = 0;
  const NeuronProblem problem = tensors.problem(
      Forward, NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU), Float32, Float32);
  mtl::cpu::Stream stream(kThreads);
  preparePlan(neuronImplementationsCpu(), problem).plan->run(stream, {});
}

/// A reference with one number changed must not agree: the comparison sees every field.
TEST(NeuronPlan, EveryFieldMatters) {
  using enum CNNNeuronType;
  const NeuronTensors tensors = neuronTensors()[1];
  const auto expectSeen = [&](const NNNeuronDescriptor& neuron, const char* what, auto change) {
    for (const NeuronDirection direction : {Forward, Gradient}) {
      const NeuronProblem problem = tensors.problem(direction, neuron, Float32, Float32);
      const NeuronCase item{.neuron = neuron};
      Call call(problem, item, Tier::Bounded);
      call.execute();
      EXPECT_TRUE(compare(call.expected(), call.found(), Float32, Tier::Bounded).passed())
          << problem.describe();
      NeuronProblem changed = problem;
      change(changed.neuron);
      EXPECT_FALSE(compare(call.expected(changed), call.found(), Float32, Tier::Bounded).passed())
          << problem.describe() << ": " << what;
      EXPECT_FALSE(changed == problem) << what;
      EXPECT_NE(changed.hash(), problem.hash()) << what;
    }
  };
  const auto neuron = [](auto... arguments) { return NNNeuronDescriptor::cnnNeuronDescriptor(arguments...); };
  constexpr float change = 1.0F + 0x1p-12F;
  expectSeen(neuron(ReLU, 0.1F), "a", [](auto& d) { d.setA(d.a() * change); });
  expectSeen(neuron(TanH, 1.5F, 0.5F), "a", [](auto& d) { d.setA(d.a() * change); });
  expectSeen(neuron(TanH, 1.5F, 0.5F), "b", [](auto& d) { d.setB(d.b() * change); });
  expectSeen(neuron(SoftPlus, 1.5F, 0.5F), "b", [](auto& d) { d.setB(d.b() * change); });
  expectSeen(neuron(Power, 0.5F, 2.5F, 1.5F), "c", [](auto& d) { d.setC(d.c() * change); });
  expectSeen(neuron(Exponential, 0.5F, 2.5F, 1.5F), "c", [](auto& d) { d.setC(d.c() * change); });
  expectSeen(neuron(ReLUN, 0.5F, 2.0F), "b", [](auto& d) { d.setB(1.5F); });
  expectSeen(neuron(GeLU), "type", [](auto& d) { d.setNeuronType(Sigmoid); });
  expectSeen(NNNeuronDescriptor::cnnNeuronPReLUDescriptor(std::vector<float>{0.5F, 0.25F, -1.0F}), "slopes",
             [](auto& d) {
               d.setData(std::vector<float>{0.5F, 0.25F * change, -1.0F});
             });
  const NeuronProblem ofSum = tensors.problemWithAddend(neuron(TanH, 1.5F, 0.5F), Float32, Float32);
  Call call(ofSum, {.neuron = ofSum.neuron}, Tier::Bounded);
  call.execute();
  NeuronProblem withoutAddend = ofSum;
  withoutAddend.addend = {};
  EXPECT_FALSE(compare(call.expected(withoutAddend), call.found(), Float32, Tier::Bounded).passed());
  const NeuronProblem forward = tensors.problem(Forward, neuron(GeLU), Float32, Float32);
  NeuronProblem changed = forward;
  changed.direction = Gradient;
  EXPECT_NE(changed.hash(), forward.hash());
  changed = forward;
  changed.hasSides = true;
  EXPECT_FALSE(changed == forward);
  EXPECT_NE(changed.hash(), forward.hash());
  for (TensorShape NeuronProblem::*shape : {&NeuronProblem::input, &NeuronProblem::gradient,
                                            &NeuronProblem::addend, &NeuronProblem::destination}) {
    changed = forward;
    ++(changed.*shape).pixelStride;
    EXPECT_FALSE(changed == forward);
    EXPECT_NE(changed.hash(), forward.hash());
  }
}

}  // namespace
}  // namespace mps::detail::neuron_plan_test
