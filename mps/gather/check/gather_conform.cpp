#include <vector>

#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/test_matrices.hpp"
#include "mps/gather/check/gather_arrays_conform.hpp"
#include "mps/gather/check/gather_cases.hpp"
#include "mps/gather/check/gather_reference.hpp"
#include "mps/gather/gather.hpp"

namespace mps::detail {
namespace {

using GatherImplementation = Implementation<GatherProblem>;

/// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
void runPlan(ConformRun& run, const GatherImplementation& implementation, const GatherCase& item,
             GatherDirection direction, Tier tier, std::size_t firstElement) {
  const GatherProblem problem = item.problem(direction, run.format());
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const bool isForward = direction == GatherDirection::Forward;
  const std::vector<std::int64_t> numbers = item.numbers(run.nextSeed());
  GuardedIndices indices(run.device(), item.indices, numbers);
  TestTensor input = run.source(isForward ? problem.source : problem.result, valuesFor(tier, run.format()),
                                2 * firstElement);
  TestTensor destination = run.destination(isForward ? problem.result : problem.source, 3 * firstElement);
  Operands operands;
  (isForward ? operands.source : operands.gradient) = input.address();
  operands.secondary = indices.address();
  operands.destination = destination.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged() && indices.areUnchanged(), "an input was written");
  run.check(isForward ? gatherForwardReference(problem, numbers, input.reference())
                      : gatherGradientReference(problem, numbers, input.reference()),
            destination, Zeros::Expected);
}

/// Arrays of three dimensions, along each of them.
void runKernel(ConformRun& run, std::size_t axis, DataType indexType, GatherDirection direction, Tier tier) {
  const GatherArrays arrays(run.device(), {7, 5, 9}, axis, 30, {dataTypeOf(run.format()), indexType},
                            run.nextSeed());
  const RandomKind kind = valuesFor(tier, run.format());
  const auto values = [&](const NDArray& array) { return run.values(elementsOf(array), kind); };
  const std::vector<double> source = store(*arrays.source, values(*arrays.source));
  const std::vector<double> incoming = store(*arrays.resultGradient, values(*arrays.resultGradient));
  poison(*arrays.result);
  poison(*arrays.sourceGradient);
  const auto forward = NDArrayGather::create(run.device());
  forward->setAxis(axis);
  const auto gradient = NDArrayGatherGradient::create(run.device());
  if (!run.encode([&](const auto& commandBuffer) {
        const auto state = forward->resultState(arrays.source, arrays.indices);
        forward->encode(commandBuffer, arrays.source, arrays.indices, state, arrays.result);
        gradient->encode(commandBuffer, arrays.source, arrays.indices, arrays.resultGradient, state,
                         arrays.sourceGradient);
        for (const auto& array : {arrays.result, arrays.sourceGradient}) array->synchronize(commandBuffer);
      }))
    return;
  run.require(load(*arrays.source) == source, "the source was written");
  run.require(load(*arrays.resultGradient) == incoming, "the incoming gradient was written");
  const GatherProblem problem = arrays.problem(direction);
  if (direction == GatherDirection::Forward)
    run.check(gatherForwardReference(problem, arrays.numbers, tensorOf(problem.source, source)),
              load(*arrays.result), run.format(), Zeros::Expected);
  else
    run.check(gatherGradientReference(problem, arrays.numbers, tensorOf(problem.result, incoming)),
              load(*arrays.sourceGradient), run.format(), Zeros::Expected);
}

}  // namespace

void conformGather(Conform& conform) {
  const auto row = [&](const GatherImplementation& implementation, GatherDirection direction,
                       ImageFeatureChannelFormat format, Tier tier) {
    const bool isForward = direction == GatherDirection::Forward;
    const ConformKey key{isForward ? "NDArrayGather" : "NDArrayGatherGradient",
                         isForward ? Direction::Forward : Direction::Gradient, format,
                         std::string(implementation.name), tier};
    std::vector<ConformCase> cases;
    for (const GatherCase& item : gatherCases())
      for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
        cases.push_back({item.name, [=](ConformRun& run) {
                           runPlan(run, implementation, item, direction, tier, firstElement);
                         }});
    for (const DataType type : {DataType::UInt32, DataType::Int32, DataType::UInt16})
      for (std::size_t axis = 0; axis < 3; ++axis)
        cases.push_back({std::string("KernelAxis") + std::to_string(axis) + mps::name(type),
                         [=](ConformRun& run) { runKernel(run, axis, type, direction, tier); }});
    conformRow(conform, key, cases);
  };
  for (const GatherImplementation& implementation : conform.implementations(gatherBackEnds))
    for (const auto format : kGradientFormats)
      for (const Tier tier : {Tier::Exact, Tier::Bounded})
        for (const auto direction : {GatherDirection::Forward, GatherDirection::Gradient})
          row(implementation, direction, format, tier);
}

}  // namespace mps::detail
