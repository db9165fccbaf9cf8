#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/reduction/reduce_binary_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/reduction/cpu/reduce_binary_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Adds each pixel's sum of products to `sums` and, where those are asked for, its weights that are not 0 to `counts`.
/// @param sums,counts a vector more is written
void addWeighted(ConstFloatRun values, ConstFloatRun weights, std::size_t pixels, std::size_t channels,
                 float* sums, float* counts) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto add = [&](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
  // Some pixels at a time: their sums are added to what is there.
  for (std::size_t first = 0; first < pixels; first += lanes) {
    const std::size_t count = std::min(lanes, pixels - first);
    HWY_ALIGN float parts[hn::MaxLanes(hn::ScalableTag<float>())];
    const auto addRows = [&](auto&& row, float* to) HWY_ATTR {
      reduceRows(d, count, row, add, parts);
      hn::StoreU(hn::Add(hn::LoadU(d, to + first), hn::Load(d, parts)), d, to + first);
    };
    addRows(
        [&](std::size_t pixel) HWY_ATTR {
          auto sum = hn::Zero(d);
          forVectors(d, channels, [&](std::size_t i, auto lanesOfRun) {
            const std::size_t at = (first + pixel) * channels + i;
            sum = hn::MulAdd(lanesOfRun.load(d, values + at), lanesOfRun.load(d, weights + at), sum);
          });
          return sum;
        },
        sums);
    if (counts == nullptr) continue;
    addRows(
        [&](std::size_t pixel) HWY_ATTR {
          auto count = hn::Zero(d);
          forVectors(d, channels, [&](std::size_t i, auto lanesOfRun) {
            const auto weight = lanesOfRun.load(d, weights + ((first + pixel) * channels + i));
            count = hn::Add(count, hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Set(d, 1.0F)));
          });
          return count;
        },
        counts);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(addWeighted);

/// Some pixels at a time, or some channels of one.
class PixelsPlan final : public Plan {
 public:
  explicit PixelsPlan(const ReduceBinaryProblem& problem)
      : problem_(problem),
        channels_(std::clamp<std::int64_t>(problem.source.channels, 1, Tiling::capacity)),
        pixels_(Tiling::capacity / channels_) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::int64_t pixels = problem_.source.pixels();
    mtl::cpu::asCpu(stream).parallelFor(
        (pixels + pixels_ - 1) / pixels_, Tiling::grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t group = begin; group < end; ++group)
            reduce(operands, group * pixels_, std::min(pixels_, pixels - group * pixels_));
        });
  }

 private:
  void reduce(const Operands& operands, std::int64_t firstPixel, std::int64_t pixels) const {
    alignas(64) float xBuffer[Tiling::capacity];
    alignas(64) float wBuffer[Tiling::capacity];
    constexpr std::int64_t largestVector = 16;
    alignas(64) float sums[Tiling::capacity + largestVector];
    alignas(64) float counts[Tiling::capacity + largestVector];
    std::fill_n(sums, pixels + largestVector, 0.0F);
    std::fill_n(counts, pixels + largestVector, 0.0F);
    const bool counted = problem_.divisor == ReduceBinaryDivisor::NonZeroWeights;
    const std::int64_t channels = problem_.source.channels;
    for (std::int64_t first = 0; first < channels; first += channels_) {
      const Tile tile{firstPixel, pixels, first, std::min(channels_, channels - first)};
      HWY_DYNAMIC_DISPATCH(addWeighted)
      (loadRun(problem_.source, operands.source, tile, xBuffer),
       loadRun(problem_.weights, operands.secondary, tile, wBuffer), static_cast<std::size_t>(pixels),
       static_cast<std::size_t>(tile.channels), sums, counted ? counts : nullptr);
    }
    for (std::int64_t i = 0; i < pixels; ++i) {
      if (problem_.divisor == ReduceBinaryDivisor::FeatureChannels)
        sums[i] /= static_cast<float>(channels);
      else if (counted)
        sums[i] = counts[i] == 0 ? 0 : sums[i] / counts[i];
    }
    const Tile result{firstPixel, pixels, 0, 1};
    float* const target = tileTarget(problem_.destination, operands.destination, result, xBuffer);
    std::copy_n(sums, pixels, target);
    storeTile(problem_.destination, operands.destination, result, target);
  }

  ReduceBinaryProblem problem_;
  std::int64_t channels_;  ///< of a tile
  std::int64_t pixels_;    ///< of a tile
};

Preparation preparePixels(const ReduceBinaryProblem& problem) {
  return std::make_shared<const PixelsPlan>(problem);
}

constexpr Implementation<ReduceBinaryProblem> kImplementations[] = {{"vectorised", preparePixels}};

}  // namespace

std::span<const Implementation<ReduceBinaryProblem>> reduceBinaryImplementationsCpu() {
  return kImplementations;
}

std::string ReduceBinaryProblem::describe() const {
  const char* const divisors[] = {"", ", over channels", ", over weights that are not 0"};
  return std::string("weighted sum of feature channels") + divisors[static_cast<std::size_t>(divisor)] +
         ", " + source.describe() + ", weights " + weights.describe() + " -> " + destination.describe();
}

}  // namespace mps::detail

#endif
