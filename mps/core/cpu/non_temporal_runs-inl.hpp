// Copies by non-temporal stores, once per instruction set. Include it after hwy/highway.h in a file that hwy/foreach_target.h
// compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_STREAMED_RUNS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_STREAMED_RUNS_INL_HPP
#undef UNMETAL_MPS_CORE_STREAMED_RUNS_INL_HPP
#else
#define UNMETAL_MPS_CORE_STREAMED_RUNS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Writes `count` values by non-temporal stores where whole vectors are aligned.
template <class T>
HWY_INLINE void streamValues(const T* from, std::size_t count, T* to) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t bytes = count * sizeof(T);
  const auto* source = reinterpret_cast<const std::uint8_t*>(from);
  auto* target = reinterpret_cast<std::uint8_t*>(to);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(target) % hn::Lanes(d);
  std::size_t i = std::min(misaligned == 0 ? 0 : hn::Lanes(d) - misaligned, bytes);
  std::memcpy(target, source, i);
  for (; i + hn::Lanes(d) <= bytes; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, source + i), d, target + i);
  std::memcpy(target + i, source + i, bytes - i);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
