#pragma once

#include <algorithm>
#include <cstdint>

#include "mps/upsampling/upsampling_problem.hpp"

/// Which source pixels a result pixel is made of: for kernels of the host and of devices.
namespace mps::detail {

/// Where a result pixel lies: a source pixel and the way from it to the next one.
struct UpsamplingPosition {
  std::int64_t pixel = 0;
  double fraction = 0;
};

/// In integers, so that fractions are rounded once.
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
      numerator = x * last;
      denominator = std::max<std::int64_t>(1, result - 1);
      break;
    case UpsamplingSampling::BilinearHalfPixel:
      denominator = 2 * result;
      numerator = std::clamp<std::int64_t>((2 * x + 1) * source - result, 0, last * denominator);
      break;
  }
  return {axis.offset + numerator / denominator,
          static_cast<double>(numerator % denominator) / static_cast<double>(denominator)};
}

/// Two pixels inside the source; one of weight 0 is not to be looked at.
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

}  // namespace mps::detail
