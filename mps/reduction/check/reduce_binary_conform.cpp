#include "mps/conform/kernel_cases.hpp"
#include "mps/reduction/check/reduce_binary_cases.hpp"
#include "mps/reduction/reduce_binary.hpp"

namespace mps::detail {
namespace {

using ReduceBinaryImplementation = Implementation<ReduceBinaryProblem>;

/// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
void runPlan(ConformRun& run, const ReduceBinaryImplementation& implementation,
             const ReduceBinaryProblem& problem, Tier tier, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const RandomKind kind = valuesFor(tier, problem.source.format);
  TestTensor source = run.source(problem.source, kind, firstElement);
  TestTensor weights = run.source(problem.weights, kind, 2 * firstElement);
  TestTensor result = run.destination(problem.destination, 3 * firstElement);
  run.execute(*plan,
              {.source = source.address(), .secondary = weights.address(), .destination = result.address()});
  run.require(source.isUnchanged() && weights.isUnchanged(), "an input was written");
  run.check(reduceBinaryReference(problem, source.reference(), weights.reference()), result, Zeros::Expected);
}

/// Every form of a batch.
void runKernel(ConformRun& run, NNReduceBinary& kernel, ReduceBinaryDivisor divisor, const KernelBatch& batch,
               ConformFormats formats, Tier tier) {
  const RandomKind kind = valuesFor(tier, formats.source);
  const TestImages x = run.sources(batch.form, batch.descriptor(formats.source), batch.count, kind);
  const TestImages w = run.sources(batch.form, batch.descriptor(formats.source), batch.count, kind);
  ImageDescriptor result = batch.descriptor(formats.result);
  result.setFeatureChannels(1);
  const TestImages results = run.destinations(batch.form, result, batch.count);
  if (!run.encode([&](const auto& commandBuffer) {
        kernel.encodeBatch(commandBuffer, x.batch(), w.batch(), results.batch());
      }))
    return;
  run.require(x.isUnchanged() && w.isUnchanged(), "a source was written");
  ReduceBinaryProblem problem;
  problem.divisor = divisor;
  run.check(reduceBinaryReference(problem, x.reference(), w.reference()), results, Zeros::Expected);
}

}  // namespace

void conformReduceBinary(Conform& conform) {
  const auto rows = [&](const ReduceBinaryImplementation& implementation, const char* className, Tier tier,
                        ConformFormats formats, const std::vector<ReduceBinaryDivisor>& divisors) {
    const ConformKey key{className, Direction::Forward, formats.source, std::string(implementation.name),
                         tier};
    if (!conform.isSelected(key)) return;
    std::vector<ConformCase> cases;
    for (const ReduceBinaryDivisor divisor : divisors) {
      for (const ReduceBinaryCase& item : reduceBinaryCases()) {
        if (tier == Tier::Exact && !item.isExact(divisor)) continue;
        const ReduceBinaryProblem problem = item.problem(divisor, formats.source, formats.result);
        for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
          cases.push_back({item.name, [=](ConformRun& run) {
                             runPlan(run, implementation, problem, tier, firstElement);
                           }});
      }
      if (tier != Tier::Bounded) continue;
      for (const KernelBatch& batch : kernelBatches())
        cases.push_back({batch.name, [=](ConformRun& run) {
                           std::shared_ptr<NNReduceBinary> kernel;
                           if (divisor == ReduceBinaryDivisor::FeatureChannels)
                             kernel = NNReduceFeatureChannelsAndWeightsMean::create(run.device());
                           else
                             kernel = NNReduceFeatureChannelsAndWeightsSum::create(
                                 run.device(), divisor == ReduceBinaryDivisor::NonZeroWeights);
                           runKernel(run, *kernel, divisor, batch, formats, tier);
                         }});
    }
    conformRow(conform, key, cases);
  };
  for (const ReduceBinaryImplementation& implementation : conform.implementations(reduceBinaryBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded})
      for (const ConformFormats formats : kForwardFormats) {
        rows(implementation, "NNReduceFeatureChannelsAndWeightsMean", tier, formats,
             {ReduceBinaryDivisor::FeatureChannels});
        rows(implementation, "NNReduceFeatureChannelsAndWeightsSum", tier, formats,
             {ReduceBinaryDivisor::One, ReduceBinaryDivisor::NonZeroWeights});
      }
}

}  // namespace mps::detail
