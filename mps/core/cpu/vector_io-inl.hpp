// Vectors of float32 lanes from and to image memory, once per instruction set. Include it after hwy/highway.h
// in a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_VECTOR_IO_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_VECTOR_IO_INL_HPP
#undef UNMETAL_MPS_CORE_VECTOR_IO_INL_HPP
#else
#define UNMETAL_MPS_CORE_VECTOR_IO_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mps/core/types/storage.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores
// ----------------------------------------------------------------------------------------------
//
//   loadFloats(d, from)            all lanes of d, from any address
//   loadFloats(d, from, count)     the first `count` lanes (0 <= count <= lanes), zeros above
//   storeFloats(d, v, to)          all lanes
//   storeFloats(d, v, to, count)   the first `count` lanes; touches nothing else
//
// for float, Float16, Unorm8 and Unorm16 memory. The bits are those of loadFloat and storeFloat.

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)
#define UNMETAL_HAS_FLOAT16_CONVERSION 1
#else
// Highway emulates the conversion for the others, but drops infinities and truncates, so it is written out
// below.
#define UNMETAL_HAS_FLOAT16_CONVERSION 0
#endif

/// float16 bits in 32-bit lanes -> float32.
template <class D, class VU = hn::Vec<hn::RebindToUnsigned<D>>>
HWY_INLINE hn::Vec<D> floatFromHalfBits(D d, VU bits) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFF));
  const VU sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  // Another bias of the exponent; infinity and NaN need the largest one.
  const VU normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, (127 - 15) << 23));
  const VU special = hn::Or(normal, hn::Set(du, 0x7F800000));
  const hn::Vec<D> subnormal =
      hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 1.0F / 16777216.0F));
  VU result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7BFF)), special, normal);
  result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x0400)), hn::BitCast(du, subnormal), result);
  return hn::BitCast(d, hn::Or(result, sign));
}

/// float32 -> float16 bits in 32-bit lanes, to nearest even.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> halfBitsFromFloat(D d, V value) {
  const hn::RebindToUnsigned<D> du;
  using VU = hn::Vec<decltype(du)>;
  const VU bits = hn::BitCast(du, value);
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFF));
  const VU sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  // Half a unit less one, plus one for odd results, then cut: a carry moves on into the exponent, up to
  // infinity.
  const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  const VU rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0x0FFF)), odd);
  const VU normal = hn::Sub(hn::ShiftRight<13>(rounded), hn::Set(du, (127 - 15) << 10));
  // Adding one half moves the unit of a float16 subnormal to the last place of float32, which then rounds.
  const V aligned = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F));
  const VU subnormal = hn::Sub(hn::BitCast(du, aligned), hn::Set(du, 0x3F000000));
  const VU quietNaN =
      hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x03FF)), hn::Set(du, 0x7E00));
  VU result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000)), subnormal, normal);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477FEFFF)), hn::Set(du, 0x7C00), result);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7F800000)), quietNaN, result);
  return hn::Or(result, sign);
}

template <class D>
HWY_INLINE hn::Vec<D> loadFloats(D d, const float* HWY_RESTRICT from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> loadFloats(D d, const Float16* HWY_RESTRICT from) {
#if UNMETAL_HAS_FLOAT16_CONVERSION
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const hn::Rebind<std::uint16_t, D> dh;
  const hn::RebindToUnsigned<D> du;
  return floatFromHalfBits(d, hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(from))));
#endif
}

/// Codes of a normalised format, then the quotient, so that the nearest float32 comes out.
template <class D, class Unorm, class Code = decltype(Unorm::bits)>
HWY_INLINE hn::Vec<D> loadUnorm(D d, const Unorm* HWY_RESTRICT from) {
  const hn::Rebind<Code, D> dc;
  const hn::RebindToSigned<D> di;
  const auto codes = hn::PromoteTo(di, hn::LoadU(dc, reinterpret_cast<const Code*>(from)));
  return hn::Div(hn::ConvertTo(d, codes), hn::Set(d, Unorm::scale));
}

template <class D>
HWY_INLINE hn::Vec<D> loadFloats(D d, const Unorm8* HWY_RESTRICT from) {
  return loadUnorm(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> loadFloats(D d, const Unorm16* HWY_RESTRICT from) {
  return loadUnorm(d, from);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void storeFloats(D d, V value, float* HWY_RESTRICT to) {
  hn::StoreU(value, d, to);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void storeFloats(D d, V value, Float16* HWY_RESTRICT to) {
#if UNMETAL_HAS_FLOAT16_CONVERSION
  (void)d;
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, value), dh, reinterpret_cast<hwy::float16_t*>(to));
#else
  const hn::Rebind<std::uint16_t, D> dh;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(di, halfBitsFromFloat(d, value));
  hn::StoreU(hn::DemoteTo(dh, bits), dh, reinterpret_cast<std::uint16_t*>(to));
#endif
}

/// The comparison with 0 turns NaN into 0. Adding 2^23 to the exact product rounds it once, to an integer in
/// the low bits, nearest even.
template <class D, class Unorm, class V = hn::Vec<D>, class Code = decltype(Unorm::bits)>
HWY_INLINE void storeUnorm(D d, V value, Unorm* HWY_RESTRICT to) {
#if HWY_NATIVE_FMA
  const hn::Rebind<Code, D> dc;
  const hn::RebindToSigned<D> di;
  const V positive = hn::IfThenElseZero(hn::Gt(value, hn::Zero(d)), value);
  const V clamped = hn::Min(positive, hn::Set(d, 1.0F));
  const V rounded = hn::MulAdd(clamped, hn::Set(d, Unorm::scale), hn::Set(d, 8388608.0F));
  const auto codes = hn::And(hn::BitCast(di, rounded), hn::Set(di, 0x007FFFFF));
  hn::StoreU(hn::DemoteTo(dc, codes), dc, reinterpret_cast<Code*>(to));
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(value, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = toUnorm<Unorm>(lanes[i]);
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void storeFloats(D d, V value, Unorm8* HWY_RESTRICT to) {
  storeUnorm(d, value, to);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void storeFloats(D d, V value, Unorm16* HWY_RESTRICT to) {
  storeUnorm(d, value, to);
}

// Partial vectors
// -------------------------------------------------------------------------------------------------

/// Copies `bytes` <= most, a power of two, in powers of two: no loop, no library call.
template <std::size_t most>
HWY_INLINE void copyShort(void* to, const void* from, std::size_t bytes) {
  if (bytes == most) {
    std::memcpy(to, from, most);
  } else if constexpr (most > 1) {
    constexpr std::size_t half = most / 2;
    auto* target = static_cast<unsigned char*>(to);
    const auto* source = static_cast<const unsigned char*>(from);
    if (bytes & half) {
      std::memcpy(target, source, half);
      target += half;
      source += half;
    }
    copyShort<half>(target, source, bytes & (half - 1));
  }
}

/// Bytes of a full vector of lanes of type T.
template <class T, class D>
constexpr std::size_t vectorBytes(D d) {
  return hn::MaxLanes(d) * sizeof(T);
}

template <class D, class T>
HWY_INLINE hn::Vec<D> loadFloats(D d, const T* HWY_RESTRICT from, std::size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  copyShort<vectorBytes<T>(D())>(lanes, from, count * sizeof(T));
  return loadFloats(d, lanes);
}

template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void storeFloats(D d, V value, T* HWY_RESTRICT to, std::size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  storeFloats(d, value, lanes);
  copyShort<vectorBytes<T>(D())>(to, lanes, count * sizeof(T));
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

// These instruction sets have masked accesses to 32-bit lanes that do not fault on what the mask leaves out.
template <class D>
HWY_INLINE hn::Vec<D> loadFloats(D d, const float* HWY_RESTRICT from, std::size_t count) {
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void storeFloats(D d, V value, float* HWY_RESTRICT to, std::size_t count) {
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
}

#endif

#if HWY_TARGET == HWY_AVX3

template <class D>
HWY_INLINE hn::Vec<D> loadFloats(D d, const Float16* HWY_RESTRICT from, std::size_t count) {
  const hn::Rebind<std::uint16_t, D> du;
  const hn::Rebind<hwy::float16_t, D> dh;
  const auto bits = hn::MaskedLoad(hn::FirstN(du, count), du, reinterpret_cast<const std::uint16_t*>(from));
  return hn::PromoteTo(d, hn::BitCast(dh, bits));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void storeFloats(D, V value, Float16* HWY_RESTRICT to, std::size_t count) {
  const hn::Rebind<std::uint16_t, D> du;
  const hn::Rebind<hwy::float16_t, D> dh;
  const auto bits = hn::BitCast(du, hn::DemoteTo(dh, value));
  hn::BlendedStore(bits, hn::FirstN(du, count), du, reinterpret_cast<std::uint16_t*>(to));
}

#endif

/// Writes all lanes, 16 bytes or more, by non-temporal stores; `to` is aligned to the vector it takes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void streamFloats(D d, V value, float* to) {
  hn::Stream(value, d, to);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void streamFloats([[maybe_unused]] D d, V value, Float16* to) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, D> dh;
  const hn::Rebind<std::uint16_t, D> du;
  hn::Stream(hn::BitCast(du, hn::DemoteTo(dh, value)), du, reinterpret_cast<std::uint16_t*>(to));
#else
  storeFloats(d, value, to);
#endif
}

/// Writes all lanes, by non-temporal stores if that is asked for and `to` is aligned to the vector. Vectors of fewer than 16
/// bytes are stored as usual: a non-temporal store would write 16.
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void storeOrStream(D d, V value, T* to, bool isNonTemporal) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) >= 16)
    if (isNonTemporal && reinterpret_cast<std::uintptr_t>(to) % (hn::Lanes(d) * sizeof(T)) == 0)
      return streamFloats(d, value, to);
  storeFloats(d, value, to);
}

// Runs of elements
// ------------------------------------------------------------------------------------------------

/// Converts `count` adjacent elements to float32.
template <class T>
HWY_INLINE void convertToFloats(const T* HWY_RESTRICT from, float* HWY_RESTRICT to, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(loadFloats(d, from + i), d, to + i);
  if (i < count) storeFloats(d, loadFloats(d, from + i, count - i), to + i, count - i);
}

/// Converts `count` adjacent float32 to elements, each rounded once.
template <class T>
HWY_INLINE void convertFromFloats(const float* HWY_RESTRICT from, T* HWY_RESTRICT to, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) storeFloats(d, hn::LoadU(d, from + i), to + i);
  if (i < count) storeFloats(d, loadFloats(d, from + i, count - i), to + i, count - i);
}

#undef UNMETAL_HAS_FLOAT16_CONVERSION

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
