#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mps/core/types/types.hpp"

namespace mps::detail {

/// Mixes one value into a hash (Boost's recipe, 64 bit).
constexpr std::size_t hashCombine(std::size_t seed, std::size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 12U) + (seed >> 4U));
}

/// Hash of a list of integers or enumerators, in order.
template <class... Values>
constexpr std::size_t hashOf(Values... values) {
  std::size_t seed = 0;
  ((seed = hashCombine(seed, static_cast<std::size_t>(values))), ...);
  return seed;
}

/// Size, format and memory strides of the 4-D tensor that a kernel reads or writes.
///
/// Channels are innermost and adjacent; the other strides are in elements and need not be dense: a range of
/// channels keeps its parent's pixelStride, a clip rectangle its rowStride, a repeated image has stride 0.
struct TensorShape {
  std::int64_t images = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t imageStride = 0;
  std::int64_t rowStride = 0;
  std::int64_t pixelStride = 0;
  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32;

  bool operator==(const TensorShape&) const = default;

  static constexpr TensorShape dense(std::int64_t images, std::int64_t height, std::int64_t width,
                                     std::int64_t channels,
                                     ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32) {
    return {images, height, width, channels, height * width * channels, width * channels, channels, format};
  }

  [[nodiscard]] constexpr std::int64_t pixels() const { return images * height * width; }
  [[nodiscard]] constexpr std::int64_t elements() const { return pixels() * channels; }
  [[nodiscard]] constexpr std::int64_t bytes() const {
    return elements() * static_cast<std::int64_t>(bytesPerChannel(format));
  }
  /// No gaps: all elements adjacent, in order.
  [[nodiscard]] constexpr bool isDense() const {
    return pixelStride == channels && rowStride == width * channels &&
           (images <= 1 || imageStride == height * width * channels);
  }
  /// Rows of a single image are adjacent pixels without gaps between pixels or rows.
  [[nodiscard]] constexpr std::int64_t offset(std::int64_t image, std::int64_t y, std::int64_t x,
                                              std::int64_t channel) const {
    return image * imageStride + y * rowStride + x * pixelStride + channel;
  }
  [[nodiscard]] constexpr std::size_t hash() const {
    return hashOf(images, height, width, channels, imageStride, rowStride, pixelStride, format);
  }
  /// "2x28x28x32 float32", with " strides ..." when not dense.
  [[nodiscard]] std::string describe() const;
};

}  // namespace mps::detail
