#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/core/types/types.hpp"

namespace mps::detail {

/// Copies pixels of adjacent channels from one image memory of the host to another; the copying kernels (concatenation,
/// padding, slices) and their gradients are made of it. Strides are in elements.
struct PixelCopy {
  ImageFeatureChannelFormat inputFormat = ImageFeatureChannelFormat::Float32;
  ImageFeatureChannelFormat destinationFormat = ImageFeatureChannelFormat::Float32;
  std::int64_t channels =
      0;                   ///< of each pixel that are copied, to the nearest value where the formats differ
  std::int64_t zeros = 0;  ///< channels behind them that become 0
  std::int64_t inputStride = 0;
  std::int64_t destinationStride = 0;
  bool accumulate = false;  ///< adds to what is there; destination float32, no zeros
  bool isNonTemporal =
      false;  ///< whole cache lines are written by non-temporal stores; then call finishNonTemporalStores()
};

void copyPixels(const PixelCopy& copy, const std::byte* input, std::byte* destination, std::int64_t count);

/// The same of two parts of each pixel, the second one behind first.channels.
void copyPixelPairs(const PixelCopy& first, const std::byte* firstInput, const PixelCopy& second,
                    const std::byte* secondInput, std::byte* destination, std::int64_t count);

}  // namespace mps::detail
