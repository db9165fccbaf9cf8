#include <cstring>

#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/pooling/check/pooling_cases.hpp"
#include "mps/pooling/check/pooling_reference.hpp"
#include "mps/pooling/cpu/pooling_layout.hpp"
#include "mps/pooling/pooling_classes.hpp"

namespace mps::detail {
namespace {

using PoolingImplementation = Implementation<PoolingProblem>;

/// Gradients of the exact tier are multiples of this: divisible by the numbers of taps that windows have.
constexpr std::int64_t kCommonMultiple = 2520;
constexpr std::int64_t kPowerOfTwo = 64;

double gradientFactor(PoolingKind kind, Tier tier) {
  return traitsOf(kind).countsTaps && tier == Tier::Exact ? static_cast<double>(kCommonMultiple) : 1;
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
  Operands operands;
  if (problem.readsSource()) operands.source = source.address();
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

/// What a class computes.
template <class Class, ClassName name, PoolingKind function>
constexpr PoolingKind kindOf(const PoolingKernelClass<Class, name, function>* /*forward*/) {
  return function;
}
constexpr PoolingKind kindOf(const CNNDilatedPoolingMax* /*forward*/) {
  return PoolingKind::Max;
}

/// A class, or its gradient's, as rows of conform name it.
struct PoolingRow {
  std::string forward;
  std::string gradient;
  PoolingKind kind;
  bool isDilated;
  void (*run)(ConformRun& conform, PoolingProblem problem, const PoolingWindow& window,
              const KernelBatch& batch, ConformFormats formats, Tier tier);

  [[nodiscard]] bool takes(const PoolingCase& pooling) const {
    const bool hasDilation = pooling.geometry.x.dilation != 1 || pooling.geometry.y.dilation != 1;
    return pooling.kind == kind && (isDilated == hasDilation || !traitsOf(kind).selects);
  }
};

template <class Kernel>
concept HasDilation = requires(std::shared_ptr<mtl::Device> device) {
  Kernel::create(device, 1, 1, 1, 1, 1, 1);
};

template <class Kernel>
std::shared_ptr<Kernel> makeKernel(ConformRun& run, const PoolingWindow& window) {
  const auto& device = run.device();
  if constexpr (HasDilation<Kernel>)
    return Kernel::create(device, window.size, window.size, window.dilation, window.dilation, window.stride,
                          window.stride);
  else
    return Kernel::create(device, window.size, window.size, window.stride, window.stride);
}

template <class Forward, class Gradient>
void runKernels(ConformRun& run, PoolingProblem problem, const PoolingWindow& window,
                const KernelBatch& batch, ConformFormats formats, Tier tier) {
  const auto forward = makeKernel<Forward>(run, window);
  if constexpr (requires { forward->setZeroPadSizeX(1); }) {
    forward->setZeroPadSizeX(1);
    problem.zeroPadSizeX = 1;
  }
  runKernelOf(run, *forward, makeKernel<Gradient>(run, window), problem, window, batch, formats, tier);
}

std::vector<PoolingRow> poolingRows() {
  std::vector<PoolingRow> rows;
  PoolingPairs::forEach([&](auto pair) {
    using Forward = typename decltype(pair)::Forward;
    using Gradient = typename decltype(pair)::Gradient;
    constexpr const Forward* noKernel = nullptr;
    rows.push_back({Forward::nameOfClass(), Gradient::nameOfClass(), kindOf(noKernel), HasDilation<Forward>,
                    runKernels<Forward, Gradient>});
  });
  return rows;
}

std::vector<ConformCase> casesOf(const PoolingImplementation& implementation, const PoolingRow& row,
                                 PoolingDirection direction, ConformFormats formats, Tier tier) {
  std::vector<ConformCase> cases;
  for (const PoolingCase& pooling : poolingCases()) {
    if (!row.takes(pooling)) continue;
    const bool selects = traitsOf(pooling.kind).selects;
    for (const bool indices : {false, true}) {
      if (indices && !selects) continue;
      const PoolingProblem problem = direction == PoolingDirection::Forward
                                         ? pooling.forward(formats.source, formats.result, indices)
                                         : pooling.gradient(formats.source, formats.result, indices);
      if (tier == Tier::Exact && !isExactForIntegers(problem, kCommonMultiple * kPowerOfTwo)) continue;
      const auto add = [&](const std::string& name, const PoolingProblem& added) {
        cases.push_back({name, [=](ConformRun& run) { runPlan(run, implementation, pooling, added, tier); }});
      };
      const std::string name = pooling.name + (indices ? " with indices" : "");
      add(name, problem);
      // Saved places say it themselves.
      const bool findsPlaces = selects && (direction == PoolingDirection::Forward ? indices : !indices);
      if (findsPlaces) add(name + " after ReLU", PoolingCase::afterReLU(problem));
    }
  }
  if (cases.empty()) return cases;
  const std::size_t dilation = row.isDilated ? 2 : 1;
  PoolingProblem problem;
  problem.kind = row.kind;
  problem.direction = direction;
  for (const KernelBatch& batch : kernelBatches())
    for (const PoolingWindow window : {PoolingWindow{3, 2, dilation, ImageEdgeMode::Zero},
                                       PoolingWindow{2, 2, dilation, ImageEdgeMode::Clamp},
                                       PoolingWindow{3, 1, dilation, ImageEdgeMode::Clamp}})
      cases.push_back(
          {batch.name, [=](ConformRun& run) { row.run(run, problem, window, batch, formats, tier); }});
  return cases;
}

void conformDirection(Conform& conform, const PoolingImplementation& implementation, const PoolingRow& row,
                      PoolingDirection direction, ConformFormats formats, Tier tier) {
  const ConformKey key{direction == PoolingDirection::Forward ? row.forward : row.gradient,
                       direction == PoolingDirection::Forward ? Direction::Forward : Direction::Gradient,
                       formats.source, std::string(implementation.name), tier};
  if (conform.isSelected(key))
    conformRow(conform, key, casesOf(implementation, row, direction, formats, tier));
}

}  // namespace

void conformPooling(Conform& conform) {
  for (const PoolingRow& row : poolingRows())
    for (const PoolingImplementation& implementation : conform.implementations(poolingBackEnds))
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          conformDirection(conform, implementation, row, PoolingDirection::Forward, formats, tier);
        for (const auto format : kGradientFormats)
          conformDirection(conform, implementation, row, PoolingDirection::Gradient, {format, format}, tier);
      }
}

}  // namespace mps::detail
