// Sums of all rows of gathers' gradients, some columns at a time, once per instruction set. Include it after hwy/highway.h in
// a file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_GATHER_BLOCKS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_GATHER_BLOCKS_INL_HPP
#undef UNMETAL_MPS_GATHER_BLOCKS_INL_HPP
#else
#define UNMETAL_MPS_GATHER_BLOCKS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/core/vector_runs-inl.hpp"
#include "mps/gather/gather_sums.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Adds each row of a whole block of the gradient to the totals of the row that its index names.
template <class T>
HWY_INLINE void addWholeBlock(const GatherSums& sums, const T* from, float* totals) {
  const hn::ScalableTag<float> d;
  constexpr auto step = static_cast<std::int64_t>(hn::MaxLanes(d));
  constexpr std::int64_t line = 64 / std::int64_t{sizeof(T)};
  const std::int64_t stride = sums.gradient.rowStride;
  const std::int64_t count = sums.gradient.height;
  for (std::int64_t i = 0; i < count; ++i) {
    const T* const row = from + i * stride;
    // What is read in other blocks lies between.
    for (std::int64_t c = 0; c < kGatherBlock; c += line) hwy::Prefetch(row + kGatherBlockAhead * stride + c);
    float* const to = totals + sums.rows[i] * kGatherBlock;
    unrolled<kGatherBlock / step>([&](auto v) HWY_ATTR __attribute__((always_inline)) {
      constexpr std::int64_t c = v() * step;
      hn::Store(hn::Add(hn::Load(d, to + c), loadFloats(d, row + c)), d, to + c);
    });
  }
}

/// The same for what is left of the columns.
template <class T>
HWY_INLINE void addPartOfBlock(const GatherSums& sums, const T* from, std::int64_t columns, float* totals) {
  const hn::ScalableTag<float> d;
  for (std::int64_t i = 0; i < sums.gradient.height; ++i) {
    const T* const row = from + i * sums.gradient.rowStride;
    float* const to = totals + sums.rows[i] * kGatherBlock;
    forVectors(d, static_cast<std::size_t>(columns), [&](std::size_t c, auto lanes) HWY_ATTR {
      lanes.store(d, hn::Add(lanes.load(d, to + c), lanes.load(d, ConstFloatRun(row + c))), to + c);
    });
  }
}

/// Blocks of the destination, counted through all images. @param totals (height + 1) x kGatherBlock sums, aligned
template <class T>
HWY_INLINE void sumBlocksOf(const GatherSums& sums, std::int64_t begin, std::int64_t end, float* totals) {
  const TensorShape& to = sums.destination;
  const auto* const gradient = reinterpret_cast<const T*>(sums.gradientMemory);
  auto* const destination = reinterpret_cast<T*>(sums.destinationMemory);
  const std::int64_t blocks = gatherBlocks(to.channels);
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t n = block / blocks;
    const std::int64_t first = block % blocks * kGatherBlock;
    const std::int64_t columns = std::min(kGatherBlock, to.channels - first);
    const T* const from = gradient + sums.gradient.offset(n, 0, 0, first);
    std::fill_n(totals, (to.height + 1) * kGatherBlock, 0.0F);
    if (columns == kGatherBlock)
      addWholeBlock(sums, from, totals);
    else
      addPartOfBlock(sums, from, columns, totals);
    for (std::int64_t k = 0; k < to.height; ++k)
      convertFromFloats(totals + k * kGatherBlock, destination + to.offset(n, k, 0, first),
                        static_cast<std::size_t>(columns));
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
