#pragma once

#include <cuda_fp16.h>

#include <cstring>

#include "mps/core/types/storage.hpp"

/// The element types behind ImageFeatureChannelFormat on the device: storage.hpp's functions for kernels, to
/// the same bits.
namespace mps::detail::cuda {

__device__ inline float load(const float* from) {
  return *from;
}
__device__ inline float load(const Float16* from) {
  return __half2float(__ushort_as_half(from->bits));
}
__device__ inline float load(const Unorm8* from) {
  return static_cast<float>(from->bits) / Unorm8::scale;
}
__device__ inline float load(const Unorm16* from) {
  return static_cast<float>(from->bits) / Unorm16::scale;
}

/// Clamped to 0 ... 1, scaled, rounded to nearest even; NaN gives 0.
template <class Unorm>
__device__ Unorm toUnorm(float value) {
  const float positive = value > 0.0F ? value : 0.0F;
  const float clamped = positive < 1.0F ? positive : 1.0F;
  return {static_cast<decltype(Unorm::bits)>(
      rint(static_cast<double>(clamped) * static_cast<double>(Unorm::scale)))};
}

__device__ inline void store(float value, float* to) {
  *to = value;
}
__device__ inline void store(float value, Float16* to) {
  to->bits = __half_as_ushort(__float2half_rn(value));
}
__device__ inline void store(float value, Unorm8* to) {
  *to = toUnorm<Unorm8>(value);
}
__device__ inline void store(float value, Unorm16* to) {
  *to = toUnorm<Unorm16>(value);
}

/// @name An element of a format that is known when the kernel runs: for kernels that accept everything
/// @{
__device__ inline float loadAs(ImageFeatureChannelFormat format, const std::byte* memory,
                               std::int64_t offset) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return load(reinterpret_cast<const Unorm8*>(memory) + offset);
    case ImageFeatureChannelFormat::Unorm16:
      return load(reinterpret_cast<const Unorm16*>(memory) + offset);
    case ImageFeatureChannelFormat::Float16:
      return load(reinterpret_cast<const Float16*>(memory) + offset);
    default:
      return load(reinterpret_cast<const float*>(memory) + offset);
  }
}
__device__ inline void storeAs(float value, ImageFeatureChannelFormat format, std::byte* memory,
                               std::int64_t offset) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return store(value, reinterpret_cast<Unorm8*>(memory) + offset);
    case ImageFeatureChannelFormat::Unorm16:
      return store(value, reinterpret_cast<Unorm16*>(memory) + offset);
    case ImageFeatureChannelFormat::Float16:
      return store(value, reinterpret_cast<Float16*>(memory) + offset);
    default:
      return store(value, reinterpret_cast<float*>(memory) + offset);
  }
}
/// @}

/// Elements of type T, float or Float16, in 16 bytes.
template <class T>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(T));

/// Sixteen bytes as float32.
template <class T>
struct Lanes {
  float values[kLanes<T>];
};

__device__ inline float2 float2Of(unsigned bits) {
  __half2 both;
  memcpy(&both, &bits, sizeof both);
  return __half22float2(both);
}
__device__ inline unsigned toHalves(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  unsigned bits = 0;
  memcpy(&bits, &both, sizeof bits);
  return bits;
}

/// @name Sixteen bytes of memory as elements. @param type null; it says which ones
/// @{
__device__ inline Lanes<float> lanesOf(uint4 vector, const float* /*type*/) {
  return {{__uint_as_float(vector.x), __uint_as_float(vector.y), __uint_as_float(vector.z),
           __uint_as_float(vector.w)}};
}
__device__ inline Lanes<Float16> lanesOf(uint4 vector, const Float16* /*type*/) {
  const float2 a = float2Of(vector.x);
  const float2 b = float2Of(vector.y);
  const float2 c = float2Of(vector.z);
  const float2 d = float2Of(vector.w);
  return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}
/// @}

/// @param from address that is a multiple of 16
template <class T>
__device__ Lanes<T> loadLanes(const T* from) {
  return lanesOf(*reinterpret_cast<const uint4*>(from), from);
}
/// @param to address that is a multiple of 16
__device__ inline void storeLanes(const Lanes<float>& lanes, float* to) {
  const float(&v)[4] = lanes.values;
  *reinterpret_cast<float4*>(to) = float4{v[0], v[1], v[2], v[3]};
}
__device__ inline void storeLanes(const Lanes<Float16>& lanes, Float16* to) {
  const float(&v)[8] = lanes.values;
  *reinterpret_cast<uint4*>(to) =
      uint4{toHalves(v[0], v[1]), toHalves(v[2], v[3]), toHalves(v[4], v[5]), toHalves(v[6], v[7])};
}

}  // namespace mps::detail::cuda
