#include "mps/conform/kernel_cases.hpp"
#include "mps/reshape/check/reshape_cases.hpp"
#include "mps/reshape/check/reshape_reference.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"

namespace mps::detail {
namespace {

using ReshapeImplementation = Implementation<ReshapeProblem>;

/// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
void runPlan(ConformRun& run, const ReshapeImplementation& implementation, const ReshapeProblem& problem,
             Tier tier, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor input = run.source(problem.input, valuesFor(tier, problem.input.format), firstElement);
  TestTensor destination = run.destination(problem.destination, 3 * firstElement);
  Operands operands{.destination = destination.address()};
  (problem.direction == ReshapeDirection::Forward ? operands.source : operands.gradient) = input.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged(), "an input was written");
  const ReferenceTensor expected = reshapeReference(problem, input.reference());
  run.check(expected, destination, Zeros::Expected);
  run.checkAccumulated(*plan, operands, expected, destination);
}

void runKernels(ConformRun& run, CNNKernel& forward, CNNGradientKernel& gradient, ReshapeProblem problem,
                const KernelBatch& batch, ConformFormats formats, Tier tier) {
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  const ImageDescriptor size = forward.sizeDestination(sources.batch().descriptor());
  const TensorShape source = sources.shape();
  const TensorShape result = TensorShape::dense(
      source.images, static_cast<std::int64_t>(size.height()), static_cast<std::int64_t>(size.width()),
      static_cast<std::int64_t>(size.featureChannels()), formats.result);
  const bool isForward = problem.direction == ReshapeDirection::Forward;
  problem.input = isForward ? source : result;
  problem.destination = isForward ? result : source;
  if (isForward)
    return runForwardKernel(run, forward, sources, batch.form, formats.result,
                            [&](const ReferenceTensor& x) { return reshapeReference(problem, x); });
  runGradientKernel(
      run, forward, gradient, sources, batch.form, false, valuesFor(tier, formats.result),
      [&](const ReferenceTensor&, const ReferenceTensor& g) { return reshapeReference(problem, g); });
}

void runKernel(ConformRun& run, ReshapeMapping mapping, ReshapeDirection direction, const KernelBatch& batch,
               ConformFormats formats, Tier tier) {
  ReshapeProblem problem;
  problem.direction = direction;
  problem.mapping = mapping;
  if (problem.isReshape()) {
    const auto reshape = NNReshape::create(run.device());
    reshape->setChannelsFirst(mapping == ReshapeMapping::ChannelsFirst);
    reshape->setReshapedSize(batch.height * batch.channels, 1, batch.width);
    return runKernels(run, *reshape, *NNReshapeGradient::create(run.device()), problem, batch, formats, tier);
  }
  const auto pad = NNPad::create(run.device(), {1, 2, 3}, {4, 3, 1});
  pad->setEdgeMode(ImageEdgeMode::Mirror);
  problem.edgeMode = ImageEdgeMode::Mirror;
  problem.x.before = 1;
  problem.y.before = 2;
  problem.channels.before = 3;
  runKernels(run, *pad, *NNPadGradient::create(run.device()), problem, batch, formats, tier);
}

std::vector<ConformCase> casesOf(const ReshapeImplementation& implementation, ReshapeMapping mapping,
                                 ReshapeDirection direction, ConformFormats formats, Tier tier) {
  std::vector<ConformCase> cases;
  for (const ReshapeCase& reshape : reshapeCases()) {
    if ((reshape.mapping == ReshapeMapping::Axes) != (mapping == ReshapeMapping::Axes)) continue;
    const ReshapeProblem problem = direction == ReshapeDirection::Forward
                                       ? reshape.forward(formats.source, formats.result)
                                       : reshape.gradient(formats.source, formats.result);
    for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
      cases.push_back({reshape.name,
                       [=](ConformRun& run) { runPlan(run, implementation, problem, tier, firstElement); }});
  }
  for (const KernelBatch& batch : kernelBatches()) {
    cases.push_back(
        {batch.name, [=](ConformRun& run) { runKernel(run, mapping, direction, batch, formats, tier); }});
    if (mapping == ReshapeMapping::Order)
      cases.push_back({batch.name + " with the channels first", [=](ConformRun& run) {
                         runKernel(run, ReshapeMapping::ChannelsFirst, direction, batch, formats, tier);
                       }});
  }
  return cases;
}

}  // namespace

void conformReshape(Conform& conform) {
  const auto row = [&](const ReshapeImplementation& implementation, ReshapeMapping mapping,
                       ReshapeDirection direction, ConformFormats formats, Tier tier) {
    const bool isForward = direction == ReshapeDirection::Forward;
    const ConformKey key{
        std::string(mapping == ReshapeMapping::Axes ? "NNPad" : "NNReshape") + (isForward ? "" : "Gradient"),
        isForward ? Direction::Forward : Direction::Gradient, formats.source,
        std::string(implementation.name), tier};
    if (conform.isSelected(key))
      conformRow(conform, key, casesOf(implementation, mapping, direction, formats, tier));
  };
  for (const ReshapeImplementation& implementation : conform.implementations(reshapeBackEnds))
    for (const ReshapeMapping mapping : {ReshapeMapping::Order, ReshapeMapping::Axes})
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          row(implementation, mapping, ReshapeDirection::Forward, formats, tier);
        for (const auto format : kGradientFormats)
          row(implementation, mapping, ReshapeDirection::Gradient, {format, format}, tier);
      }
}

}  // namespace mps::detail
