#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "mps/conform/kernel_cases.hpp"
#include "mps/upsampling/check/upsampling_cases.hpp"
#include "mps/upsampling/check/upsampling_reference.hpp"
#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/crop_and_resize_problem.hpp"
#include "mps/upsampling/image_scale.hpp"

/// Crops and scales: the plans are those of upsampling.
namespace mps::detail {
namespace {

using UpsamplingImplementation = Implementation<UpsamplingProblem>;

void runScalePlan(ConformRun& run, const UpsamplingImplementation& implementation, const UpsamplingCase& one,
                  const UpsamplingProblem& problem, Tier tier, std::size_t firstElement) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor input = run.source(problem.input, valuesFor(tier, problem.input.format), firstElement);
  TestTensor destination = run.destination(problem.destination, 3 * firstElement);
  Operands operands{.destination = destination.address()};
  (problem.direction == UpsamplingDirection::Forward ? operands.source : operands.gradient) = input.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged(), "the input was written");
  constexpr std::int64_t few = 64;
  const bool mayBeZero = one.geometry.readsNothing || problem.input.elements() < few;
  const ReferenceTensor expected = upsamplingReference(problem, input.reference());
  run.check(expected, destination, mayBeZero ? Zeros::Expected : Zeros::Suspicious);
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// That part of an image.
UpsamplingAxis regionAxis(double origin, double size, std::int64_t sourceSize, std::int64_t resultSize) {
  const auto in = static_cast<double>(sourceSize - 1);
  const auto out = static_cast<double>(resultSize - 1);
  return {.sourceSize = sourceSize,
          .resultSize = resultSize,
          .start = resultSize == 1 ? (origin + size / 2) * in : origin * in,
          .step = resultSize == 1 ? 0 : size / out * in};
}

void runCrop(ConformRun& run, const KernelBatch& batch, ConformFormats formats) {
  constexpr std::size_t width = 4;
  constexpr std::size_t height = 6;  // of the batches: the last region takes row after row, from below
  const std::vector<NormalizedRegion> regions{
      {}, {0.25, 0.5, 0.5, 0.25}, {-0.5, 0.75, 2.1, -0.7}, {0, 1, 1, -1}};
  const auto kernel = NNCropAndResizeBilinear::create(run.device(), width, height, regions);
  const TestImages sources = run.sources(batch.form, batch.descriptor(formats.source), batch.count,
                                         valuesFor(Tier::Bounded, formats.source));
  const ImageDescriptor size(formats.result, width, height, batch.channels);
  const TestImages results = run.destinations(batch.form, size, batch.count * regions.size());
  if (!run.encode([&](const auto& commandBuffer) {
        kernel->encodeBatch(commandBuffer, sources.batch(), results.batch());
      }))
    return;
  run.require(sources.isUnchanged(), "the source was written");

  const ReferenceTensor source = sources.reference();
  const TensorShape shape = results.shape();
  ReferenceTensor expected(shape.images, shape.height, shape.width, shape.channels);
  expected.values.clear();
  for (std::int64_t n = 0; n < shape.images; ++n) {
    const auto count = static_cast<std::int64_t>(regions.size());
    const NormalizedRegion& region = regions[static_cast<std::size_t>(n % count)];
    UpsamplingProblem problem;
    problem.sampling = UpsamplingSampling::BilinearRegion;
    problem.x = regionAxis(region.x, region.width, source.width, shape.width);
    problem.y = regionAxis(region.y, region.height, source.height, shape.height);
    problem.input = TensorShape::dense(1, source.height, source.width, source.channels, formats.source);
    problem.destination = TensorShape::dense(1, shape.height, shape.width, shape.channels, formats.result);
    ReferenceTensor one(1, source.height, source.width, source.channels);
    const auto first = source.values.begin() + static_cast<std::ptrdiff_t>(source.index(n / count, 0, 0, 0));
    one.values.assign(first, first + static_cast<std::ptrdiff_t>(one.values.size()));
    const ReferenceTensor result = upsamplingForwardReference(problem, one);
    expected.values.insert(expected.values.end(), result.values.begin(), result.values.end());
    expected.magnitude.insert(expected.magnitude.end(), result.magnitude.begin(), result.magnitude.end());
    expected.roundings = std::max(expected.roundings, result.roundings);
  }
  run.check(expected, results, Zeros::Expected);
}

/// The source, moved and of another size. @param gradient null: forward
void runScale(ConformRun& run, ImageScale& kernel, ImageScaleGradient* gradient, UpsamplingSampling sampling,
              const KernelBatch& batch, ConformFormats formats) {
  const ScaleTransform transform{1.5, 0.625, -0.75, 1.25};
  kernel.setScaleTransform(transform);
  const TestImages sources = run.sources(batch.form, batch.descriptor(formats.source), batch.count,
                                         valuesFor(Tier::Bounded, formats.source));
  UpsamplingProblem problem;
  problem.sampling = sampling;
  const auto axis = [](std::int64_t sourceSize, std::size_t resultSize, double scale, double translate) {
    return UpsamplingAxis{.sourceSize = sourceSize,
                          .resultSize = static_cast<std::int64_t>(resultSize),
                          .start = (0.5 - translate) / scale - 0.5,
                          .step = 1 / scale};
  };
  problem.input = sources.shape();
  problem.x = axis(problem.input.width, kernel.outputWidth(), transform.scaleX, transform.translateX);
  problem.y = axis(problem.input.height, kernel.outputHeight(), transform.scaleY, transform.translateY);
  problem.destination = TensorShape::dense(problem.input.images, problem.y.resultSize, problem.x.resultSize,
                                           problem.input.channels, formats.result);
  if (gradient == nullptr)
    return runForwardKernel(
        run, kernel, sources, batch.form, formats.result,
        [&](const ReferenceTensor& source) { return upsamplingReference(problem, source); });
  problem.direction = UpsamplingDirection::Gradient;
  std::swap(problem.input, problem.destination);
  runGradientKernel(
      run, kernel, *gradient, sources, batch.form, false, valuesFor(Tier::Bounded, formats.result),
      [&](const ReferenceTensor&, const ReferenceTensor& dy) { return upsamplingReference(problem, dy); });
}

void runClass(ConformRun& run, UpsamplingSampling sampling, UpsamplingDirection direction,
              const KernelBatch& batch, ConformFormats formats) {
  constexpr std::size_t width = 9;
  constexpr std::size_t height = 4;
  const auto scale = [&](const auto& forward, const auto& gradient) {
    runScale(run, *forward, direction == UpsamplingDirection::Forward ? nullptr : gradient.get(), sampling,
             batch, formats);
  };
  switch (sampling) {
    case UpsamplingSampling::BilinearScale:
      return scale(ImageBilinearScale::create(run.device(), width, height),
                   ImageBilinearScaleGradient::create(run.device()));
    case UpsamplingSampling::LanczosScale:
      return scale(ImageLanczosScale::create(run.device(), width, height),
                   ImageLanczosScaleGradient::create(run.device()));
    default:
      return runCrop(run, batch, formats);
  }
}

}  // namespace

void conformImageScale(Conform& conform) {
  struct Class {
    UpsamplingSampling sampling;
    const char* name;
  };
  constexpr Class classes[] = {{UpsamplingSampling::BilinearRegion, "NNCropAndResizeBilinear"},
                               {UpsamplingSampling::BilinearScale, "ImageBilinearScale"},
                               {UpsamplingSampling::LanczosScale, "ImageLanczosScale"}};
  const auto row = [&](const UpsamplingImplementation& implementation, const Class& one,
                       UpsamplingDirection direction, Tier tier, ConformFormats formats) {
    const bool isForward = direction == UpsamplingDirection::Forward;
    const ConformKey key{isForward ? one.name : std::string(one.name) + "Gradient",
                         isForward ? Direction::Forward : Direction::Gradient, formats.source,
                         std::string(implementation.name), tier};
    if (!conform.isSelected(key)) return;
    std::vector<ConformCase> cases;
    for (const UpsamplingCase& stepped : steppedCases()) {
      const UpsamplingProblem problem = isForward ? stepped.forward(formats.source, formats.result)
                                                  : stepped.gradient(formats.source, formats.result);
      if (stepped.sampling != one.sampling || (tier == Tier::Exact && !isExact(problem))) continue;
      for (const std::size_t firstElement : {std::size_t{0}, std::size_t{1}})
        cases.push_back({stepped.name, [=](ConformRun& run) {
                           runScalePlan(run, implementation, stepped, problem, tier, firstElement);
                         }});
    }
    if (tier == Tier::Bounded)
      for (const KernelBatch& batch : kernelBatches())
        cases.push_back(
            {batch.name, [=](ConformRun& run) { runClass(run, one.sampling, direction, batch, formats); }});
    conformRow(conform, key, cases);
  };
  for (const Class& one : classes)
    for (const UpsamplingImplementation& implementation : conform.implementations(upsamplingBackEnds))
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          row(implementation, one, UpsamplingDirection::Forward, tier, formats);
        for (const auto format : kGradientFormats)
          if (hasGradient(one.sampling))
            row(implementation, one, UpsamplingDirection::Gradient, tier, {format, format});
      }
}

}  // namespace mps::detail
