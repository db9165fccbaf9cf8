#include <algorithm>

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
                               static_cast<double>(problem.kernelSize))) {}

  std::int64_t channels;
  std::int64_t below;
  std::int64_t above;
  PowerRule power;
  float delta;
  float alphaShare;
  float factor;  ///< 2 alpha beta / kernelSize

  /// Floats of a pixel with zeros for the channels beside it.
  [[nodiscard]] std::int64_t stride() const { return channels + below + above; }
};

/// The largest that a tile's padded pixels become.
inline constexpr std::size_t kPaddedCapacity = 3 * static_cast<std::size_t>(Tiling::capacity);

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

/// Calls body(element, element of the padded pixels, lanes) for the vectors of a tile's pixels.
template <class D, class Body>
HWY_INLINE void forPixelVectors(D d, const ChannelWindow& window, std::size_t pixels, Body&& body) {
  const auto channels = static_cast<std::size_t>(window.channels);
  const auto stride = static_cast<std::size_t>(window.stride());
  for (std::size_t p = 0; p < pixels; ++p)
    forVectors(d, channels,
               [&](std::size_t c, auto lanes) { body(p * channels + c, p * stride + c, lanes); });
}

/// The sum of `count` neighbours from each element on.
template <class D, class Lanes>
HWY_INLINE hn::Vec<D> neighbourSum(D d, Lanes lanes, const float* from, std::size_t count) {
  auto sum = lanes.load(d, from);
  for (std::size_t m = 1; m < count; ++m) sum = hn::Add(sum, lanes.load(d, from + m));
  return sum;
}

/// The squares of a tile, with zeros beside each pixel's channels.
template <class D>
HWY_INLINE void squareChannels(D d, const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                               float* squares) {
  std::fill_n(squares, pixels * static_cast<std::size_t>(window.stride()), 0.0F);
  const auto below = static_cast<std::size_t>(window.below);
  forPixelVectors(d, window, pixels, [&](std::size_t i, std::size_t padded, auto lanes) {
    const auto value = lanes.load(d, x + i);
    lanes.store(d, hn::Mul(value, value), squares + padded + below);
  });
}

void normalizeChannels(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  alignas(64) float squares[kPaddedCapacity];
  squareChannels(d, window, pixels, x, squares);
  const auto count = static_cast<std::size_t>(window.below + window.above + 1);
  const auto delta = hn::Set(d, window.delta);
  const auto alphaShare = hn::Set(d, window.alphaShare);
  forPixelVectors(d, window, pixels, [&](std::size_t i, std::size_t padded, auto lanes) {
    const auto t = hn::MulAdd(neighbourSum(d, lanes, squares + padded, count), alphaShare, delta);
    lanes.store(d, hn::Mul(lanes.load(d, x + i), negativePower(d, t, window.power)), y + i);
  });
}

void normalizeChannelGradients(const ChannelWindow& window, std::size_t pixels, ConstFloatRun x,
                               ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  alignas(64) float squares[kPaddedCapacity];
  alignas(64) float terms[kPaddedCapacity];
  alignas(64) float direct[Tiling::capacity];
  squareChannels(d, window, pixels, x, squares);
  std::fill_n(terms, pixels * static_cast<std::size_t>(window.stride()), 0.0F);
  const auto count = static_cast<std::size_t>(window.below + window.above + 1);
  // The channels whose windows hold a channel: as many above it as its own window has below.
  const auto above = static_cast<std::size_t>(window.above);
  const auto delta = hn::Set(d, window.delta);
  const auto alphaShare = hn::Set(d, window.alphaShare);
  forPixelVectors(d, window, pixels, [&](std::size_t i, std::size_t padded, auto lanes) {
    const auto t = hn::MulAdd(neighbourSum(d, lanes, squares + padded, count), alphaShare, delta);
    const auto power = negativePower(d, t, window.power);
    const auto gradient = lanes.load(d, dy + i);
    const auto product = hn::Mul(gradient, lanes.load(d, x + i));
    lanes.store(d, hn::Mul(gradient, power), direct + i);
    lanes.store(d, hn::Mul(product, nextNegativePower(d, t, power, window.power)), terms + padded + above);
  });
  const auto factor = hn::Set(d, window.factor);
  forPixelVectors(d, window, pixels, [&](std::size_t i, std::size_t padded, auto lanes) {
    const auto sum = hn::Mul(lanes.load(d, x + i), neighbourSum(d, lanes, terms + padded, count));
    lanes.store(d, hn::NegMulAdd(factor, sum, lanes.load(d, direct + i)), dx + i);
  });
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
