#include "mps/concatenation/check/concatenation_cases.hpp"
#include "mps/concatenation/check/concatenation_reference.hpp"
#include "mps/concatenation/concatenation.hpp"
#include "mps/conform/kernel_cases.hpp"

namespace mps::detail {
namespace {

using ConcatenationImplementation = Implementation<ConcatenationProblem>;

/// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
void runPlan(ConformRun& run, const ConcatenationImplementation& implementation,
             const ConcatenationProblem& problem, Tier tier, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor input = run.source(problem.input, valuesFor(tier, problem.input.format), firstElement);
  TestTensor second = run.source(problem.second, valuesFor(tier, problem.second.format), firstElement);
  TestTensor destination = run.destination(problem.destination, 3 * firstElement);
  Operands operands{.destination = destination.address()};
  if (problem.hasSecond()) operands.secondary = second.address();
  (problem.direction == ConcatenationDirection::Forward ? operands.source : operands.gradient) =
      input.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged() && second.isUnchanged(), "an input was written");
  const ReferenceTensor behind = second.reference();
  const ReferenceTensor expected =
      concatenationReference(problem, input.reference(), problem.hasSecond() ? &behind : nullptr);
  run.check(expected, destination, Zeros::Expected);
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// The gradients of two sources.
void runSplit(ConformRun& run, const ConcatenationImplementation& implementation,
              const ConcatenationProblem& problem, Tier tier, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor input = run.source(problem.input, valuesFor(tier, problem.input.format), firstElement);
  TestTensor first = run.destination(problem.destination, 3 * firstElement);
  TestTensor second = run.destination(problem.second, firstElement);
  Operands operands{.gradient = input.address(), .destination = first.address()};
  operands.parameters[0] = second.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged(), "an input was written");
  const ReferenceTensor gradient = input.reference();
  const std::int64_t begin = problem.firstChannels();
  run.check(sliceReference(gradient, 0, begin), first, Zeros::Expected);
  run.check(sliceReference(gradient, begin, problem.second.channels), second, Zeros::Expected);
}

/// Three sources of different channels, and the gradients of the second and third one.
void runKernel(ConformRun& run, const KernelBatch& batch, ConcatenationDirection direction,
               ConformFormats formats, Tier tier, std::size_t channelAlignment) {
  const auto kernel = NNConcatenation::create(run.device(), 3);
  kernel->setChannelAlignment(channelAlignment);
  std::vector<TestImages> images;
  std::vector<ImageBatch> sources;
  std::vector<ReferenceTensor> references;
  std::size_t channels = 0;
  for (const std::size_t more : {std::size_t{0}, std::size_t{2}, std::size_t{5}}) {
    KernelBatch one = batch;
    one.channels += more;
    images.push_back(run.sources(batch.form, one.descriptor(formats.source), batch.count,
                                 valuesFor(tier, formats.source)));
    sources.push_back(images.back().batch());
    references.push_back(images.back().reference());
    channels += (one.channels + channelAlignment - 1) / channelAlignment * channelAlignment;
  }
  const ImageDescriptor result(formats.result, batch.width, batch.height, channels);
  const TestImages results = run.destinations(batch.form, result, batch.count);
  const StateBatch states = kernel->resultStateBatch(sources);
  const TestImages gradients = run.sources(batch.form, result, batch.count, valuesFor(tier, formats.result));
  const auto gradient = NNConcatenationGradient::create(run.device(), 1);
  std::vector<TestImages> destinations;
  std::vector<ImageBatch> written;
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    ImageDescriptor size = sources[i].descriptor();
    size.setChannelFormat(formats.result);
    destinations.push_back(run.destinations(batch.form, size, batch.count));
    written.push_back(destinations.back().batch());
  }
  if (!run.encode([&](const auto& commandBuffer) {
        kernel->encodeBatch(commandBuffer, sources, states, results.batch());
        gradient->encodeBatchWithNext(commandBuffer, gradients.batch(), std::span(sources).subspan(1), states,
                                      written);
      }))
    return;
  for (const TestImages& source : images) run.require(source.isUnchanged(), "a source was written");
  run.require(gradients.isUnchanged(), "the incoming gradient was written");
  if (direction == ConcatenationDirection::Forward) {
    ReferenceTensor expected = concatenatedReference(references, static_cast<std::int64_t>(channelAlignment));
    expected.roundings = isUnorm(formats.source) ? 1 : 0;
    return run.check(expected, results, Zeros::Expected);
  }
  const ReferenceTensor incoming = gradients.reference();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t before = sources[i].descriptor().featureChannels();
    begin += (before + channelAlignment - 1) / channelAlignment * channelAlignment;
    run.check(sliceReference(incoming, static_cast<std::int64_t>(begin), destinations[i].shape().channels),
              destinations[i], Zeros::Expected);
  }
}

/// For a second source, or its gradient, of another format than the first.
ImageFeatureChannelFormat otherFormat(ImageFeatureChannelFormat format) {
  return format == ImageFeatureChannelFormat::Float16 ? ImageFeatureChannelFormat::Float32
                                                      : ImageFeatureChannelFormat::Float16;
}

std::vector<ConformCase> casesOf(const ConcatenationImplementation& implementation,
                                 ConcatenationDirection direction, ConformFormats formats, Tier tier) {
  std::vector<ConformCase> cases;
  for (const ConcatenationCase& concatenation : concatenationCases()) {
    const bool isForward = direction == ConcatenationDirection::Forward;
    std::vector<ConcatenationProblem> problems{isForward
                                                   ? concatenation.forward(formats.source, formats.result)
                                                   : concatenation.gradient(formats.source, formats.result)};
    if (concatenation.otherChannels > 0) {
      problems.push_back(isForward ? concatenation.pair(formats.source, formats.result)
                                   : concatenation.pairGradient(formats.source, formats.result));
      problems.push_back(problems.back());
      problems.back().second.format = otherFormat(problems.back().second.format);
    }
    for (const ConcatenationProblem& problem : problems)
      for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
        cases.push_back({std::string(concatenation.name), [=](ConformRun& run) {
                           const bool splits = !isForward && problem.hasSecond();
                           (splits ? runSplit : runPlan)(run, implementation, problem, tier, firstElement);
                         }});
  }
  for (const KernelBatch& batch : kernelBatches())
    for (const std::size_t channelAlignment : {std::size_t{1}, std::size_t{4}})
      cases.push_back({batch.name, [=](ConformRun& run) {
                         runKernel(run, batch, direction, formats, tier, channelAlignment);
                       }});
  return cases;
}

}  // namespace

void conformConcatenation(Conform& conform) {
  const auto row = [&](const ConcatenationImplementation& implementation, ConcatenationDirection direction,
                       ConformFormats formats, Tier tier) {
    const bool isForward = direction == ConcatenationDirection::Forward;
    const ConformKey key{isForward ? "NNConcatenation" : "NNConcatenationGradient",
                         isForward ? Direction::Forward : Direction::Gradient, formats.source,
                         std::string(implementation.name), tier};
    if (conform.isSelected(key)) conformRow(conform, key, casesOf(implementation, direction, formats, tier));
  };
  for (const ConcatenationImplementation& implementation : conform.implementations(concatenationBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
      for (const ConformFormats formats : kForwardFormats)
        row(implementation, ConcatenationDirection::Forward, formats, tier);
      for (const auto format : kGradientFormats)
        row(implementation, ConcatenationDirection::Gradient, {format, format}, tier);
    }
}

}  // namespace mps::detail
