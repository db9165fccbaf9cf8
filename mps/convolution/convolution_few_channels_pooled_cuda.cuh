#pragma once

#include <cmath>
#include <cstdint>

#include "mps/convolution/convolution_few_channels_cuda.cuh"
#include "mps/convolution/pooled_convolution.hpp"

/// Four adjacent channels of maxima over 2x2 windows of the result, for pooled convolutions.
namespace mps::detail::cuda {

inline constexpr int kPool = 2;

/// Number of the first of four adjacent channels of a pixel among the places. @param y, x of the pooled image
__device__ inline std::int64_t placeOf(const TileNumbers& n, std::int64_t image, std::int32_t y,
                                       std::int32_t x, std::int32_t channel) {
  const TensorShape& pooled = n.pooled.shape;
  return ((image * pooled.height + y) * pooled.width + x) * pooled.channels + channel;
}

/// A maximum while it is looked for, and its place, one byte of a word for each channel.
struct QuadMaximum {
  float value[kQuad];
  std::uint32_t places;

  /// @param tap they come in order
  __device__ void consider(const float (&values)[kQuad], std::uint32_t tap) {
#pragma unroll
    for (int lane = 0; lane < kQuad; ++lane) {
      if (tap != 0 && (values[lane] <= value[lane] || value[lane] != value[lane])) continue;
      value[lane] = values[lane];
      setPlace(lane, tap);
    }
  }
  __device__ void dropCutOff() {
#pragma unroll
    for (int lane = 0; lane < kQuad; ++lane)
      if (signbit(value[lane]) && value[lane] == value[lane]) setPlace(lane, kNoPlace);
  }

 private:
  __device__ void setPlace(int lane, std::uint32_t place) {
    places = (places & ~(0xFFU << (8 * lane))) | place << (8 * lane);
  }
};

/// The gradients of `windows` adjacent results of a row, an even number of them from an even column on, or one.
template <int windows>
__device__ void loadPooled(const TileNumbers& n, const std::byte* memory, const std::uint8_t* places,
                           std::int64_t image, std::int32_t y, std::int32_t x, std::int32_t channel,
                           float (&gradients)[windows][kQuad]) {
  constexpr int kMaxima = windows == 1 ? 1 : windows / kPool;
  float maxima[kMaxima][kQuad];
  const std::int32_t row = y / kPool;
  const std::int32_t column = x / kPool;
  loadQuads(n.pooled, memory, n.pooled.shape.offset(image, row, column, channel), kQuad, maxima);
#pragma unroll
  for (int j = 0; j < kMaxima; ++j) {
    const std::uint32_t chosen =
        __ldg(reinterpret_cast<const std::uint32_t*>(places + placeOf(n, image, row, column + j, channel)));
#pragma unroll
    for (int i = j * kPool; i < (windows == 1 ? 1 : (j + 1) * kPool); ++i) {
      const auto tap = static_cast<std::uint32_t>((x + i) % kPool + y % kPool * kPool);
#pragma unroll
      for (int lane = 0; lane < kQuad; ++lane)
        gradients[i][lane] = (chosen >> (8 * lane) & 0xFFU) == tap ? maxima[j][lane] : 0.0F;
    }
  }
}

}  // namespace mps::detail::cuda
