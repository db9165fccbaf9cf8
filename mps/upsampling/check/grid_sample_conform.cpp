#include <cmath>
#include <string>
#include <vector>

#include "mps/conform/kernel_cases.hpp"
#include "mps/upsampling/check/grid_sample_cases.hpp"
#include "mps/upsampling/grid_sample.hpp"

namespace mps::detail {
namespace {

using GridSampleImplementation = Implementation<GridSampleProblem>;

/// Positions inside and outside the source. Eighths are exact.
std::vector<double> gridValues(ConformRun& run, std::int64_t count, ImageFeatureChannelFormat format,
                               Tier tier, bool usesGridAsCoordinates) {
  std::vector<double> values = run.values(static_cast<std::size_t>(count), valuesFor(tier, format));
  if (isUnorm(format)) return values;
  for (double& value : values) {
    if (tier == Tier::Exact) value *= 0.375;
    if (!usesGridAsCoordinates)
      value *= 2;
    else if (tier == Tier::Bounded)
      value *= 1.25;
  }
  return values;
}

/// Of the source, some of them no numbers: a pixel without weight counts for nothing.
std::vector<double> sourceValues(ConformRun& run, const TensorShape& shape, Tier tier) {
  std::vector<double> values =
      run.values(static_cast<std::size_t>(shape.elements()), valuesFor(tier, shape.format));
  if (isUnorm(shape.format)) return values;
  for (std::size_t i = 7; i < values.size(); i += 31) values[i] = std::nan("");
  return values;
}

/// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
void runSamplePlan(ConformRun& run, const GridSampleImplementation& implementation,
                   const GridSampleProblem& problem, Tier tier, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor source = run.source(problem.source, sourceValues(run, problem.source, tier), firstElement);
  TestTensor grid = run.source(
      problem.grid,
      gridValues(run, problem.grid.elements(), problem.grid.format, tier, problem.usesGridAsCoordinates),
      2 * firstElement);
  TestTensor result = run.destination(problem.destination, 3 * firstElement);
  run.execute(*plan,
              {.source = source.address(), .secondary = grid.address(), .destination = result.address()});
  run.require(source.isUnchanged() && grid.isUnchanged(), "an input was written");
  run.check(gridSampleReference(problem, source.reference(), grid.reference()), result, Zeros::Expected);
}

/// Every form of a batch.
void runKernel(ConformRun& run, bool usesGridAsCoordinates, const KernelBatch& batch,
               ConformFormats formats) {
  constexpr Tier tier = Tier::Bounded;
  constexpr std::size_t width = 7;
  constexpr std::size_t height = 4;
  const auto kernel = NNGridSample::create(run.device());
  kernel->setUseGridValueAsInputCoordinate(usesGridAsCoordinates);
  const TestImages source =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  const std::vector<double> values =
      gridValues(run, static_cast<std::int64_t>(batch.count * width * height * 2), formats.source, tier,
                 usesGridAsCoordinates);
  const TestImages grid = imagesOf(run, batch.form, {formats.source, width, height, 2}, batch.count, values);
  const TestImages results =
      run.destinations(batch.form, {formats.result, width, height, batch.channels}, batch.count);
  if (!run.encode([&](const auto& commandBuffer) {
        kernel->encodeBatch(commandBuffer, source.batch(), grid.batch(), results.batch());
      }))
    return;
  run.require(source.isUnchanged() && grid.isUnchanged(), "a source was written");
  GridSampleProblem problem;
  problem.usesGridAsCoordinates = usesGridAsCoordinates;
  problem.source.format = formats.source;
  run.check(gridSampleReference(problem, source.reference(), grid.reference()), results, Zeros::Expected);
}

}  // namespace

void conformGridSample(Conform& conform) {
  const auto row = [&](const GridSampleImplementation& implementation, Tier tier, ConformFormats formats) {
    const ConformKey key{"NNGridSample", Direction::Forward, formats.source, std::string(implementation.name),
                         tier};
    if (!conform.isSelected(key)) return;
    std::vector<ConformCase> cases;
    for (const bool usesGridAsCoordinates : {true, false}) {
      for (const GridSampleCase& item : gridSampleCases())
        for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp})
          for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
            cases.push_back({item.name, [=](ConformRun& run) {
                               runSamplePlan(run, implementation,
                                             item.problem(usesGridAsCoordinates, edgeMode, formats.source,
                                                          formats.result),
                                             tier, firstElement);
                             }});
      if (tier == Tier::Bounded)
        for (const KernelBatch& batch : kernelBatches())
          cases.push_back(
              {batch.name, [=](ConformRun& run) { runKernel(run, usesGridAsCoordinates, batch, formats); }});
    }
    conformRow(conform, key, cases);
  };
  for (const GridSampleImplementation& implementation : conform.implementations(gridSampleBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded})
      for (const ConformFormats formats : kForwardFormats) row(implementation, tier, formats);
}

}  // namespace mps::detail
