#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "mps/conform/kernel_cases.hpp"
#include "mps/core/types/philox.hpp"
#include "mps/dropout/check/dropout_cases.hpp"
#include "mps/dropout/check/dropout_reference.hpp"
#include "mps/dropout/dropout.hpp"

namespace mps::detail {
namespace {

using DropoutImplementation = Implementation<DropoutProblem>;

/// Float results have one rounding, that of the division: exact in float32 whatever the values are.
Tier tierOf(ConformFormats formats) {
  return formats.source == ImageFeatureChannelFormat::Float32 &&
                 formats.result == ImageFeatureChannelFormat::Float32
             ? Tier::Exact
             : Tier::Bounded;
}

/// Keep probabilities at which one element of the first image decides whether a comparison is right.
struct KeepProbability {
  std::uint32_t element = 0;  ///< 0 or 1: the lower and the upper half of the first word
  bool isKept =
      false;  ///< just above the number drawn for it, which keeps it; else that number, which drops it
};

/// @param kind none: the keep probability of the case
void decide(DropoutProblem& problem, const DropoutCase& item, const std::optional<KeepProbability>& kind) {
  if (!kind) return;
  const auto numbers = [&] {
    const PhiloxKey key = {static_cast<std::uint32_t>(problem.seed),
                           static_cast<std::uint32_t>(problem.seed >> 32U)};
    const std::uint32_t word = philox({0, item.firstImage, item.encodeCounter, 0}, key)[0];
    return std::array{word % 65536, word / 65536};
  };
  // The other half is the one that would first make a comparison of whole words wrong.
  const std::uint32_t other = kind->isKept ? 0xFFFF : 0;
  while (numbers()[1 - kind->element] != other || numbers()[kind->element] == 0) ++problem.seed;
  const float number = static_cast<float>(numbers()[kind->element]) * 0x1p-16F;
  problem.keepProbability = kind->isKept ? std::nextafter(number, 1.0F) : number;
}

void runPlan(ConformRun& run, const DropoutImplementation& implementation, const DropoutCase& item,
             DropoutProblem problem, const std::optional<KeepProbability>& kind = {}) {
  problem.seed += run.nextSeed();
  decide(problem, item, kind);
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  TestTensor input = run.source(problem.input, valuesFor(Tier::Bounded, problem.input.format), 1);
  TestTensor destination = run.destination(problem.destination, 2);
  Operands operands{.destination = destination.address()};
  (problem.direction == DropoutDirection::Forward ? operands.source : operands.gradient) = input.address();
  operands.scalars = {static_cast<double>(item.encodeCounter), static_cast<double>(item.firstImage)};
  run.execute(*plan, operands);
  run.require(input.isUnchanged(), "the input was written");
  const ReferenceTensor expected =
      dropoutReference(problem, input.reference(), item.encodeCounter, item.firstImage);
  run.check(expected, destination, Zeros::Expected);
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// The masks that the states of an encode hand out, image by image.
void checkMasks(ConformRun& run, CNNDropout& kernel, const DropoutProblem& problem,
                const TestImages& sources) {
  StateBatch states;
  const std::uint32_t encodeCount = kernel.encodeCount();
  if (!run.encode([&](const auto& commandBuffer) {
        kernel.encodeBatch(commandBuffer, sources.batch(), states, false);
      }))
    return;
  run.require(states.count() == sources.batch().count(), "not every image has a state");
  for (std::size_t i = 0; i < states.count(); ++i) {
    const auto mask = std::static_pointer_cast<CNNDropoutGradientState>(states[i])->maskData();
    const auto expected = dropoutMaskReference(problem, encodeCount, static_cast<std::uint32_t>(i));
    run.require(std::equal(mask.begin(), mask.end(), expected.begin(), expected.end(),
                           [](std::byte kept, double reference) {
                             return std::to_integer<int>(kept) == static_cast<int>(reference);
                           }),
                "maskData() is not the mask");
  }
}

/// The second encode of a kernel, whose mask is not that of the first.
void runKernel(ConformRun& run, const KernelBatch& batch, DropoutDirection direction, ConformFormats formats,
               const mtl::Size& strides) {
  constexpr float kKeep = 0.7F;
  constexpr std::uint32_t kEncodeCount = 1;
  DropoutProblem problem;
  problem.keepProbability = kKeep;
  problem.seed = run.nextSeed();
  problem.maskStrideX = static_cast<std::int64_t>(strides.width);
  problem.maskStrideY = static_cast<std::int64_t>(strides.height);
  problem.maskStrideChannel = static_cast<std::int64_t>(strides.depth);
  problem.maskWidth = static_cast<std::int64_t>(batch.width);
  problem.maskHeight = static_cast<std::int64_t>(batch.height);
  problem.maskChannels = static_cast<std::int64_t>(batch.channels);
  const auto forward = CNNDropout::create(run.device(), kKeep, problem.seed, strides);
  forward->setEncodeCount(kEncodeCount);
  const TestImages sources = run.sources(batch.form, batch.descriptor(formats.source), batch.count,
                                         valuesFor(Tier::Bounded, formats.source));
  const auto reference = [&](const ReferenceTensor& input) {
    return dropoutReference(problem, input, kEncodeCount, 0);
  };
  if (direction == DropoutDirection::Forward) {
    runForwardKernel(run, *forward, sources, batch.form, formats.result, reference);
    run.require(run.isRefused() || forward->encodeCount() == kEncodeCount + 1, "the encode was not counted");
    checkMasks(run, *forward, problem, sources);
    return;
  }
  const auto gradient = CNNDropoutGradient::create(run.device(), kKeep, problem.seed, strides);
  runGradientKernel(
      run, *forward, *gradient, sources, batch.form, false, RandomKind::Uniform,
      [&](const ReferenceTensor& /*source*/, const ReferenceTensor& dy) { return reference(dy); });
}

void conformDirection(Conform& conform, const DropoutImplementation& implementation,
                      DropoutDirection direction, ConformFormats formats) {
  const bool isForward = direction == DropoutDirection::Forward;
  const ConformKey key{isForward ? "CNNDropout" : "CNNDropoutGradient",
                       isForward ? Direction::Forward : Direction::Gradient, formats.source,
                       std::string(implementation.name), tierOf(formats)};
  if (!conform.isSelected(key)) return;
  std::vector<ConformCase> cases;
  for (const DropoutCase& item : dropoutCases()) {
    const DropoutProblem problem = item.problem(direction, formats.source, formats.result);
    cases.push_back({item.name, [=](ConformRun& run) { runPlan(run, implementation, item, problem); }});
  }
  for (const KeepProbability kind : {KeepProbability{0, false}, {0, true}, {1, false}, {1, true}}) {
    const DropoutCase block{.name = kind.isKept ? "ProbabilityAboveDrawn" : "ProbabilityAsDrawn",
                            .images = 2,
                            .height = 3,
                            .width = 5,
                            .channels = 8};
    const DropoutProblem problem = block.problem(direction, formats.source, formats.result);
    cases.push_back(
        {block.name, [=](ConformRun& run) { runPlan(run, implementation, block, problem, kind); }});
  }
  for (const KernelBatch& batch : kernelBatches())
    for (const mtl::Size strides :
         {mtl::Size{1, 1, 1}, mtl::Size{0, 0, 1}, mtl::Size{1, 1, 0}, mtl::Size{0, 0, 0}})
      cases.push_back(
          {batch.name, [=](ConformRun& run) { runKernel(run, batch, direction, formats, strides); }});
  conformRow(conform, key, cases);
}

}  // namespace

void conformDropout(Conform& conform) {
  for (const DropoutImplementation& implementation : conform.implementations(dropoutBackEnds)) {
    for (const ConformFormats formats : kForwardFormats)
      conformDirection(conform, implementation, DropoutDirection::Forward, formats);
    for (const auto format : kGradientFormats)
      conformDirection(conform, implementation, DropoutDirection::Gradient, {format, format});
  }
}

}  // namespace mps::detail
