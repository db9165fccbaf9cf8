#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "mps/upsampling/upsampling_problem.hpp"

/// Which source pixels a result pixel is made of: for kernels of the host and of devices.
namespace mps::detail {

/// Where a result pixel lies: a source pixel and the way from it to the next one.
struct UpsamplingPosition {
  std::int64_t pixel = 0;
  double fraction = 0;
};

/// A position that is computed from fractions is outside when it is by more than that.
inline constexpr double kUpsamplingSlack = 1e-6;

/// offset + start + step * x, moved into the source where it is beside the edge. Outside: a pixel that is none, and
/// whose next one is none.
constexpr UpsamplingPosition steppedPosition(UpsamplingSampling sampling, const UpsamplingAxis& axis,
                                             std::int64_t x) {
  const auto last = static_cast<double>(axis.sourceSize - 1);
  const double position =
      static_cast<double>(axis.offset) + (axis.start + axis.step * static_cast<double>(x));
  const double margin = kUpsamplingSlack + (sampling == UpsamplingSampling::BilinearRegion ? 0 : 0.5);
  if (position < -margin) return {-2, 0};
  if (position > last + margin) return {axis.sourceSize, 0};
  const double inside = position < 0 ? 0 : position < last ? position : last;
  const auto pixel = static_cast<std::int64_t>(inside);
  return {pixel, inside - static_cast<double>(pixel)};
}

/// In integers, so that fractions are rounded once, but for BilinearRegion and BilinearScale.
constexpr UpsamplingPosition upsamplingPosition(UpsamplingSampling sampling, const UpsamplingAxis& axis,
                                                std::int64_t x) {
  const std::int64_t source = axis.sourceSize;
  const std::int64_t result = axis.resultSize;
  const std::int64_t last = source - 1;
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;
  switch (sampling) {
    case UpsamplingSampling::Nearest:
      numerator = x * source / result;
      break;
    case UpsamplingSampling::Bilinear:
      numerator = std::min(x * source, last * result);
      denominator = result;
      break;
    case UpsamplingSampling::BilinearAlignCorners:
      if (result == 1) break;
      numerator = x * last;
      denominator = result - 1;
      break;
    case UpsamplingSampling::BilinearHalfPixel:
      denominator = 2 * result;
      numerator = std::clamp<std::int64_t>((2 * x + 1) * source - result, 0, last * denominator);
      break;
    case UpsamplingSampling::BilinearRegion:
    case UpsamplingSampling::BilinearScale:
    case UpsamplingSampling::LanczosScale:
      return steppedPosition(sampling, axis, x);
  }
  return {axis.offset + numerator / denominator,
          static_cast<double>(numerator % denominator) / static_cast<double>(denominator)};
}

/// Of every sampling but LanczosScale: two pixels inside the source; one of weight 0 is not to be looked at.
struct UpsamplingSamples {
  std::int64_t first = 0;
  std::int64_t second = 0;
  double firstWeight = 0;
  double secondWeight = 0;
};

constexpr UpsamplingSamples upsamplingSamples(UpsamplingSampling sampling, ImageEdgeMode edgeMode,
                                              const UpsamplingAxis& axis, std::int64_t x) {
  const UpsamplingPosition position = upsamplingPosition(sampling, axis, x);
  const std::int64_t last = axis.sourceSize - 1;
  UpsamplingSamples samples;
  samples.first = std::clamp<std::int64_t>(position.pixel, 0, last);
  samples.second = std::clamp<std::int64_t>(position.pixel + 1, 0, last);
  const bool clamps = edgeMode == ImageEdgeMode::Clamp;
  if (clamps || samples.first == position.pixel) samples.firstWeight = 1 - position.fraction;
  if (clamps || samples.second == position.pixel + 1) samples.secondWeight = position.fraction;
  if (clamps && samples.first == samples.second) {
    samples.firstWeight = 1;
    samples.secondWeight = 0;
  }
  return samples;
}

/// What pixels of a LanczosScale count in a result: first, first + 1, ... below end, by lanczosWeight() over the sum of
/// those weights.
struct LanczosSamples {
  std::int64_t first = 0;
  std::int64_t end = 0;  ///< first: the result lies outside the source
  double position = 0;
  double scale = 1;
};

/// Lobes of the window on each side.
inline constexpr int kLanczosLobes = 3;

/// Most pixels of a result.
constexpr std::int64_t mostLanczosSamples(const UpsamplingAxis& axis) {
  const double all = 2 * kLanczosLobes * std::max(1.0, axis.step) + 1;
  return all < static_cast<double>(axis.sourceSize) ? static_cast<std::int64_t>(all) : axis.sourceSize;
}

constexpr LanczosSamples lanczosSamples(ImageEdgeMode edgeMode, const UpsamplingAxis& axis, std::int64_t x) {
  const std::int64_t last = axis.sourceSize - 1;
  const UpsamplingPosition center = steppedPosition(UpsamplingSampling::LanczosScale, axis, x);
  const bool isInside = center.pixel >= 0 && center.pixel <= last;
  LanczosSamples samples;
  if (!isInside && edgeMode == ImageEdgeMode::Zero) return samples;
  samples.scale = std::max(1.0, axis.step);
  // Not moved beside the edge: positions keep their distances.
  samples.position =
      isInside ? static_cast<double>(axis.offset) + (axis.start + axis.step * static_cast<double>(x))
               : static_cast<double>(std::clamp<std::int64_t>(center.pixel, 0, last));
  const double radius = kLanczosLobes * samples.scale;
  samples.first = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(samples.position - radius)));
  samples.end =
      std::min<std::int64_t>(last, static_cast<std::int64_t>(std::floor(samples.position + radius))) + 1;
  // Where roundings let in a pixel at either end, that lies three lobes away, and counts nothing that shows.
  samples.end = std::min(samples.end, samples.first + mostLanczosSamples(axis));
  return samples;
}

constexpr double lanczosWeight(const LanczosSamples& samples, std::int64_t pixel) {
  const double u = (static_cast<double>(pixel) - samples.position) / samples.scale;
  if (u == 0) return 1;
  if (u == std::floor(u) || std::abs(u) >= kLanczosLobes) return 0;
  const double angle = std::numbers::pi * u;
  return kLanczosLobes * std::sin(angle) * std::sin(angle / kLanczosLobes) / (angle * angle);
}

/// Results, counted from axis.firstResult on, that a pixel of a LanczosScale may count something in: [begin, end).
struct LanczosReaders {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The first of `results` results whose position, moved into the source, is above another one; `results` if none is.
constexpr std::int64_t firstResultAbove(const UpsamplingAxis& axis, double position, std::int64_t results) {
  const auto last = static_cast<double>(axis.sourceSize - 1);
  std::int64_t begin = 0;
  while (begin < results) {
    const std::int64_t middle = begin + (results - begin) / 2;
    const double at = static_cast<double>(axis.offset) +
                      (axis.start + axis.step * static_cast<double>(axis.firstResult + middle));
    if ((at < 0 ? 0 : at < last ? at : last) > position)
      results = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

constexpr LanczosReaders lanczosReaders(const UpsamplingAxis& axis, std::int64_t pixel,
                                        std::int64_t results) {
  // A pixel more: positions beside the edge are not moved.
  const double reach = kLanczosLobes * std::max(1.0, axis.step) + 1;
  const auto center = static_cast<double>(pixel);
  return {firstResultAbove(axis, center - reach, results), firstResultAbove(axis, center + reach, results)};
}

}  // namespace mps::detail
