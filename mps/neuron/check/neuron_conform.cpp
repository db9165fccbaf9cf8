#include <algorithm>
#include <cmath>

#include "mps/conform/kernel_cases.hpp"
#include "mps/neuron/check/neuron_cases.hpp"
#include "mps/neuron/check/neuron_reference.hpp"
#include "mps/neuron/neuron.hpp"

namespace mps::detail {
namespace {

using NeuronImplementation = Implementation<NeuronProblem>;

/// Arguments where the neuron of the case is smooth or at least finite.
std::vector<double> arguments(ConformRun& run, const NeuronCase& item, Tier tier,
                              ImageFeatureChannelFormat format, std::size_t count) {
  std::vector<double> values = run.values(count, valuesFor(tier, format));
  if (tier == Tier::Exact || isUnorm(format)) return values;
  for (double& value : values) value = item.lowest + (item.highest - item.lowest) * (value + 1) / 2;
  return values;
}

/// What the neuron meets: such arguments, with some that are no numbers where they are saved as a side.
TestTensor inputOf(ConformRun& run, const NeuronCase& item, const NeuronProblem& problem, Tier tier) {
  std::vector<double> values =
      arguments(run, item, tier, problem.input.format, static_cast<std::size_t>(problem.input.elements()));
  if (problem.hasSides)
    for (std::size_t i = 5; i < values.size(); i += 23) values[i] = std::nan("");
  TestTensor input = run.source(problem.input, values, 1);
  if (problem.direction == NeuronDirection::GradientFromResult)
    input.write(neuronForwardReference(problem, input.reference()).values);
  return input;
}

void runPlan(ConformRun& run, const NeuronImplementation& implementation, const NeuronCase& item,
             const NeuronProblem& problem, Tier tier) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const bool isForward = problem.direction == NeuronDirection::Forward;
  const bool fromResult = problem.direction == NeuronDirection::GradientFromResult;
  TestTensor input = inputOf(run, item, problem, tier);
  TestTensor gradient = run.source(problem.gradient, valuesFor(tier, problem.gradient.format), 3);
  TestTensor addend = run.source(problem.addend, valuesFor(tier, problem.addend.format), 5);
  TestTensor destination = run.destination(problem.destination, 2);
  GuardedMemory saved(run.device(), problem.savedBytes());
  const std::vector<std::byte> sides =
      problem.hasSides ? neuronSidesReference(input.reference()) : std::vector<std::byte>();
  if (!isForward) {
    std::ranges::copy(sides, saved.bytes().begin());
    saved.didModify();
  }
  Operands operands{.destination = destination.address(), .saved = saved.address()};
  // What the problem says is not read stays null.
  if (isForward || !problem.hasSides) (fromResult ? operands.secondary : operands.source) = input.address();
  if (!isForward) operands.gradient = gradient.address();
  if (problem.hasAddend()) operands.parameters[0] = addend.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged() && gradient.isUnchanged() && addend.isUnchanged(), "an input was written");
  saved.synchronize();
  run.require(saved.guardsIntact(), "memory around the saved sides was written");
  run.require(std::ranges::equal(saved.bytes(), sides), "the saved sides differ");
  const ReferenceTensor added = addend.reference();
  const ReferenceTensor expected =
      isForward ? neuronForwardReference(problem, input.reference())
                : neuronGradientReference(problem, input.reference(), gradient.reference(),
                                          problem.hasAddend() ? &added : nullptr);
  run.check(expected, destination, Zeros::Expected);
  run.checkAccumulated(*plan, operands, expected, destination);
}

void runKernel(ConformRun& run, const NeuronCase& item, const KernelBatch& batch, NeuronDirection direction,
               ConformFormats formats, Tier tier) {
  const auto forward = CNNNeuron::create(run.device(), item.neuron);
  const std::size_t count = batch.count * batch.height * batch.width * batch.channels;
  const TestImages sources = imagesOf(run, batch.form, batch.descriptor(formats.source), batch.count,
                                      arguments(run, item, tier, formats.source, count));
  NeuronProblem problem;
  problem.direction = direction;
  problem.neuron = item.neuron;
  if (direction == NeuronDirection::Forward) {
    runForwardKernel(run, *forward, sources, batch.form, formats.result,
                     [&](const ReferenceTensor& x) { return neuronForwardReference(problem, x); });
    return;
  }
  const auto gradient = CNNNeuronGradient::create(run.device(), item.neuron);
  runGradientKernel(run, *forward, *gradient, sources, batch.form, false, valuesFor(tier, formats.result),
                    [&](const ReferenceTensor& x, const ReferenceTensor& dy) {
                      return neuronGradientReference(problem, x, dy);
                    });
}

/// Every neuron on small tensors, two of them on all.
void addPlanCases(std::vector<ConformCase>& cases, const NeuronImplementation& implementation,
                  NeuronDirection direction, ConformFormats formats, Tier tier) {
  for (const NeuronTensors& tensors : neuronTensors()) {
    const bool isSmall = tensors.images * tensors.height * tensors.width * tensors.channels < 600;
    for (const NeuronCase& item : neuronCases(tensors.channels)) {
      const CNNNeuronType type = item.neuron.neuronType();
      if (tier == Tier::Exact && !item.exact) continue;
      if (!isSmall && type != CNNNeuronType::PReLU && type != CNNNeuronType::GeLU) continue;
      const auto add = [&](const NeuronProblem& problem) {
        cases.push_back({tensors.name + ": " + problem.describe(),
                         [=](ConformRun& run) { runPlan(run, implementation, item, problem, tier); }});
      };
      const bool fromResult = direction == NeuronDirection::GradientFromResult;
      if (fromResult && !derivativeFromResult(item.neuron)) continue;
      const NeuronProblem problem = tensors.problem(direction, item.neuron, formats.source, formats.result);
      add(problem);
      if (!fromResult && problem.canHaveSides())
        add(tensors.problemWithSides(direction, item.neuron, formats.source, formats.result));
      if (fromResult) add(tensors.problemWithAddend(item.neuron, formats.source, formats.result));
    }
  }
}

/// Each form of a batch with each neuron.
void addKernelCases(std::vector<ConformCase>& cases, NeuronDirection direction, ConformFormats formats,
                    Tier tier) {
  const std::vector<KernelBatch> batches = kernelBatches();
  const std::size_t neurons = neuronCases(1).size();
  for (std::size_t i = 0; i < std::max(neurons, batches.size()); ++i) {
    const KernelBatch& batch = batches[i % batches.size()];
    const NeuronCase item = neuronCases(static_cast<std::int64_t>(batch.channels))[i % neurons];
    if (tier == Tier::Exact && !item.exact) continue;
    cases.push_back(
        {batch.name, [=](ConformRun& run) { runKernel(run, item, batch, direction, formats, tier); }});
  }
}

void conformDirection(Conform& conform, const NeuronImplementation& implementation, bool isForward,
                      ConformFormats formats, Tier tier) {
  const ConformKey key{isForward ? "CNNNeuron" : "CNNNeuronGradient",
                       isForward ? Direction::Forward : Direction::Gradient, formats.source,
                       std::string(implementation.name), tier};
  if (!conform.isSelected(key)) return;
  const NeuronDirection direction = isForward ? NeuronDirection::Forward : NeuronDirection::Gradient;
  std::vector<ConformCase> cases;
  addPlanCases(cases, implementation, direction, formats, tier);
  if (!isForward) addPlanCases(cases, implementation, NeuronDirection::GradientFromResult, formats, tier);
  addKernelCases(cases, direction, formats, tier);
  conformRow(conform, key, cases);
}

}  // namespace

void conformNeuron(Conform& conform) {
  for (const NeuronImplementation& implementation : conform.implementations(neuronBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
      for (const ConformFormats formats : kForwardFormats)
        conformDirection(conform, implementation, true, formats, tier);
      for (const auto format : kGradientFormats)
        conformDirection(conform, implementation, false, {format, format}, tier);
    }
}

}  // namespace mps::detail
