#include "mps/core/highway_targets.hpp"
#include "mps/core/tile_io.hpp"
#include "mps/reduction/reduce_binary_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/reduction/reduce_binary_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// The sum of all lanes, in their order whatever the instruction set's shuffles are.
template <class D>
HWY_INLINE float sumOfLanes(D d, hn::Vec<D> value) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(value, d, lanes);
  float sum = 0;
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) sum += lanes[i];
  return sum;
}

/// Adds each pixel's sum of products to `sums`, and its weights that are not 0 to `counts`.
void addWeighted(const float* values, const float* weights, std::int64_t pixels, std::int64_t channels,
                 float* sums, float* counts) {
  const hn::ScalableTag<float> d;
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    const float* const x = values + pixel * channels;
    const float* const w = weights + pixel * channels;
    auto sum = hn::Zero(d);
    auto count = hn::Zero(d);
    forVectors(d, static_cast<std::size_t>(channels), [&](std::size_t i, auto lanes) {
      const auto weight = lanes.load(d, w + i);
      sum = hn::Add(sum, hn::Mul(lanes.load(d, x + i), weight));
      count = hn::Add(count, hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Set(d, 1.0F)));
    });
    sums[pixel] += sumOfLanes(d, sum);
    counts[pixel] += sumOfLanes(d, count);
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
    alignas(64) float sums[Tiling::capacity] = {};
    alignas(64) float counts[Tiling::capacity] = {};
    const std::int64_t channels = problem_.source.channels;
    for (std::int64_t first = 0; first < channels; first += channels_) {
      const Tile tile{firstPixel, pixels, first, std::min(channels_, channels - first)};
      const float* const x = loadTile(problem_.source, operands.source, tile, xBuffer);
      const float* const w = loadTile(problem_.weights, operands.secondary, tile, wBuffer);
      HWY_DYNAMIC_DISPATCH(addWeighted)(x, w, pixels, tile.channels, sums, counts);
    }
    for (std::int64_t i = 0; i < pixels; ++i) {
      if (problem_.divisor == ReduceBinaryDivisor::FeatureChannels)
        sums[i] /= static_cast<float>(channels);
      else if (problem_.divisor == ReduceBinaryDivisor::NonZeroWeights)
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

constexpr Implementation<ReduceBinaryProblem> kImplementations[] = {{"vectors", preparePixels}};

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
