#include <limits>

#include "mps/conform/kernel_cases.hpp"
#include "mps/reduction/check/reduction_cases.hpp"
#include "mps/reduction/check/reduction_reference.hpp"
#include "mps/reduction/reduction.hpp"

namespace mps::detail {
namespace {

using ReductionImplementation = Implementation<ReductionProblem>;

/// Where the tensors of a case begin in memory, and what the source holds.
struct Setting {
  std::size_t firstElement = 0;  ///< 0: addresses are aligned for vectors
  bool hasNaN = false;           ///< in every seventh element
};

void runPlan(ConformRun& run, const ReductionImplementation& implementation, const ReductionProblem& problem,
             Tier tier, Setting setting) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const std::size_t firstElement = setting.firstElement;
  TestTensor source = run.source(problem.source, valuesFor(tier, problem.source.format), firstElement);
  if (setting.hasNaN) {
    std::vector<double> values = source.reference().values;
    for (std::size_t i = 3; i < values.size(); i += 7) values[i] = std::numeric_limits<double>::quiet_NaN();
    source.write(values);
  }
  if (problem.direction == ReductionDirection::Forward) {
    TestTensor result = run.destination(problem.result, 3 * firstElement);
    run.execute(*plan, {.source = source.address(), .destination = result.address()});
    run.require(source.isUnchanged(), "the source was written");
    run.check(reductionForwardReference(problem, source.reference()), result, Zeros::Expected);
    return;
  }
  TestTensor gradient = run.source(problem.result, valuesFor(tier, problem.result.format), 2 * firstElement);
  TestTensor destination = run.destination(problem.destination, 3 * firstElement);
  const Operands operands{.source = problem.selects() ? source.address() : nullptr,
                          .gradient = gradient.address(),
                          .destination = destination.address()};
  run.execute(*plan, operands);
  run.require(source.isUnchanged() && gradient.isUnchanged(), "an input was written");
  const ReferenceTensor expected =
      reductionGradientReference(problem, source.reference(), gradient.reference());
  run.check(expected, destination, Zeros::Expected);
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// The global mean of every form of a batch.
void runKernel(ConformRun& run, ReductionDirection direction, const KernelBatch& batch,
               ConformFormats formats, Tier tier) {
  const auto forward = NNReduceSpatialMean::create(run.device());
  const auto gradient =
      NNReduceUnaryGradient::create(run.device(), ReductionOperation::Mean, ReductionAxis::Spatial);
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  ReductionProblem problem;
  problem.direction = direction;
  problem.operation = ReductionOperation::Mean;
  problem.axis = ReductionAxis::Spatial;
  problem.source = sources.shape();
  problem.result = reducedShape(problem.source, problem.axis, formats.result);
  problem.destination = problem.source;
  if (direction == ReductionDirection::Forward)
    return runForwardKernel(run, *forward, sources, batch.form, formats.result,
                            [&](const ReferenceTensor& x) { return reductionForwardReference(problem, x); });
  runGradientKernel(run, *forward, *gradient, sources, batch.form, false, valuesFor(tier, formats.result),
                    [&](const ReferenceTensor& x, const ReferenceTensor& g) {
                      return reductionGradientReference(problem, x, g);
                    });
}

}  // namespace

void conformReduction(Conform& conform) {
  const auto row = [&](const ReductionImplementation& implementation, ReductionDirection direction,
                       ConformFormats formats, Tier tier) {
    const bool isForward = direction == ReductionDirection::Forward;
    const ConformKey key{isForward ? "NNReduceUnary" : "NNReduceUnaryGradient",
                         isForward ? Direction::Forward : Direction::Gradient, formats.source,
                         std::string(implementation.name), tier};
    if (!conform.isSelected(key)) return;
    std::vector<ConformCase> cases;
    for (const ReductionCase& reduction : reductionCases()) {
      if (!isForward && !reduction.hasGradient()) continue;
      if (tier == Tier::Exact && !reduction.isExact()) continue;
      const ReductionProblem problem = isForward ? reduction.forward(formats.source, formats.result)
                                                 : reduction.gradient(formats.source, formats.result);
      std::vector<Setting> settings{{.firstElement = 0}, {.firstElement = 1}};
      if (reduction.takesExtremum() && !isUnorm(formats.source)) settings.push_back({.hasNaN = true});
      for (const Setting setting : settings)
        cases.push_back({reduction.name + (setting.hasNaN ? "NaN" : ""),
                         [=](ConformRun& run) { runPlan(run, implementation, problem, tier, setting); }});
    }
    if (tier == Tier::Bounded)
      for (const KernelBatch& batch : kernelBatches())
        cases.push_back(
            {batch.name, [=](ConformRun& run) { runKernel(run, direction, batch, formats, tier); }});
    conformRow(conform, key, cases);
  };
  for (const ReductionImplementation& implementation : conform.implementations(reductionBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
      for (const ConformFormats formats : kForwardFormats)
        row(implementation, ReductionDirection::Forward, formats, tier);
      for (const auto format : kGradientFormats)
        row(implementation, ReductionDirection::Gradient, {format, format}, tier);
    }
}

}  // namespace mps::detail
