#include "mps/conform/kernel_cases.hpp"
#include "mps/normalization/check/normalization_cases.hpp"
#include "mps/normalization/check/normalization_reference.hpp"
#include "mps/normalization/normalization.hpp"

namespace mps::detail {
namespace {

using NormalizationImplementation = Implementation<NormalizationProblem>;

std::string className(NormalizationKind kind, NormalizationDirection direction) {
  constexpr std::array<const char*, 3> names{"CNNCrossChannelNormalization", "CNNSpatialNormalization",
                                             "CNNLocalContrastNormalization"};
  return std::string(names[static_cast<std::size_t>(kind)]) +
         (direction == NormalizationDirection::Forward ? "" : "Gradient");
}

/// Few elements may all be 0.
Zeros expectedZeros(const NormalizationCase& normalization, const NormalizationProblem& problem) {
  constexpr std::int64_t few = 64;
  return normalization.geometry.readsNothing || problem.source.elements() < few ? Zeros::Expected
                                                                                : Zeros::Suspicious;
}

ReferenceTensor reference(const NormalizationProblem& problem, const ReferenceTensor& source,
                          const ReferenceTensor& gradient) {
  return problem.isGradient() ? normalizationGradientReference(problem, source, gradient)
                              : normalizationForwardReference(problem, source);
}

void runPlan(ConformRun& run, const NormalizationImplementation& implementation,
             const NormalizationCase& normalization, const NormalizationProblem& problem, Tier tier) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor source = run.source(problem.source, valuesFor(tier, problem.source.format), 1);
  TestTensor gradient = run.source(problem.gradient, valuesFor(tier, problem.gradient.format), 2);
  TestTensor destination = run.destination(problem.destination, 3);
  const Operands operands{
      .source = source.address(), .gradient = gradient.address(), .destination = destination.address()};
  run.execute(*plan, operands);
  run.require(source.isUnchanged() && gradient.isUnchanged(), "an input was written");
  const ReferenceTensor expected = reference(problem, source.reference(), gradient.reference());
  run.check(expected, destination, expectedZeros(normalization, problem));
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// Windows of a kernel under test; 3 channels, or 3 x 4 pixels.
constexpr std::int64_t kWindow = 3;
constexpr std::int64_t kWindowHeight = 4;

void runKernelOf(ConformRun& run, CNNNormalization& forward, CNNNormalizationGradient& gradient,
                 NormalizationProblem problem, const KernelBatch& batch, ConformFormats formats) {
  const Tier tier = Tier::Bounded;
  forward.setAlpha(2);
  forward.setBeta(0.75F);
  forward.setDelta(0.5F);
  problem.alpha = 2;
  problem.beta = 0.75F;
  problem.delta = 0.5F;
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  problem.source = sources.shape();
  problem.destination = sources.shape();
  problem.destination.format = formats.result;
  if (problem.kind == NormalizationKind::CrossChannel) {
    problem.kernelSize = kWindow;
  } else {
    const auto axis = [](std::int64_t size, std::int64_t kernel) {
      return WindowAxis{.sourceSize = size, .destinationSize = size, .kernelSize = kernel};
    };
    problem.x = axis(problem.source.width, kWindow);
    problem.y = axis(problem.source.height, kWindowHeight);
  }
  if (!problem.isGradient())
    return runForwardKernel(
        run, forward, sources, batch.form, formats.result,
        [&](const ReferenceTensor& source) { return normalizationForwardReference(problem, source); });
  problem.gradient = problem.destination;
  runGradientKernel(run, forward, gradient, sources, batch.form, false, valuesFor(tier, formats.result),
                    [&](const ReferenceTensor& source, const ReferenceTensor& dy) {
                      return normalizationGradientReference(problem, source, dy);
                    });
}

void runKernel(ConformRun& run, NormalizationKind kind, NormalizationDirection direction,
               const KernelBatch& batch, ConformFormats formats) {
  NormalizationProblem problem;
  problem.kind = kind;
  problem.direction = direction;
  const auto& device = run.device();
  switch (kind) {
    case NormalizationKind::CrossChannel:
      return runKernelOf(run, *CNNCrossChannelNormalization::create(device, kWindow),
                         *CNNCrossChannelNormalizationGradient::create(device, kWindow), problem, batch,
                         formats);
    case NormalizationKind::Spatial:
      return runKernelOf(run, *CNNSpatialNormalization::create(device, kWindow, kWindowHeight),
                         *CNNSpatialNormalizationGradient::create(device, kWindow, kWindowHeight), problem,
                         batch, formats);
    case NormalizationKind::LocalContrast:
      return runKernelOf(run, *CNNLocalContrastNormalization::create(device, kWindow, kWindowHeight),
                         *CNNLocalContrastNormalizationGradient::create(device, kWindow, kWindowHeight),
                         problem, batch, formats);
  }
}

std::vector<ConformCase> casesOf(const NormalizationImplementation& implementation, NormalizationKind kind,
                                 NormalizationDirection direction, ConformFormats formats, Tier tier) {
  std::vector<ConformCase> cases;
  for (const NormalizationCase& normalization : normalizationCases()) {
    if (normalization.kind != kind) continue;
    const NormalizationProblem problem = direction == NormalizationDirection::Forward
                                             ? normalization.forward(formats.source, formats.result)
                                             : normalization.gradient(formats.source, formats.result);
    if ((tier == Tier::Exact) != isExact(problem)) continue;
    cases.push_back({normalization.name,
                     [=](ConformRun& run) { runPlan(run, implementation, normalization, problem, tier); }});
  }
  if (tier == Tier::Exact) return cases;
  for (const KernelBatch& batch : kernelBatches())
    cases.push_back({batch.name, [=](ConformRun& run) { runKernel(run, kind, direction, batch, formats); }});
  return cases;
}

}  // namespace

void conformNormalization(Conform& conform) {
  using enum NormalizationKind;
  const auto row = [&](const NormalizationImplementation& implementation, NormalizationKind kind,
                       NormalizationDirection direction, ConformFormats formats, Tier tier) {
    const ConformKey key{
        className(kind, direction),
        direction == NormalizationDirection::Forward ? Direction::Forward : Direction::Gradient,
        formats.source, std::string(implementation.name), tier};
    if (conform.isSelected(key))
      conformRow(conform, key, casesOf(implementation, kind, direction, formats, tier));
  };
  for (const NormalizationKind kind : {CrossChannel, Spatial, LocalContrast})
    for (const NormalizationImplementation& implementation : conform.implementations(normalizationBackEnds))
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          row(implementation, kind, NormalizationDirection::Forward, formats, tier);
        for (const auto format : kGradientFormats)
          row(implementation, kind, NormalizationDirection::Gradient, {format, format}, tier);
      }
}

}  // namespace mps::detail
