#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "mps/core/highway_targets.hpp"
#include "mps/core/tile_io.hpp"
#include "mps/softmax/softmax_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/softmax/softmax_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_math-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

// Runs: the channels of a pixel, or some of them
// --------------------------------------------------------------------

/// The first lanes of v, `filler` behind them.
template <class D, class V>
HWY_INLINE V withFiller(D /*d*/, AllLanes /*lanes*/, V v, float /*filler*/) {
  return v;
}
template <class D, class V>
HWY_INLINE V withFiller(D d, FirstLanes lanes, V v, float filler) {
  return hn::IfThenElse(hn::FirstN(d, lanes.count), v, hn::Set(d, filler));
}

/// The largest x, in all lanes. NaN may be left out: it makes the sum of exponentials NaN.
template <class D>
HWY_INLINE hn::Vec<D> largest(D d, const float* x, std::size_t count) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  auto result = hn::Set(d, lowest);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    result = hn::Max(result, withFiller(d, lanes, lanes.load(d, x + i), lowest));
  });
  return hn::MaxOfLanes(d, result);
}

/// sum exp(x - shift), in all lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponentialSum(D d, const float* x, std::size_t count, V shift) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const V exponential = vectorExpNonPositive(d, hn::Sub(lanes.load(d, x + i), shift));
    sum = hn::Add(sum, withFiller(d, lanes, exponential, 0.0F));
  });
  return hn::SumOfLanes(d, sum);
}

/// y = exp(x - shift), and their sum in all lanes. y may be x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponentials(D d, const float* x, std::size_t count, V shift, float* y) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const V exponential = vectorExpNonPositive(d, hn::Sub(lanes.load(d, x + i), shift));
    lanes.store(d, exponential, y + i);
    sum = hn::Add(sum, withFiller(d, lanes, exponential, 0.0F));
  });
  return hn::SumOfLanes(d, sum);
}

/// y = y / sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void normalize(D d, float* y, std::size_t count, V sum) {
  const V factor = hn::Div(hn::Set(d, 1.0F), sum);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, hn::Mul(lanes.load(d, y + i), factor), y + i);
  });
}

/// y = x - shift - logarithm.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void subtractBoth(D d, const float* x, std::size_t count, V shift, V logarithm, float* y) {
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, hn::Sub(hn::Sub(lanes.load(d, x + i), shift), logarithm), y + i);
  });
}

/// sum dy s, or sum dy, in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> gradientSum(D d, SoftMaxKind kind, const float* result, const float* dy,
                                  std::size_t count) {
  auto sum = hn::Zero(d);
  if (kind == SoftMaxKind::SoftMax)
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      sum = hn::MulAdd(lanes.load(d, dy + i), lanes.load(d, result + i), sum);
    });
  else
    forVectors(d, count, [&](std::size_t i, auto lanes) { sum = hn::Add(sum, lanes.load(d, dy + i)); });
  return hn::SumOfLanes(d, sum);
}

/// dx = s (dy - sum), or dy - exp(l) sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void finishGradient(D d, SoftMaxKind kind, const float* result, const float* dy, std::size_t count,
                               V sum, float* dx) {
  if (kind == SoftMaxKind::SoftMax)
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      lanes.store(d, hn::Mul(lanes.load(d, result + i), hn::Sub(lanes.load(d, dy + i), sum)), dx + i);
    });
  else
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      lanes.store(d, hn::NegMulAdd(vectorExp(d, lanes.load(d, result + i)), sum, lanes.load(d, dy + i)),
                  dx + i);
    });
}

// Whole pixels, one after the other
// ---------------------------------------------------------------------------------

template <class D>
HWY_INLINE void softMaxForward(D d, std::size_t pixels, std::size_t channels, const float* x, float* y) {
  for (std::size_t p = 0; p < pixels; ++p, x += channels, y += channels)
    normalize(d, y, channels, exponentials(d, x, channels, largest(d, x, channels), y));
}

/// The logarithms of several pixels are taken at once.
template <class D>
HWY_INLINE void logSoftMaxForward(D d, std::size_t pixels, std::size_t channels, const float* x, float* y) {
  constexpr std::size_t group = 16;
  float shifts[group];
  float logarithms[group] = {};
  for (std::size_t first = 0; first < pixels; first += group) {
    const std::size_t count = std::min(group, pixels - first);
    const float* from = x + first * channels;
    for (std::size_t p = 0; p < count; ++p) {
      const auto shift = largest(d, from + p * channels, channels);
      shifts[p] = hn::GetLane(shift);
      logarithms[p] = hn::GetLane(exponentialSum(d, from + p * channels, channels, shift));
    }
    forVectors(d, group, [&](std::size_t i, auto lanes) {
      lanes.store(d, vectorLog(d, lanes.load(d, logarithms + i)), logarithms + i);
    });
    for (std::size_t p = 0; p < count; ++p)
      subtractBoth(d, from + p * channels, channels, hn::Set(d, shifts[p]), hn::Set(d, logarithms[p]),
                   y + (first + p) * channels);
  }
}

template <class D>
HWY_INLINE void forwardPixels(D d, SoftMaxKind kind, std::size_t pixels, std::size_t channels, const float* x,
                              float* y) {
  if (kind == SoftMaxKind::SoftMax)
    softMaxForward(d, pixels, channels, x, y);
  else
    logSoftMaxForward(d, pixels, channels, x, y);
}

template <class D>
HWY_INLINE void gradientPixels(D d, SoftMaxKind kind, std::size_t pixels, std::size_t channels,
                               const float* result, const float* dy, float* dx) {
  for (std::size_t p = 0; p < pixels; ++p, result += channels, dy += channels, dx += channels)
    finishGradient(d, kind, result, dy, channels, gradientSum(d, kind, result, dy, channels), dx);
}

/// The same for `group` pixels of no more channels than a vector has lanes: nothing waits for memory, and the
/// pixels, whose every step waits for the one before it, are computed side by side.
template <std::size_t group, class D>
HWY_INLINE void forwardShortPixels(D d, SoftMaxKind kind, std::size_t channels, const float* x, float* y) {
  using V = hn::Vec<D>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const FirstLanes lanes{channels};
  V shifted[group];
  V exponential[group];
  V sum[group];
  for (std::size_t p = 0; p < group; ++p) {
    const V values = withFiller(d, lanes, lanes.load(d, x + p * channels), lowest);
    shifted[p] = hn::Sub(values, hn::MaxOfLanes(d, values));
  }
  for (std::size_t p = 0; p < group; ++p) {
    exponential[p] = vectorExpNonPositive(d, shifted[p]);
    sum[p] = hn::SumOfLanes(d, exponential[p]);  // 0 in the lanes of the filler
  }
  if (kind == SoftMaxKind::SoftMax) {
    for (std::size_t p = 0; p < group; ++p)
      lanes.store(d, hn::Mul(exponential[p], hn::Div(hn::Set(d, 1.0F), sum[p])), y + p * channels);
    return;
  }
  const hn::CappedTag<float, group> perPixel;
  HWY_ALIGN float logarithms[group];
  for (std::size_t p = 0; p < group; ++p) logarithms[p] = hn::GetLane(sum[p]);
  forVectors(perPixel, group, [&](std::size_t i, auto all) {
    all.store(perPixel, vectorLog(perPixel, all.load(perPixel, logarithms + i)), logarithms + i);
  });
  for (std::size_t p = 0; p < group; ++p)
    lanes.store(d, hn::Sub(shifted[p], hn::Set(d, logarithms[p])), y + p * channels);
}

template <class D>
HWY_INLINE void forwardPixelsOfAnyLength(D d, SoftMaxKind kind, std::size_t pixels, std::size_t channels,
                                         const float* x, float* y) {
  if (channels > hn::Lanes(d)) return forwardPixels(d, kind, pixels, channels, x, y);
  constexpr std::size_t group = 4;
  std::size_t p = 0;
  for (; p + group <= pixels; p += group)
    forwardShortPixels<group>(d, kind, channels, x + p * channels, y + p * channels);
  for (; p < pixels; ++p) forwardShortPixels<1>(d, kind, channels, x + p * channels, y + p * channels);
}

/// Calls call(d) with vectors that are not much longer than a pixel.
template <class Call>
HWY_INLINE void withVectorsFor(std::size_t channels, Call&& call) {
  if (channels <= 4) return call(hn::CappedTag<float, 4>());
  if (channels <= 8) return call(hn::CappedTag<float, 8>());
  call(hn::ScalableTag<float>());
}

void softMaxPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, const float* x, float* y) {
  withVectorsFor(channels, [&](auto d) { forwardPixelsOfAnyLength(d, kind, pixels, channels, x, y); });
}

void softMaxGradientPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, const float* result,
                           const float* dy, float* dx) {
  withVectorsFor(channels, [&](auto d) { gradientPixels(d, kind, pixels, channels, result, dy, dx); });
}

// Parts of pixels
// ---------------------------------------------------------------------------------------------------

float largestOf(const float* x, std::size_t count) {
  return hn::GetLane(largest(hn::ScalableTag<float>(), x, count));
}

float exponentialSumOf(const float* x, std::size_t count, float shift) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(exponentialSum(d, x, count, hn::Set(d, shift)));
}

void finishPart(SoftMaxKind kind, const float* x, std::size_t count, float shift, float sum, float* y) {
  const hn::ScalableTag<float> d;
  if (kind == SoftMaxKind::SoftMax) {
    exponentials(d, x, count, hn::Set(d, shift), y);
    normalize(d, y, count, hn::Set(d, sum));
  } else {
    subtractBoth(d, x, count, hn::Set(d, shift), vectorLog(d, hn::Set(d, sum)), y);
  }
}

float gradientSumOf(SoftMaxKind kind, const float* result, const float* dy, std::size_t count) {
  return hn::GetLane(gradientSum(hn::ScalableTag<float>(), kind, result, dy, count));
}

void finishGradientPart(SoftMaxKind kind, const float* result, const float* dy, std::size_t count, float sum,
                        float* dx) {
  const hn::ScalableTag<float> d;
  finishGradient(d, kind, result, dy, count, hn::Set(d, sum), dx);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(softMaxPixels);
HWY_EXPORT(softMaxGradientPixels);
HWY_EXPORT(largestOf);
HWY_EXPORT(exponentialSumOf);
HWY_EXPORT(finishPart);
HWY_EXPORT(gradientSumOf);
HWY_EXPORT(finishGradientPart);

namespace {

/// For pixels that fit into a tile: several pixels at a time, read once.
class PixelPlan final : public Plan {
 public:
  explicit PixelPlan(const SoftMaxProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const Tiling tiling(problem_.destination.pixels(), problem_.destination.channels);
    const auto channels = static_cast<std::size_t>(problem_.destination.channels);
    forEachTile(stream, tiling, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float
          targetBuffer[Tiling::capacity];  // in place, loads would wait for the previous pixel's stores
      const TensorShape& destination = problem_.destination;
      float* target = tileTarget(destination, operands.destination, tile, targetBuffer, operands.accumulate);
      const auto pixels = static_cast<std::size_t>(tile.pixels);
      if (problem_.direction == SoftMaxDirection::Forward) {
        const float* x = loadTile(problem_.input, operands.source, tile, buffer);
        HWY_DYNAMIC_DISPATCH(softMaxPixels)(problem_.kind, pixels, channels, x, target);
      } else {
        const float* result = loadTile(problem_.input, operands.secondary, tile, buffer);
        const float* dy = loadTile(problem_.gradient, operands.gradient, tile, gradientBuffer);
        HWY_DYNAMIC_DISPATCH(softMaxGradientPixels)(problem_.kind, pixels, channels, result, dy, target);
      }
      storeTile(destination, operands.destination, tile, target, operands.accumulate);
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == SoftMaxDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  SoftMaxProblem problem_;
};

/// For any number of channels: a pixel is read part by part, once for each step.
class PartPlan final : public Plan {
 public:
  explicit PartPlan(const SoftMaxProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::int64_t channels = problem_.destination.channels;
    const std::int64_t grain = Tiling::grain * Tiling::capacity / std::max<std::int64_t>(1, channels);
    mtl::cpu::asCpu(stream).parallelFor(problem_.destination.pixels(), grain,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t pixel = begin; pixel < end; ++pixel) {
                                            if (problem_.direction == SoftMaxDirection::Forward)
                                              forward(operands, pixel);
                                            else
                                              gradient(operands, pixel);
                                          }
                                        });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == SoftMaxDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  /// Calls part(tile, its number of elements) for the parts of a pixel.
  template <class Part>
  void forEachPart(std::int64_t pixel, Part&& part) const {
    const std::int64_t channels = problem_.destination.channels;
    for (std::int64_t first = 0; first < channels; first += Tiling::capacity) {
      const std::int64_t count = std::min(Tiling::capacity, channels - first);
      part(Tile{pixel, 1, first, count}, static_cast<std::size_t>(count));
    }
  }

  void forward(const Operands& operands, std::int64_t pixel) const {
    alignas(64) float buffer[Tiling::capacity];
    const auto load = [&](const Tile& part) {
      return loadTile(problem_.input, operands.source, part, buffer);
    };
    float shift = -std::numeric_limits<float>::infinity();
    forEachPart(pixel, [&](const Tile& part, std::size_t count) {
      shift = std::max(shift, HWY_DYNAMIC_DISPATCH(largestOf)(load(part), count));
    });
    float sum = 0;
    forEachPart(pixel, [&](const Tile& part, std::size_t count) {
      sum += HWY_DYNAMIC_DISPATCH(exponentialSumOf)(load(part), count, shift);
    });
    forEachPart(pixel, [&](const Tile& part, std::size_t count) {
      const float* x = load(part);
      float* target = tileTarget(problem_.destination, operands.destination, part, buffer);
      HWY_DYNAMIC_DISPATCH(finishPart)(problem_.kind, x, count, shift, sum, target);
      storeTile(problem_.destination, operands.destination, part, target);
    });
  }

  void gradient(const Operands& operands, std::int64_t pixel) const {
    alignas(64) float resultBuffer[Tiling::capacity];
    alignas(64) float gradientBuffer[Tiling::capacity];
    float sum = 0;
    forEachPart(pixel, [&](const Tile& part, std::size_t count) {
      const float* result = loadTile(problem_.input, operands.secondary, part, resultBuffer);
      const float* dy = loadTile(problem_.gradient, operands.gradient, part, gradientBuffer);
      sum += HWY_DYNAMIC_DISPATCH(gradientSumOf)(problem_.kind, result, dy, count);
    });
    forEachPart(pixel, [&](const Tile& part, std::size_t count) {
      const float* result = loadTile(problem_.input, operands.secondary, part, resultBuffer);
      const float* dy = loadTile(problem_.gradient, operands.gradient, part, gradientBuffer);
      float* target =
          tileTarget(problem_.destination, operands.destination, part, resultBuffer, operands.accumulate);
      HWY_DYNAMIC_DISPATCH(finishGradientPart)(problem_.kind, result, dy, count, sum, target);
      storeTile(problem_.destination, operands.destination, part, target, operands.accumulate);
    });
  }

  SoftMaxProblem problem_;
};

Preparation preparePixels(const SoftMaxProblem& problem) {
  if (problem.destination.channels > Tiling::capacity)
    return Refusal{std::to_string(problem.destination.channels) + " channels are more than the " +
                   std::to_string(Tiling::capacity) + " that fit into a tile"};
  return std::make_shared<const PixelPlan>(problem);
}

Preparation prepareParts(const SoftMaxProblem& problem) {
  return std::make_shared<const PartPlan>(problem);
}

constexpr std::array<Implementation<SoftMaxProblem>, 2> kImplementations{
    {{"pixels", preparePixels}, {"parts", prepareParts}}};

}  // namespace

std::string SoftMaxProblem::describe() const {
  std::string text = kind == SoftMaxKind::SoftMax ? "softmax" : "log softmax";
  if (direction == SoftMaxDirection::Forward)
    return text + ", " + input.describe() + " -> " + destination.describe();
  return text + " gradient, " + input.describe() + ", gradient " + gradient.describe() + " -> " +
         destination.describe();
}

std::span<const Implementation<SoftMaxProblem>> softMaxImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
