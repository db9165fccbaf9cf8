#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/softmax/softmax_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/softmax/cpu/softmax_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/softmax/cpu/softmax_gradients-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

// Parts of pixels
// ---------------------------------------------------------------------------------------------------

float largestOf(const float* x, std::size_t count) {
  return hn::GetLane(largest(hn::ScalableTag<float>(), x, count));
}

float exponentialSumOf(const float* x, std::size_t count, float shift) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(exponentialSum<false>(d, x, count, hn::Set(d, shift)));
}

void finishPart(SoftMaxKind kind, const float* x, std::size_t count, float shift, float sum, float* y) {
  const hn::ScalableTag<float> d;
  if (kind == SoftMaxKind::SoftMax) {
    exponentials<false>(d, x, count, hn::Set(d, shift), y);
    normalize(d, y, count, hn::Set(d, sum), y);
  } else {
    subtractBoth(d, x, count, hn::Set(d, shift), hn::Set(d, sum), y);
  }
}

float gradientSumOf(SoftMaxKind kind, const float* result, const float* dy, std::size_t count) {
  return hn::GetLane(gradientSum(hn::ScalableTag<float>(), kind, result, dy, count));
}

void finishGradientPart(SoftMaxKind kind, const float* result, const float* dy, std::size_t count, float sum,
                        float* dx) {
  const hn::ScalableTag<float> d;
  finishGradient<false>(d, kind, result, dy, count, hn::Set(d, sum), dx);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(softMaxTile);
HWY_EXPORT(softMaxGradientTile);
HWY_EXPORT(largestOf);
HWY_EXPORT(exponentialSumOf);
HWY_EXPORT(finishPart);
HWY_EXPORT(gradientSumOf);
HWY_EXPORT(finishGradientPart);

namespace {

/// For pixels that fit into a tile: several pixels at a time, read once. Earns class scores of all networks.
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
            pixelOfElement_.empty() ? nullptr : pixelOfElement_.data()};
  }

  void forward(const Tile& tile, ConstFloatRun x, FloatRun y) const {
    const bool isHalf = problem_.destination.format == ImageFeatureChannelFormat::Float16;
    HWY_DYNAMIC_DISPATCH(softMaxTile)(problem_.kind, isHalf, packed(tile), x, y);
  }

  void gradient(const Tile& tile, ConstFloatRun result, ConstFloatRun dy, FloatRun dx) const {
    const auto isHalf = [](const TensorShape& shape) {
      return shape.format == ImageFeatureChannelFormat::Float16;
    };
    const bool allHalf = isHalf(problem_.input) && isHalf(problem_.gradient) && isHalf(problem_.destination);
    HWY_DYNAMIC_DISPATCH(softMaxGradientTile)(problem_.kind, allHalf, packed(tile), result, dy, dx);
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
                                          finishNonTemporalStores();
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
    {{"tiles of pixels", preparePixels}, {"parts of a pixel", prepareParts}}};

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
