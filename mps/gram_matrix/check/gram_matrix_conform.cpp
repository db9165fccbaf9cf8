#include "mps/conform/kernel_cases.hpp"
#include "mps/gram_matrix/check/gram_matrix_cases.hpp"
#include "mps/gram_matrix/check/gram_matrix_reference.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"

namespace mps::detail {
namespace {

using GramMatrixImplementation = Implementation<GramMatrixProblem>;

constexpr float kAlpha = 0.5F;

/// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
void runPlan(ConformRun& run, const GramMatrixImplementation& implementation,
             const GramMatrixProblem& problem, Tier tier, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor source = run.source(problem.source, valuesFor(tier, problem.source.format), firstElement);
  Operands operands;
  operands.source = source.address();
  operands.scalars[0] = static_cast<double>(kAlpha);
  if (problem.isForward()) {
    TestTensor matrix = run.destination(problem.matrix, 3 * firstElement);
    operands.destination = matrix.address();
    run.execute(*plan, operands);
    run.require(source.isUnchanged(), "the source was written");
    run.check(gramMatrixForwardReference(problem, source.reference(), static_cast<double>(kAlpha)), matrix,
              Zeros::Expected);
    return;
  }
  TestTensor gradient = run.source(problem.matrix, valuesFor(tier, problem.matrix.format), 2 * firstElement);
  TestTensor destination = run.destination(problem.destination, 3 * firstElement);
  operands.gradient = gradient.address();
  operands.destination = destination.address();
  run.execute(*plan, operands);
  run.require(source.isUnchanged() && gradient.isUnchanged(), "an input was written");
  const ReferenceTensor expected = gramMatrixGradientReference(
      problem, source.reference(), gradient.reference(), static_cast<double>(kAlpha));
  run.check(expected, destination, Zeros::Expected);
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// Every form of a batch.
void runKernel(ConformRun& run, GramMatrixDirection direction, const KernelBatch& batch,
               ConformFormats formats, Tier tier) {
  const auto forward = NNGramMatrixCalculation::create(run.device(), kAlpha);
  const auto gradient = NNGramMatrixCalculationGradient::create(run.device());
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  GramMatrixProblem problem;
  problem.direction = direction;
  problem.source = sources.shape();
  problem.matrix = TensorShape::dense(problem.source.images, 1, problem.source.channels,
                                      problem.source.channels, formats.result);
  problem.destination = problem.source;
  if (problem.isForward())
    return runForwardKernel(run, *forward, sources, batch.form, formats.result,
                            [&](const ReferenceTensor& x) {
                              return gramMatrixForwardReference(problem, x, static_cast<double>(kAlpha));
                            });
  runGradientKernel(run, *forward, *gradient, sources, batch.form, false, valuesFor(tier, formats.result),
                    [&](const ReferenceTensor& x, const ReferenceTensor& g) {
                      return gramMatrixGradientReference(problem, x, g, static_cast<double>(kAlpha));
                    });
}

}  // namespace

void conformGramMatrix(Conform& conform) {
  const int threads = conform.device()->threadCount();
  const auto row = [&](const GramMatrixImplementation& implementation, GramMatrixDirection direction,
                       ConformFormats formats, Tier tier) {
    const bool isForward = direction == GramMatrixDirection::Forward;
    const ConformKey key{isForward ? "NNGramMatrixCalculation" : "NNGramMatrixCalculationGradient",
                         isForward ? Direction::Forward : Direction::Gradient, formats.source,
                         std::string(implementation.name), tier};
    if (!conform.isSelected(key)) return;
    std::vector<ConformCase> cases;
    for (const GramMatrixCase& item : gramMatrixCases()) {
      const GramMatrixProblem problem =
          isForward ? item.forward(formats.source, formats.result, threads)
                    : item.gradient(formats.source, formats.result, formats.source, threads);
      for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
        cases.push_back(
            {item.name, [=](ConformRun& run) { runPlan(run, implementation, problem, tier, firstElement); }});
    }
    if (tier == Tier::Bounded)
      for (const KernelBatch& batch : kernelBatches())
        cases.push_back(
            {batch.name, [=](ConformRun& run) { runKernel(run, direction, batch, formats, tier); }});
    conformRow(conform, key, cases);
  };
  for (const GramMatrixImplementation& implementation : conform.implementations(gramMatrixBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
      for (const ConformFormats formats : kForwardFormats)
        row(implementation, GramMatrixDirection::Forward, formats, tier);
      for (const auto format : kGradientFormats)
        row(implementation, GramMatrixDirection::Gradient, {format, format}, tier);
    }
}

}  // namespace mps::detail
