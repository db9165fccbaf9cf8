#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/highway_targets.hpp"
#include "mps/core/tile_io.hpp"
#include "mps/softmax/softmax_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/softmax/softmax_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_math-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"

#ifndef UNMETAL_MPS_SOFTMAX_PACKED_PIXELS
#define UNMETAL_MPS_SOFTMAX_PACKED_PIXELS
namespace mps::detail {

/// Adjacent pixels of at most kPackedChannels channels.
struct PackedPixels {
  std::size_t pixels = 0;
  std::size_t channels = 0;
  const std::int32_t* pixelOfElement = nullptr;  ///< i / channels, for kPackedGroup pixels
};

/// Channels beyond which a pixel fills enough vectors of its own.
inline constexpr std::int64_t kPackedChannels = 128;
/// No vector has more lanes.
inline constexpr std::int64_t kPackedGroup = 16;

}  // namespace mps::detail
#endif

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
HWY_INLINE hn::Vec<D> largest(D d, ConstFloatRun x, std::size_t count) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  auto result = hn::Set(d, lowest);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    result = hn::Max(result, withFiller(d, lanes, lanes.load(d, x + i), lowest));
  });
  return hn::MaxOfLanes(d, result);
}

/// sum exp(x - shift), in all lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponentialSum(D d, ConstFloatRun x, std::size_t count, V shift) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const V exponential = vectorExpNonPositive(d, hn::Sub(lanes.load(d, x + i), shift));
    sum = hn::Add(sum, withFiller(d, lanes, exponential, 0.0F));
  });
  return hn::SumOfLanes(d, sum);
}

/// y = exp(x - shift), and their sum in all lanes. y may be x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponentials(D d, ConstFloatRun x, std::size_t count, V shift, float* y) {
  auto sum = hn::Zero(d);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const V exponential = vectorExpNonPositive(d, hn::Sub(lanes.load(d, x + i), shift));
    lanes.store(d, exponential, y + i);
    sum = hn::Add(sum, withFiller(d, lanes, exponential, 0.0F));
  });
  return hn::SumOfLanes(d, sum);
}

/// y = exponentials / sum.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void normalize(D d, const float* exponentials, std::size_t count, V sum, FloatRun y) {
  const V factor = hn::Div(hn::Set(d, 1.0F), sum);
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), factor), y + i);
  });
}

/// y = x - shift - logarithm.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void subtractBoth(D d, ConstFloatRun x, std::size_t count, V shift, V logarithm, FloatRun y) {
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    lanes.store(d, hn::Sub(hn::Sub(lanes.load(d, x + i), shift), logarithm), y + i);
  });
}

/// sum dy s, or sum dy, in all lanes.
template <class D>
HWY_INLINE hn::Vec<D> gradientSum(D d, SoftMaxKind kind, ConstFloatRun result, ConstFloatRun dy,
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
HWY_INLINE void finishGradient(D d, SoftMaxKind kind, ConstFloatRun result, ConstFloatRun dy,
                               std::size_t count, V sum, FloatRun dx) {
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

// Short pixels, packed
// -----------------------------------------------------------------------------------------------
//
// As many pixels as a vector has lanes fill as many vectors as they have channels, so that no lane is idle; what
// a pixel's channels share is looked up in the vector of those pixels. In passes over a tile: the processor
// overlaps pixels, but not the steps of one.

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

/// Calls body(element, lanes, spread) for the vectors of a tile; spread(numbers) has the number of each
/// element's pixel.
template <class D, class Body>
HWY_INLINE void forPackedVectors(D d, const PackedPixels& tile, Body&& body) {
  const std::size_t group = hn::Lanes(d) * tile.channels;
  std::size_t inGroup = 0;
  std::size_t firstPixel = 0;
  // One loop without branches, not one for each group: a short loop ends with a misprediction.
  forVectors(d, tile.pixels * tile.channels, [&](std::size_t i, auto lanes) {
    const auto indices = hn::SetTableIndices(d, tile.pixelOfElement + inGroup);
    const auto spread = [&](const float* numbers) {
      return hn::TableLookupLanes(hn::LoadU(d, numbers + firstPixel), indices);
    };
    body(i, lanes, spread);
    inGroup += hn::Lanes(d);
    const bool isLast = inGroup == group;
    inGroup = isLast ? 0 : inGroup;
    firstPixel += isLast ? hn::Lanes(d) : 0;
  });
}

/// sums[p] = the sum over the channels of a pixel of what value(element, lanes) returns, 0 in the lanes that
/// are not used.
template <class D, class Value>
HWY_INLINE void sumPixels(D d, const PackedPixels& tile, Value&& value, float* sums) {
  using V = hn::Vec<D>;
  reduceRows(
      d, tile.pixels,
      [&](std::size_t p) {
        V sum = hn::Zero(d);
        forVectors(d, tile.channels, [&](std::size_t i, auto lanes) {
          sum = hn::Add(sum, value(p * tile.channels + i, lanes));
        });
        return sum;
      },
      [](V a, V b) { return hn::Add(a, b); }, sums);
}

void softMaxPackedPixels(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) Numbers shifts;
  alignas(64) Numbers sums;
  alignas(64) Numbers exponentials;
  reduceRows(
      d, tile.pixels,
      [&](std::size_t p) {
        constexpr float lowest = -std::numeric_limits<float>::infinity();
        V result = hn::Set(d, lowest);
        forVectors(d, tile.channels, [&](std::size_t i, auto lanes) {
          const V values = lanes.load(d, x + (p * tile.channels + i));
          result = hn::Max(result, withFiller(d, lanes, values, lowest));
        });
        return result;
      },
      [](V a, V b) { return hn::Max(a, b); }, shifts);
  forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) {
    const V shifted = hn::Sub(lanes.load(d, x + i), spread(shifts));
    lanes.store(d, vectorExpNonPositive(d, shifted), exponentials + i);
  });
  sumPixels(
      d, tile, [&](std::size_t i, auto lanes) { return lanes.load(d, exponentials + i); }, sums);
  if (kind == SoftMaxKind::SoftMax) {
    replaceAll(tile.pixels, sums, [](auto dn, auto sum) { return hn::Div(hn::Set(dn, 1.0F), sum); });
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) {
      lanes.store(d, hn::Mul(lanes.load(d, exponentials + i), spread(sums)), y + i);
    });
  } else {
    replaceAll(tile.pixels, sums, [](auto dn, auto sum) { return vectorLog(dn, sum); });
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) {
      const V shifted = hn::Sub(lanes.load(d, x + i), spread(shifts));
      lanes.store(d, hn::Sub(shifted, spread(sums)), y + i);
    });
  }
}

void softMaxPackedGradients(SoftMaxKind kind, const PackedPixels& tile, ConstFloatRun result,
                            ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  alignas(64) Numbers sums;
  if (kind == SoftMaxKind::SoftMax) {
    const auto product = [&](std::size_t i, auto lanes) {
      return hn::Mul(lanes.load(d, dy + i), lanes.load(d, result + i));
    };
    sumPixels(d, tile, product, sums);
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) {
      const V difference = hn::Sub(lanes.load(d, dy + i), spread(sums));
      lanes.store(d, hn::Mul(lanes.load(d, result + i), difference), dx + i);
    });
  } else {
    sumPixels(
        d, tile, [&](std::size_t i, auto lanes) { return lanes.load(d, dy + i); }, sums);
    forPackedVectors(d, tile, [&](std::size_t i, auto lanes, auto spread) {
      const V exponential = vectorExp(d, lanes.load(d, result + i));
      lanes.store(d, hn::NegMulAdd(exponential, spread(sums), lanes.load(d, dy + i)), dx + i);
    });
  }
}

// Longer pixels, one after the other
// ---------------------------------------------------------------------------------

void softMaxPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  alignas(64) float buffer[Tiling::capacity];
  for (std::size_t p = 0; p < pixels; ++p) {
    const ConstFloatRun from = x + p * channels;
    const FloatRun to = y + p * channels;
    const auto shift = largest(d, from, channels);
    if (kind == SoftMaxKind::SoftMax)
      normalize(d, buffer, channels, exponentials(d, from, channels, shift, buffer), to);
    else
      subtractBoth(d, from, channels, shift, vectorLog(d, exponentialSum(d, from, channels, shift)), to);
  }
}

void softMaxGradientPixels(SoftMaxKind kind, std::size_t pixels, std::size_t channels, ConstFloatRun result,
                           ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  for (std::size_t p = 0; p < pixels; ++p) {
    const ConstFloatRun s = result + p * channels;
    const ConstFloatRun g = dy + p * channels;
    finishGradient(d, kind, s, g, channels, gradientSum(d, kind, s, g, channels), dx + p * channels);
  }
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
    normalize(d, y, count, hn::Set(d, sum), y);
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

HWY_EXPORT(softMaxPackedPixels);
HWY_EXPORT(softMaxPackedGradients);
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
  explicit PixelPlan(const SoftMaxProblem& problem) : problem_(problem) {
    const std::int64_t channels = problem.destination.channels;
    if (channels > kPackedChannels) return;
    pixelOfElement_.resize(static_cast<std::size_t>(kPackedGroup * channels));
    for (std::size_t i = 0; i < pixelOfElement_.size(); ++i)
      pixelOfElement_[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / channels);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const Tiling tiling(problem_.destination.pixels(), problem_.destination.channels);
    forEachTile(stream, tiling, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float targetBuffer[Tiling::capacity];
      const TensorShape& destination = problem_.destination;
      const FloatRun target =
          runTarget(destination, operands.destination, tile, targetBuffer, operands.accumulate);
      if (problem_.direction == SoftMaxDirection::Forward)
        forward(tile, loadRun(problem_.input, operands.source, tile, buffer), target);
      else
        gradient(tile, loadRun(problem_.input, operands.secondary, tile, buffer),
                 loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer), target);
      storeTile(destination, operands.destination, tile, target, operands.accumulate);
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == SoftMaxDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  [[nodiscard]] PackedPixels packed(const Tile& tile) const {
    return {static_cast<std::size_t>(tile.pixels), static_cast<std::size_t>(tile.channels),
            pixelOfElement_.data()};
  }

  void forward(const Tile& tile, ConstFloatRun x, FloatRun y) const {
    const PackedPixels pixels = packed(tile);
    if (!pixelOfElement_.empty())
      HWY_DYNAMIC_DISPATCH(softMaxPackedPixels)(problem_.kind, pixels, x, y);
    else
      HWY_DYNAMIC_DISPATCH(softMaxPixels)(problem_.kind, pixels.pixels, pixels.channels, x, y);
  }

  void gradient(const Tile& tile, ConstFloatRun result, ConstFloatRun dy, FloatRun dx) const {
    const PackedPixels pixels = packed(tile);
    if (!pixelOfElement_.empty())
      HWY_DYNAMIC_DISPATCH(softMaxPackedGradients)(problem_.kind, pixels, result, dy, dx);
    else
      HWY_DYNAMIC_DISPATCH(softMaxGradientPixels)
    (problem_.kind, pixels.pixels, pixels.channels, result, dy, dx);
  }

  SoftMaxProblem problem_;
  std::vector<std::int32_t> pixelOfElement_;
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
                                          finishStreaming();
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
