#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/normalization/normalization_powers.hpp"
#include "mps/normalization/normalization_problem.hpp"

#ifndef UNMETAL_MPS_NORMALIZATION_CHANNEL_WINDOW
#define UNMETAL_MPS_NORMALIZATION_CHANNEL_WINDOW
namespace mps::detail {

/// A window of channels: `below` channels before its own one, `above` behind it; never more than there are.
struct ChannelWindow {
  explicit ChannelWindow(const NormalizationProblem& problem)
      : channels(problem.destination.channels),
        below(std::min(problem.kernelSize / 2, std::max<std::int64_t>(0, channels - 1))),
        above(std::min((problem.kernelSize - 1) / 2, std::max<std::int64_t>(0, channels - 1))),
        power(problem.beta),
        delta(problem.delta),
        alphaShare(
            static_cast<float>(static_cast<double>(problem.alpha) / static_cast<double>(problem.kernelSize))),
        factor(
            static_cast<float>(2.0 * static_cast<double>(problem.alpha) * static_cast<double>(problem.beta) /
                               static_cast<double>(problem.kernelSize))) {
    if (channels > 0 && channels < fewChannels) maskNeighbours();
  }

  /// Fewer channels than that do not fill a vector: pixels stay side by side, and masks leave out neighbours that
  /// belong to another pixel. Else pixels are moved apart and have zeros between them.
  static constexpr std::int64_t fewChannels = 16;
  static constexpr std::int64_t mostLanes = 16;

  std::int64_t channels;
  std::int64_t below;
  std::int64_t above;
  PowerRule power;
  float delta;
  float alphaShare;
  float factor;  ///< 2 alpha beta / kernelSize

  /// Windows of five channels where pixels are whole vectors of any instruction set.
  [[nodiscard]] bool isFiveOfWholeVectors() const {
    return below == 2 && above == 2 && channels % mostLanes == 0;
  }
  [[nodiscard]] bool isAdjacent() const { return !masks_.empty(); }
  [[nodiscard]] std::int64_t reach() const { return std::max(below, above); }
  /// Floats before the first pixel, and of a pixel with the zeros behind it: whole vectors, so that pixels that are
  /// moved apart begin with one.
  [[nodiscard]] std::int64_t margin() const { return wholeVectors(reach()); }
  [[nodiscard]] std::int64_t stride() const { return wholeVectors(channels + reach()); }
  /// For elements from a channel on: all bits of those whose neighbour `distance` channels away is of their pixel.
  [[nodiscard]] const std::uint32_t* mask(std::int64_t distance, std::size_t channel) const {
    const std::int64_t row = static_cast<std::int64_t>(channel) * (2 * reach() + 1);
    return masks_[static_cast<std::size_t>(row + reach() + distance)].lanes;
  }

 private:
  struct alignas(64) Mask {
    std::uint32_t lanes[mostLanes];
  };
  static constexpr std::int64_t wholeVectors(std::int64_t floats) {
    return (floats + mostLanes - 1) / mostLanes * mostLanes;
  }
  void maskNeighbours() {
    for (std::int64_t channel = 0; channel < channels; ++channel)
      for (std::int64_t distance = -reach(); distance <= reach(); ++distance) {
        Mask& mask = masks_.emplace_back();
        for (std::int64_t i = 0; i < mostLanes; ++i) {
          const std::int64_t neighbour = (channel + i) % channels + distance;
          mask.lanes[i] = neighbour >= 0 && neighbour < channels ? ~std::uint32_t{0} : 0;
        }
      }
  }

  std::vector<Mask> masks_;
};

/// The largest that a tile's pixels become, moved apart or with what is read beside them.
constexpr std::size_t kMovedCapacity = 3 * static_cast<std::size_t>(Tiling::capacity);

}  // namespace mps::detail
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/normalization/cpu/normalization_channels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/normalization/cpu/normalization_powers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// A vector's place in a tile.
struct ChannelPlace {
  std::size_t element = 0;  ///< of the tile
  std::size_t moved = 0;    ///< of the pixels that are moved apart, or the element
  std::size_t channel = 0;  ///< of the first lane
};

/// How the pixels of a tile lie, by value: what is behind an address would be read again for each vector.
template <bool isAdjacent>
struct ChannelRows {
  ChannelRows(const ChannelWindow& window, std::size_t pixelCount)
      : pixels(pixelCount),
        channels(static_cast<std::size_t>(window.channels)),
        stride(static_cast<std::size_t>(window.stride())),
        margin(static_cast<std::size_t>(window.margin())),
        reach(static_cast<std::size_t>(window.reach())),
        masks(isAdjacent ? window.mask(0, 0) : nullptr) {}

  std::size_t pixels;
  std::size_t channels;
  std::size_t stride;
  std::size_t margin;
  std::size_t reach;
  const std::uint32_t* masks;

  /// Calls body(place, lanes) for the vectors of a tile. Of pixels that are moved apart no vector has channels of two.
  template <class D, class Body>
  HWY_INLINE void forVectorsOf(D d, Body&& body) const {
    if constexpr (isAdjacent) {
      const std::size_t step = hn::Lanes(d) % channels;
      std::size_t channel = 0;
      forVectors(
          d, pixels * channels, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
            body(ChannelPlace{i, i, channel}, lanes);
            channel += step;
            if (channel >= channels) channel -= channels;
          });
    } else {
      for (std::size_t p = 0; p < pixels; ++p)
        forVectors(
            d, channels, [&](std::size_t c, auto lanes) HWY_ATTR __attribute__((always_inline)) {
              body(ChannelPlace{p * channels + c, p * stride + c, c}, lanes);
            });
    }
  }

  /// Zeros beside the channels of each pixel, or beside a tile's pixels; what is behind them is written afterwards.
  template <class D>
  HWY_INLINE void clearNeighbours(D d, float* values) const {
    const auto clear = [&](std::size_t begin, std::size_t end) HWY_ATTR __attribute__((always_inline)) {
      for (std::size_t i = begin; i < end; i += hn::Lanes(d)) hn::StoreU(hn::Zero(d), d, values + i);
    };
    clear(0, margin);
    if constexpr (isAdjacent) {
      clear(margin + pixels * channels, margin + pixels * channels + reach);
    } else {
      for (std::size_t p = 0; p < pixels; ++p)
        clear(margin + p * stride + channels, margin + (p + 1) * stride);
    }
  }

  /// The sum of a channel's neighbours, from `before` channels below it to `behind` above. Lanes behind the last
  /// channel may become anything.
  template <class D>
  HWY_INLINE hn::Vec<D> neighbourSum(D d, const float* values, const ChannelPlace& place,
                                     std::ptrdiff_t before, std::ptrdiff_t behind) const {
    using V = hn::Vec<D>;
    const hn::RebindToUnsigned<D> bits;
    const float* const center = values + margin + place.moved;
    const std::uint32_t* const mask = masks + place.channel * (2 * reach + 1) * ChannelWindow::mostLanes;
    const auto at = [&](std::ptrdiff_t distance) HWY_ATTR {
      const V value = hn::LoadU(d, center + distance);
      if constexpr (!isAdjacent) return value;
      return hn::And(value, hn::BitCast(d, hn::Load(bits, mask + distance * ChannelWindow::mostLanes)));
    };
    V sum = hn::Load(d, center);
    if (before == 2 && behind == 2)  // the usual window
      return hn::Add(sum, hn::Add(hn::Add(at(-2), at(2)), hn::Add(at(-1), at(1))));
    for (std::ptrdiff_t i = 1; i <= before; ++i) sum = hn::Add(sum, at(-i));
    for (std::ptrdiff_t i = 1; i <= behind; ++i) sum = hn::Add(sum, at(i));
    return sum;
  }

  /// The squares of a tile, each `margin` floats behind its place.
  template <class D>
  HWY_INLINE void square(D d, ConstFloatRun x, float* squares) const {
    clearNeighbours(d, squares);
    forVectorsOf(
        d, [&](ChannelPlace place, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          const auto value = lanes.load(d, x + place.element);
          lanes.store(d, hn::Mul(value, value), squares + margin + place.moved);
        });
  }
};

template <bool isAdjacent, PowerKind kind>
void normalizePixels(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  const ChannelRows<isAdjacent> rows(window, pixels);
  const NegativePower<kind, hn::ScalableTag<float>> powerOf(window.power);
  const std::ptrdiff_t below = window.below;
  const std::ptrdiff_t above = window.above;
  const auto delta = hn::Set(d, window.delta);
  const auto alphaShare = hn::Set(d, window.alphaShare);
  alignas(64) float squares[kMovedCapacity];
  rows.square(d, x, squares);
  rows.forVectorsOf(
      d, [&](ChannelPlace place, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const auto sum = rows.neighbourSum(d, squares, place, below, above);
        const auto power = powerOf(d, hn::MulAdd(sum, alphaShare, delta));
        lanes.store(d, hn::Mul(lanes.load(d, x + place.element), power), y + place.element);
      });
}

template <bool isAdjacent, PowerKind kind>
void normalizePixelGradients(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                             ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  const ChannelRows<isAdjacent> rows(window, pixels);
  const NegativePower<kind, hn::ScalableTag<float>> powerOf(window.power);
  const std::ptrdiff_t below = window.below;
  const std::ptrdiff_t above = window.above;
  const auto delta = hn::Set(d, window.delta);
  const auto alphaShare = hn::Set(d, window.alphaShare);
  const auto factor = hn::Set(d, window.factor);
  alignas(64) float squares[kMovedCapacity];
  alignas(64) float terms[kMovedCapacity];
  alignas(64) float direct[Tiling::capacity];
  rows.square(d, x, squares);
  rows.clearNeighbours(d, terms);
  rows.forVectorsOf(
      d, [&](ChannelPlace place, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        const auto sum = rows.neighbourSum(d, squares, place, below, above);
        const auto t = hn::MulAdd(sum, alphaShare, delta);
        const auto power = powerOf(d, t);
        const auto gradient = lanes.load(d, dy + place.element);
        const auto product = hn::Mul(gradient, lanes.load(d, x + place.element));
        lanes.store(d, hn::Mul(gradient, power), direct + place.element);
        lanes.store(d, hn::Mul(product, powerOf.next(d, t, power)), terms + rows.margin + place.moved);
      });
  rows.forVectorsOf(
      d, [&](ChannelPlace place, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        // The channels whose windows hold a channel: as many above it as its own window has below.
        const auto sum = rows.neighbourSum(d, terms, place, above, below);
        const auto inner = hn::Mul(lanes.load(d, x + place.element), sum);
        const auto value = hn::NegMulAdd(factor, inner, lanes.load(d, direct + place.element));
        lanes.store(d, value, dx + place.element);
      });
}

#if HWY_TARGET == HWY_AVX3

/// The sums over windows of five channels of vectors that follow each other, where pixels are whole vectors. Neighbours
/// are moved between registers; the sum of two channels serves two windows.
template <class V>
class FiveChannelSums {
 public:
  explicit FiveChannelSums(std::int64_t channels) : channels_(static_cast<std::size_t>(channels)) {}

  HWY_INLINE V sum(V center, V behind) {
    const hn::ScalableTag<float> d;
    const V low = channel_ == 0 ? moved<1>(hn::Zero(d), center) : pairs_;
    channel_ += ChannelWindow::mostLanes;
    if (channel_ == channels_) channel_ = 0;
    const V high = channel_ == 0 ? hn::Zero(d) : behind;
    pairs_ = hn::Add(center, moved<1>(center, high));
    return hn::Add(moved<14>(low, pairs_), hn::Add(pairs_, moved<2>(center, high)));
  }

 private:
  /// As many lanes from lane `first` of two adjacent vectors on.
  template <int first>
  static HWY_INLINE V moved(V low, V high) {
    return V{_mm512_castsi512_ps(
        _mm512_alignr_epi32(_mm512_castps_si512(high.raw), _mm512_castps_si512(low.raw), first))};
  }

  std::size_t channels_;
  std::size_t channel_ = 0;
  V pairs_ = hn::Zero(hn::ScalableTag<float>());
};

/// Calls emit(i, sum over the windows) for all vectors of whole pixels, value(i, isAny) having given the vector behind it.
/// @param isAny whether there is such a vector
template <class D, class Value, class Emit>
HWY_INLINE void forFiveChannelSums(D d, std::int64_t channels, std::size_t count, Value&& value,
                                   Emit&& emit) {
  const std::size_t lanes = hn::Lanes(d);
  FiveChannelSums<hn::Vec<D>> sums(channels);
  auto center = value(0, std::true_type());
  const auto step = [&](std::size_t i, auto isAny) HWY_ATTR __attribute__((always_inline)) {
    const auto behind = value(i + lanes, isAny);
    emit(i, sums.sum(center, behind));
    center = behind;
  };
  std::size_t i = 0;
  for (; i + lanes < count; i += lanes) step(i, std::true_type());
  step(i, std::false_type());
}

/// Calls make(i, X, T) for the vectors of a part: with the sums where the power is short, else in a loop of its own,
/// because a processor overlaps few iterations of a long chain of instructions.
template <PowerKind kind, class D, class Make>
HWY_INLINE void forFiveChannelWindows(D d, const ChannelWindow& window, std::size_t count, ConstFloatRun x,
                                      Make&& make) {
  using V = hn::Vec<D>;
  const V delta = hn::Set(d, window.delta);
  const V alphaShare = hn::Set(d, window.alphaShare);
  V current = hn::Zero(d);
  V next = hn::Zero(d);
  const auto square = [&](std::size_t i, auto isAny) HWY_ATTR __attribute__((always_inline)) {
    current = next;
    if constexpr (isAny) next = AllLanes{}.load(d, x + i);
    return isAny ? hn::Mul(next, next) : hn::Zero(d);
  };
  if constexpr (isLong(kind)) {
    alignas(64) float t[Tiling::capacity];
    forFiveChannelSums(
        d, window.channels, count, square, [&](std::size_t i, V sum) HWY_ATTR __attribute__((always_inline)) {
          hn::Store(hn::MulAdd(sum, alphaShare, delta), d, t + i);
        });
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
      make(i, AllLanes{}.load(d, x + i), hn::Load(d, t + i));
  } else {
    forFiveChannelSums(
        d, window.channels, count, square, [&](std::size_t i, V sum) HWY_ATTR __attribute__((always_inline)) {
          make(i, current, hn::MulAdd(sum, alphaShare, delta));
        });
  }
}

template <PowerKind kind>
HWY_INLINE void normalizeFiveChannels(const ChannelWindow& window, std::size_t count, ConstFloatRun x,
                                      FloatRun y) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const NegativePower<kind, hn::ScalableTag<float>> powerOf(window.power);
  forFiveChannelWindows<kind>(
      d, window, count, x, [&](std::size_t i, V value, V t) HWY_ATTR __attribute__((always_inline)) {
        AllLanes{}.store(d, hn::Mul(value, powerOf(d, t)), y + i);
      });
}

template <PowerKind kind>
HWY_INLINE void normalizeFiveChannelGradients(const ChannelWindow& window, std::size_t count, ConstFloatRun x,
                                              ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const NegativePower<kind, hn::ScalableTag<float>> powerOf(window.power);
  const V factor = hn::Set(d, window.factor);
  alignas(64) float terms[Tiling::capacity];
  alignas(64) float direct[Tiling::capacity];
  forFiveChannelWindows<kind>(
      d, window, count, x, [&](std::size_t i, V value, V t) HWY_ATTR __attribute__((always_inline)) {
        const V power = powerOf(d, t);
        const V gradient = AllLanes{}.load(d, dy + i);
        hn::Store(hn::Mul(gradient, power), d, direct + i);
        hn::Store(hn::Mul(hn::Mul(gradient, value), powerOf.next(d, t, power)), d, terms + i);
      });
  forFiveChannelSums(
      d, window.channels, count,
      [&](std::size_t i, auto isAny) HWY_ATTR
      __attribute__((always_inline)) { return isAny ? hn::Load(d, terms + i) : hn::Zero(d); },
      [&](std::size_t i, V sum) HWY_ATTR __attribute__((always_inline)) {
        const V inner = hn::Mul(AllLanes{}.load(d, x + i), sum);
        AllLanes{}.store(d, hn::NegMulAdd(factor, inner, hn::Load(d, direct + i)), dx + i);
      });
}

#endif

/// Calls normalize(first pixel, pixels) for parts of a tile of so many elements, more or less: what is made of a part
/// stays in a first-level cache, and reading and computing take turns often.
template <class Normalize>
HWY_INLINE void forParts(const ChannelWindow& window, std::size_t pixels, std::int64_t elements,
                         Normalize&& normalize) {
  auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, elements / window.channels));
  if (window.isAdjacent())
    most = most / ChannelWindow::mostLanes * ChannelWindow::mostLanes;  // whole vectors
  for (std::size_t first = 0; first < pixels; first += most) normalize(first, std::min(most, pixels - first));
}

/// Asks for what is read some parts later: while long powers are computed a processor does not read ahead of itself.
HWY_INLINE void fetchAhead(ConstFloatRun run, std::size_t count) {
  constexpr std::size_t line = 64;
  constexpr std::size_t distance = 4096;
  const std::size_t bytes = count * (run.isHalf ? sizeof(Float16) : sizeof(float));
  const auto* const from = static_cast<const std::byte*>(run.address) + distance;
  for (std::size_t i = 0; i < bytes; i += line) __builtin_prefetch(from + i, 0, 3);
}

void normalizeChannels(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x, FloatRun y) {
  withPowerKind(window.power, y.isHalf, [&](auto kind) {
#if HWY_TARGET == HWY_AVX3
    if (!isLong(kind.value) && window.isFiveOfWholeVectors())
      return normalizeFiveChannels<kind.value>(window, pixels * static_cast<std::size_t>(window.channels), x,
                                               y);
#endif
    forParts(window, pixels, 512, [&](std::size_t first, std::size_t count) {
      const auto channels = static_cast<std::size_t>(window.channels);
      const std::size_t at = first * channels;
      if (isLong(kind.value)) fetchAhead(x + at, count * channels);
#if HWY_TARGET == HWY_AVX3
      if constexpr (isLong(kind.value)) {
        if (window.isFiveOfWholeVectors())
          return normalizeFiveChannels<kind.value>(window, count * channels, x + at, y + at);
      }
#endif
      if (window.isAdjacent())
        normalizePixels<true, kind.value>(window, count, x + at, y + at);
      else
        normalizePixels<false, kind.value>(window, count, x + at, y + at);
    });
  });
}

void normalizeChannelGradients(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                               ConstFloatRun dy, FloatRun dx) {
  withPowerKind(window.power, dx.isHalf, [&](auto kind) {
    forParts(window, pixels, 256, [&](std::size_t first, std::size_t count) {
      const auto channels = static_cast<std::size_t>(window.channels);
      const std::size_t at = first * channels;
#if HWY_TARGET == HWY_AVX3
      if (window.isFiveOfWholeVectors())
        return normalizeFiveChannelGradients<kind.value>(window, count * channels, x + at, dy + at, dx + at);
#endif
      if (window.isAdjacent())
        normalizePixelGradients<true, kind.value>(window, count, x + at, dy + at, dx + at);
      else
        normalizePixelGradients<false, kind.value>(window, count, x + at, dy + at, dx + at);
    });
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "mps/normalization/cpu/normalization_cpu.hpp"

namespace mps::detail {

HWY_EXPORT(normalizeChannels);
HWY_EXPORT(normalizeChannelGradients);

namespace {

class ChannelPlan final : public Plan {
 public:
  explicit ChannelPlan(const NormalizationProblem& problem) : problem_(problem), window_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const Tiling tiling(problem_.destination.pixels(), problem_.destination.channels);
    forEachTile(stream, tiling, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float targetBuffer[Tiling::capacity];
      const TensorShape& destination = problem_.destination;
      const FloatRun target =
          runTarget(destination, operands.destination, tile, targetBuffer, operands.accumulate);
      const ConstFloatRun x = loadRun(problem_.source, operands.source, tile, buffer);
      const auto pixels = static_cast<std::size_t>(tile.pixels);
      if (problem_.isGradient()) HWY_DYNAMIC_DISPATCH(normalizeChannelGradients)
      (window_, pixels, x, loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer), target);
      else HWY_DYNAMIC_DISPATCH(normalizeChannels)(window_, pixels, x, target);
      storeTile(destination, operands.destination, tile, target, operands.accumulate);
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  NormalizationProblem problem_;
  ChannelWindow window_;
};

}  // namespace

Preparation prepareChannelNormalization(const NormalizationProblem& problem) {
  if (problem.kind != NormalizationKind::CrossChannel) return Refusal{"windows of pixels"};
  if (problem.destination.channels > Tiling::capacity)
    return Refusal{std::to_string(problem.destination.channels) + " channels are more than the " +
                   std::to_string(Tiling::capacity) + " that fit into a tile"};
  return std::make_shared<const ChannelPlan>(problem);
}

}  // namespace mps::detail

#endif
