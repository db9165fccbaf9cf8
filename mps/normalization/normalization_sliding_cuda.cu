#include "mps/normalization/normalization_sliding_cuda.cuh"

#include <cfloat>
#include <memory>
#include <type_traits>

#include "mps/normalization/normalization_cuda.hpp"

namespace mps::detail {
namespace {

namespace sliding = cuda::sliding_window;
using sliding::Arguments;
using sliding::Channels;
using sliding::kThreads;

std::int32_t narrow(std::int64_t number) {
  return static_cast<std::int32_t>(number);
}

/// Four channels at once, or where tensors or addresses do not allow that, one.
template <class T>
class SlidingPlan final : public Plan {
 public:
  explicit SlidingPlan(const NormalizationProblem& problem)
      : problem_(problem), windows_(problem.isGradient() ? problem.gradient : problem.destination) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool takesFours = takesFour(problem_.source, operands.source) &&
                            takesFour(problem_.gradient, operands.gradient) &&
                            takesFour(problem_.destination, operands.destination);
    if (std::max(problem_.x.kernelSize, problem_.y.kernelSize) > 5)
      return takesFours ? runAs<Channels<T, 4>, sliding::kWidestWindow>(stream, operands)
                        : runAs<Channels<T, 1>, sliding::kWidestWindow>(stream, operands);
    return takesFours ? runAs<Channels<T, 4>, 5>(stream, operands)
                      : runAs<Channels<T, 1>, 5>(stream, operands);
  }

  [[nodiscard]] std::string describe() const override {
    const bool takesFours = takesFour(problem_.source, nullptr) && takesFour(problem_.gradient, nullptr) &&
                            takesFour(problem_.destination, nullptr);
    return takesFours ? "four channels per thread, or one at unaligned addresses" : "one channel per thread";
  }
  /// For the terms of all windows.
  [[nodiscard]] std::size_t scratchBytes() const override {
    const std::size_t planes = isContrast() ? 3 : 2;
    return problem_.isGradient() ? planes * static_cast<std::size_t>(windows_.elements()) * sizeof(float) : 0;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  [[nodiscard]] bool isContrast() const { return problem_.kind == NormalizationKind::LocalContrast; }

  /// Also of a tensor that is not there.
  static bool takesFour(const TensorShape& shape, const std::byte* address) {
    const std::int64_t mixed = shape.channels | shape.pixelStride | shape.rowStride | shape.imageStride;
    return mixed % 4 == 0 && reinterpret_cast<std::uintptr_t>(address) % (4 * sizeof(T)) == 0;
  }

  /// Everything but grid and windows.
  [[nodiscard]] Arguments argumentsFor(const Operands& operands) const {
    Arguments a;
    a.kernelWidth = narrow(problem_.x.kernelSize);
    a.kernelHeight = narrow(problem_.y.kernelSize);
    a.accumulate = operands.accumulate;
    a.source = {problem_.source, operands.source};
    a.gradient = {problem_.gradient, operands.gradient};
    a.destination = {problem_.destination, operands.destination};
    a.terms = {windows_.height, windows_.width, windows_.channels, windows_.elements(),
               reinterpret_cast<float*>(operands.scratch)};
    const auto taps = static_cast<float>(problem_.taps());
    a.ofWindow = 1 / taps;
    a.ofRow = 1 / static_cast<float>(a.kernelWidth);
    a.delta = problem_.delta;
    a.ofSquares = problem_.alpha / taps;
    a.p0 = problem_.p0;
    a.pm = problem_.pm;
    a.ps = problem_.ps;
    a.ofSum = 2 * problem_.alpha * problem_.beta / taps;
    a.ofMean = problem_.p0 / taps;
    a.rule = PowerRule(problem_.beta);
    a.isNormal = problem_.alpha >= 0 && problem_.delta >= FLT_MIN;
    return a;
  }

  template <class Access, int most>
  void runAs(mtl::Stream& stream, const Operands& operands) const {
    const auto start = [&](auto kernel, Arguments& a, const TensorShape& shape) {
      if (shape.elements() == 0) return;
      a.setGrid(shape, Access::lanes);
      mtl::cuda::launch(stream, kernel, dim3(mtl::cuda::blocksFor(a.items, kThreads)), dim3(kThreads), 0, a);
    };
    const WindowAxis& x = problem_.x;
    const WindowAxis& y = problem_.y;
    Arguments a = argumentsFor(operands);
    a.firstX = narrow(x.firstTap(0));
    a.firstY = narrow(y.firstTap(0));
    a.seenWidth = narrow(x.sourceSize);
    a.seenHeight = narrow(y.sourceSize);
    a.centerX = narrow(x.offset);
    a.centerY = narrow(y.offset);
    a.clamps = problem_.edgeMode == ImageEdgeMode::Clamp;
    if (!problem_.isGradient())
      return start(isContrast() ? sliding::normalizeWindows<Access, true, false, most>
                                : sliding::normalizeWindows<Access, false, false, most>,
                   a, windows_);
    start(isContrast() ? sliding::normalizeWindows<Access, true, true, most>
                       : sliding::normalizeWindows<Access, false, true, most>,
          a, windows_);

    Arguments gathered = argumentsFor(operands);
    gathered.centerX = narrow(problem_.destinationOriginX);
    gathered.centerY = narrow(problem_.destinationOriginY);
    gathered.sourceWidth = narrow(x.sourceSize);
    gathered.sourceHeight = narrow(y.sourceSize);
    gathered.seenWidth = narrow(x.destinationSize);
    gathered.seenHeight = narrow(y.destinationSize);
    gathered.firstX = narrow(problem_.destinationOriginX - x.offset - (x.kernelSize - 1) / 2);
    gathered.firstY = narrow(problem_.destinationOriginY - y.offset - (y.kernelSize - 1) / 2);
    start(isContrast() ? sliding::gatherGradient<Access, true, most>
                       : sliding::gatherGradient<Access, false, most>,
          gathered, problem_.destination);
  }

  NormalizationProblem problem_;
  TensorShape windows_;
};

}  // namespace

Preparation prepareNormalizationSlidingCuda(const NormalizationProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  constexpr std::int64_t most = std::int64_t{1} << 29;
  const TensorShape* const gradient = problem.isGradient() ? &problem.gradient : nullptr;
  if (problem.kind == NormalizationKind::CrossChannel) return Refusal{"windows of channels"};
  if (problem.isGradient() && problem.edgeMode == ImageEdgeMode::Clamp)
    return Refusal{"a gradient of pixels that stand for those beyond the edge"};
  if (std::max(problem.x.kernelSize, problem.y.kernelSize) > sliding::kWidestWindow)
    return Refusal{"windows of more than seven pixels by seven"};
  for (const std::int64_t number :
       {problem.x.offset, problem.y.offset, problem.destinationOriginX, problem.destinationOriginY})
    if (number < -most || number > most) return Refusal{"an offset of about 2^29 pixels"};
  for (const TensorShape* shape : {&problem.source, &problem.destination, gradient})
    if (shape != nullptr && (!cuda::ElementGrid::fits(*shape) || !Arguments::fits(*shape) ||
                             std::max(shape->width, shape->height) > most ||
                             shape->width * std::max(shape->pixelStride, shape->channels) > 0x7FFFFFFF))
      return Refusal{cuda::ElementGrid::kTooLarge};
  const Format format = cuda::commonFormat({&problem.source, &problem.destination, gradient});
  if (format == Format::Float32) return std::make_shared<const SlidingPlan<float>>(problem);
  if (format == Format::Float16) return std::make_shared<const SlidingPlan<Float16>>(problem);
  return Refusal{"not all float32 and not all float16"};
}

}  // namespace mps::detail
