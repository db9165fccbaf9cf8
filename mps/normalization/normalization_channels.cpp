#include <algorithm>
#include <cstdint>
#include <vector>

#include "mps/core/highway_targets.hpp"
#include "mps/core/tile_io.hpp"
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
  static constexpr std::int64_t mostLanes = 64;

  std::int64_t channels;
  std::int64_t below;
  std::int64_t above;
  PowerRule power;
  float delta;
  float alphaShare;
  float factor;  ///< 2 alpha beta / kernelSize

  [[nodiscard]] bool isPacked() const { return !masks_.empty(); }
  /// Floats of a pixel with zeros for the channels beside it.
  [[nodiscard]] std::int64_t stride() const { return channels + below + above; }
  /// For elements from a channel on: all bits of those whose neighbour `distance` channels away is of their pixel.
  [[nodiscard]] const std::uint32_t* masks(std::int64_t distance, std::size_t channel) const {
    return masks_.data() + static_cast<std::size_t>((distance + reach()) * maskStride()) + channel;
  }

 private:
  [[nodiscard]] std::int64_t reach() const { return std::max(below, above); }
  [[nodiscard]] std::int64_t maskStride() const { return channels + mostLanes; }
  void maskNeighbours() {
    for (std::int64_t distance = -reach(); distance <= reach(); ++distance)
      for (std::int64_t i = 0; i < maskStride(); ++i) {
        const std::int64_t neighbour = i % channels + distance;
        masks_.push_back(neighbour >= 0 && neighbour < channels ? ~std::uint32_t{0} : 0);
      }
  }

  std::vector<std::uint32_t> masks_;
};

/// The largest that a tile's pixels become, moved apart or with what is read beside them.
constexpr std::size_t kMovedCapacity = 3 * static_cast<std::size_t>(Tiling::capacity);

}  // namespace mps::detail
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/normalization/normalization_channels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"
#include "mps/normalization/normalization_powers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// A vector's place in a tile.
struct Place {
  std::size_t element = 0;  ///< of the tile
  std::size_t moved = 0;    ///< of the pixels that are moved apart, or the element
  std::size_t channel = 0;  ///< of the first lane
};

/// Calls body(place, lanes) for the vectors of a tile's pixels, which are side by side.
template <class D, class Body>
HWY_INLINE void forPackedVectors(D d, const ChannelWindow& window, std::size_t pixels, Body&& body) {
  const auto channels = static_cast<std::size_t>(window.channels);
  const std::size_t step = hn::Lanes(d) % channels;
  std::size_t channel = 0;
  forVectors(d, pixels * channels, [&](std::size_t i, auto lanes) {
    body(Place{i, i, channel}, lanes);
    channel += step;
    if (channel >= channels) channel -= channels;
  });
}

/// The same for pixels that are moved apart; no vector has channels of two.
template <class D, class Body>
HWY_INLINE void forMovedVectors(D d, const ChannelWindow& window, std::size_t pixels, Body&& body) {
  const auto channels = static_cast<std::size_t>(window.channels);
  const auto stride = static_cast<std::size_t>(window.stride());
  for (std::size_t p = 0; p < pixels; ++p)
    forVectors(d, channels, [&](std::size_t c, auto lanes) {
      body(Place{p * channels + c, p * stride + c, c}, lanes);
    });
}

template <bool isPacked, class D, class Body>
HWY_INLINE void forPixelVectors(D d, const ChannelWindow& window, std::size_t pixels, Body&& body) {
  if constexpr (isPacked)
    forPackedVectors(d, window, pixels, body);
  else
    forMovedVectors(d, window, pixels, body);
}

/// The sum of a channel's neighbours, from `before` channels below it to `behind` above. Values of the channel itself
/// lie `before` floats behind its place.
template <bool isPacked, class D, class Lanes>
HWY_INLINE hn::Vec<D> neighbourSum(D d, Lanes lanes, const ChannelWindow& window, const float* values,
                                   const Place& place, std::int64_t before, std::int64_t behind) {
  const hn::RebindToUnsigned<D> bits;
  const float* const from = values + place.moved;
  auto sum = hn::Zero(d);
  for (std::int64_t m = 0; m <= before + behind; ++m) {
    auto value = lanes.load(d, from + m);
    if constexpr (isPacked)
      value = hn::And(value, hn::BitCast(d, hn::LoadU(bits, window.masks(m - before, place.channel))));
    sum = hn::Add(sum, value);
  }
  return sum;
}

/// Zeros beside the channels of each pixel, or beside a tile's pixels.
template <bool isPacked>
HWY_INLINE void clearNeighbours(const ChannelWindow& window, std::size_t pixels, float* values) {
  const auto beside = static_cast<std::size_t>(window.below + window.above);
  if constexpr (isPacked) {
    std::fill_n(values, beside, 0.0F);
    std::fill_n(values + pixels * static_cast<std::size_t>(window.channels), beside, 0.0F);
  } else {
    std::fill_n(values, pixels * static_cast<std::size_t>(window.stride()), 0.0F);
  }
}

/// The squares of a tile, each `below` floats behind its place.
template <bool isPacked, class D>
HWY_INLINE void squareChannels(D d, const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                               float* squares) {
  clearNeighbours<isPacked>(window, pixels, squares);
  forPixelVectors<isPacked>(d, window, pixels, [&](const Place& place, auto lanes) {
    const auto value = lanes.load(d, x + place.element);
    lanes.store(d, hn::Mul(value, value), squares + place.moved + window.below);
  });
}

template <bool isPacked>
HWY_INLINE void normalizePixels(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                                FloatRun y) {
  const hn::ScalableTag<float> d;
  alignas(64) float squares[kMovedCapacity];
  squareChannels<isPacked>(d, window, pixels, x, squares);
  const auto delta = hn::Set(d, window.delta);
  const auto alphaShare = hn::Set(d, window.alphaShare);
  forPixelVectors<isPacked>(d, window, pixels, [&](const Place& place, auto lanes) {
    const auto sum = neighbourSum<isPacked>(d, lanes, window, squares, place, window.below, window.above);
    const auto power = negativePower(d, hn::MulAdd(sum, alphaShare, delta), window.power);
    lanes.store(d, hn::Mul(lanes.load(d, x + place.element), power), y + place.element);
  });
}

template <bool isPacked>
HWY_INLINE void normalizePixelGradients(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                                        ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  alignas(64) float squares[kMovedCapacity];
  alignas(64) float terms[kMovedCapacity];
  alignas(64) float direct[Tiling::capacity];
  squareChannels<isPacked>(d, window, pixels, x, squares);
  clearNeighbours<isPacked>(window, pixels, terms);
  const auto delta = hn::Set(d, window.delta);
  const auto alphaShare = hn::Set(d, window.alphaShare);
  forPixelVectors<isPacked>(d, window, pixels, [&](const Place& place, auto lanes) {
    const auto sum = neighbourSum<isPacked>(d, lanes, window, squares, place, window.below, window.above);
    const auto t = hn::MulAdd(sum, alphaShare, delta);
    const auto power = negativePower(d, t, window.power);
    const auto gradient = lanes.load(d, dy + place.element);
    const auto product = hn::Mul(gradient, lanes.load(d, x + place.element));
    lanes.store(d, hn::Mul(gradient, power), direct + place.element);
    lanes.store(d, hn::Mul(product, nextNegativePower(d, t, power, window.power)),
                terms + place.moved + window.above);
  });
  const auto factor = hn::Set(d, window.factor);
  forPixelVectors<isPacked>(d, window, pixels, [&](const Place& place, auto lanes) {
    // The channels whose windows hold a channel: as many above it as its own window has below.
    const auto sum = neighbourSum<isPacked>(d, lanes, window, terms, place, window.above, window.below);
    const auto inner = hn::Mul(lanes.load(d, x + place.element), sum);
    lanes.store(d, hn::NegMulAdd(factor, inner, lanes.load(d, direct + place.element)), dx + place.element);
  });
}

void normalizeChannels(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x, FloatRun y) {
  if (window.isPacked())
    normalizePixels<true>(window, pixels, x, y);
  else
    normalizePixels<false>(window, pixels, x, y);
}

void normalizeChannelGradients(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                               ConstFloatRun dy, FloatRun dx) {
  if (window.isPacked())
    normalizePixelGradients<true>(window, pixels, x, dy, dx);
  else
    normalizePixelGradients<false>(window, pixels, x, dy, dx);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "mps/normalization/normalization_cpu.hpp"

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
  if (problem.destination.channels > Tiling::capacity)
    return Refusal{std::to_string(problem.destination.channels) + " channels are more than the " +
                   std::to_string(Tiling::capacity) + " that fit into a tile"};
  return std::make_shared<const ChannelPlan>(problem);
}

}  // namespace mps::detail

#endif
