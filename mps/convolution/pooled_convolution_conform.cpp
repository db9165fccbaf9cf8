#include "mps/convolution/pooled_convolution_conform.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "mps/conform/guarded_memory.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/convolution/convolution_cases.hpp"
#include "mps/convolution/convolution_reference.hpp"
#include "mps/convolution/pooled_convolution.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

using PooledImplementation = Implementation<PooledConvolutionProblem>;

/// Results are even on both sides.
std::vector<ConvolutionCase> pooledCases() {
  const auto withReLU = [](ConvolutionCase one) {
    one.neuron = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU, 0);
    return one;
  };
  const ConvolutionCase cases[] = {
      {.name = "FirstLayer5x5", .images = 1, .y = sameWindow(28, 5), .x = sameWindow(28, 5), .outputs = 32},
      {.name = "Narrow5x5", .images = 3, .y = sameWindow(6, 5), .x = sameWindow(2, 5), .outputs = 4},
      {.name = "Valid5x5", .images = 2, .y = validWindow(10, 5), .x = validWindow(18, 5), .outputs = 12},
      {.name = "SixColumns3x3", .images = 5, .y = sameWindow(4, 3), .x = sameWindow(6, 3), .outputs = 8},
      {.name = "Clamp3x3",
       .images = 2,
       .y = sameWindow(8, 3),
       .x = sameWindow(10, 3),
       .outputs = 16,
       .edgeMode = ImageEdgeMode::Clamp,
       .hasBias = false},
      {.name = "Tall3x3", .images = 1, .y = sameWindow(70, 3), .x = sameWindow(14, 3), .outputs = 40},
      {.name = "SeveralInputs5x5",
       .images = 2,
       .y = sameWindow(8, 5),
       .x = sameWindow(8, 5),
       .inputs = 3,
       .outputs = 8},
  };
  std::vector<ConvolutionCase> all;
  for (const ConvolutionCase& one : cases) all.push_back(withReLU(one));
  return all;
}

PooledConvolutionProblem problemOf(const ConvolutionCase& one, ConvolutionOperation operation,
                                   const mtl::Device& device) {
  PooledConvolutionProblem problem;
  problem.convolution =
      one.problem(operation, ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
  problem.convolution.threadCount = device.threadCount();
  problem.convolution.deviceName = device.name();
  problem.pooled =
      TensorShape::dense(one.images, one.y.destinationSize / 2, one.x.destinationSize / 2, one.outputs);
  return problem;
}

/// Calls visit(index of the maximum, indices of its window's four results in row-major order).
template <class Visit>
void forEachMaximum(const ReferenceTensor& pooled, const ReferenceTensor& dense, Visit visit) {
  for (std::int64_t n = 0; n < pooled.images; ++n)
    for (std::int64_t y = 0; y < pooled.height; ++y)
      for (std::int64_t x = 0; x < pooled.width; ++x)
        for (std::int64_t k = 0; k < pooled.channels; ++k)
          visit(pooled.index(n, y, x, k),
                std::array{dense.index(n, 2 * y, 2 * x, k), dense.index(n, 2 * y, 2 * x + 1, k),
                           dense.index(n, 2 * y + 1, 2 * x, k), dense.index(n, 2 * y + 1, 2 * x + 1, k)});
}

void runForward(ConformRun& run, const Plan& plan, const PooledConvolutionProblem& problem, Tier tier) {
  const ConvolutionProblem& convolution = problem.convolution;
  const RandomKind kind = valuesFor(tier, ImageFeatureChannelFormat::Float32);
  TestTensor source = run.source(convolution.source, kind, 1);
  TestTensor weights = run.source(TensorShape::dense(1, 1, 1, convolution.weightCount()), kind, 1);
  TestTensor bias = run.source(TensorShape::dense(1, 1, 1, convolution.biasCount()), kind, 1);
  TestTensor destination = run.destination(problem.pooled);
  GuardedMemory places(run.device(), problem.savedBytes());
  Operands operands;
  operands.source = source.address();
  operands.destination = destination.address();
  operands.saved = places.address();
  operands.parameters = {weights.address(), bias.address()};
  run.execute(plan, operands);
  places.synchronize();
  run.require(places.guardsIntact(), "memory around the places was written");
  for (TestTensor* input : {&source, &weights, &bias})
    run.require(input->isUnchanged(), "an input was written");

  const ReferenceTensor result =
      convolutionForwardReference(convolution, source.reference(), weights.read(),
                                  convolution.hasBias ? bias.read() : std::vector<double>());
  ReferenceTensor expected(problem.pooled.images, problem.pooled.height, problem.pooled.width,
                           problem.pooled.channels);
  expected.magnitude.resize(expected.values.size());
  expected.roundings = result.roundings;
  expected.transcendental = result.transcendental;
  std::vector<std::byte> expectedPlaces(problem.savedBytes());
  forEachMaximum(expected, result, [&](std::size_t to, const auto& window) {
    std::size_t chosen = 0;
    for (std::size_t tap = 1; tap < window.size(); ++tap)
      if (result.values[window[tap]] > result.values[window[chosen]]) chosen = tap;
    expected.values[to] = result.values[window[chosen]];
    for (const std::size_t from : window)
      expected.magnitude[to] = std::max(expected.magnitude[to], result.magnitude[from]);
    expectedPlaces[to] = static_cast<std::byte>(std::signbit(expected.values[to]) ? kNoPlace : chosen);
  });
  run.check(expected, destination);
  // Elsewhere float32 may find another one of two that are nearly the same.
  if (tier == Tier::Exact)
    run.require(std::ranges::equal(places.bytes(), expectedPlaces), "the places differ");
}

void runGradient(ConformRun& run, const Plan& plan, const PooledConvolutionProblem& problem, Tier tier) {
  const ConvolutionProblem& convolution = problem.convolution;
  const RandomKind kind = valuesFor(tier, ImageFeatureChannelFormat::Float32);
  TestTensor source = run.source(convolution.source, kind, 1);
  TestTensor gradient = run.source(problem.pooled, kind, 1);
  TestTensor weightGradients = run.destination(TensorShape::dense(1, 1, 1, convolution.weightCount()), 3);
  TestTensor biasGradients = run.destination(TensorShape::dense(1, 1, 1, convolution.biasCount()), 5);
  GuardedMemory places(run.device(), problem.savedBytes());
  const std::vector<double> dice = run.values(problem.savedBytes(), RandomKind::Positive);
  for (std::size_t i = 0; i < dice.size(); ++i) {
    const int number = static_cast<int>(dice[i] * 5);  // four taps, or none
    places.bytes()[i] = static_cast<std::byte>(number > 3 ? kNoPlace : number);
  }
  places.didModify();
  Operands operands;
  operands.source = source.address();
  operands.gradient = gradient.address();
  operands.saved = places.address();
  operands.parameters = {nullptr, nullptr, weightGradients.address(), biasGradients.address()};
  run.execute(plan, operands);
  for (TestTensor* input : {&source, &gradient}) run.require(input->isUnchanged(), "an input was written");

  const ReferenceTensor given = gradient.reference();
  ReferenceTensor dense(given.images, 2 * given.height, 2 * given.width, given.channels);
  forEachMaximum(given, dense, [&](std::size_t from, const auto& window) {
    for (std::size_t tap = 0; tap < window.size(); ++tap)
      if (std::to_integer<std::size_t>(places.bytes()[from]) == tap)
        dense.values[window[tap]] = given.values[from];
  });
  const auto expected = convolutionWeightsGradientReference(convolution, source.reference(), dense);
  run.check(expected.weights, weightGradients);
  if (convolution.hasBias) run.check(expected.bias, biasGradients);
}

}  // namespace

void conformPooledConvolution(Conform& conform) {
  for (const PooledImplementation& implementation : conform.implementations(pooledConvolutionBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded})
      for (const bool isForward : {true, false}) {
        const ConformKey key{isForward ? "CNNConvolution" : "CNNConvolutionGradient",
                             isForward ? Direction::Forward : Direction::Gradient,
                             ImageFeatureChannelFormat::Float32, std::string(implementation.name), tier};
        if (!conform.isSelected(key)) continue;
        std::vector<ConformCase> cases;
        for (const ConvolutionCase& one : pooledCases())
          cases.push_back(
              {std::string(one.name), [=](ConformRun& run) {
                 const PooledConvolutionProblem problem = problemOf(
                     one, isForward ? ConvolutionOperation::Forward : ConvolutionOperation::WeightsGradient,
                     *run.device());
                 const auto plan = run.prepare(implementation, problem);
                 if (!plan) return;
                 if (isForward)
                   runForward(run, *plan, problem, tier);
                 else
                   runGradient(run, *plan, problem, tier);
               }});
        conformRow(conform, key, cases);
      }
}

}  // namespace mps::detail
