#include <cmath>
#include <cstdint>
#include <memory>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/normalization/cuda/normalization_cuda.hpp"
#include "mps/normalization/cuda/normalization_powers_cuda.cuh"
#include "mps/normalization/normalization_windows.hpp"

namespace mps::detail {
namespace {

using cuda::ElementGrid;
using cuda::ElementPlace;

/// What the gradient of a window's result is multiplied with.
struct Terms {
  float a;      ///< dY T^-beta
  float b;      ///< dY numerator T^(-beta - 1)
  float bMean;  ///< b M; 0 but for LocalContrast
};

struct Arguments {
  ElementGrid grid;  ///< over windows, or the elements of a gradient
  NormalizationProblem problem;
  TensorShape windows;  ///< one element for each
  const std::byte* source;
  const std::byte* gradient;
  std::byte* destination;
  Terms* terms;
  bool accumulate;
  PowerRule rule;

  [[nodiscard]] __device__ bool isContrast() const {
    return problem.kind == NormalizationKind::LocalContrast;
  }
  [[nodiscard]] __device__ bool clamps() const { return problem.edgeMode == ImageEdgeMode::Clamp; }
  [[nodiscard]] __device__ Terms& termsOf(std::int64_t n, std::int64_t y, std::int64_t x,
                                          std::int64_t c) const {
    return terms[((n * windows.height + y) * windows.width + x) * windows.channels + c];
  }
  [[nodiscard]] __device__ float sourceAt(std::int64_t n, std::int64_t y, std::int64_t x,
                                          std::int64_t c) const {
    return cuda::loadAs(problem.source.format, source, problem.source.offset(n, y, x, c));
  }
  /// Whether a position of an axis has a value; moves it to the pixel that it stands for.
  [[nodiscard]] __device__ bool moveInside(std::int64_t& at, std::int64_t size) const {
    if (at >= 0 && at < size) return true;
    at = at < 0 ? 0 : size - 1;
    return clamps();
  }
};

/// Calls visit(value) for each element of a window that is not an outside 0.
template <class Visit>
__device__ void forEachTap(const Arguments& a, const ElementPlace& place, Visit visit) {
  const NormalizationProblem& problem = a.problem;
  if (problem.kind == NormalizationKind::CrossChannel) {
    const std::int64_t size = problem.kernelSize;
    const std::int64_t end = min(a.windows.channels, place.channel + (size - 1) / 2 + 1);
    for (std::int64_t q = max(std::int64_t{0}, place.channel - size / 2); q < end; ++q)
      visit(a.sourceAt(place.image, place.y, place.x, q));
    return;
  }
  for (std::int64_t l = 0; l < problem.y.kernelSize; ++l) {
    std::int64_t y = problem.y.firstTap(place.y) + l;
    if (!a.moveInside(y, problem.y.sourceSize)) continue;
    for (std::int64_t k = 0; k < problem.x.kernelSize; ++k) {
      std::int64_t x = problem.x.firstTap(place.x) + k;
      if (a.moveInside(x, problem.x.sourceSize)) visit(a.sourceAt(place.image, y, x, place.channel));
    }
  }
}

struct Statistics {
  float numerator;  ///< X, or X - p0 M
  float mean;
  float t;
};

__device__ float centerOf(const Arguments& a, const ElementPlace& place) {
  const NormalizationProblem& problem = a.problem;
  if (problem.kind == NormalizationKind::CrossChannel)
    return a.sourceAt(place.image, place.y, place.x, place.channel);
  std::int64_t y = place.y + problem.y.offset;
  std::int64_t x = place.x + problem.x.offset;
  const bool isInside = a.moveInside(y, problem.y.sourceSize) && a.moveInside(x, problem.x.sourceSize);
  return isInside ? a.sourceAt(place.image, y, x, place.channel) : 0;
}

__device__ Statistics statisticsOf(const Arguments& a, const ElementPlace& place) {
  const NormalizationProblem& problem = a.problem;
  const auto taps = static_cast<float>(problem.taps());
  const float center = centerOf(a, place);
  float sum = 0;
  if (!a.isContrast()) {
    forEachTap(a, place, [&](float value) { sum += value * value; });
    return {center, 0, problem.delta + problem.alpha / taps * sum};
  }
  std::int64_t seen = 0;
  forEachTap(a, place, [&](float value) {
    sum += value;
    ++seen;
  });
  const float mean = sum / taps;
  float squares = static_cast<float>(problem.taps() - seen) * (mean * mean);  // the outside 0s
  forEachTap(a, place, [&](float value) { squares += (value - mean) * (value - mean); });
  return {center - problem.p0 * mean, mean, problem.delta + problem.alpha * (squares / taps)};
}

__global__ void normalizeWindows(Arguments a) {
  a.grid.forEachBatch<1, 1>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const NormalizationProblem& problem = a.problem;
        const Statistics window = statisticsOf(a, place);
        const float t[1]{window.t};
        float power[1];
        if (!problem.isGradient()) {
          cuda::negativePowers(a.rule, t, power);
          const float value = window.numerator * power[0];
          cuda::storeAs(a.isContrast() ? problem.pm + problem.ps * value : value, problem.destination.format,
                        a.destination,
                        problem.destination.offset(place.image, place.y, place.x, place.channel));
          return;
        }
        const float dy = cuda::loadAs(problem.gradient.format, a.gradient,
                                      problem.gradient.offset(place.image, place.y, place.x, place.channel));
        float next[1];
        cuda::bothNegativePowers(a.rule, t, power, next, false);
        const float b = dy * window.numerator * next[0];
        a.termsOf(place.image, place.y, place.x, place.channel) = {dy * power[0], b,
                                                                   a.isContrast() ? b * window.mean : 0};
      });
}

/// The sums of all windows that see an element.
struct Sums {
  float centered = 0;  ///< of `a` of the windows whose center it is
  float a = 0;
  float b = 0;
  float bMean = 0;
  bool isSeen = false;
};

__device__ Sums sumsOf(const Arguments& a, const ElementPlace& place, std::int64_t y, std::int64_t x) {
  const NormalizationProblem& problem = a.problem;
  Sums sums;
  if (problem.kind == NormalizationKind::CrossChannel) {
    const std::int64_t size = problem.kernelSize;
    sums.centered = a.termsOf(place.image, y, x, place.channel).a;
    const std::int64_t end = min(a.windows.channels, place.channel + size / 2 + 1);
    for (std::int64_t r = max(std::int64_t{0}, place.channel - (size - 1) / 2); r < end; ++r)
      sums.b += a.termsOf(place.image, y, x, r).b;
    sums.isSeen = true;
    return sums;
  }
  const auto edgeMode = problem.edgeMode;
  const WindowRange centeredRows = windowsCenteredAt(problem.y, edgeMode, y);
  const WindowRange centeredColumns = windowsCenteredAt(problem.x, edgeMode, x);
  for (std::int64_t l = centeredRows.begin; l < centeredRows.end; ++l)
    for (std::int64_t k = centeredColumns.begin; k < centeredColumns.end; ++k)
      sums.centered += a.termsOf(place.image, l, k, place.channel).a;
  const WindowRange rows = windowsSeeing(problem.y, edgeMode, y);
  const WindowRange columns = windowsSeeing(problem.x, edgeMode, x);
  for (std::int64_t l = rows.begin; l < rows.end; ++l)
    for (std::int64_t k = columns.begin; k < columns.end; ++k) {
      const auto times =
          static_cast<float>(timesSeen(problem.y, edgeMode, l, y) * timesSeen(problem.x, edgeMode, k, x));
      const Terms terms = a.termsOf(place.image, l, k, place.channel);
      sums.a += times * terms.a;
      sums.b += times * terms.b;
      sums.bMean += times * terms.bMean;
      sums.isSeen = true;
    }
  return sums;
}

__device__ float gradientOf(const Arguments& a, const ElementPlace& place) {
  const NormalizationProblem& problem = a.problem;
  const std::int64_t y = place.y + problem.destinationOriginY;
  const std::int64_t x = place.x + problem.destinationOriginX;
  const Sums sums = sumsOf(a, place, y, x);
  if (!sums.isSeen) return 0;  // whatever the source holds there
  const float value = a.sourceAt(place.image, y, x, place.channel);
  const auto taps = static_cast<float>(problem.taps());
  const float ofSums = 2 * problem.alpha * problem.beta / taps * (value * sums.b - sums.bMean);
  if (!a.isContrast()) return sums.centered - ofSums;
  return problem.ps * (sums.centered - problem.p0 / taps * sums.a - ofSums);
}

__global__ void gatherGradient(Arguments a) {
  a.grid.forEachBatch<1, 1>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const TensorShape& shape = a.problem.destination;
        const std::int64_t offset = shape.offset(place.image, place.y, place.x, place.channel);
        const float old = a.accumulate ? cuda::loadAs(shape.format, a.destination, offset) : 0;
        const float value = gradientOf(a, place);
        cuda::storeAs(a.accumulate ? old + value : value, shape.format, a.destination, offset);
      });
}

/// One thread for each element. Its neighbours read the same memory, which the caches hold.
class ElementPlan final : public Plan {
 public:
  explicit ElementPlan(const NormalizationProblem& problem)
      : problem_(problem), windows_(problem.isGradient() ? problem.gradient : problem.destination) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    Arguments a{{},
                problem_,
                windows_,
                operands.source,
                operands.gradient,
                operands.destination,
                reinterpret_cast<Terms*>(operands.scratch),
                operands.accumulate,
                PowerRule(problem_.beta)};
    const auto launch = [&](auto kernel, const TensorShape& shape) {
      if (shape.elements() == 0) return;
      a.grid = ElementGrid(shape, 1, 1);
      mtl::cuda::launch(stream, kernel, a.grid.grid(), a.grid.block(), 0, a);
    };
    launch(normalizeWindows, windows_);
    if (problem_.isGradient()) launch(gatherGradient, problem_.destination);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return problem_.isGradient() ? static_cast<std::size_t>(windows_.elements()) * sizeof(Terms) : 0;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  NormalizationProblem problem_;
  TensorShape windows_;
};

Preparation prepareElements(const NormalizationProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.gradient, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  return std::make_shared<const ElementPlan>(problem);
}

constexpr Implementation<NormalizationProblem> kImplementations[] = {
    {"channels in shared memory", prepareNormalizationChannelsCuda},
    {"thread per pixel", prepareNormalizationPixelsCuda},
    {"sliding window", prepareNormalizationSlidingCuda},
    {"thread per element", prepareElements}};

}  // namespace

std::span<const Implementation<NormalizationProblem>> normalizationImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
