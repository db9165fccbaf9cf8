#include <cstring>

#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/pooling/check/pooling_cases.hpp"
#include "mps/pooling/check/pooling_reference.hpp"
#include "mps/pooling/cpu/pooling_layout.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::detail {
namespace {

using PoolingImplementation = Implementation<PoolingProblem>;

/// Gradients of the exact tier are multiples of this: divisible by the numbers of taps that windows have.
constexpr std::int64_t kCommonMultiple = 2520;
constexpr std::int64_t kPowerOfTwo = 64;

enum class PoolingClass : std::uint8_t { Max, Average, L2Norm, DilatedMax };
constexpr std::array kClasses{PoolingClass::Max, PoolingClass::Average, PoolingClass::L2Norm,
                              PoolingClass::DilatedMax};

std::string className(PoolingClass kind, PoolingDirection direction) {
  constexpr std::array<const char*, 4> names{"CNNPoolingMax", "CNNPoolingAverage", "CNNPoolingL2Norm",
                                             "CNNDilatedPoolingMax"};
  return std::string(names[static_cast<std::size_t>(kind)]) +
         (direction == PoolingDirection::Forward ? "" : "Gradient");
}

bool belongsTo(const PoolingCase& pooling, PoolingClass kind) {
  const bool isDilated = pooling.geometry.x.dilation != 1 || pooling.geometry.y.dilation != 1;
  switch (pooling.kind) {
    case PoolingKind::Max:
      return kind == (isDilated ? PoolingClass::DilatedMax : PoolingClass::Max);
    case PoolingKind::Average:
      return kind == PoolingClass::Average;
    case PoolingKind::L2Norm:
      return kind == PoolingClass::L2Norm;
  }
  return false;
}

/// Whether integers give results without rounding.
bool isExact(const PoolingProblem& problem) {
  if (problem.kind == PoolingKind::Max || problem.direction == PoolingDirection::Forward) return true;
  if (problem.kind == PoolingKind::L2Norm) return false;
  for (std::int64_t y = 0; y < problem.y.destinationSize; ++y)
    for (std::int64_t x = 0; x < problem.x.destinationSize; ++x) {
      const std::int64_t divisor = countedTaps(problem.y, y, problem.edgeMode, problem.zeroPadSizeY) *
                                   countedTaps(problem.x, x, problem.edgeMode, problem.zeroPadSizeX);
      if (divisor != 0 && kCommonMultiple * kPowerOfTwo % divisor != 0) return false;
    }
  return true;
}

double gradientFactor(PoolingKind kind, Tier tier) {
  return kind == PoolingKind::Average && tier == Tier::Exact ? static_cast<double>(kCommonMultiple) : 1;
}

/// Few inputs may all be 0, or below the 0 outside.
Zeros expectedZeros(const PoolingCase& pooling, const PoolingProblem& problem) {
  constexpr std::int64_t kFew = 64;
  const bool seesNothing = pooling.geometry.view.originX >= pooling.geometry.x.sourceSize;
  const bool isForward = problem.direction == PoolingDirection::Forward;
  const bool isSmall = problem.source.elements() < kFew || (!isForward && problem.gradient.elements() < kFew);
  return pooling.geometry.readsNothing || seesNothing || isSmall ? Zeros::Expected : Zeros::Suspicious;
}

ReferenceTensor reference(const PoolingProblem& problem, const ReferenceTensor& source,
                          const ReferenceTensor& gradient) {
  return problem.direction == PoolingDirection::Forward ? poolingForwardReference(problem, source)
                                                        : poolingGradientReference(problem, source, gradient);
}

/// Saved indices as they lie in memory; little endian.
std::vector<std::byte> storedIndices(const PoolingProblem& problem, const ReferenceTensor& source) {
  const std::size_t size = problem.indexBytes();
  std::vector<std::byte> bytes(problem.savedBytes());
  std::size_t offset = 0;
  for (const std::uint32_t index : poolingIndicesReference(problem, source)) {
    std::memcpy(bytes.data() + offset, &index, size);
    offset += size;
  }
  return bytes;
}

void runPlan(ConformRun& run, const PoolingImplementation& implementation, const PoolingCase& pooling,
             const PoolingProblem& problem, Tier tier) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const bool isForward = problem.direction == PoolingDirection::Forward;
  const bool hasIndices = problem.saveIndices || problem.useIndices;
  std::vector<double> sourceValues =
      run.values(static_cast<std::size_t>(problem.source.elements()), valuesFor(tier, problem.source.format));
  if (problem.afterReLU)
    for (double& value : sourceValues)
      if (value < 0) value = -0.0;
  TestTensor source = run.source(problem.source, sourceValues, 1);
  std::vector<double> gradientValues = run.values(static_cast<std::size_t>(problem.gradient.elements()),
                                                  valuesFor(tier, problem.gradient.format));
  for (double& value : gradientValues) value *= gradientFactor(problem.kind, tier);
  TestTensor gradient = run.source(problem.gradient, gradientValues, 1);
  TestTensor destination = run.destination(problem.destination, 3);
  GuardedMemory saved(run.device(), hasIndices ? problem.savedBytes() : 0);
  std::vector<std::byte> indices;
  if (hasIndices) indices = storedIndices(problem, source.reference());
  if (problem.useIndices) {
    std::ranges::copy(indices, saved.bytes().begin());
    saved.didModify();
  }

  // What the problem says is not read stays null.
  const bool readsSource = isForward || (problem.kind != PoolingKind::Average && !problem.useIndices);
  Operands operands;
  if (readsSource) operands.source = source.address();
  if (!isForward) operands.gradient = gradient.address();
  operands.destination = destination.address();
  if (hasIndices) operands.saved = saved.address();
  run.execute(*plan, operands);
  saved.synchronize();
  run.require(source.isUnchanged() && gradient.isUnchanged(), "an input was written");
  run.require(saved.guardsIntact(), "memory around the saved indices was written");
  run.require(std::ranges::equal(saved.bytes(), indices), "the saved indices differ");
  const ReferenceTensor expected = reference(problem, source.reference(), gradient.reference());
  run.check(expected, destination, expectedZeros(pooling, problem));
  run.checkAccumulated(*plan, operands, expected, destination);
}

/// A window of a kernel under test.
struct PoolingWindow {
  std::size_t size;
  std::size_t stride;
  std::size_t dilation;
  ImageEdgeMode edgeMode;
};

template <class Gradient, class Forward>
void runKernelOf(ConformRun& run, Forward& forward, const std::shared_ptr<Gradient>& gradient,
                 PoolingProblem problem, const PoolingWindow& window, const KernelBatch& batch,
                 ConformFormats formats, Tier tier) {
  forward.setEdgeMode(window.edgeMode);
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  const ImageDescriptor result = forward.sizeDestination(sources.batch().descriptor());
  const auto axis = [&](std::size_t sourceSize, std::size_t resultSize, std::int64_t offset) {
    return WindowAxis{static_cast<std::int64_t>(sourceSize),      static_cast<std::int64_t>(resultSize),
                      static_cast<std::int64_t>(window.size),     static_cast<std::int64_t>(window.stride),
                      static_cast<std::int64_t>(window.dilation), offset};
  };
  problem.edgeMode = window.edgeMode;
  problem.x = axis(batch.width, result.width(), forward.offset().x);
  problem.y = axis(batch.height, result.height(), forward.offset().y);
  problem.source = sources.shape();
  problem.destination =
      problem.direction == PoolingDirection::Forward
          ? TensorShape::dense(problem.source.images, problem.y.destinationSize, problem.x.destinationSize,
                               problem.source.channels, formats.result)
          : problem.source;
  problem.gradient = problem.destination;
  if (problem.direction == PoolingDirection::Forward) {
    runForwardKernel(run, forward, sources, batch.form, formats.result,
                     [&](const ReferenceTensor& source) { return reference(problem, source, {}); });
    return;
  }
  problem.gradient.height = problem.y.destinationSize;
  problem.gradient.width = problem.x.destinationSize;
  runGradientKernel(
      run, forward, *gradient, sources, batch.form, false, valuesFor(tier, formats.result),
      [&](const ReferenceTensor& source, const ReferenceTensor& dy) {
        return reference(problem, source, dy);
      },
      gradientFactor(problem.kind, tier));
}

void runKernel(ConformRun& run, PoolingClass kind, PoolingDirection direction, const PoolingWindow& window,
               const KernelBatch& batch, ConformFormats formats, Tier tier) {
  const auto& device = run.device();
  const std::size_t size = window.size;
  const std::size_t stride = window.stride;
  PoolingProblem problem;
  problem.direction = direction;
  switch (kind) {
    case PoolingClass::Max:
      runKernelOf(run, *CNNPoolingMax::create(device, size, size, stride, stride),
                  CNNPoolingMaxGradient::create(device, size, size, stride, stride), problem, window, batch,
                  formats, tier);
      break;
    case PoolingClass::Average: {
      problem.kind = PoolingKind::Average;
      problem.zeroPadSizeX = 1;
      const auto forward = CNNPoolingAverage::create(device, size, size, stride, stride);
      forward->setZeroPadSizeX(1);
      runKernelOf(run, *forward, CNNPoolingAverageGradient::create(device, size, size, stride, stride),
                  problem, window, batch, formats, tier);
      break;
    }
    case PoolingClass::L2Norm:
      problem.kind = PoolingKind::L2Norm;
      runKernelOf(run, *CNNPoolingL2Norm::create(device, size, size, stride, stride),
                  CNNPoolingL2NormGradient::create(device, size, size, stride, stride), problem, window,
                  batch, formats, tier);
      break;
    case PoolingClass::DilatedMax: {
      const std::size_t dilation = window.dilation;
      runKernelOf(
          run, *CNNDilatedPoolingMax::create(device, size, size, dilation, dilation, stride, stride),
          CNNDilatedPoolingMaxGradient::create(device, size, size, dilation, dilation, stride, stride),
          problem, window, batch, formats, tier);
      break;
    }
  }
}

std::vector<ConformCase> casesOf(const PoolingImplementation& implementation, PoolingClass kind,
                                 PoolingDirection direction, ConformFormats formats, Tier tier) {
  std::vector<ConformCase> cases;
  for (const PoolingCase& pooling : poolingCases()) {
    if (!belongsTo(pooling, kind)) continue;
    for (const bool indices : {false, true}) {
      if (indices && pooling.kind != PoolingKind::Max) continue;
      const PoolingProblem problem = direction == PoolingDirection::Forward
                                         ? pooling.forward(formats.source, formats.result, indices)
                                         : pooling.gradient(formats.source, formats.result, indices);
      if (tier == Tier::Exact && !isExact(problem)) continue;
      const auto add = [&](const std::string& name, const PoolingProblem& added) {
        cases.push_back({name, [=](ConformRun& run) { runPlan(run, implementation, pooling, added, tier); }});
      };
      const std::string name = pooling.name + (indices ? " with indices" : "");
      add(name, problem);
      // Saved places say it themselves.
      const bool findsPlaces =
          pooling.kind == PoolingKind::Max && (direction == PoolingDirection::Forward ? indices : !indices);
      if (findsPlaces) add(name + " after ReLU", PoolingCase::afterReLU(problem));
    }
  }
  if (cases.empty()) return cases;
  const std::size_t dilation = kind == PoolingClass::DilatedMax ? 2 : 1;
  for (const KernelBatch& batch : kernelBatches())
    for (const PoolingWindow window : {PoolingWindow{3, 2, dilation, ImageEdgeMode::Zero},
                                       PoolingWindow{2, 2, dilation, ImageEdgeMode::Clamp},
                                       PoolingWindow{3, 1, dilation, ImageEdgeMode::Clamp}})
      cases.push_back({batch.name, [=](ConformRun& run) {
                         runKernel(run, kind, direction, window, batch, formats, tier);
                       }});
  return cases;
}

void conformDirection(Conform& conform, const PoolingImplementation& implementation, PoolingClass kind,
                      PoolingDirection direction, ConformFormats formats, Tier tier) {
  const ConformKey key{className(kind, direction),
                       direction == PoolingDirection::Forward ? Direction::Forward : Direction::Gradient,
                       formats.source, std::string(implementation.name), tier};
  if (conform.isSelected(key))
    conformRow(conform, key, casesOf(implementation, kind, direction, formats, tier));
}

}  // namespace

void conformPooling(Conform& conform) {
  for (const PoolingClass kind : kClasses)
    for (const PoolingImplementation& implementation : conform.implementations(poolingBackEnds))
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          conformDirection(conform, implementation, kind, PoolingDirection::Forward, formats, tier);
        for (const auto format : kGradientFormats)
          conformDirection(conform, implementation, kind, PoolingDirection::Gradient, {format, format}, tier);
      }
}

}  // namespace mps::detail
