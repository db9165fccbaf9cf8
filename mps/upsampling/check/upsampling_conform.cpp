#include "mps/conform/kernel_cases.hpp"
#include "mps/upsampling/check/upsampling_cases.hpp"
#include "mps/upsampling/check/upsampling_reference.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/upsampling.hpp"

namespace mps::detail {
namespace {

using UpsamplingImplementation = Implementation<UpsamplingProblem>;

std::string className(bool isNearest, UpsamplingDirection direction) {
  return std::string(isNearest ? "CNNUpsamplingNearest" : "CNNUpsamplingBilinear") +
         (direction == UpsamplingDirection::Forward ? "" : "Gradient");
}

/// Few inputs may all be 0.
Zeros expectedZeros(const UpsamplingCase& upsampling, const UpsamplingProblem& problem) {
  constexpr std::int64_t few = 64;
  return upsampling.geometry.readsNothing || problem.input.elements() < few ? Zeros::Expected
                                                                            : Zeros::Suspicious;
}

/// @param firstElement of the memory that the tensors begin at; 0: addresses are aligned for vectors
void runPlan(ConformRun& run, const UpsamplingImplementation& implementation,
             const UpsamplingCase& upsampling, const UpsamplingProblem& problem, Tier tier,
             std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor input = run.source(problem.input, valuesFor(tier, problem.input.format), firstElement);
  TestTensor destination = run.destination(problem.destination, 3 * firstElement);
  Operands operands{.destination = destination.address()};
  (problem.direction == UpsamplingDirection::Forward ? operands.source : operands.gradient) = input.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged(), "an input was written");
  const ReferenceTensor expected = upsamplingReference(problem, input.reference());
  run.check(expected, destination, expectedZeros(upsampling, problem));
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// Factors of a kernel under test.
constexpr std::int64_t kScaleX = 2;
constexpr std::int64_t kScaleY = 3;

/// @param resized of a resize: the size of the result
void runKernelOf(ConformRun& run, CNNKernel& forward, CNNGradientKernel& gradient, UpsamplingProblem problem,
                 const KernelBatch& batch, ConformFormats formats, mtl::Size resized = {}) {
  const Tier tier = Tier::Bounded;
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  const TensorShape small = sources.shape();
  const bool isResize = resized.width > 0;
  const TensorShape large = TensorShape::dense(
      small.images, isResize ? static_cast<std::int64_t>(resized.height) : small.height * kScaleY,
      isResize ? static_cast<std::int64_t>(resized.width) : small.width * kScaleX, small.channels,
      formats.result);
  problem.x = {.sourceSize = small.width, .resultSize = large.width};
  problem.y = {.sourceSize = small.height, .resultSize = large.height};
  const bool isForward = problem.direction == UpsamplingDirection::Forward;
  problem.input = isForward ? small : large;
  problem.destination = isForward ? large : small;
  if (isForward)
    runForwardKernel(run, forward, sources, batch.form, formats.result,
                     [&](const ReferenceTensor& source) { return upsamplingReference(problem, source); });
  else
    runGradientKernel(
        run, forward, gradient, sources, batch.form, false, valuesFor(tier, formats.result),
        [&](const ReferenceTensor&, const ReferenceTensor& dy) { return upsamplingReference(problem, dy); });
}

void runKernel(ConformRun& run, UpsamplingSampling sampling, UpsamplingDirection direction,
               const KernelBatch& batch, ConformFormats formats) {
  UpsamplingProblem problem;
  problem.sampling = sampling;
  problem.direction = direction;
  if (sampling == UpsamplingSampling::Nearest)
    return runKernelOf(run, *CNNUpsamplingNearest::create(run.device(), kScaleX, kScaleY),
                       *CNNUpsamplingNearestGradient::create(run.device(), kScaleX, kScaleY), problem, batch,
                       formats);
  const auto forward = CNNUpsamplingBilinear::create(run.device(), kScaleX, kScaleY,
                                                     sampling == UpsamplingSampling::BilinearAlignCorners);
  forward->setHalfPixelCenters(sampling == UpsamplingSampling::BilinearHalfPixel);
  runKernelOf(run, *forward, *CNNUpsamplingBilinearGradient::create(run.device(), kScaleX, kScaleY), problem,
              batch, formats);
}

/// Narrower and higher.
void runResize(ConformRun& run, UpsamplingSampling sampling, UpsamplingDirection direction,
               const KernelBatch& batch, ConformFormats formats) {
  constexpr std::size_t width = 4;
  constexpr std::size_t height = 11;
  UpsamplingProblem problem;
  problem.sampling = sampling;
  problem.direction = direction;
  const auto forward = NNResizeBilinear::create(run.device(), width, height,
                                                sampling == UpsamplingSampling::BilinearAlignCorners);
  forward->setHalfPixelCenters(sampling == UpsamplingSampling::BilinearHalfPixel);
  runKernelOf(run, *forward, *NNResizeBilinearGradient::create(run.device()), problem, batch, formats,
              {width, height, 1});
}

std::vector<ConformCase> casesOf(const UpsamplingImplementation& implementation, bool isNearest,
                                 UpsamplingDirection direction, ConformFormats formats, Tier tier) {
  std::vector<ConformCase> cases;
  const auto add = [&](const UpsamplingCase& upsampling, const UpsamplingProblem& problem,
                       std::size_t firstElement) {
    cases.push_back({upsampling.name, [=](ConformRun& run) {
                       runPlan(run, implementation, upsampling, problem, tier, firstElement);
                     }});
  };
  for (const UpsamplingCase& upsampling : upsamplingCases()) {
    if ((upsampling.sampling == UpsamplingSampling::Nearest) != isNearest) continue;
    const UpsamplingProblem problem = direction == UpsamplingDirection::Forward
                                          ? upsampling.forward(formats.source, formats.result)
                                          : upsampling.gradient(formats.source, formats.result);
    if (tier == Tier::Exact && !isExact(problem)) continue;
    for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
      add(upsampling, problem, firstElement);
    // Codes are rounded: their results are no integers.
    if (isUnorm(formats.source) && tier == Tier::Bounded)
      add(upsampling, upsampling.forward(formats.source, formats.source), 0);
  }
  if (tier == Tier::Exact) return cases;
  using enum UpsamplingSampling;
  for (const KernelBatch& batch : kernelBatches())
    for (const auto sampling : {Nearest, Bilinear, BilinearAlignCorners, BilinearHalfPixel})
      if ((sampling == Nearest) == isNearest)
        cases.push_back(
            {batch.name, [=](ConformRun& run) { runKernel(run, sampling, direction, batch, formats); }});
  return cases;
}

/// The plans are those of upsampling.
void conformResize(Conform& conform) {
  using enum UpsamplingSampling;
  const auto row = [&](UpsamplingDirection direction, ConformFormats formats,
                       const UpsamplingImplementation& implementation) {
    const bool isForward = direction == UpsamplingDirection::Forward;
    const ConformKey key{isForward ? "NNResizeBilinear" : "NNResizeBilinearGradient",
                         isForward ? Direction::Forward : Direction::Gradient, formats.source,
                         std::string(implementation.name), Tier::Bounded};
    if (!conform.isSelected(key)) return;
    std::vector<ConformCase> cases;
    for (const KernelBatch& batch : kernelBatches())
      for (const auto sampling : {Bilinear, BilinearAlignCorners, BilinearHalfPixel})
        cases.push_back(
            {batch.name, [=](ConformRun& run) { runResize(run, sampling, direction, batch, formats); }});
    conformRow(conform, key, cases);
  };
  for (const UpsamplingImplementation& implementation : conform.implementations(upsamplingBackEnds)) {
    for (const ConformFormats formats : kForwardFormats)
      row(UpsamplingDirection::Forward, formats, implementation);
    for (const auto format : kGradientFormats)
      row(UpsamplingDirection::Gradient, {format, format}, implementation);
  }
}

}  // namespace

void conformUpsampling(Conform& conform) {
  const auto row = [&](const UpsamplingImplementation& implementation, bool isNearest,
                       UpsamplingDirection direction, ConformFormats formats, Tier tier) {
    const ConformKey key{className(isNearest, direction),
                         direction == UpsamplingDirection::Forward ? Direction::Forward : Direction::Gradient,
                         formats.source, std::string(implementation.name), tier};
    if (conform.isSelected(key))
      conformRow(conform, key, casesOf(implementation, isNearest, direction, formats, tier));
  };
  for (const bool isNearest : {true, false})
    for (const UpsamplingImplementation& implementation : conform.implementations(upsamplingBackEnds))
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          row(implementation, isNearest, UpsamplingDirection::Forward, formats, tier);
        for (const auto format : kGradientFormats)
          row(implementation, isNearest, UpsamplingDirection::Gradient, {format, format}, tier);
      }
  conformResize(conform);
}

}  // namespace mps::detail
