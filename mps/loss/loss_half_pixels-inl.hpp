// Softmax cross-entropy of float16 pixels with many channels, once per instruction set. Include it after hwy/highway.h in a
// file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_LOSS_LOSS_HALF_PIXELS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_LOSS_LOSS_HALF_PIXELS_INL_HPP
#undef UNMETAL_MPS_LOSS_LOSS_HALF_PIXELS_INL_HPP
#else
#define UNMETAL_MPS_LOSS_LOSS_HALF_PIXELS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "mps/core/half_runs-inl.hpp"
#include "mps/core/vector_math-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"
#include "mps/loss/loss_rows-inl.hpp"
#include "mps/loss/loss_run.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// A pixel whose predictions are modest, see areModest(). Its loss goes to *loss.
struct HalfPixel {
  const Float16* predictions = nullptr;
  const Float16* labels = nullptr;
  FloatRun gradient;
  float factor = 0;
  double* loss = nullptr;
};

/// Takes pixel after pixel. The exponentials of one, the results of the one before it and the way of the results before
/// those past the caches share a loop: memory is read and written evenly, and no vector waits for a pixel's sum.
class HalfPixels {
 public:
  /// @param channels of each pixel, at most kLossTile
  HalfPixels(const LossNumbers& numbers, std::size_t channels)
      : labelScale_(numbers.labelScale), labelOffset_(numbers.labelOffset), channels_(channels) {}

  void add(const HalfPixel& pixel) {
    if (pixel_.loss == nullptr)
      run<true, false>(pixel);
    else
      run<true, true>(pixel);
    pixel_ = pixel;
    const hn::ScalableTag<float> d;
    const auto sum = hn::Set(d, sum_);
    const auto ln = logarithm(d, sum);
    upper_ = hn::GetLane(ln.upper);
    lower_ = hn::GetLane(ln.lower);
    reciprocal_ = hn::GetLane(hn::Div(hn::Set(d, 1.0F), sum));
  }

  /// What is left after the last pixel.
  void finish() {
    if (pixel_.loss != nullptr) run<false, true>({});
    for (std::size_t i = 0; i < staged_.pieces; ++i) staged_.stream(i);
  }

 private:
  /// Results that wait in a buffer, in pieces of what a vector computes.
  struct Staged {
    HWY_INLINE void stream(std::size_t i) const {
      const hn::Rebind<std::uint16_t, hn::ScalableTag<float>> d;
      hn::Stream(hn::LoadU(d, from + i * hn::Lanes(d)), d, to + i * hn::Lanes(d));
    }

    const std::uint16_t* from = nullptr;
    std::uint16_t* to = nullptr;
    std::size_t pieces = 0;
  };

  /// @tparam computes exponentials and sum of `next`
  /// @tparam finishes results and loss of pixel_
  template <bool computes, bool finishes>
  HWY_INLINE void run(const HalfPixel& next) {
    const hn::ScalableTag<float> d;
    using V = hn::Vec<decltype(d)>;
    const std::size_t step = hn::Lanes(d);
    const ConstFloatRun nextPredictions(next.predictions);
    const ConstFloatRun predictions(pixel_.predictions);
    const ConstFloatRun labels(pixel_.labels);
    const FloatRun results = finishes ? target() : FloatRun();
    const V upper = hn::Set(d, upper_);
    const V lower = hn::Set(d, lower_);
    const V labelScale = hn::Set(d, labelScale_);
    const V labelOffset = hn::Set(d, labelOffset_);
    const V factor = hn::Set(d, pixel_.factor);
    const V factorOfExponential = hn::Set(d, pixel_.factor * reciprocal_);
    float* const exponentials = exponentials_.data();
    const Staged staged = std::exchange(staged_, {});
    V sum = hn::Zero(d);
    V loss = hn::Zero(d);
    forVectors(
        d, channels_, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          if (i < staged.pieces * step) staged.stream(i / step);
          if constexpr (finishes) {
            prefetch(labels, i);
            const V t = hn::MulAdd(lanes.load(d, labels + i), labelScale, labelOffset);
            const V negativeLog = hn::Sub(lower, hn::Sub(lanes.load(d, predictions + i), upper));
            // Modest predictions have no infinite logarithm that a label of 0 must hide.
            loss = hn::MulAdd(inLanes(d, lanes, t, hn::Zero(d)), negativeLog, loss);
            const V p = hn::Mul(hn::Load(d, exponentials + i), factorOfExponential);
            lanes.store(d, hn::NegMulAdd(t, factor, p), known<true>(results) + i);
          }
          if constexpr (computes) {
            prefetch(nextPredictions, i);
            const V e = vectorExpForHalf(d, lanes.load(d, nextPredictions + i));
            hn::Store(e, d, exponentials + i);
            sum = hn::Add(sum, inLanes(d, lanes, e, hn::Zero(d)));
          }
        });
    if constexpr (computes) sum_ = hn::GetLane(hn::SumOfLanes(d, sum));
    if constexpr (finishes) {
      *pixel_.loss = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, loss)));
      if (pixel_.gradient.isStreamed) stage();
    }
  }

  /// Where the results of pixel_ are written.
  FloatRun target() {
    if (!pixel_.gradient.isStreamed) return pixel_.gradient;
    current_ = 1 - current_;
    return FloatRun(reinterpret_cast<Float16*>(results_[current_].data()));
  }

  /// Whole lines of the cache wait in the buffer; the ends share lines with other pixels.
  void stage() {
    constexpr std::size_t line = 64;
    auto* const to = static_cast<std::byte*>(pixel_.gradient.address);
    const auto* const from = reinterpret_cast<const std::byte*>(results_[current_].data());
    const std::size_t bytes = channels_ * sizeof(Float16);
    const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % line);
    const std::size_t body = (bytes - head) / line * line;
    std::memcpy(to, from, head);
    std::memcpy(to + head + body, from + head + body, bytes - head - body);
    staged_ = {reinterpret_cast<const std::uint16_t*>(from + head),
               reinterpret_cast<std::uint16_t*>(to + head),
               body / sizeof(std::uint16_t) / hn::Lanes(hn::ScalableTag<float>())};
  }

  float labelScale_;
  float labelOffset_;
  std::size_t channels_;
  HalfPixel pixel_;  ///< whose exponentials are there
  float sum_ = 0;    ///< of them
  float upper_ = 0;  ///< of its logarithm
  float lower_ = 0;
  float reciprocal_ = 0;
  std::size_t current_ = 0;
  Staged staged_;
  alignas(64) std::array<float, kLossTile> exponentials_;
  alignas(64) std::array<std::array<std::uint16_t, kLossTile>, 2> results_;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
