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

// Whole pixels
// ---------------------------------------------------------------------------------------------------
//
// In passes over a tile rather than over each pixel: the processor overlaps pixels, but not the steps of one, and
// what needs no pixel borders fills its vectors whatever the number of channels.

/// Room for a number per pixel or element of a tile, and for the rest of a vector behind the last one.
using Numbers = float[Tiling::capacity + hn::MaxLanes(hn::ScalableTag<float>())];

/// numbers[i] = function(numbers[i]).
template <class Function>
HWY_INLINE void replaceAll(std::size_t count, float* numbers, Function&& function) {
  const hn::ScalableTag<float> d;
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, function(d, lanes.load(d, numbers + i)), numbers + i);
  });
}

template <class D>
HWY_INLINE void forwardPixels(D d, SoftMaxKind kind, std::size_t pixels, std::size_t channels,
                              ConstFloatRun x, FloatRun y) {
  using V = hn::Vec<D>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const auto larger = [](V a, V b) { return hn::Max(a, b); };
  const auto sum = [](V a, V b) { return hn::Add(a, b); };
  const bool isSoftMax = kind == SoftMaxKind::SoftMax;
  alignas(64) Numbers shifts;
  alignas(64) Numbers sums;
  alignas(64) Numbers shifted;  // x - shift; for softmax their exponentials take its place
  alignas(64) Numbers copies;
  float* const exponentials = isSoftMax ? shifted : copies;
  reduceRows(
      d, pixels,
      [&](std::size_t p) {
        V result = hn::Set(d, lowest);
        forVectors(d, channels, [&](std::size_t i, auto lanes) {
          result = hn::Max(result, withFiller(d, lanes, lanes.load(d, x + (p * channels + i)), lowest));
        });
        return result;
      },
      larger, shifts);
  // The last vector of a pixel reaches into the next one, which comes later.
  for (std::size_t p = 0; p < pixels; ++p)
    forVectors(d, channels, [&](std::size_t i, auto lanes) {
      const std::size_t at = p * channels + i;
      hn::StoreU(hn::Sub(lanes.load(d, x + at), hn::Set(d, shifts[p])), d, shifted + at);
    });
  const hn::ScalableTag<float> whole;
  forVectors(whole, pixels * channels, [&](std::size_t i, auto lanes) {
    lanes.store(whole, vectorExpNonPositive(whole, lanes.load(whole, shifted + i)), exponentials + i);
  });
  reduceRows(
      d, pixels,
      [&](std::size_t p) {
        V result = hn::Zero(d);
        forVectors(d, channels, [&](std::size_t i, auto lanes) {
          result = hn::Add(result, lanes.load(d, exponentials + p * channels + i));
        });
        return result;
      },
      sum, sums);
  if (isSoftMax) {
    replaceAll(pixels, sums, [](auto dn, auto s) { return hn::Div(hn::Set(dn, 1.0F), s); });
    for (std::size_t p = 0; p < pixels; ++p)
      forVectors(d, channels, [&](std::size_t i, auto lanes) {
        const std::size_t at = p * channels + i;
        lanes.store(d, hn::Mul(hn::LoadU(d, shifted + at), hn::Set(d, sums[p])), y + at);
      });
  } else {
    replaceAll(pixels, sums, [](auto dn, auto s) { return vectorLog(dn, s); });
    for (std::size_t p = 0; p < pixels; ++p)
      forVectors(d, channels, [&](std::size_t i, auto lanes) {
        const std::size_t at = p * channels + i;
        lanes.store(d, hn::Sub(hn::LoadU(d, shifted + at), hn::Set(d, sums[p])), y + at);
      });
  }
}

template <class D>
HWY_INLINE void gradientPixels(D d, SoftMaxKind kind, std::size_t pixels, std::size_t channels,
                               ConstFloatRun result, ConstFloatRun dy, FloatRun dx) {
  using V = hn::Vec<D>;
  const auto sum = [](V a, V b) { return hn::Add(a, b); };
  const bool isSoftMax = kind == SoftMaxKind::SoftMax;
  alignas(64) Numbers sums;
  reduceRows(
      d, pixels,
      [&](std::size_t p) {
        V total = hn::Zero(d);
        forVectors(d, channels, [&](std::size_t i, auto lanes) {
          const V g = lanes.load(d, dy + (p * channels + i));
          total = isSoftMax ? hn::MulAdd(g, lanes.load(d, result + (p * channels + i)), total)
                            : hn::Add(total, g);
        });
        return total;
      },
      sum, sums);
  if (isSoftMax) {
    for (std::size_t p = 0; p < pixels; ++p)
      forVectors(d, channels, [&](std::size_t i, auto lanes) {
        const std::size_t at = p * channels + i;
        const V difference = hn::Sub(lanes.load(d, dy + at), hn::Set(d, sums[p]));
        lanes.store(d, hn::Mul(lanes.load(d, result + at), difference), dx + at);
      });
    return;
  }
  alignas(64) Numbers exponentials;
  const hn::ScalableTag<float> whole;
  forVectors(whole, pixels * channels, [&](std::size_t i, auto lanes) {
    lanes.store(whole, vectorExp(whole, lanes.load(whole, result + i)), exponentials + i);
  });
  for (std::size_t p = 0; p < pixels; ++p)
    forVectors(d, channels, [&](std::size_t i, auto lanes) {
      const std::size_t at = p * channels + i;
      lanes.store(d,
                  hn::NegMulAdd(hn::LoadU(d, exponentials + at), hn::Set(d, sums[p]), lanes.load(d, dy + at)),
                  dx + at);
    });
}

/// Calls call(d) with vectors that are not much longer than a pixel.
template <class Call>
HWY_INLINE void withVectorsFor(std::size_t channels, Call&& call) {
  if (channels <= 4) return call(hn::CappedTag<float, 4>());
  if (channels <= 8) return call(hn::CappedTag<float, 8>());
  call(hn::ScalableTag<float>());
}

void softMaxPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x, FloatRun y) {
  withVectorsFor(channels, [&](auto d) { forwardPixels(d, kind, pixels, channels, x, y); });
}

void softMaxGradientPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun result,
                           ConstFloatRun dy, FloatRun dx) {
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
      alignas(64) float targetBuffer[Tiling::capacity];
      const TensorShape& destination = problem_.destination;
      const FloatRun target =
          runTarget(destination, operands.destination, tile, targetBuffer, operands.accumulate);
      const auto pixels = static_cast<std::size_t>(tile.pixels);
      if (problem_.direction == SoftMaxDirection::Forward) {
        const ConstFloatRun x = loadRun(problem_.input, operands.source, tile, buffer);
        HWY_DYNAMIC_DISPATCH(softMaxPixels)(problem_.kind, pixels, channels, x, target);
      } else {
        const ConstFloatRun result = loadRun(problem_.input, operands.secondary, tile, buffer);
        const ConstFloatRun dy = loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer);
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
