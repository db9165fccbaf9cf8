#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "mps/core/types/float16.hpp"
#include "mps/core/types/types.hpp"

/// The element types behind ImageFeatureChannelFormat, for code that reads and writes image memory one
/// element at a time. vector_io-inl.hpp does the same for vectors, to the same bits.
namespace mps::detail {

/// 0 ... 255 stands for 0 ... 1.
struct Unorm8 {
  std::uint8_t bits = 0;
  static constexpr float scale = 255.0F;  ///< the code of 1
};

/// 0 ... 65535 stands for 0 ... 1.
struct Unorm16 {
  std::uint16_t bits = 0;
  static constexpr float scale = 65535.0F;
};

static_assert(sizeof(Unorm8) == 1 && sizeof(Unorm16) == 2 && sizeof(Float16) == 2);

/// The float32 nearest to the stored value; exact for float16 and float32.
inline float loadFloat(const float* from) {
  return *from;
}
inline float loadFloat(const Float16* from) {
  return toFloat(*from);
}
inline float loadFloat(const Unorm8* from) {
  return static_cast<float>(from->bits) / Unorm8::scale;
}
inline float loadFloat(const Unorm16* from) {
  return static_cast<float>(from->bits) / Unorm16::scale;
}

/// Clamped to 0 ... 1, scaled, rounded to nearest even; NaN gives 0.
template <class Unorm>
Unorm toUnorm(float value) {
  const float positive = value > 0.0F ? value : 0.0F;
  const float clamped = positive < 1.0F ? positive : 1.0F;
  // In float64 the product is exact, so there is one rounding.
  const double scaled = static_cast<double>(clamped) * static_cast<double>(Unorm::scale);
  return {static_cast<decltype(Unorm::bits)>(std::nearbyint(scaled))};
}

/// Rounds once, to the nearest representable value.
inline void storeFloat(float value, float* to) {
  *to = value;
}
inline void storeFloat(float value, Float16* to) {
  *to = toFloat16(value);
}
inline void storeFloat(float value, Unorm8* to) {
  *to = toUnorm<Unorm8>(value);
}
inline void storeFloat(float value, Unorm16* to) {
  *to = toUnorm<Unorm16>(value);
}

/// Calls function(T{}) with the element type of a format, and returns what it returns.
template <class Function>
decltype(auto) withElementType(ImageFeatureChannelFormat format, Function&& function) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return function(Unorm8{});
    case ImageFeatureChannelFormat::Unorm16:
      return function(Unorm16{});
    case ImageFeatureChannelFormat::Float16:
      return function(Float16{});
    case ImageFeatureChannelFormat::Float32:
      return function(0.0F);
    case ImageFeatureChannelFormat::None:
      break;
  }
  throw std::logic_error("a tensor in memory needs a channel format");
}

}  // namespace mps::detail
