#include "mps/arithmetic/cuda/arithmetic_cuda.cuh"

#include <cstdint>
#include <memory>
#include <string_view>

#include "mps/arithmetic/cuda/arithmetic_sums_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"

namespace mps::detail {
namespace {

using cuda::ElementGrid;
using cuda::JoinedAxes;
using cuda::SavedViews;
using cuda::SumGrid;
using cuda::SumShape;

/// The operand over the whole result: axes of size 1 are repeated by strides of 0. Channels stay as they are.
TensorShape repeated(TensorShape shape, const TensorShape& result) {
  if (shape.width == 1) shape.pixelStride = 0;
  if (shape.height == 1) shape.rowStride = 0;
  shape.width = result.width;
  shape.height = result.height;
  return shape;
}

bool sumsAnything(const ArithmeticProblem& problem) {
  const TensorShape& from = problem.gradient;
  const TensorShape& to = problem.destination;
  return !problem.isForward() &&
         (to.width < from.width || to.height < from.height || to.channels < from.channels);
}

/// Whether all pixels of an image are one, of an operand over the whole result.
bool repeatsPixel(const TensorShape& shape) {
  return shape.height * shape.width > 1 && shape.rowStride == 0 && shape.pixelStride == 0;
}

/// What the plans know of a problem: operands are repeated by strides, axes are joined.
class ArithmeticShapes {
 public:
  explicit ArithmeticShapes(const ArithmeticProblem& problem) : problem_(problem) {
    ArithmeticProblem& p = problem_;
    const TensorShape& result = p.isForward() ? p.destination : p.gradient;
    if (p.isForward()) p.primary = repeated(p.primary, result);
    if (p.needsSecondary()) p.secondary = repeated(p.secondary, result);
    const bool sums = sumsAnything(problem);
    if (!sums && p.needsSecondary() && repeatsPixel(p.secondary) && joinAroundSecondary()) return;
    join(p, p.needsSecondary() ? &p.secondary : nullptr,
         !sums                                                         ? JoinedAxes::All
         : problem.destination.height * problem.destination.width == 1 ? JoinedAxes::Pixels
                                                                       : JoinedAxes::None);
  }

  [[nodiscard]] const ArithmeticProblem& problem() const { return problem_; }
  /// launchMap's, where the secondary operand has one pixel for each image.
  [[nodiscard]] std::int64_t pixelsOfImage() const { return pixelsOfImage_; }
  /// The first input, x or g.
  [[nodiscard]] const TensorShape& first() const {
    return problem_.isForward() ? problem_.primary : problem_.gradient;
  }

  [[nodiscard]] SavedViews savedViews(std::byte* saved) const {
    SavedViews views;
    if (problem_.hasMask()) views.mask = {problem_.mask, saved + problem_.maskOffset};
    if (problem_.hasKept()) views.kept = {problem_.kept, saved + problem_.keptOffset};
    return views;
  }

 private:
  static void join(ArithmeticProblem& p, TensorShape* secondary, JoinedAxes axes) {
    TensorShape* const destination = sumsAnything(p) ? nullptr : &p.destination;
    cuda::joinAxes({p.isForward() ? &p.destination : &p.gradient, p.isForward() ? &p.primary : destination,
                    secondary, p.hasMask() ? &p.mask : nullptr, p.hasKept() ? &p.kept : nullptr},
                   axes);
  }
  /// Makes one row of the pixels of all tensors but the secondary operand's, which has one for each image. Returns
  /// whether their strides allow it; else nothing changes.
  bool joinAroundSecondary() {
    ArithmeticProblem joined = problem_;
    join(joined, nullptr, JoinedAxes::AllPixels);
    const TensorShape& result = joined.result();
    if (result.images != 1 || result.height != 1) return false;
    pixelsOfImage_ = problem_.secondary.height * problem_.secondary.width;
    problem_ = joined;
    return true;
  }

  ArithmeticProblem problem_;
  std::int64_t pixelsOfImage_ = ElementGrid::kLongestRow;
};

/// Calls body with PlainForward of the operation.
template <cuda::PlainEnd end, class Body>
void withPlain(const cuda::ArithmeticForward& function, Body body) {
  using enum ArithmeticOperation;
  switch (function.operation) {
    case Add:
      return body(cuda::PlainForward<Add, end>{function.lowest, function.highest});
    case Subtract:
      return body(cuda::PlainForward<Subtract, end>{function.lowest, function.highest});
    case Multiply:
      return body(cuda::PlainForward<Multiply, end>{function.lowest, function.highest});
    case Divide:
      return body(cuda::PlainForward<Divide, end>{function.lowest, function.highest});
    default:
      break;  // comparisons are not plain
  }
}

/// Calls body with PlainForward where that is all there is to do, else with `function`.
template <class Access, class Body>
void withForward(const cuda::ArithmeticForward& function, Body body) {
  using cuda::PlainEnd;
  if constexpr (Access::lanes == cuda::kLanes<float>) {
    // Memory, not arithmetic, takes the time: one kernel serves with limits and without.
    if (function.isPlain()) return withPlain<PlainEnd::Limits>(function, body);
  } else if constexpr (Access::lanes == cuda::kLanes<Float16>) {
    if (function.isPlain() && !function.hasLimits()) {
      if (!function.hasReLU) return withPlain<PlainEnd::Nothing>(function, body);
      return body(cuda::PlainForward<ArithmeticOperation::Add, PlainEnd::ReLU>{});
    }
  }
  body(function);
}

using OneInput = std::integral_constant<int, 1>;
using TwoInputs = std::integral_constant<int, 2>;

/// Calls body(std::integral_constant) with the number of inputs of a gradient.
template <class Body>
void withInputs(const ArithmeticProblem& problem, Body body) {
  if (problem.needsSecondary())
    body(TwoInputs());
  else
    body(OneInput());
}

/// Calls body(number of inputs, function) with the shortest of the functions that give the gradient.
template <class Access, class Body>
void withGradient(const ArithmeticProblem& problem, const cuda::ArithmeticGradient& function, Body body) {
  using cuda::PlainKind;
  if constexpr (Access::lanes > 1)
    if (function.isPlain()) {
      if (!problem.needsSecondary())
        return body(OneInput(), cuda::PlainGradient<PlainKind::Scale>{function.a, function.b});
      if (function.divides)
        return body(TwoInputs(), cuda::PlainGradient<PlainKind::Divide>{function.a, function.b});
      return body(TwoInputs(), cuda::PlainGradient<PlainKind::Multiply>{function.a, function.b});
    }
  withInputs(problem, [&](auto inputs) { body(inputs, function); });
}

template <int inputs>
void setSources(cuda::SourceView (&sources)[inputs], const ArithmeticShapes& shapes,
                const Operands& operands) {
  const std::int64_t channels = shapes.problem().result().channels;
  sources[0] = {shapes.first(), shapes.problem().isForward() ? operands.source : operands.gradient, channels};
  if constexpr (inputs == 2) sources[1] = {shapes.problem().secondary, operands.secondary, channels};
}

class ArithmeticPlan : public AccessPlan {
 public:
  explicit ArithmeticPlan(const ArithmeticProblem& problem) : shapes_(problem) {}

  [[nodiscard]] bool useVectors() {
    const auto strides = [](const TensorShape& shape) {
      return shape.pixelStride | shape.rowStride | shape.imageStride;
    };
    return AccessPlan::useVectors() && (strides(problem().mask) | strides(problem().kept)) % lanes() == 0;
  }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    const ArithmeticProblem& p = problem();
    for (const std::string_view objection :
         {AccessPlan::objectionTo(operands),
          objectionToUnaligned({p.hasKept() ? operands.saved + p.keptOffset : nullptr}),
          objectionToUnaligned({p.hasMask() ? operands.saved + p.maskOffset : nullptr},
                               static_cast<std::size_t>(lanes()))})
      if (!objection.empty()) return objection;
    return {};
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !problem().isForward() && problem().destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  /// Without the destination of a sum.
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    const ArithmeticProblem& p = problem();
    return {{{shapes_.first(), p.isForward() ? operands.source : operands.gradient},
             {p.secondary, operands.secondary, p.needsSecondary()},
             {p.destination, operands.destination, !sumsAnything(p)}}};
  }
  [[nodiscard]] bool repeatsChannels() const override { return true; }
  [[nodiscard]] const ArithmeticProblem& problem() const { return shapes_.problem(); }

  ArithmeticShapes shapes_;
};

/// Nothing is summed.
class ElementPlan final : public ArithmeticPlan {
 public:
  using ArithmeticPlan::ArithmeticPlan;

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const ArithmeticProblem& problem = shapes_.problem();
    if (problem.destination.elements() == 0) return;
    cuda::withAccess(vectorFormat(), [&](auto access) {
      using Access = decltype(access);
      const SavedViews saved = shapes_.savedViews(operands.saved);
      const auto start = [&](auto inputs, const auto& function) {
        cuda::MapArguments<inputs()> arguments;
        setSources(arguments.sources, shapes_, operands);
        arguments.destination = {problem.destination, operands.destination};
        arguments.accumulate = operands.accumulate;
        cuda::launchMap<Access>(stream, arguments, problem.destination, function, shapes_.pixelsOfImage());
      };
      if (!problem.isForward()) return withGradient<Access>(problem, {problem, saved}, start);
      withForward<Access>({problem, saved}, [&](const auto& function) { start(TwoInputs(), function); });
    });
  }
};

/// A gradient that sums over pixels, channels or both.
class SumPlan final : public ArithmeticPlan {
 public:
  explicit SumPlan(const ArithmeticProblem& problem)
      : ArithmeticPlan(problem), sum_(shapes_.first(), problem.destination) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    const std::int64_t chunks = std::max(1U, SumGrid(sum_, lanes()).grid.y);
    return static_cast<std::size_t>(sum_.keptPixels() * chunks * sum_.keptChannels()) * sizeof(double);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const ArithmeticProblem& problem = shapes_.problem();
    const TensorShape& destination = problem.destination;
    if (destination.elements() == 0) return;
    unsigned chunkCount = 0;
    if (problem.gradient.elements() > 0)
      cuda::withAccess(vectorFormat(),
                       [&](auto access) { chunkCount = start<decltype(access)>(stream, operands); });
    const ElementGrid grid(destination, 1, 1);
    mtl::cuda::launch(stream, cuda::addChunks, grid.grid(), grid.block(), 0, grid, destination.height,
                      destination.width, destination.channels, chunkCount,
                      reinterpret_cast<const double*>(operands.scratch),
                      cuda::ResultView(destination, operands.destination), operands.accumulate);
  }

  [[nodiscard]] std::string describe() const override { return "sums in float64"; }

 private:
  /// Returns the number of chunks.
  template <class Access>
  unsigned start(mtl::Stream& stream, const Operands& operands) const {
    const SumGrid grid(sum_, Access::lanes);
    const cuda::ArithmeticGradient function(shapes_.problem(), shapes_.savedViews(operands.saved));
    const auto argumentsOf = [&](auto inputs) {
      cuda::SumArguments<inputs()> arguments;
      arguments.grid = grid;
      arguments.sums = reinterpret_cast<double*>(operands.scratch);
      setSources(arguments.sources, shapes_, operands);
      return arguments;
    };
    const ArithmeticProblem& problem = shapes_.problem();
    if (sum_.sumsChannels)
      withInputs(problem, [&](auto inputs) {
        mtl::cuda::launch(stream, cuda::sumChannels<inputs(), cuda::ArithmeticGradient>, grid.grid,
                          grid.block, 0, argumentsOf(inputs), function);
      });
    else
      withGradient<Access>(problem, function, [&](auto inputs, const auto& known) {
        using Function = std::remove_cvref_t<decltype(known)>;
        mtl::cuda::launch(stream, cuda::sumPixels<Access, inputs(), Function>, grid.grid, grid.block, 0,
                          argumentsOf(inputs), known);
      });
    return grid.grid.y;
  }

  SumShape sum_;
};

Preparation prepareElements(const ArithmeticProblem& problem) {
  for (const TensorShape* shape : {&problem.primary, &problem.secondary, &problem.gradient,
                                   &problem.destination, &problem.mask, &problem.kept})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  if (!sumsAnything(problem)) return std::make_shared<const ElementPlan>(problem);
  if (!SumShape(problem.gradient, problem.destination).fits()) return Refusal{"a sum of about 2^31 elements"};
  return std::make_shared<const SumPlan>(problem);
}

constexpr Implementation<ArithmeticProblem> kElements{"thread per element", prepareElements};

Preparation prepareVectors(const ArithmeticProblem& problem) {
  if (!sumsAnything(problem)) return inVectors(std::make_shared<ElementPlan>(problem), kElements, problem);
  if (problem.destination.channels < problem.gradient.channels) return Refusal{"a sum over channels"};
  return inVectors(std::make_shared<SumPlan>(problem), kElements, problem);
}

constexpr Implementation<ArithmeticProblem> implementations[] = {{"16 bytes per thread", prepareVectors},
                                                                 kElements};

}  // namespace

std::span<const Implementation<ArithmeticProblem>> arithmeticImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
